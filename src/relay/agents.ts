/**
 * Who may call through one tunnel: by a key, or by an access token of an issuer.
 *
 * 1. An agent that was found stays the same object across reloads for as long as what it came with holds, so that what runs for
 *    it goes on.
 * 2. What it came with may cease to hold while it runs: `isOver` says so, and its exchanges look.
 */
import {
  createTokenVerifier,
  type KeyRing,
  type KeyRings,
  KeyTable,
  keyPrincipal,
  type TokenVerdict,
  type TokenVerifier,
  type VerifiedToken,
} from "../identity/index.ts";
import type { Principal } from "../tunnel/index.ts";
import type { AgentOptions, KeyAgentOptions, OAuthAgentOptions, RelayDeps } from "./options.ts";

/** `servers:` of an entry, for everybody who came by it. A reload changes it in place. */
class Grant {
  #servers: ReadonlySet<string>;
  isRevoked = false;

  constructor(servers: readonly string[]) {
    this.#servers = new Set(servers);
  }

  set servers(servers: readonly string[]) {
    this.#servers = new Set(servers);
  }

  /** `servers: ["*"]`. */
  get isAll(): boolean {
    return this.#servers.has("*");
  }

  admits(server: string): boolean {
    return this.#servers.has("*") || this.#servers.has(server);
  }
}

/** Open exchanges by principal id. */
type StreamCounts = Map<string, number>;

/** Somebody who was found to be who they say. */
export class Agent {
  readonly principal: Principal;
  readonly #grant: Grant;
  readonly #counts: StreamCounts;
  /** Wall time. */
  readonly #validUntil: number;

  constructor(principal: Principal, grant: Grant, counts: StreamCounts, validUntil = Number.POSITIVE_INFINITY) {
    this.principal = principal;
    this.#grant = grant;
    this.#counts = counts;
    this.#validUntil = validUntil;
  }

  get usesAll(): boolean {
    return this.#grant.isAll;
  }

  mayUse(server: string): boolean {
    return this.#grant.admits(server);
  }

  /** Whether its token has expired, or what it came with was taken away. */
  isOver(wallMs: number): boolean {
    return this.#grant.isRevoked || wallMs > this.#validUntil;
  }

  /** Why a request of this agent may not go to `server` any more; undefined: it may. */
  refusalOf(server: string, wallMs: number): "unauthorized" | "forbidden" | undefined {
    if (this.isOver(wallMs)) return "unauthorized";
    return this.mayUse(server) ? undefined : "forbidden";
  }

  /** Of this principal, by whatever key or token. */
  get openStreams(): number {
    return this.#counts.get(this.principal.id) ?? 0;
  }

  set openStreams(count: number) {
    if (count > 0) this.#counts.set(this.principal.id, count);
    else this.#counts.delete(this.principal.id);
  }
}

/** What came of a token. */
export type TokenAnswer =
  | { readonly kind: "agent"; readonly agent: Agent }
  | { readonly kind: "insufficientScope"; readonly scopes: readonly string[] }
  | { readonly kind: "refused"; readonly reason: string }
  | { readonly kind: "unavailable" };

interface KeyEntry {
  readonly name: string;
  readonly grant: Grant;
  readonly agent: Agent;
}

interface TokenEntry {
  readonly verifier: TokenVerifier;
  readonly grant: Grant;
  /** One agent for one token, for as long as the verifier remembers it. */
  readonly agents: WeakMap<VerifiedToken, Agent>;
}

export class Agents {
  readonly #deps: RelayDeps;
  readonly #keyRings: KeyRings;
  readonly #counts: StreamCounts = new Map();
  #byHash: ReadonlyMap<string, KeyEntry> = new Map();
  #keys = new KeyTable<Agent>("agent", []);
  #byIssuer: ReadonlyMap<string, TokenEntry> = new Map();

  constructor(deps: RelayDeps, keyRings: KeyRings) {
    this.#deps = deps;
    this.#keyRings = keyRings;
  }

  /** By key. `bearer` as it was sent. */
  find(bearer: string | undefined): Agent | undefined {
    return this.#keys.find(bearer);
  }

  get takesTokens(): boolean {
    return this.#byIssuer.size > 0;
  }

