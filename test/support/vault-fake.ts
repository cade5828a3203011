/**
 * A scripted Vault for faults and lifetimes that a real one does not produce on demand. What both can do is checked by one
 * suite that also runs against OpenBao, whose answers (2.7.2) the bodies here repeat.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { StoreUnderTest } from "./store-under-test.ts";

export type Fault =
  | {
      readonly kind: "status";
      readonly status: number;
      readonly headers?: Record<string, string>;
      readonly body?: unknown;
    }
  | { readonly kind: "text"; readonly status: number; readonly text: string; readonly headers?: Record<string, string> }
  | { readonly kind: "hang" }
  | { readonly kind: "reset" }
  | { readonly kind: "truncated" }
  | { readonly kind: "oversized" };

export interface Seen {
  readonly method: string;
  /** Without `/v1/` and still encoded. */
  readonly path: string;
  readonly token: string | undefined;
  readonly namespace: string | undefined;
  readonly headers: IncomingMessage["headers"];
  readonly body: Record<string, unknown>;
}

interface Version {
  readonly data: Record<string, unknown>;
  deletionTime: string;
  destroyed: boolean;
}

interface Mount {
  readonly version: "1" | "2";
  readonly entries: Map<string, Version[]>;
}

interface Rule {
  readonly path: string;
  readonly capabilities: readonly string[];
}

interface Role {
  readonly id: string;
  readonly secretIds: Set<string>;
  readonly rules: readonly Rule[];
  readonly options: Record<string, unknown>;
}

interface Token {
  readonly namespace: string;
  readonly rules: readonly Rule[] | "root";
  readonly ttlMs: number;
  readonly maxAt: number;
  readonly renewable: boolean;
  readonly numUses: number;
  readonly type: "service" | "batch";
  expiresAt: number;
}

interface Space {
  readonly mounts: Map<string, Mount>;
  readonly roles: Role[];
  readonly logins: Map<string, { accepts: (body: Record<string, unknown>) => boolean; role: LoginRole }>;
}

type LoginRole = Pick<Role, "rules" | "options">;

class Refusal extends Error {
  readonly status: number;
  readonly body: unknown;
  constructor(status: number, body: unknown) {
    super(`refused with ${status}`);
    this.status = status;
    this.body = body;
  }
}

const denied = (): Refusal => new Refusal(403, { errors: ["permission denied"] });

export class VaultFake implements StoreUnderTest {
  readonly rootToken = `root-${crypto.randomUUID()}`;
  readonly seen: Seen[] = [];
  /** Decides for each request whether it fails instead of being answered. */
  fault: (request: Seen) => Fault | undefined = () => undefined;
  /** Answers for secrets engines: the body of a 200, or undefined where there is none. Tokens are checked before. */
  engine: (request: Seen) => unknown = () => undefined;
  readonly #now: () => number;
  readonly #spaces = new Map<string, Space>([["", freshSpace()]]);
  readonly #tokens = new Map<string, Token>();
  readonly #wrappings = new Map<string, { path: string; data: Record<string, unknown> }>();
  #isSealed = false;
  #server: Server | undefined;

  private constructor(now: () => number) {
    this.#now = now;
    this.#tokens.set(this.rootToken, endless("", "root"));
  }

  /** `now` rules the life of tokens, in milliseconds. */
  static async start(now: () => number = () => performance.now()): Promise<VaultFake> {
    const fake = new VaultFake(now);
    await fake.listen(0);
    return fake;
  }

