import type { RawHeaders, Secret } from "../lib/index.ts";

/** The shapes that the rooms above share with the tunnel. The wire itself is described in docs/protocol.md. */

/** Who calls, as the relay claims it. */
export interface Principal {
  /** `key:<name>` or `oauth:<issuer>#<sub>`. */
  readonly id: string;
  readonly kind: "key" | "oauth";
  readonly claims: Readonly<Record<string, unknown>>;
}

export type ExchangeMethod = "POST" | "GET" | "DELETE";

/** The head of a request on a stream: relay to gateway. */
export interface Open {
  /** A name in the gateway's `servers`; never a URL, path or query. */
  readonly server: string;
  readonly method: ExchangeMethod;
  readonly headers: RawHeaders;
  /** False: the request direction is already closed, no DATA or END follows. */
  readonly hasBody: boolean;
  /** Relative milliseconds until the relay gives up on a first byte. */
  readonly deadlineMs: number;
  readonly requestId: string;
  readonly principal: Principal;
  /** The agent's own bearer. Sent only where the gateway asked for it, see `TunnelSession.carriesAgentTokens`. */
  readonly agentToken?: Secret | undefined;
}

/** The head of a response on a stream: gateway to relay. */
export interface Head {
  readonly status: number;
  readonly headers: RawHeaders;
  /** Who made this response. */
  readonly by: "upstream" | "gateway";
  /** The request's JSON-RPC id as raw JSON text, for an error event should the tunnel die after the head went out. */
  readonly rpcId?: string;
}

/** Why a stream ended without END. */
export interface Reset {
  readonly code: ResetCode;
  /** Safe to show; at most 1 KiB. */
  readonly message: string;
  /** With TUNNEL_LOST: the OPEN never left this side, so nobody processed anything. */
  readonly isUnsent?: true;
}

/** docs/protocol.md, "Reset codes". Below 32 the upstream saw no byte; from 32 on it may have. */
export const resetCodes = {
  REFUSED: 1,
  DRAINING: 2,
  OVERLOADED: 3,
  NO_SERVER: 4,
  NOT_OWNER: 5,
  FORBIDDEN: 6,
  EXPIRED: 7,
  TOO_LARGE: 8,
  UPSTREAM_UNREACHABLE: 9,
  CANCEL: 32,
  DEADLINE: 33,
  UPSTREAM_FAILED: 34,
  UPSTREAM_TIMEOUT: 35,
  IDLE: 36,
  BODY_LIMIT: 37,
  STALLED: 38,
  INTEGRITY: 39,
  INTERNAL: 40,
  TUNNEL_LOST: 41,
} as const;
export type ResetCode = keyof typeof resetCodes;

const resetNames: ReadonlyMap<number, ResetCode> = new Map(
  Object.entries(resetCodes).map(([name, code]) => [code, name as ResetCode]),
);

/** The code that a peer sent as `code`; one that this version does not know counts as the general one of its half. */
export function resetCodeOf(code: number): ResetCode {
  return resetNames.get(code) ?? (code > 0 && code < 32 ? "REFUSED" : "INTERNAL");
}

/** True when the upstream certainly saw no byte of the request, so that another try repeats nothing. */
export function isNotProcessed(reset: Reset): boolean {
  return resetCodes[reset.code] < 32 || reset.isUnsent === true;
}

/**
 * What one end of a stream hears. Called synchronously while one tunnel message is dispatched, in wire order; after
 * `onReset`, or after both directions ended, nothing more is called. A callback that throws resets its own stream
 * with INTERNAL (its own `onReset` hears that too) and touches no other.
 */
export interface StreamSink {
  /** Opener (relay) only; exactly once, before any data. */
  onHead?(head: Head): void;
  /**
   * Body bytes. Return their credit with `stream.consumed(chunk.length)` when the consumer has taken them. The chunk may
   * share memory with the message it came in: copy what is kept for long.
   */
  onData(chunk: Buffer): void;
  /** The peer's direction is complete. `closeDelimited`: the upstream gave no length, so nobody could verify the end. */
  onEnd(closeDelimited: boolean): void;
  /**
   * Both directions are over. Also called, with TUNNEL_LOST, when the tunnel session dies, and with INTERNAL or INTEGRITY when
   * this end finds the stream broken. Not called for this end's own `stream.reset`.
   */
  onReset(reset: Reset): void;
  /** After `write` returned false: everything queued has left, write again. */
  onDrain?(): void;
}

