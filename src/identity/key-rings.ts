import { Agent, buildConnector } from "undici";
import { type Clock, connectTrusting, guardConnect, guardedLookup, type Reach, type ResolveAll } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { FileKeys } from "./file-keys.ts";
import type { KeyRing } from "./key-set.ts";
import { RemoteKeys, type RemoteKeysTimes } from "./remote-keys.ts";

/** Where the keys of an issuer are, if not where its metadata says. */
export type JwksSource = { readonly url: string } | { readonly file: string };

export interface KeyRingsDeps {
  readonly clock: Clock;
  /** Numbers in [0, 1), like `Math.random`. */
  readonly random: () => number;
  readonly logger: Logger;
}

/** The keys of every issuer, each fetched once for all the verifiers that believe in it. */
export class KeyRings {
  readonly #deps: KeyRingsDeps;
  readonly #times: Partial<RemoteKeysTimes>;
  readonly #rings = new Map<string, KeyRing>();
  readonly #resolve: ResolveAll | undefined;
  /** By the file of certificates that they trust besides, if there is one. */
  readonly #agents = new Map<string | undefined, Agents>();

  /** `resolve`: another look-up of names than the system's, for tests. */
  constructor(deps: KeyRingsDeps, times: Partial<RemoteKeysTimes> = {}, resolve?: ResolveAll) {
    this.#deps = deps;
    this.#times = times;
    this.#resolve = resolve;
  }

  /** `ca`: a PEM file whose certificates are trusted there besides. */
  ring(issuer: string, jwks: JwksSource | undefined, ca?: string): KeyRing {
    const key = JSON.stringify([issuer, jwks, ca]);
    const known = this.#rings.get(key);
    if (known !== undefined) return known;
    const ring = this.#create(issuer, jwks, ca);
    this.#rings.set(key, ring);
    return ring;
  }

  #create(issuer: string, jwks: JwksSource | undefined, ca: string | undefined): KeyRing {
    if (jwks !== undefined && "file" in jwks) return new FileKeys(jwks.file, this.#deps);
    return new RemoteKeys({
      ...this.#deps,
      ...this.#times,
      issuer,
      jwksUrl: jwks?.url,
      agents: this.#agentsFor(ca),
    });
  }

  #agentsFor(ca: string | undefined): Agents {
    const known = this.#agents.get(ca);
    if (known !== undefined) return known;
    const open = (reach: Reach): Agent => openAgent(reach, this.#resolve, ca);
    const agents = { pinned: open("pinned"), local: open("local"), public: open("public") };
    this.#agents.set(ca, agents);
    return agents;
  }

  /** Forgets the rings that no verifier uses any more. */
  keepOnly(used: ReadonlySet<KeyRing>): void {
    for (const [key, ring] of this.#rings) if (!used.has(ring)) this.#rings.delete(key);
  }

  /** Ends running fetches. */
  async close(): Promise<void> {
    const agents = [...this.#agents.values()].flatMap((one) => Object.values(one));
    await Promise.all(agents.map((agent) => agent.destroy()));
  }
}

/** One for each reach: a connection that is kept alive must not serve whoever may not make it. */
type Agents = Readonly<Record<Reach, Agent>>;

function openAgent(reach: Reach, resolve: ResolveAll | undefined, ca: string | undefined): Agent {
  // Said outright, because NODE_TLS_REJECT_UNAUTHORIZED changes only the default.
  const strict = { rejectUnauthorized: true, lookup: guardedLookup(reach, resolve) };
  const build = (trust: buildConnector.BuildOptions): buildConnector.connector =>
    buildConnector({ ...strict, ...trust });
  return new Agent({
    connect: guardConnect(
      reach,
      ca === undefined ? build({}) : connectTrusting(ca, (secureContext) => build({ secureContext })),
    ),
    connections: 2,
    maxHeaderSize: 16 * 1024,
    keepAliveTimeout: 1_000,
  });
}