  async listen(port: number): Promise<void> {
    const server = createServer((request, response) => void this.#serve(request, response));
    await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
    this.#server = server;
  }

  get address(): string {
    return `http://127.0.0.1:${(this.#server!.address() as AddressInfo).port}`;
  }

  /** How often `path` was asked for. */
  count(path: string): number {
    return this.seen.filter((request) => request.path === path).length;
  }

  async stop(): Promise<void> {
    const server = this.#server;
    server?.closeAllConnections();
    await new Promise((resolve) => (server === undefined ? resolve(undefined) : server.close(resolve)));
  }

  async putSecret(mount: string, path: string, data: Record<string, unknown>): Promise<void> {
    this.#put("", mount, path, data);
  }

  async deleteSecret(mount: string, path: string): Promise<void> {
    this.#latest("", mount, path).deletionTime = "2026-11-29T13:34:58.056401915Z";
  }

  async destroySecret(mount: string, path: string): Promise<void> {
    this.#latest("", mount, path).destroyed = true;
  }

  async mountKv(mount: string, version: "1" | "2"): Promise<void> {
    this.#space("").mounts.set(mount, { version, entries: new Map() });
  }

  async enableApprole(
    rules: string,
    options: Record<string, unknown> = {},
  ): Promise<{ roleId: string; secretId: string }> {
    return this.#addRole("", rules, options);
  }

  /** Lets in whoever shows `accepts` the right body at auth/`mount`/login. */
  enableLogin(
    mount: string,
    accepts: (body: Record<string, unknown>) => boolean,
    rules: string,
    options: Record<string, unknown> = {},
  ): void {
    this.#space("").logins.set(`auth/${mount}/login`, { accepts, role: { rules: parseRules(rules), options } });
  }

  /** A wrapping token for `data`, as if it were the answer of `path`. */
  wrap(path: string, data: Record<string, unknown>): string {
    const token = `s.${crypto.randomUUID()}`;
    this.#wrappings.set(token, { path, data });
    return token;
  }

  #wrapped(token: unknown): { path: string; data: Record<string, unknown> } {
    const wrapping = this.#wrappings.get(String(token));
    if (wrapping !== undefined) return wrapping;
    throw new Refusal(400, { errors: ["wrapping token is not valid or does not exist"] });
  }

  async createToken(options: { ttlMs: number; rules: string; numUses?: number }): Promise<string> {
    const token = `s.${crypto.randomUUID()}`;
    const { ttlMs, rules, numUses = 0 } = options;
    const expiresAt = this.#now() + ttlMs;
    this.#tokens.set(token, { ...endless("", parseRules(rules)), ttlMs, expiresAt, renewable: true, numUses });
    return token;
  }

  async revokeLogins(): Promise<void> {
    for (const token of this.#tokens.keys()) if (token !== this.rootToken) this.#tokens.delete(token);
  }

  async seal(): Promise<void> {
    this.#isSealed = true;
  }

  async unseal(): Promise<void> {
    this.#isSealed = false;
  }

  async namespace(name: string): ReturnType<StoreUnderTest["namespace"]> {
    this.#spaces.set(name, freshSpace());
    return {
      putSecret: async (mount, path, data) => this.#put(name, mount, path, data),
      enableApprole: async (rules) => this.#addRole(name, rules, {}),
    };
  }

  #space(name: string): Space {
    const space = this.#spaces.get(name);
    if (space === undefined) throw new Refusal(404, { errors: ["namespace not found"] });
    return space;
  }

