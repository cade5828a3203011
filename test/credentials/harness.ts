import type { Caller, Injection, VaultOptions } from "../../src/credentials/index.ts";
import {
  type CredentialError,
  type CredentialOptions,
  type Credentials,
  createCredentials,
} from "../../src/credentials/index.ts";
import { type Clock, systemClock } from "../../src/lib/index.ts";
import { createLogger } from "../../src/telemetry/index.ts";

/** Who calls where it makes no difference. */
export const agent: Caller = { id: "key:claude" };

export interface Harness {
  readonly credentials: Credentials;
  /** Every log line so far. */
  readonly lines: string[];
  readonly env: Record<string, string | undefined>;
  /** The headers that a call to `server` would get. */
  inject(server?: string, caller?: Caller): Promise<readonly string[]>;
  /** The error instead of which a call to `server` would be made. */
  failure(server?: string, caller?: Caller): Promise<CredentialError>;
}

export interface HarnessOptions {
  readonly vault?: VaultOptions;
  readonly servers: Record<string, CredentialOptions | undefined>;
  readonly env?: Record<string, string | undefined>;
  readonly areCallersVerified?: boolean;
  readonly clock?: Clock;
  readonly random?: () => number;
}

export function open(options: HarnessOptions): Harness {
  const lines: string[] = [];
  const logger = createLogger({ level: "debug", destination: { write: (line) => void lines.push(line) } });
  const { vault, servers, env = {}, areCallersVerified, clock = systemClock, random = () => 0.5 } = options;
  const credentials = createCredentials({ vault, servers, areCallersVerified, clock, random, logger, env });
  const only = Object.keys(servers)[0] ?? "";
  return {
    credentials,
    lines,
    env,
    inject: async (server = only, caller = agent) => (await credentials.forServer(server).inject(caller)).headers,
    failure: async (server = only, caller = agent) => {
      try {
        await credentials.forServer(server).inject(caller);
      } catch (error) {
        return error as CredentialError;
      }
      throw new Error(`server ${server} got a credential`);
    },
  };
}

/** What a test has opened: to be closed before the store or endpoint that it talks to is stopped. */
export class Opened {
  readonly #harnesses: Harness[] = [];

  open(options: HarnessOptions): Harness {
    const harness = open(options);
    this.#harnesses.push(harness);
    return harness;
  }

  /** Logs in at `store` by a role of its own, which may do what `rules` say. */
  async byRole(store: RoleStore, options: RoleOptions): Promise<Harness> {
    const { rules = readMcp, role, vault, env, ...more } = options;
    const { roleId, secretId } = await store.enableApprole(rules, role);
    return this.open({ vault: byRole(store.address, roleId, vault), env: { SECRET_ID: secretId, ...env }, ...more });
  }

  async close(): Promise<void> {
    for (const { credentials } of this.#harnesses.splice(0)) await credentials.close();
  }
}

interface RoleStore {
  readonly address: string;
  enableApprole(rules: string, role?: Record<string, unknown>): Promise<{ roleId: string; secretId: string }>;
}

interface RoleOptions extends Omit<HarnessOptions, "vault"> {
  readonly rules?: string;
  readonly role?: Record<string, unknown>;
  readonly vault?: Partial<VaultOptions>;
}

/** The least policy for entries below `mcp/`. */
export const readMcp = 'path "secret/data/mcp/*" { capabilities = ["read"] }';

export const sentBy = (injection: Injection): string | undefined => injection.headers[1];

/** The log lines that tell of a credential which could not be had. */
export function failuresIn({ lines }: Harness): Record<string, unknown>[] {
  return lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === "credential failed");
}

export function bearerAt(path: string, field = "token", mount = "secret"): CredentialOptions {
  return { type: "bearer", token: { vault: { mount, path, field } } };
}

type Refreshing = Extract<CredentialOptions, { type: "oauthRefreshToken" }>;

/** A public client whose refresh token is shared at `path`. */
export function refreshing(tokenEndpoint: string, path: string, more: Partial<Refreshing> = {}): Refreshing {
  const record = { vault: { mount: "secret", path } };
  return { type: "oauthRefreshToken", at: { tokenEndpoint }, clientId: "postern", record, ...more };
}

/** Logs in by role; the secret id stands in the variable SECRET_ID. */
export function byRole(address: string, roleId: string, more: Partial<VaultOptions> = {}): VaultOptions {
  return { address, auth: { method: "approle", roleId, secretId: { env: "SECRET_ID" } }, ...more };
}

/** Uses the token in the variable STORE_TOKEN. */
export function byToken(address: string, more: Partial<VaultOptions> = {}): VaultOptions {
  return { address, auth: { method: "token", token: { env: "STORE_TOKEN" } }, ...more };
}
