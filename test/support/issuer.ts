import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { type CryptoKey, exportJWK, exportSPKI, generateKeyPair, type JWK, SignJWT } from "jose";

interface SigningKey {
  readonly kid: string;
  readonly alg: string;
  readonly privateKey: CryptoKey;
  readonly publicKey: CryptoKey;
  readonly jwk: JWK;
}

export interface TokenParts {
  readonly claims?: Readonly<Record<string, unknown>>;
  /** Claims to leave out. */
  readonly without?: readonly string[];
  readonly header?: Readonly<Record<string, unknown>>;
  /** Which key signs; default the newest. */
  readonly kid?: string;
}

/** An authorization server on loopback: it makes tokens, and serves its metadata and keys as told. */
export class TestIssuer {
  readonly keys: SigningKey[] = [];
  /** Key ids that the key set leaves out. */
  readonly withdrawn = new Set<string>();
  /** Paths that were asked for, in order. */
  readonly asked: string[] = [];
  /** What answers instead; undefined: the truth. */
  override: ((req: IncomingMessage, res: ServerResponse) => void) | undefined;
  /** Members of the metadata that differ from the truth. */
  metadata: Readonly<Record<string, unknown>> = {};
  /** Wall time of the tokens, milliseconds. */
  now: () => number = Date.now;
  readonly #server: Server;
  #base = "";
  readonly #path: string;

  readonly #scheme: "http" | "https";

  /** `tls`: it speaks https, with this pair. */
  constructor(path = "", tls?: { readonly cert: string; readonly key: string }) {
    this.#path = path;
    this.#scheme = tls === undefined ? "http" : "https";
    const answer: RequestListener = (req, res) => this.#answer(req, res);
    this.#server = tls === undefined ? createServer(answer) : createTlsServer(tls, answer);
  }

  async start(port = 0): Promise<this> {
    if (this.keys.length === 0) await this.addKey();
    await new Promise<void>((resolve) => this.#server.listen(port, "127.0.0.1", resolve));
    this.#base = `${this.#scheme}://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
    return this;
  }

  get url(): string {
    return this.#base + this.#path;
  }

  get jwksUrl(): string {
    return `${this.#base}/keys`;
  }

  get jwks(): { keys: JWK[] } {
    return { keys: this.keys.filter(({ kid }) => !this.withdrawn.has(kid)).map(({ jwk }) => jwk) };
  }

  count(path: string): number {
    return this.asked.filter((one) => one === path).length;
  }

  async addKey(alg = "ES256", kid = `key-${this.keys.length + 1}`): Promise<SigningKey> {
    const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
    const jwk = { ...(await exportJWK(publicKey)), kid, alg, use: "sig" };
    const key = { kid, alg, privateKey, publicKey, jwk };
    this.keys.push(key);
    return key;
  }

  key(kid?: string): SigningKey {
    const key = kid === undefined ? this.keys.at(-1) : this.keys.find((one) => one.kid === kid);
    if (key === undefined) throw new Error("no such key");
    return key;
  }

  /** Claims of a good token that lives for five minutes. */
  claims(more: Readonly<Record<string, unknown>> = {}): Record<string, unknown> {
    const now = Math.floor(this.now() / 1000);
    return {
      iss: this.url,
      sub: "alice",
      aud: "https://relay.example.com/acme/tickets/mcp",
      iat: now,
      exp: now + 300,
      ...more,
    };
  }

  async token(parts: TokenParts = {}): Promise<string> {
    const claims = this.claims(parts.claims);
    for (const name of parts.without ?? []) delete claims[name];
    const { alg, kid, privateKey } = this.key(parts.kid);
    const given = Object.entries({ alg, kid, typ: "at+jwt", ...parts.header }).filter(
      ([, value]) => value !== undefined,
    );
    const header = { ...Object.fromEntries(given), alg };
    return new SignJWT(claims).setProtectedHeader(header).sign(privateKey);
  }

  /** The public key as a PEM: what an `alg` confusion signs with. */
  async pem(): Promise<Uint8Array> {
    return new TextEncoder().encode(await exportSPKI(this.key().publicKey));
  }

  #answer(req: IncomingMessage, res: ServerResponse): void {
    this.asked.push(req.url ?? "");
    if (this.override !== undefined) {
      this.override(req, res);
      return;
    }
    if (req.method === "POST" && req.url === "/token") {
      void this.#grant(req, res);
      return;
    }
    const metadata = {
      issuer: this.url,
      jwks_uri: this.jwksUrl,
      token_endpoint: `${this.#base}/token`,
      authorization_endpoint: `${this.#base}/authorize`,
      response_types_supported: ["code"],
      grant_types_supported: ["client_credentials"],
      token_endpoint_auth_methods_supported: ["client_secret_basic", "client_secret_post"],
      ...this.metadata,
    };
    const documents: Readonly<Record<string, unknown>> = {
      [`/.well-known/oauth-authorization-server${this.#path}`]: metadata,
      "/keys": this.jwks,
    };
    const document = documents[req.url ?? ""];
    res.writeHead(document === undefined ? 404 : 200, { "content-type": "application/json" });
    res.end(JSON.stringify(document ?? {}));
  }

  /** Client credentials with a `resource` (RFC 8707), for anybody who asks. */
  async #grant(req: IncomingMessage, res: ServerResponse): Promise<void> {
    let text = "";
    for await (const chunk of req) text += String(chunk);
    const form = new URLSearchParams(text);
    const claims = { aud: form.get("resource"), scope: form.get("scope") ?? "", sub: "by-client-credentials" };
    const answer = { access_token: await this.token({ claims }), token_type: "Bearer", expires_in: 300 };
    res.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }
}