  /** Issuers of the tokens that are taken, each once. */
  get issuers(): readonly string[] {
    return [...new Set([...this.#byIssuer.values()].map(({ verifier }) => verifier.issuer))];
  }

  /** What any entry requires, for the resource's metadata. */
  get scopes(): readonly string[] {
    return [...new Set([...this.#byIssuer.values()].flatMap(({ verifier }) => verifier.requiredScopes))];
  }

  get keyRings(): readonly KeyRing[] {
    return [...this.#byIssuer.values()].map(({ verifier }) => verifier.keyRing);
  }

  /** Entries of the file, and the principals that have exchanges now. */
  get summary(): { readonly keys: number; readonly issuers: number; readonly active: number } {
    const names = new Set([...this.#byHash.values()].map(({ name }) => name));
    return { keys: names.size, issuers: this.#byIssuer.size, active: this.#counts.size };
  }

  warm(): void {
    for (const { verifier } of this.#byIssuer.values()) verifier.warm();
  }

  /** By access token. `audience` is the agent's URL, `server` what it asks for. Without a promise when the token is known. */
  findByToken(
    bearer: string,
    audience: string | undefined,
    server: string | undefined,
  ): TokenAnswer | Promise<TokenAnswer> {
    const entries = [...this.#byIssuer.values()];
    const verdicts = entries.map(({ verifier }) => verifier.verify(bearer, audience));
    const settled: TokenVerdict[] = [];
    for (const verdict of verdicts) if (!(verdict instanceof Promise)) settled.push(verdict);
    if (settled.length === verdicts.length) return this.#weigh(entries, settled, server);
    return Promise.all(verdicts).then((all) => this.#weigh(entries, all, server));
  }

  /** Several entries may believe in one issuer: the one that grants the most speaks. */
  #weigh(entries: readonly TokenEntry[], verdicts: readonly TokenVerdict[], server: string | undefined): TokenAnswer {
    let answer: TokenAnswer = { kind: "refused", reason: "issuer" };
    let best = 0;
    verdicts.forEach((verdict, i) => {
      const entry = entries[i];
      if (entry === undefined) return;
      const admits = server !== undefined && entry.grant.admits(server);
      const rank = rankOf(verdict, admits);
      if (rank <= best) return;
      best = rank;
      answer = this.#answerOf(verdict, entry, admits);
    });
    return answer;
  }

  #answerOf(verdict: TokenVerdict, entry: TokenEntry, admits: boolean): TokenAnswer {
    if (verdict.kind === "refused" || verdict.kind === "unavailable") return verdict;
    if (verdict.kind === "insufficientScope" && admits) {
      return { kind: "insufficientScope", scopes: entry.verifier.requiredScopes };
    }
    const { token } = verdict;
    const known = entry.agents.get(token);
    if (known !== undefined) return { kind: "agent", agent: known };
    const agent = new Agent(token.principal, entry.grant, this.#counts, token.validUntil);
    entry.agents.set(token, agent);
    return { kind: "agent", agent };
  }

  /** Works out what `options` change, and throws if that cannot be; the function that is returned changes it. */
  plan(options: readonly AgentOptions[]): () => void {
    const byHash = this.#planKeys(options.filter((entry) => "keySha256" in entry));
    const keys = new KeyTable(
      "agent",
      [...byHash].map(([hash, { agent }]) => ({ sha256: [hash], value: agent })),
    );
    const oauth = mergeAlike(options.filter((entry) => "oauth" in entry));
    const byIssuer = new Map(oauth.map((entry) => this.#planToken(entry)));
    return () => {
      revokeMissing(this.#byHash, byHash);
      revokeMissing(this.#byIssuer, byIssuer);
      for (const { keySha256, servers } of options.filter((entry) => "keySha256" in entry)) {
        for (const hash of keySha256) setServers(byHash.get(hash), servers);
      }
      for (const entry of oauth) setServers(byIssuer.get(identityOf(entry)), entry.servers);
      this.#byHash = byHash;
      this.#keys = keys;
      this.#byIssuer = byIssuer;
    };
  }

  #planKeys(entries: readonly KeyAgentOptions[]): ReadonlyMap<string, KeyEntry> {
    const byHash = new Map<string, KeyEntry>();
    for (const { name, keySha256, servers } of entries) {
      for (const hash of keySha256) {
        if (byHash.has(hash)) throw new Error("a key hash stands twice in one tunnel");
        const known = this.#byHash.get(hash);
        byHash.set(hash, known?.name === name ? known : this.#createKeyEntry(name, servers));
      }
    }
    return byHash;
  }

  #createKeyEntry(name: string, servers: readonly string[]): KeyEntry {
    const grant = new Grant(servers);
    return { name, grant, agent: new Agent(keyPrincipal(name), grant, this.#counts) };
  }

  #planToken(entry: OAuthAgentOptions): [string, TokenEntry] {
    const identity = identityOf(entry);
    const known = this.#byIssuer.get(identity);
    if (known !== undefined) return [identity, known];
    const verifier = createTokenVerifier(entry.oauth, { ...this.#deps, keyRings: this.#keyRings });
    return [identity, { verifier, grant: new Grant(entry.servers), agents: new WeakMap() }];
  }
}

/** What an entry believes in. */
function identityOf({ oauth }: OAuthAgentOptions): string {
  const { issuer, audience, algorithms, requiredScopes, clientIds, jwks, ca, requireTyp } = oauth;
  return JSON.stringify([issuer, audience, algorithms, requiredScopes, clientIds, jwks, ca, requireTyp]);
}

/** Entries that differ in `servers` only grant what they grant together. */
function mergeAlike(entries: readonly OAuthAgentOptions[]): readonly OAuthAgentOptions[] {
  const merged = new Map<string, OAuthAgentOptions>();
  for (const entry of entries) {
    const identity = identityOf(entry);
    const servers = [...(merged.get(identity)?.servers ?? []), ...entry.servers];
    merged.set(identity, { oauth: entry.oauth, servers });
  }
  return [...merged.values()];
}

function revokeMissing<T extends { readonly grant: Grant }>(
  before: ReadonlyMap<string, T>,
  after: ReadonlyMap<string, T>,
): void {
  for (const [key, entry] of before) if (after.get(key) !== entry) entry.grant.isRevoked = true;
}

function setServers(entry: { readonly grant: Grant } | undefined, servers: readonly string[]): void {
  if (entry !== undefined) entry.grant.servers = servers;
}

function rankOf(verdict: TokenVerdict, admits: boolean): number {
  switch (verdict.kind) {
    case "valid":
      return admits ? 6 : 4;
    case "insufficientScope":
      return admits ? 5 : 3;
    case "unavailable":
      return 2;
    case "refused":
      return verdict.reason === "issuer" ? 0 : 1;
  }
}
