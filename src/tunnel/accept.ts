import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import type { Hello } from "./hello.ts";
import type { KeepaliveOptions, TunnelContext, TunnelLimits } from "./options.ts";
import type { GoAwayReason, TunnelSession } from "./types.ts";

/** What the relay answers to a HELLO. Refusals travel as GOAWAY. */
export type HelloVerdict =
  | { readonly kind: "accept" }
  | { readonly kind: "refuse"; readonly reason: GoAwayReason; readonly detail: string };

export interface AcceptOptions extends TunnelContext {
  /** The raw upgrade, already authorised. The socket must have had an 'error' listener before any await. */
  readonly req: IncomingMessage;
  readonly socket: Duplex;
  readonly head: Buffer;
  /** This relay node, as the gateway sees it in `session.peer.id`. */
  readonly node: { readonly id: string; readonly instance: string; readonly software: string };
  readonly limits?: Partial<TunnelLimits>;
  readonly keepalive?: Partial<KeepaliveOptions>;
  /** HELLO must have come this long after the upgrade; default 5 s. */
  readonly helloTimeoutMs?: number;
  /** Synchronous: called once, with a well-formed HELLO of a version that both speak. */
  readonly onHello: (hello: Hello) => HelloVerdict;
}

export type AcceptOutcome =
  | { readonly kind: "session"; readonly session: TunnelSession; readonly hello: Hello }
  | { readonly kind: "refused"; readonly reason: string; readonly detail: string };

/** Finishes the WebSocket handshake, waits for HELLO, says WELCOME. Never rejects; whatever was refused is closed already. */
export function acceptTunnel(_options: AcceptOptions): Promise<AcceptOutcome> {
  throw new Error("not yet");
}
