import type { Caller } from "../credentials/index.ts";
import type { Clock, RawHeaders, Secret } from "../lib/index.ts";
import type { Policy } from "../policy/index.ts";
import type { Logger } from "../telemetry/index.ts";
import type { TlsIdentity, Upstream } from "../upstream/index.ts";
import type { AgentVerifier } from "./agent-verifier.ts";
import type { AuditLog } from "./audit.ts";
import type { BodyWatch } from "./body-watch.ts";
import type { ByteBudget } from "./byte-budget.ts";
import type { CallTally } from "./call-tally.ts";
import type { LeakGuard } from "./leak-guard.ts";
import type { McpSessions } from "./mcp-sessions.ts";
import type { SessionIds } from "./session-id.ts";

/** The part of a server's credential that the pipeline uses (credentials room). */
export interface Injector {
  /** What it injects depends on the caller; absent: it does not. */
  readonly isPerCaller?: boolean;
  /** Headers for one call, at once or later. Throws or rejects when there are none; then the call must not be made. */
  inject(caller: Caller): Injected | Promise<Injected>;
  /** What to try after the server refused `failed`; with the same headers and certificate another try is of no use. Throws as `inject`. */
  refresh(failed: Injected, caller: Caller): Injected | Promise<Injected>;
}

export interface Injected {
  readonly headers: RawHeaders;
  /** What was read for them, so that no log line quotes any of it. */
  readonly secrets: readonly Secret[];
  /** A client certificate; handed on as it is. */
  readonly tls?: TlsIdentity | undefined;
}

/** One configured MCP server as the pipeline uses it. */
export interface GatewayServer {
  readonly name: string;
  readonly upstream: Upstream;
  readonly credential: Injector;
  readonly leaks: LeakGuard;
  readonly calls: CallTally;
}

/** What all exchanges share; `sessions` and `answerBudget` those of one server only. */
export interface PipelineContext {
  readonly servers: ReadonlyMap<string, GatewayServer>;
  /** Exchanges for a server that is not to be used, or not there. */
  readonly unknownServer: CallTally;
  readonly policy: Policy;
  /** Undefined: the relay is believed about who calls (`agents.verify: relay`). */
  readonly agents: AgentVerifier | undefined;
  readonly audit: AuditLog;
  readonly sessionIds: SessionIds;
  readonly sessions: McpSessions;
  readonly bodies: BodyWatch;
  readonly budget: ByteBudget;
  /** For what is held of answers until it is judged. */
  readonly answerBudget: ByteBudget;
  /** Largest body of one request. */
  readonly requestBytes: number;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Ids of exchanges: unique for the life of the process, and told apart between boots. */
  nextExchangeId(): string;
  /** Exchanges not over yet; for status and for an orderly stop. */
  readonly open: Set<{ leave(): void }>;
}