/** One multiplexed HTTP exchange, as seen by either end. All methods are no-ops once the stream is over. */
export interface TunnelStream {
  readonly id: number;
  /** Gateway only, exactly once, before `write` and `end`. A head that HTTP forbids, or above 96 KiB, resets the stream with INTERNAL. */
  sendHead(head: Head): void;
  /** Queues body bytes (any length; cut into frames here). The caller must not change `chunk` afterwards. False: wait for `onDrain`, or the stream is over. */
  write(chunk: Buffer): boolean;
  end(options?: { readonly closeDelimited?: boolean }): void;
  reset(code: ResetCode, message?: string): void;
  /** Gives the peer `bytes` of stream credit back. */
  consumed(bytes: number): void;
}

/** Why a tunnel session ended, or is about to. The first eight travel in GOAWAY. */
export type GoAwayReason =
  | "SHUTDOWN"
  | "MAX_AGE"
  | "REBALANCE"
  | "REPLACED"
  | "AUTH_EXPIRED"
  | "REVOKED"
  | "PROTOCOL_ERROR"
  | "FLOW_CONTROL_ERROR"
  | "INTERNAL";

export interface SessionEnd {
  /** `LOST`: the carrier died, or 45 s passed without an inbound byte. */
  readonly reason: GoAwayReason | "LOST";
  /** One line for the log: what was wrong, with no byte of the peer's input in it. */
  readonly detail: string;
  /** Who ended it. */
  readonly by: "local" | "peer";
  /** As in `Leave`, where the peer ended it by GOAWAY. */
  readonly reconnectInMs?: number;
}

/** What the peer's first GOAWAY said to a session that may finish its streams. */
export interface Leave {
  /** The gateway is to wait a random time up to this before it dials again. Unbounded: the peer's word. */
  readonly reconnectInMs: number;
}

/** One connected life of a tunnel, at either end. */
export interface TunnelSession {
  /** Made by the relay, the same at both ends. */
  readonly connId: string;
  /** What the gateway said of itself in HELLO (relay end), or the relay's node (gateway end). */
  readonly peer: { readonly id: string; readonly instance: string; readonly slot: number; readonly software: string };
  /** Server names of the last ADVERT. */
  readonly servers: readonly string[];
  /** True until either side said GOAWAY or the session ended. */
  readonly isAccepting: boolean;
  /** Why it is to end, from the first GOAWAY to the end. */
  readonly drainReason: GoAwayReason | undefined;
  readonly openStreamCount: number;
  /** Whether both sides agreed on the feature `agentToken`: else an `Open.agentToken` is left out. */
  readonly carriesAgentTokens: boolean;
  /** Settles once, after every stream's `onReset` was called. Never rejects. */
  readonly ended: Promise<SessionEnd>;
  /** Relay only. A `Reset` says why no stream was opened (REFUSED, DRAINING, OVERLOADED, TOO_LARGE); the sink then hears nothing. */
  openStream(open: Open, sink: StreamSink): TunnelStream | Reset;
  /** PING to PONG, milliseconds; rejects after `timeoutMs` or when the session ends. */
  echo(timeoutMs: number): Promise<number>;
  /** Clock time (`Clock.now`) of the last PONG, or undefined. */
  readonly lastEchoAt: number | undefined;
  /** Says GOAWAY; open streams go on for `drainMs`, then the session ends. */
  goAway(reason: GoAwayReason, drainMs: number): void;
  /** Ends it now: streams hear TUNNEL_LOST, the socket is terminated. Safe twice. */
  terminate(reason: GoAwayReason | "LOST", detail: string): void;
}

/** Gateway side: what to do with a stream that the relay opened. Called synchronously; returns the sink for its body. */
export type StreamHandler = (open: Open, stream: TunnelStream) => StreamSink;