  #put(namespace: string, mount: string, path: string, data: Record<string, unknown>): void {
    const target = this.#space(namespace).mounts.get(mount);
    if (target === undefined) throw new Error(`no mount ${mount}`);
    const versions = target.entries.get(path) ?? [];
    versions.push({ data, deletionTime: "", destroyed: false });
    target.entries.set(path, versions);
  }

  #latest(namespace: string, mount: string, path: string): Version {
    const latest = this.#space(namespace).mounts.get(mount)?.entries.get(path)?.at(-1);
    if (latest === undefined) throw new Error(`nothing at ${mount} ${path}`);
    return latest;
  }

  #addRole(namespace: string, rules: string, options: Record<string, unknown>): { roleId: string; secretId: string } {
    const role: Role = {
      id: crypto.randomUUID(),
      secretIds: new Set([crypto.randomUUID()]),
      rules: parseRules(rules),
      options,
    };
    this.#space(namespace).roles.push(role);
    return { roleId: role.id, secretId: [...role.secretIds][0] ?? "" };
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const seen = await readRequest(request);
    this.seen.push(seen);
    const fault = this.fault(seen);
    if (fault !== undefined) {
      inject(fault, response);
      return;
    }
    try {
      const body = this.#answer(seen);
      if (body === undefined) response.writeHead(204).end();
      else sendJson(response, 200, body);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      sendJson(response, error.status, error.body);
    }
  }

  #answer(request: Seen): unknown {
    if (this.#isSealed) throw new Refusal(503, { errors: ["Vault is sealed"] });
    const namespace = request.namespace ?? "";
    const space = this.#space(namespace);
    const path = decodeURIComponent(request.path);
    if (path === "sys/wrapping/lookup") return { data: { creation_path: this.#wrapped(request.body["token"]).path } };
    if (path === "sys/wrapping/unwrap") {
      const { data } = this.#wrapped(request.token);
      this.#wrappings.delete(String(request.token));
      return { data };
    }
    if (path === "auth/approle/login") return this.#grant(this.#roleOf(request, space), namespace);
    const login = space.logins.get(path);
    if (login?.accepts(request.body) === true) return this.#grant(login.role, namespace);
    if (login !== undefined) throw new Refusal(400, { errors: ["error validating token: invalid signature"] });
    const [id, token] = this.#authenticate(request, namespace);
    if (path === "auth/token/lookup-self") return { data: this.#describe(id, token) };
    if (path === "auth/token/renew-self") return { data: null, auth: this.#renew(id, token) };
    if (path === "auth/token/revoke-self") {
      this.#tokens.delete(id);
      return undefined;
    }
    if (path === "sys/capabilities-self") return { data: capabilitiesOf(request.body["paths"], token.rules) };
    const issued = this.engine(request);
    return issued === undefined ? this.#reach(request, path, space, token) : issued;
  }

  #authenticate(request: Seen, namespace: string): [string, Token] {
    const id = request.token ?? "";
    const token = this.#tokens.get(id);
    if (token === undefined || this.#now() >= token.expiresAt) throw denied();
    if (token.rules !== "root" && token.namespace !== namespace) throw denied();
    return [id, token];
  }

  #roleOf(request: Seen, space: Space): Role {
    const role = space.roles.find(({ id }) => id === request.body["role_id"]);
    if (role === undefined || !role.secretIds.has(String(request.body["secret_id"]))) {
      throw new Refusal(400, { errors: ["invalid role or secret ID"] });
    }
    return role;
  }

  #grant(role: LoginRole, namespace: string): unknown {
    const ttlMs = seconds(role.options["token_ttl"]) ?? 2_764_800_000;
    const isBatch = role.options["token_type"] === "batch";
    const token: Token = {
      ...endless(namespace, role.rules),
      ttlMs,
      expiresAt: this.#now() + ttlMs,
      maxAt: this.#now() + (seconds(role.options["token_max_ttl"]) ?? 2_764_800_000),
      renewable: !isBatch,
      numUses: Number(role.options["token_num_uses"] ?? 0),
      type: isBatch ? "batch" : "service",
    };
    const id = `${isBatch ? "b" : "s"}.${crypto.randomUUID()}`;
    this.#tokens.set(id, token);
    return { data: null, auth: this.#granted(id, token) };
  }

  #renew(id: string, token: Token): unknown {
    const now = this.#now();
    if (token.maxAt - now < 1_000) {
      throw new Refusal(500, { errors: ["1 error occurred:\n\t* past the max TTL, cannot renew\n\n"] });
    }
    token.expiresAt = Math.min(now + token.ttlMs, token.maxAt);
    return this.#granted(id, token);
  }

  #granted(id: string, token: Token): unknown {
    const lease = Math.floor((token.expiresAt - this.#now()) / 1_000);
    const { renewable, numUses } = token;
    return { client_token: id, lease_duration: lease, renewable, token_type: token.type, num_uses: numUses };
  }

  #describe(id: string, token: Token): unknown {
    const isEndless = token.expiresAt === Number.POSITIVE_INFINITY;
    const ttl = isEndless ? 0 : Math.floor((token.expiresAt - this.#now()) / 1_000);
    const expire_time = isEndless ? null : "2026-11-29T13:35:01.006028645Z";
    return { id, ttl, expire_time, renewable: token.renewable, num_uses: token.numUses, type: token.type };
  }

  #reach(request: Seen, path: string, space: Space, token: Token): unknown {
    const ui = /^sys\/internal\/ui\/mounts\/(.+)$/.exec(path)?.[1];
    if (ui !== undefined) return describeMount(ui, space, token.rules);
    const versions = space.mounts.get(mountOf(path, space) ?? "")?.entries.get(path.replace(/^.*?\/data\//, ""));
    const capability = request.method === "GET" ? "read" : versions === undefined ? "create" : "update";
    if (!isAllowed(path, token.rules, capability))
      throw new Refusal(403, { errors: ["1 error occurred:\n\t* permission denied\n\n"] });
    const name = mountOf(path, space);
    const mount = name === undefined ? undefined : space.mounts.get(name);
    if (name === undefined || mount === undefined) {
      throw new Refusal(404, { errors: [`no handler for route "${path}". route entry not found.`] });
    }
    const rest = path.slice(name.length + 1);
    return request.method === "GET" ? readEntry(mount, rest) : writeEntry(mount, rest, request.body);
  }
}

function freshSpace(): Space {
  return { mounts: new Map([["secret", { version: "2", entries: new Map() }]]), roles: [], logins: new Map() };
}

function endless(namespace: string, rules: Token["rules"]): Token {
  const never = Number.POSITIVE_INFINITY;
  return {
    namespace,
    rules,
    ttlMs: never,
    maxAt: never,
    expiresAt: never,
    renewable: false,
    numUses: 0,
    type: "service",
  };
}

/** What an HCL policy lets be done where. */
function parseRules(rules: string): readonly Rule[] {
  return [...rules.matchAll(/path\s+"([^"]+)"\s*\{([^}]*)\}/g)].map(([, path = "", body = ""]) => ({
    path,
    capabilities: [...body.matchAll(/"(\w+)"/g)].map(([, capability = ""]) => capability),
  }));
}

function capabilitiesAt(path: string, rules: Token["rules"]): readonly string[] {
  if (rules === "root") return ["root"];
  return rules.find((rule) => covers(rule.path, path))?.capabilities ?? ["deny"];
}

function covers(rule: string, path: string): boolean {
  if (rule.endsWith("*")) return path.startsWith(rule.slice(0, -1));
  const segments = path.split("/");
  const wanted = rule.split("/");
  return wanted.length === segments.length && wanted.every((one, i) => one === "+" || one === segments[i]);
}

function isAllowed(path: string, rules: Token["rules"], capability: string): boolean {
  return capabilitiesAt(path, rules).some((one) => one === "root" || one === capability);
}

function capabilitiesOf(paths: unknown, rules: Token["rules"]): Record<string, readonly string[]> {
  return Object.fromEntries((paths as string[]).map((path) => [path, capabilitiesAt(path, rules)]));
}

function mountOf(path: string, space: Space): string | undefined {
  return [...space.mounts.keys()].filter((name) => path.startsWith(`${name}/`)).sort((a, b) => b.length - a.length)[0];
}

/** Told to those who may do something below the mount. */
function describeMount(path: string, space: Space, rules: Token["rules"]): unknown {
  const name = mountOf(`${path}/`, space);
  const mount = name === undefined ? undefined : space.mounts.get(name);
  const isTold = rules === "root" || rules.some((rule) => rule.path.startsWith(`${name}/`));
  if (mount === undefined || !isTold) {
    const errors = [
      `preflight capability check returned 403, please ensure client's policies grant access to path "${path}/"`,
    ];
    throw new Refusal(403, { errors });
  }
  return { data: { path: `${name}/`, type: "kv", options: { version: mount.version } } };
}

function readEntry(mount: Mount, path: string): unknown {
  if (mount.version === "1") {
    const entry = mount.entries.get(path)?.at(-1);
    if (entry === undefined) throw new Refusal(404, { errors: [] });
    return { data: entry.data };
  }
  if (!path.startsWith("data/")) {
    const warning =
      "Invalid path for a versioned K/V secrets engine. See the API docs for the appropriate API endpoints to use. If using the OpenBao CLI, use 'bao kv get' for this operation.";
    throw new Refusal(404, { data: null, warnings: [warning], auth: null });
  }
  const versions = mount.entries.get(path.slice("data/".length));
  const latest = versions?.at(-1);
  if (versions === undefined || latest === undefined) throw new Refusal(404, { errors: [] });
  const { deletionTime, destroyed } = latest;
  const metadata = { deletion_time: deletionTime, destroyed, version: versions.length, custom_metadata: null };
  if (deletionTime !== "" || destroyed) throw new Refusal(404, { data: { data: null, metadata } });
  return { data: { data: latest.data, metadata } };
}

/** As a mount of version 2 that demands a check-and-set. */
function writeEntry(mount: Mount, path: string, body: Record<string, unknown>): unknown {
  if (mount.version === "1" || !path.startsWith("data/")) throw new Refusal(405, { errors: ["unsupported operation"] });
  const key = path.slice("data/".length);
  const versions = mount.entries.get(key) ?? [];
  const { cas } = (body["options"] ?? {}) as { cas?: number };
  if (cas === undefined) throw new Refusal(400, { errors: ["check-and-set parameter required for this call"] });
  if (cas !== versions.length) {
    throw new Refusal(400, { errors: ["check-and-set parameter did not match the current version"] });
  }
  versions.push({ data: body["data"] as Record<string, unknown>, deletionTime: "", destroyed: false });
  mount.entries.set(key, versions);
  const metadata = { created_time: "2026-11-29T13:34:58.056401915Z", deletion_time: "", destroyed: false };
  return { data: { ...metadata, version: versions.length, custom_metadata: null } };
}

async function readRequest(request: IncomingMessage): Promise<Seen> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString();
  const { headers } = request;
  const one = (name: string): string | undefined => headers[name] as string | undefined;
  return {
    method: request.method ?? "",
    path: (request.url ?? "").replace(/^\/v1\//, ""),
    token: one("x-vault-token"),
    namespace: one("x-vault-namespace"),
    headers,
    body: text === "" ? {} : (JSON.parse(text) as Record<string, unknown>),
  };
}

function inject(fault: Fault, response: ServerResponse): void {
  switch (fault.kind) {
    case "status":
      sendJson(response, fault.status, fault.body ?? { errors: ["scripted"] }, fault.headers);
      return;
    case "text":
      response.writeHead(fault.status, fault.headers).end(fault.text);
      return;
    case "hang":
      return;
    case "reset":
      response.socket?.resetAndDestroy();
      return;
    case "truncated":
      response.writeHead(200, { "content-type": "application/json" }).end('{"data":{"data":{"token":"cut-');
      return;
    case "oversized":
      response.writeHead(200, { "content-type": "application/json" }).end(`{"data":"${"x".repeat(3 * 1024 * 1024)}"}`);
      return;
  }
}

function sendJson(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}

function seconds(value: unknown): number | undefined {
  const match = typeof value === "string" ? /^(\d+)s$/.exec(value) : null;
  return match === null ? undefined : Number(match[1]) * 1_000;
}
