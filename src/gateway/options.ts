import type { Secret } from "../lib/index.ts";
import type { AgentsOptions } from "./agent-verifier.ts";
import type { OnReflect } from "./answer-scrubber.ts";
import type { AuditOptions } from "./audit.ts";

/** What cli hands this room; durations in milliseconds, sizes in bytes, files read and checked already. */
export interface GatewayOptions {
  readonly relay: {
    readonly url: string;
    readonly tunnel: string;
    /** PEM text. */
    readonly ca?: string | undefined;
    /** Read for each dial. */
    readonly readToken: () => Secret | Promise<Secret>;
  };
  /** `gateway.id`: distinguishes replicas that share a token. */
  readonly id: string;
  /** Name and version of this program, told to the relay. */
  readonly software: string;
  readonly servers: Readonly<Record<string, ServerOptions>>;
  /** Whom to believe to be who they are; absent: the relay says it. */
  readonly agents?: AgentsOptions | undefined;
  readonly audit: AuditOptions;
  readonly limits?: {
    /** Largest request body; default 4 MiB. */
    readonly requestBytes?: number | undefined;
    /** All request bodies together; default 64 MiB. */
    readonly bodyBudgetBytes?: number | undefined;
    /** All that is held of answers until it is judged, of one server at most half of it; default 128 MiB. */
    readonly answerBudgetBytes?: number | undefined;
    /** Streams of one tunnel session; default 2,048. */
    readonly streams?: number | undefined;
  };
  readonly timeouts?: TimeoutOptions | undefined;
}

export interface ServerOptions {
  readonly url: string;
  /** A PEM file whose certificates are trusted beside the system's roots; read for each new connection. */
  readonly ca?: string | undefined;
  /** Instead of those for all servers. */
  readonly timeouts?: TimeoutOptions | undefined;
  /** What becomes of an answer that holds the credential; default `redact`. */
  readonly onReflect?: OnReflect | undefined;
}

export interface TimeoutOptions {
  readonly firstByteMs?: number | undefined;
  readonly idleMs?: number | undefined;
}

export const defaultLimits = {
  requestBytes: 4 * 1024 * 1024,
  bodyBudgetBytes: 64 * 1024 * 1024,
  answerBudgetBytes: 128 * 1024 * 1024,
} as const;
