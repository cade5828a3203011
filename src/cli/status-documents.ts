/** What `/status` answers and `postern status` reads: names, states, counts and ages. No field can hold a secret or a call's content. */
import {
  type CredentialStates,
  type LastError,
  labelCallers,
  labelOf,
  type StateLabel,
  type StoreState,
} from "../credentials/index.ts";
import type { GatewayStatus } from "../gateway/index.ts";
import { type RelayStatus, requestGroups } from "../relay/index.ts";

export interface ServerReport {
  readonly name: string;
  readonly openCalls: number;
  /** By outcome; those that have not happened are left out. */
  readonly calls: Readonly<Record<string, number>>;
  readonly scrubbed: number;
  readonly credential:
    | {
        readonly type: string;
        readonly state: StateLabel;
        readonly ageMs?: number | undefined;
        readonly expiresInMs?: number | undefined;
        readonly loads: number;
        readonly failures: number;
        readonly retries: number;
        readonly lastError?: LastError | undefined;
        readonly callers?: Readonly<Record<StateLabel, number>> | undefined;
        readonly rotation?: Readonly<Record<string, number>> | undefined;
      }
    | undefined;
}

export interface GatewayReport {
  readonly part: "gateway";
  readonly software: string;
  readonly upMs: number;
  readonly isReady: boolean;
  readonly id: string;
  readonly tunnel: GatewayStatus["tunnel"] & { readonly name: string; readonly url: string };
  readonly audit: GatewayStatus["audit"];
  readonly openExchanges: number;
  readonly mcpSessions: number;
  readonly vault: StoreState | undefined;
  readonly servers: readonly ServerReport[];
}

export interface RelayReport extends Omit<RelayStatus, "counts"> {
  readonly part: "relay";
  readonly software: string;
  readonly upMs: number;
  readonly publicUrl: string;
  readonly requests: Readonly<Record<string, number>>;
  readonly authFailures: number;
  readonly refusedUpgrades: Readonly<Record<string, number>>;
}

interface Process {
  readonly software: string;
  readonly upMs: number;
}

export function reportOfGateway(
  relay: { readonly url: string; readonly tunnel: string },
  status: GatewayStatus,
  states: CredentialStates,
  process: Process,
): GatewayReport {
  const { isReady, id, tunnel, audit, openExchanges, mcpSessions } = status;
  const credentials = new Map(states.servers.map((state) => [state.server, state]));
  const servers = status.servers.map(({ name, openCalls, scrubbedCount: scrubbed, calls }): ServerReport => {
    const found = credentials.get(name);
    const counts = Object.fromEntries(Object.entries(calls.outcomes).filter(([, count]) => count > 0));
    if (found?.type === undefined) return { name, openCalls, calls: counts, scrubbed, credential: undefined };
    const { type, condition, ageMs, expiresInMs, loads, failures, lastError, rotation } = found;
    const callers = found.callers === undefined ? undefined : labelCallers(found.callers);
    const own = { ageMs, expiresInMs, loads, failures, lastError, rotation, callers };
    const credential = { type, state: labelOf(condition), ...own, retries: calls.retries };
    return { name, openCalls, calls: counts, scrubbed, credential };
  });
  return {
    part: "gateway",
    ...process,
    isReady,
    id,
    tunnel: { name: relay.tunnel, url: relay.url, ...tunnel },
    audit,
    openExchanges,
    mcpSessions,
    vault: states.store,
    servers,
  };
}

export function reportOfRelay(publicUrl: string, status: RelayStatus, process: Process): RelayReport {
  const { counts, ...rest } = status;
  const requests = counts.requests.flatMap((count, i) => (count > 0 ? [[requestGroups[i] ?? "", count] as const] : []));
  return {
    part: "relay",
    ...process,
    publicUrl,
    ...rest,
    requests: Object.fromEntries(requests),
    authFailures: counts.authFailures,
    refusedUpgrades: counts.refusedUpgrades,
  };
}
