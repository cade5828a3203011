import { createHash, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Secret } from "../../lib/index.ts";

/** A key-value store with the HTTP face of KV version 2, just large enough for the demo. */
export interface SecretStore {
  /** `http://127.0.0.1:…`, for `vault.address`. */
  readonly address: string;
  close(): Promise<void>;
}

/** Entries by `mount/path`, such as `secret/mcp/tickets`. */
export type StoredSecrets = Readonly<Record<string, Readonly<Record<string, Secret>>>>;

interface Answer {
  readonly status: number;
  readonly body: object;
}

const denied: Answer = { status: 403, body: { errors: ["permission denied"] } };
const absent: Answer = { status: 404, body: { errors: [] } };

/** Serves `secrets` on a free loopback port to whoever shows `token`. */
export async function startSecretStore(options: {
  readonly token: Secret;
  readonly secrets: StoredSecrets;
}): Promise<SecretStore> {
  const server = createServer({ maxHeaderSize: 16 * 1024, requestTimeout: 10_000 }, (request, response) => {
    request.resume();
    send(response, isAdmitted(request, options.token) ? answer(request, options.secrets) : denied);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", resolve);
  });
  const { port } = server.address() as AddressInfo;
  return {
    address: `http://127.0.0.1:${port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function isAdmitted(request: IncomingMessage, token: Secret): boolean {
  const shown = request.headers["x-vault-token"];
  return typeof shown === "string" && timingSafeEqual(digest(shown), digest(token.reveal()));
}

/** Whoever is admitted may read everything that is here. */
function capabilities(secrets: StoredSecrets): Record<string, readonly string[]> {
  return Object.fromEntries(Object.keys(secrets).map((name) => [name.replace("/", "/data/"), ["read"]]));
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/** `sys/capabilities-self`, `GET /v1/auth/token/lookup-self` and `GET /v1/{mount}/data/{path}`. */
function answer(request: IncomingMessage, secrets: StoredSecrets): Answer {
  const path = (request.url ?? "").split("?", 1)[0] ?? "";
  if (path === "/v1/sys/capabilities-self") return { status: 200, body: { data: capabilities(secrets) } };
  if (request.method !== "GET") return { status: 405, body: { errors: ["unsupported operation"] } };
  if (path === "/v1/auth/token/lookup-self") {
    return {
      status: 200,
      body: { data: { ttl: 0, expire_time: null, renewable: false, num_uses: 0, type: "service" } },
    };
  }
  const match = /^\/v1\/([^/]+)\/data\/(.+)$/.exec(path);
  const name = `${match?.[1] ?? ""}/${match?.[2] ?? ""}`;
  const entry = Object.hasOwn(secrets, name) ? secrets[name] : undefined;
  return entry === undefined
    ? absent
    : { status: 200, body: { data: { data: fieldsOf(entry), metadata: metadata() } } };
}

function fieldsOf(entry: Readonly<Record<string, Secret>>): Record<string, string> {
  return Object.fromEntries(Object.entries(entry).map(([field, value]) => [field, value.reveal()]));
}

function metadata(): object {
  return {
    version: 1,
    created_time: new Date().toISOString(),
    deletion_time: "",
    destroyed: false,
    custom_metadata: null,
  };
}

function send(response: ServerResponse, { status, body }: Answer): void {
  const text = JSON.stringify(body);
  response.writeHead(status, {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(text),
    "cache-control": "no-store",
  });
  response.end(text);
}
