import type { Clock } from "../lib/index.ts";
import type { Policy } from "../policy/index.ts";
import type { Logger } from "../telemetry/index.ts";
import type { Upstream } from "../upstream/index.ts";
import type { AuditLog } from "./audit.ts";
import type { ByteBudget } from "./byte-budget.ts";
import type { McpSessions } from "./mcp-sessions.ts";
import type { SessionIds } from "./session-id.ts";

/** The part of a server's credential that the pipeline uses (credentials room). */
export interface Injector {
  /** Headers for one call, at once or later. Throws or rejects when there are none; then the call must not be made. */
  inject(): { readonly headers: readonly string[] } | Promise<{ readonly headers: readonly string[] }>;
}

/** One configured MCP server as the pipeline uses it. */
export interface GatewayServer {
  readonly name: string;
  readonly upstream: Upstream;
  readonly credential: Injector;
}

/** What all exchanges share. */
export interface PipelineContext {
  readonly servers: ReadonlyMap<string, GatewayServer>;
  readonly policy: Policy;
  readonly audit: AuditLog;
  readonly sessionIds: SessionIds;
  readonly sessions: McpSessions;
  readonly budget: ByteBudget;
  /** Largest body of one request. */
  readonly requestBytes: number;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Ids of exchanges: unique for the life of the process, and told apart between boots. */
  nextExchangeId(): string;
  /** Exchanges not over yet; for status and for an orderly stop. */
  readonly open: Set<unknown>;
}
