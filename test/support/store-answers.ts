/**
 * The answers of a store that our code reads, one by one, with everything left out that differs from run to run. Recorded
 * from OpenBao they are test/fixtures/openbao; the fake is held against them, and so is OpenBao itself.
 */
import type { StoreUnderTest } from "./store-under-test.ts";
import { until } from "./until.ts";

export interface StoreAnswer {
  readonly status: number;
  /** Whether it says when to come again. */
  readonly retryAfter?: true;
  /** Absent where there is none. */
  readonly body?: unknown;
}

export type StoreAnswers = Readonly<Record<string, StoreAnswer>>;

interface Ask {
  readonly method?: string;
  readonly path: string;
  readonly token?: string;
  readonly namespace?: string;
  readonly body?: object;
}

const readRules = `
  path "secret/data/mcp/*" { capabilities = ["read"] }
  path "old/*" { capabilities = ["read"] }`;
const writeRules = 'path "secret/data/mcp/*" { capabilities = ["create", "read", "update"] }';

export class AnswerCollector {
  readonly #store: StoreUnderTest;
  readonly answers: Record<string, StoreAnswer> = {};

  constructor(store: StoreUnderTest) {
    this.#store = store;
  }

  async logins(): Promise<void> {
    const { roleId, secretId } = await this.#store.enableApprole(readRules, {
      token_ttl: "600s",
      token_max_ttl: "1200s",
    });
    const good = { role_id: roleId, secret_id: secretId };
    const token = await this.#logIn("login", good);
    await this.#ask("login-refused", { path: "auth/approle/login", body: { ...good, secret_id: "another" } });
    await this.#ask("lookup-self", { method: "GET", path: "auth/token/lookup-self", token });
    await this.#ask("renew-self", { path: "auth/token/renew-self", token, body: {} });
    await this.#ask("capabilities-self", {
      path: "sys/capabilities-self",
      token,
      body: { paths: ["secret/data/mcp/a", "secret/data/private"] },
    });
    await this.#ask("revoke-self", { path: "auth/token/revoke-self", token, body: {} });
    await this.#ask("lookup-self-dead", { method: "GET", path: "auth/token/lookup-self", token });
    await this.#ask("renew-self-dead", { path: "auth/token/renew-self", token, body: {} });
    const root = this.#store.rootToken;
    await this.#ask("lookup-self-endless", { method: "GET", path: "auth/token/lookup-self", token: root });
    const batch = await this.#store.enableApprole(readRules, { token_type: "batch", token_ttl: "600s" });
    await this.#logIn("login-batch", { role_id: batch.roleId, secret_id: batch.secretId });
    const few = await this.#store.enableApprole(readRules, { token_num_uses: 5, token_ttl: "600s" });
    await this.#logIn("login-few-uses", { role_id: few.roleId, secret_id: few.secretId });
  }

  /** Renews until the store will not. */
  async maximum(): Promise<void> {
    const { roleId, secretId } = await this.#store.enableApprole(readRules, { token_ttl: "2s", token_max_ttl: "2s" });
    const { body } = await this.#fetch({
      path: "auth/approle/login",
      body: { role_id: roleId, secret_id: secretId },
    });
    const renew = { path: "auth/token/renew-self", token: tokenOf(body), body: {} };
    await until(async () => (await this.#fetch(renew)).status !== 200, "the maximum");
    await this.#ask("renew-self-at-maximum", renew);
  }

  async reads(): Promise<void> {
    const store = this.#store;
    await store.putSecret("secret", "mcp/here", { token: "value" });
    for (const path of ["mcp/deleted", "mcp/destroyed"]) await store.putSecret("secret", path, { token: "value" });
    await store.deleteSecret("secret", "mcp/deleted");
    await store.destroySecret("secret", "mcp/destroyed");
    await store.mountKv("old", "1");
    await store.putSecret("old", "here", { token: "value" });
    const token = await store.createToken({ ttlMs: 600_000, rules: readRules });
    const read = (name: string, path: string, by = token): Promise<StoreAnswer> =>
      this.#ask(name, { method: "GET", path, token: by });
    await read("read", "secret/data/mcp/here");
    await read("read-version-1", "old/here");
    await read("absent", "secret/data/mcp/none");
    await read("absent-version-1", "old/none");
    await read("deleted", "secret/data/mcp/deleted");
    await read("destroyed", "secret/data/mcp/destroyed");
    await read("denied", "secret/data/private");
    await read("dead-token", "secret/data/mcp/here", "s.dead");
    await read("path-without-data", "secret/mcp/here", store.rootToken);
    await read("no-mount", "nowhere/data/x", store.rootToken);
    await read("mount", "sys/internal/ui/mounts/secret/data/mcp/here");
    await read("mount-version-1", "sys/internal/ui/mounts/old/here");
    await read("mount-denied", "sys/internal/ui/mounts/nowhere");
  }

  /** `wrap` gives a wrapping token of a secret id of the role `wrapped`. */
  async wrapping(wrap: () => Promise<string>): Promise<void> {
    const token = await wrap();
    await this.#ask("wrapping-lookup", { path: "sys/wrapping/lookup", body: { token } });
    await this.#ask("unwrap", { path: "sys/wrapping/unwrap", token, body: {} });
    await this.#ask("unwrap-again", { path: "sys/wrapping/unwrap", token, body: {} });
    await this.#ask("wrapping-lookup-spent", { path: "sys/wrapping/lookup", body: { token } });
  }

  /** Check-and-set; `requireCas` makes `secret/mcp/strict` demand it. */
  async writes(requireCas: () => Promise<void>): Promise<void> {
    const token = await this.#store.createToken({ ttlMs: 600_000, rules: writeRules });
    const write = (name: string, path: string, options: object): Promise<StoreAnswer> =>
      this.#ask(name, { path: `secret/data/${path}`, token, body: { data: { token: "value" }, options } });
    await write("write-new", "mcp/written", { cas: 0 });
    await write("write-next", "mcp/written", { cas: 1 });
    await write("cas-mismatch", "mcp/written", { cas: 1 });
    await requireCas();
    await write("cas-required", "mcp/strict", {});
    await write("write-denied", "private/x", { cas: 0 });
  }

  async sealed(): Promise<void> {
    await this.#store.seal();
    await this.#ask("sealed", { method: "GET", path: "secret/data/mcp/here", token: this.#store.rootToken });
    await this.#ask("sealed-login", { path: "auth/approle/login", body: { role_id: "a", secret_id: "b" } });
  }

  /** Asks until the store has had enough. */
  async limited(name: string): Promise<void> {
    const ask = { method: "GET", path: "secret/data/mcp/here", token: this.#store.rootToken };
    await until(async () => (await this.#fetch(ask)).status === 429, "the limit of the rate");
    await this.#ask(name, ask);
  }

  async #logIn(name: string, body: object): Promise<string> {
    const ask = { path: "auth/approle/login", body };
    await this.#ask(name, ask);
    return tokenOf((await this.#fetch(ask)).body);
  }

  async #ask(name: string, ask: Ask): Promise<StoreAnswer> {
    const { status, headers, body } = await this.#fetch(ask);
    const answer: StoreAnswer = {
      status,
      ...(headers.has("retry-after") ? { retryAfter: true as const } : {}),
      ...(body === undefined ? {} : { body: withoutChance(body) }),
    };
    this.answers[name] = answer;
    return answer;
  }

  async #fetch({ method = "POST", path, token, namespace, body }: Ask) {
    const answer = await fetch(`${this.#store.address}/v1/${path}`, {
      method,
      headers: {
        ...(token === undefined ? {} : { "x-vault-token": token }),
        ...(namespace === undefined ? {} : { "x-vault-namespace": namespace }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await answer.text();
    return {
      status: answer.status,
      headers: answer.headers,
      body: text === "" ? undefined : (JSON.parse(text) as unknown),
    };
  }
}

function tokenOf(body: unknown): string {
  return (body as { auth: { client_token: string } }).auth.client_token;
}

/** Members whose values are of the moment; what they hold is told by their kind alone. */
const ofTheMoment = new Set([
  "request_id",
  "client_token",
  "accessor",
  "entity_id",
  "id",
  "ttl",
  "creation_time",
  "created_time",
  "creation_ttl",
  "deletion_time",
  "expire_time",
  "issue_time",
  "last_renewal",
  "last_renewal_time",
  "lease_duration",
  "secret_id",
  "secret_id_accessor",
  "role_name",
]);
/** Names that were made up for this run, wherever they stand. */
const madeUp = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;

function withoutChance(value: unknown, name = ""): unknown {
  if (Array.isArray(value)) return value.map((item) => withoutChance(item));
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, withoutChance(item, key)]));
  }
  if (ofTheMoment.has(name) && value !== null && value !== "" && value !== 0) return `<${typeof value}>`;
  return typeof value === "string" ? value.replaceAll(madeUp, "<id>") : value;
}

/**
 * Where `other` says what `real` does not say, or says it otherwise, by path; members that it leaves out are not counted, as no
 * code of ours may need them.
 */
export function differences(other: StoreAnswer, real: StoreAnswer): string[] {
  return differencesAt("", other, real);
}

function differencesAt(at: string, other: unknown, real: unknown): string[] {
  if (Array.isArray(other) && Array.isArray(real) && other.length === real.length) {
    return other.flatMap((item, i) => differencesAt(`${at}/${i}`, item, real[i]));
  }
  if (isObject(other) && isObject(real)) {
    return Object.entries(other).flatMap(([name, item]) => differencesAt(`${at}/${name}`, item, real[name]));
  }
  return other === real ? [] : [`${at}: ${JSON.stringify(other)} instead of ${JSON.stringify(real)}`];
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
