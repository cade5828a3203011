import { Agent, buildConnector } from "undici";
import { type Clock, guardConnect, guardedLookup, type Reach, type ResolveAll } from "../lib/index.ts";
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
  /** One for each reach: a connection that is kept alive must not serve whoever may not make it. */
  readonly #agents: Readonly<Record<Reach, Agent>>;

  /** `resolve`: another look-up of names than the system's, for tests. */
  constructor(deps: KeyRingsDeps, times: Partial<RemoteKeysTimes> = {}, resolve?: ResolveAll) {
    this.#deps = deps;
    this.#times = times;
    this.#agents = {
      pinned: openAgent("pinned", resolve),
      local: openAgent("local", resolve),
      public: openAgent("public", resolve),
    };
  }

  ring(issuer: string, jwks: JwksSource | undefined): KeyRing {
    const key = JSON.stringify([issuer, jwks]);
    const known = this.#rings.get(key);
    if (known !== undefined) return known;
    const ring = this.#create(issuer, jwks);
    this.#rings.set(key, ring);
    return ring;
  }

  #create(issuer: string, jwks: JwksSource | undefined): KeyRing {
    if (jwks !== undefined && "file" in jwks) return new FileKeys(jwks.file, this.#deps);
    return new RemoteKeys({
      ...this.#deps,
      ...this.#times,
      issuer,
      jwksUrl: jwks?.url,
      agents: this.#agents,
    });
  }

  /** Forgets the rings that no verifier uses any more. */
  keepOnly(used: ReadonlySet<KeyRing>): void {
    for (const [key, ring] of this.#rings) if (!used.has(ring)) this.#rings.delete(key);
  }

  /** Ends running fetches. */
  async close(): Promise<void> {
    await Promise.all(Object.values(this.#agents).map((agent) => agent.destroy()));
  }
}

function openAgent(reach: Reach, resolve: ResolveAll | undefined): Agent {
  return new Agent({
    connect: guardConnect(reach, buildConnector({ lookup: guardedLookup(reach, resolve) })),
    connections: 2,
    maxHeaderSize: 16 * 1024,
    keepAliveTimeout: 1_000,
  });
}
