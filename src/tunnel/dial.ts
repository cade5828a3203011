import type { Secret } from "../lib/index.ts";
import type { GatewayIdentity } from "./hello.ts";
import type { KeepaliveOptions, TunnelContext, TunnelLimits } from "./options.ts";
import type { StreamHandler, TunnelSession } from "./types.ts";

/** Overall deadlines of the three steps of a dial: connect with TLS, upgrade, HELLO to WELCOME. */
export interface DialTimeouts {
  readonly connectMs: number;
  readonly upgradeMs: number;
  readonly welcomeMs: number;
}

export interface DialOptions extends TunnelContext {
  /** `wss://host[:port]`, or `ws://` to a loopback address; a path is kept as a prefix of the tunnel's own. */
  readonly url: string;
  readonly tunnel: string;
  readonly token: Secret;
  /** PEM text of further roots, beside the bundled ones. */
  readonly ca?: string;
  readonly gateway: GatewayIdentity;
  /** Names for the first ADVERT. */
  readonly servers: readonly string[];
  readonly onStream: StreamHandler;
  readonly limits?: Partial<TunnelLimits>;
  readonly keepalive?: Partial<KeepaliveOptions>;
  readonly timeouts?: Partial<DialTimeouts>;
  /** Ends the dial; a session that exists already is not touched. */
  readonly signal?: AbortSignal;
}

export type DialFailure =
  | "URL" // not wss, and not a loopback address; or no URL at all
  | "DNS"
  | "CONNECT" // refused, reset, unreachable
  | "TLS"
  | "TIMEOUT"
  | "UPGRADE" // what answered is not a relay
  | "PROTOCOL" // the relay broke the protocol before WELCOME
  | "CLOSED" // the carrier closed before WELCOME
  | "ABORTED"; // by `signal`

export type DialOutcome =
  | { readonly kind: "session"; readonly session: GatewaySession }
  | {
      readonly kind: "refused";
      /** HTTP status of the upgrade; undefined when the relay refused the HELLO by GOAWAY. */
      readonly status: number | undefined;
      /** Title of the problem, or the GOAWAY reason: printable, at most 200 characters. */
      readonly reason: string;
      readonly retryAfterMs: number | undefined;
    }
  | { readonly kind: "failed"; readonly code: DialFailure; readonly detail: string };

/** The gateway's end of a session. */
export interface GatewaySession extends TunnelSession {
  /** Replaces the advertised server names. */
  advertise(servers: readonly string[]): void;
}

/** One attempt: connects, upgrades, says HELLO, waits for WELCOME. Never rejects; what failed is closed already. */
export function dialTunnel(_options: DialOptions): Promise<DialOutcome> {
  throw new Error("not yet");
}
