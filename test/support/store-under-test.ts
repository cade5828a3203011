/** What the shared credential suite needs of a store, whether it is OpenBao or the scripted fake. */
export interface StoreUnderTest extends StoreSpace {
  readonly address: string;
  readonly rootToken: string;
  /** Deletes, or destroys, the latest version. */
  deleteSecret(mount: string, path: string): Promise<void>;
  destroySecret(mount: string, path: string): Promise<void>;
  mountKv(mount: string, version: "1" | "2"): Promise<void>;
  /** A token that may read what `rules` (HCL) say. */
  createToken(options: { ttlMs: number; rules: string; numUses?: number }): Promise<string>;
  /** Every token that came from a login stops working. */
  revokeLogins(): Promise<void>;
  namespace(name: string): Promise<StoreSpace>;
  seal(): Promise<void>;
  stop(): Promise<void>;
}

export interface StoreSpace {
  /** Writes a new version (KV version 2), or the entry itself (version 1). */
  putSecret(mount: string, path: string, data: Record<string, unknown>): Promise<void>;
  /** A new role under auth/approle that may read what `rules` (HCL) say; `role` are the options of the role. */
  enableApprole(rules: string, role?: Record<string, unknown>): Promise<{ roleId: string; secretId: string }>;
}
