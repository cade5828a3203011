import type { Clock } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import type { Carrier } from "./carrier.ts";
import type { Advert } from "./frame.ts";
import type { StreamHandler, TunnelSession } from "./types.ts";

/** Where a gateway knocks: path, WebSocket subprotocol and the header that names the tunnel (docs/protocol.md, "Carrier"). */
export const tunnelPath = "/_postern/v1/tunnel";
export const tunnelSubprotocol = "postern.v1";

/** docs/protocol.md section 3, "Features": the gateway is given the agent's bearer with each OPEN. */
export const agentTokenFeature = "agentToken";
export const tunnelNameHeader = "postern-tunnel";

/** What one end is willing to receive; announced in HELLO or WELCOME, enforced on what comes in. */
export interface TunnelLimits {
  /** DATA bytes that may be under way on one stream. */
  readonly streamWindowBytes: number;
  /** DATA bytes that may be under way on the whole tunnel session. */
  readonly tunnelWindowBytes: number;
  /** Streams open at the same time. */
  readonly maxStreams: number;
}

export const defaultLimits: TunnelLimits = {
  streamWindowBytes: 256 * 1024,
  tunnelWindowBytes: 1024 * 1024,
  maxStreams: 2048,
};

export interface KeepaliveOptions {
  /** A PING goes out when nothing was received for this long, ± 20 %. */
  readonly intervalMs: number;
  /** Without any inbound byte, or with a stuck send, for this long the session is LOST. */
  readonly deadAfterMs: number;
}

export const defaultKeepalive: KeepaliveOptions = { intervalMs: 15_000, deadAfterMs: 45_000 };

/** What every part with a timer, a jitter or a log line is given. */
export interface TunnelContext {
  readonly clock: Clock;
  /** Numbers in [0, 1), like `Math.random`. */
  readonly random: () => number;
  readonly logger: Logger;
}

/** A tunnel session after its hello. */
export interface SessionStart extends TunnelContext {
  readonly role: "relay" | "gateway";
  readonly carrier: Carrier;
  readonly connId: string;
  readonly peer: TunnelSession["peer"];
  readonly advert: Advert;
  /** What this end receives, and what the other one does. */
  readonly limits: TunnelLimits;
  readonly peerLimits: TunnelLimits;
  readonly keepalive: KeepaliveOptions;
  readonly carriesAgentTokens: boolean;
  /** Gateway only. */
  readonly onStream?: StreamHandler;
}
