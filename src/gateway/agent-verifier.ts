import {
  createTokenVerifier,
  type JwksSource,
  type KeyPrincipal,
  KeyRings,
  KeyTable,
  keyPrincipal,
  type TokenVerdict,
  type TokenVerifier,
} from "../identity/index.ts";
import type { Clock, Secret } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import type { Principal } from "../tunnel/index.ts";

/** Whom the gateway itself knows, where it does not believe the relay (`agents.verify: edge`). */
export interface AgentsOptions {
  /** Agent keys by their hashes; several hashes while a key is rotated. */
  readonly keys: readonly { readonly name: string; readonly sha256: readonly string[] }[];
  readonly issuers: readonly {
    readonly issuer: string;
    /** One of these must be in a token's `aud`. */
    readonly audience: string | readonly string[];
    readonly algorithms?: readonly string[] | undefined;
    readonly requiredScopes?: readonly string[] | undefined;
    readonly clientIds?: readonly string[] | undefined;
    readonly jwks?: JwksSource | undefined;
    /** A PEM file whose certificates are trusted where the keys are fetched; read for each new connection. */
    readonly ca?: string | undefined;
    readonly requireTyp?: boolean | undefined;
  }[];
}

/** In milliseconds since the Unix epoch. */
export interface TokenEnds {
  /** Nothing may go on after it: `exp` and the leeway for clocks that differ. */
  readonly validUntil: number;
  /** `exp` itself. */
  readonly expiresAt: number;
}

export type AgentVerdict =
  /** `ends` is undefined for a key, which does not end by itself. */
  | { readonly kind: "agent"; readonly principal: Principal; readonly ends: TokenEnds | undefined }
  /** The reason is for log and audit, and holds nothing of the token. */
  | { readonly kind: "refused"; readonly reason: string }
  /** An issuer's keys are not to be had at the moment. */
  | { readonly kind: "unavailable" };

/** Says who an agent is by the bearer that the agent itself showed, whatever the relay claims. */
export interface AgentVerifier {
  /** Never throws or rejects. */
  verify(token: Secret | undefined): AgentVerdict | Promise<AgentVerdict>;
  /** Fetches the issuers' keys, so that the first token need not wait. */
  warm(): void;
  close(): Promise<void>;
}

interface Deps {
  readonly clock: Clock;
  /** Numbers in [0, 1). */
  readonly random: () => number;
  readonly logger: Logger;
}

/** Throws when a hash is malformed or stands twice, or an algorithm is not to be trusted. */
export function createAgentVerifier(options: AgentsOptions, deps: Deps): AgentVerifier {
  return new KeysAndTokens(options, deps);
}

class KeysAndTokens implements AgentVerifier {
  readonly #keys: KeyTable<KeyPrincipal>;
  readonly #rings: KeyRings;
  readonly #issuers: readonly TokenVerifier[];

  constructor(options: AgentsOptions, deps: Deps) {
    this.#keys = new KeyTable(
      "agent",
      options.keys.map(({ name, sha256 }) => ({ sha256, value: keyPrincipal(name) })),
    );
    this.#rings = new KeyRings(deps);
    this.#issuers = options.issuers.map((issuer) => createTokenVerifier(issuer, { ...deps, keyRings: this.#rings }));
  }

  verify(token: Secret | undefined): AgentVerdict | Promise<AgentVerdict> {
    if (token === undefined) return { kind: "refused", reason: "no agent token" };
    const text = token.reveal();
    const principal = this.#keys.find(text);
    if (principal !== undefined) return { kind: "agent", principal, ends: undefined };
    return this.#ask(text, 0, "unknown");
  }

  /** Asks one issuer's verifier after the other: one issuer may stand there several times, with other audiences. */
  #ask(text: string, from: number, reason: string): AgentVerdict | Promise<AgentVerdict> {
    let last = reason;
    for (let i = from; i < this.#issuers.length; i += 1) {
      const verdict = this.#issuers[i]?.verify(text);
      if (verdict === undefined) continue;
      if (verdict instanceof Promise) {
        return verdict.then((found) => read(found) ?? this.#ask(text, i + 1, reasonOf(found, last)));
      }
      const answer = read(verdict);
      if (answer !== undefined) return answer;
      last = reasonOf(verdict, last);
    }
    return { kind: "refused", reason: `agent token: ${last}` };
  }

  warm(): void {
    for (const issuer of this.#issuers) issuer.warm();
  }

  async close(): Promise<void> {
    await this.#rings.close();
  }
}

/** Undefined: not by this one; another may still take it. */
function read(verdict: TokenVerdict): AgentVerdict | undefined {
  switch (verdict.kind) {
    case "valid":
      return { kind: "agent", principal: verdict.token.principal, ends: verdict.token };
    case "unavailable":
      return { kind: "unavailable" };
    case "insufficientScope":
    case "refused":
      return undefined;
  }
}

/** What says most: that a token is of another issuer is true of every issuer but its own. */
function reasonOf(verdict: TokenVerdict, before: string): string {
  if (verdict.kind === "insufficientScope") return "scope";
  return verdict.kind === "refused" && verdict.reason !== "issuer" ? verdict.reason : before;
}
