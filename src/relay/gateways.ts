/** Which gateways may open a session of one tunnel: by a token whose hash is known, or by a JWT of an issuer. */
import {
  createTokenVerifier,
  type KeyRing,
  type KeyRings,
  KeyTable,
  type TokenVerifier,
  type VerifiedToken,
} from "../identity/index.ts";
import type { GatewayOptions, JwtGatewayOptions, RelayDeps } from "./options.ts";
import { TokenBucket } from "./token-bucket.ts";

/** An entry under `gateways`: the name is the entry's, never what a hello says. */
export interface GatewayCredential {
  readonly name: string;
  readonly upgrades: TokenBucket;
  /** Set by a reload that has it no more. */
  isRevoked: boolean;
}

export type GatewayAnswer =
  | { readonly kind: "gateway"; readonly gateway: GatewayCredential; readonly token: VerifiedToken }
  | { readonly kind: "refused" }
  | { readonly kind: "unavailable" };

interface JwtEntry {
  readonly verifier: TokenVerifier;
  readonly gateway: GatewayCredential;
}

export class Gateways {
  readonly #deps: RelayDeps;
  readonly #keyRings: KeyRings;
  #upgradesPerMinute: number;
  #byHash: ReadonlyMap<string, GatewayCredential> = new Map();
  #tokens = new KeyTable<GatewayCredential>("tunnel", []);
  #byIssuer: ReadonlyMap<string, JwtEntry> = new Map();

  constructor(deps: RelayDeps, keyRings: KeyRings, upgradesPerMinute: number) {
    this.#deps = deps;
    this.#keyRings = keyRings;
    this.#upgradesPerMinute = upgradesPerMinute;
  }

  /** By tunnel token. `bearer` as it was sent. */
  find(bearer: string | undefined): GatewayCredential | undefined {
    return this.#tokens.find(bearer);
  }

  get takesJwts(): boolean {
    return this.#byIssuer.size > 0;
  }

  get keyRings(): readonly KeyRing[] {
    return [...this.#byIssuer.values()].map(({ verifier }) => verifier.keyRing);
  }

  warm(): void {
    for (const { verifier } of this.#byIssuer.values()) verifier.warm();
  }

  async findByJwt(bearer: string): Promise<GatewayAnswer> {
    let answer: GatewayAnswer = { kind: "refused" };
    for (const { verifier, gateway } of this.#byIssuer.values()) {
      const verdict = await verifier.verify(bearer);
      if (verdict.kind === "valid") return { kind: "gateway", gateway, token: verdict.token };
      if (verdict.kind === "unavailable") answer = verdict;
    }
    return answer;
  }

  changeUpgrades(perMinute: number): void {
    this.#upgradesPerMinute = perMinute;
    for (const { upgrades } of this.#credentials()) upgrades.changeRate(perMinute);
  }

  /** As `Agents.plan`. */
  plan(options: readonly GatewayOptions[]): () => void {
    const byHash = new Map<string, GatewayCredential>();
    const buckets = new Map<string, TokenBucket>();
    for (const { name, upgrades } of this.#credentials()) buckets.set(name, upgrades);
    for (const { name, tokenSha256 } of options.filter((entry) => "tokenSha256" in entry)) {
      for (const hash of tokenSha256) {
        if (byHash.has(hash)) throw new Error("a token hash stands twice in one tunnel");
        const known = this.#byHash.get(hash);
        byHash.set(hash, known?.name === name ? known : this.#create(name, buckets));
      }
    }
    const tokens = new KeyTable(
      "tunnel",
      [...byHash].map(([hash, value]) => ({ sha256: [hash], value })),
    );
    const jwt = options.filter((entry) => "jwt" in entry);
    const byIssuer = new Map(jwt.map((entry) => this.#planJwt(entry, buckets)));
    return () => {
      const kept = new Set([...byHash.values(), ...[...byIssuer.values()].map(({ gateway }) => gateway)]);
      for (const gateway of this.#credentials()) gateway.isRevoked = !kept.has(gateway);
      this.#byHash = byHash;
      this.#tokens = tokens;
      this.#byIssuer = byIssuer;
    };
  }

  *#credentials(): Iterable<GatewayCredential> {
    yield* this.#byHash.values();
    for (const { gateway } of this.#byIssuer.values()) yield gateway;
  }

  #create(name: string, buckets: Map<string, TokenBucket>): GatewayCredential {
    const upgrades = buckets.get(name) ?? new TokenBucket(this.#upgradesPerMinute, this.#deps.clock);
    buckets.set(name, upgrades);
    return { name, upgrades, isRevoked: false };
  }

  #planJwt(entry: JwtGatewayOptions, buckets: Map<string, TokenBucket>): [string, JwtEntry] {
    const { issuer, audience, subject, algorithms, jwks, ca } = entry.jwt;
    const identity = JSON.stringify([entry.name, issuer, audience, subject, algorithms, jwks, ca]);
    const known = this.#byIssuer.get(identity);
    if (known !== undefined) return [identity, known];
    const verifier = createTokenVerifier(entry.jwt, { ...this.#deps, keyRings: this.#keyRings });
    return [identity, { verifier, gateway: this.#create(entry.name, buckets) }];
  }
}
