import { type AccessCheckDeps, type Entry, findDenied, findNeeds } from "./access-check.ts";
import type { CredentialError } from "./errors.ts";
import { explainFailure, VaultFailure } from "./vault-failure.ts";

/** Looks at a store step by step, for a diagnosis. Every method rejects with `CredentialError` only. */
export interface StoreProbe {
  readonly address: string;
  /**
   * Why a login would do harm; undefined: it does none. What a login uses up (a wrapped secret id, one use of a limited one) is
   * gone for the gateway.
   */
  readonly harm: string | undefined;
  /** What the store says of itself. Needs no token. */
  health(): Promise<"active" | "standby" | "unknown">;
  /** Resolves to what is left of our token's life; undefined: it does not end. */
  logIn(): Promise<number | undefined>;
  /** The entries of the configuration, and for those that our token may not read what a policy needs. */
  access(): Promise<{
    readonly count: number;
    readonly missing: readonly { readonly path: string; readonly stanza: string }[];
  }>;
}

const standbyStatuses: ReadonlySet<number | undefined> = new Set([429, 473]);

export function createProbe(
  deps: AccessCheckDeps & { readonly entries: () => readonly Entry[]; readonly harm: string | undefined },
): StoreProbe {
  const { transport, tokens, entries, harm } = deps;
  const explain = (error: unknown): CredentialError => explainFailure(error, transport.address);
  return {
    address: transport.address,
    harm,
    async health() {
      try {
        await transport.read("sys/health", undefined);
        return "active";
      } catch (error) {
        if (!(error instanceof VaultFailure) || error.kind !== "status") throw explain(error);
        if (standbyStatuses.has(error.status)) return "standby";
        // Inside a namespace, and behind an agent, nobody may tell.
        if ((error.status ?? 0) >= 400 && (error.status ?? 0) < 429) return "unknown";
        throw explain(error);
      }
    },
    async logIn() {
      await tokens.current();
      return tokens.life().tokenExpiresInMs;
    },
    async access() {
      try {
        const needs = await findNeeds(entries(), deps);
        if (needs.length === 0) return { count: 0, missing: [] };
        const denied = await findDenied(needs, deps);
        const missing = denied.map(({ policyPath: path, stanza }) => ({ path, stanza }));
        const problem = needs.flatMap(({ problem: found }) => found ?? [])[0];
        if (missing.length === 0 && problem !== undefined) throw problem;
        return { count: needs.length, missing };
      } catch (error) {
        throw explain(error);
      }
    },
  };
}
