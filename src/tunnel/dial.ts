import type { Secret } from "../lib/index.ts";
import type { Carrier } from "./carrier.ts";
import { type ConnectOutcome, connectCarrier, parseTunnelUrl } from "./connect.ts";
import { encodeHello } from "./encode.ts";
import type { Welcome } from "./frame.ts";
import { awaitWelcome, type GatewayIdentity, type Greeting, turnAway, versions } from "./hello.ts";
import {
  agentTokenFeature,
  defaultKeepalive,
  defaultLimits,
  type KeepaliveOptions,
  type TunnelContext,
  type TunnelLimits,
} from "./options.ts";
import { Session } from "./session.ts";
import type { Leave, StreamHandler, TunnelSession } from "./types.ts";

/** The gateway's end of a dial: connect, upgrade, HELLO, WELCOME. One attempt; trying again is the supervisor's. */

/** Overall deadlines of the three steps of a dial: connect with TLS, upgrade, HELLO to WELCOME. */
export interface DialTimeouts {
  readonly connectMs: number;
  readonly upgradeMs: number;
  readonly welcomeMs: number;
}

export interface GreetOptions extends TunnelContext {
  readonly gateway: GatewayIdentity;
  /** Names for the first ADVERT. */
  readonly servers: readonly string[];
  readonly onStream: StreamHandler;
  /** Asks for `Open.agentToken`; a relay that does not give it is not served. */
  readonly needsAgentTokens?: boolean;
  readonly limits?: Partial<TunnelLimits>;
  readonly keepalive?: Partial<KeepaliveOptions>;
  readonly timeouts?: Partial<DialTimeouts>;
}

export interface DialOptions extends GreetOptions {
  /** `wss://host[:port]`, or `ws://` to a loopback address; a path is kept as a prefix of the tunnel's own. */
  readonly url: string;
  readonly tunnel: string;
  readonly token: Secret;
  /** PEM text of further roots, beside the bundled ones. */
  readonly ca?: string;
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
  | "FEATURE" // the relay lacks what this gateway cannot do without
  | "ABORTED"; // by `signal`

export type DialOutcome =
  | { readonly kind: "session"; readonly session: GatewaySession }
  | {
      readonly kind: "refused";
      /** HTTP status of the upgrade; undefined when the relay refused the HELLO by GOAWAY. */
      readonly status: number | undefined;
      /** Title of the problem, or the GOAWAY reason: printable ASCII, at most 200 characters. */
      readonly reason: string;
      readonly retryAfterMs: number | undefined;
    }
  | { readonly kind: "failed"; readonly code: DialFailure; readonly detail: string };

/** The gateway's end of a session. */
export interface GatewaySession extends TunnelSession {
  /** Settles when the relay says GOAWAY and lets open streams go on; stays open where the session just ends. Never rejects. */
  readonly leaving: Promise<Leave>;
  /** Replaces the advertised server names. */
  advertise(servers: readonly string[]): void;
}

export const defaultTimeouts: DialTimeouts = { connectMs: 10_000, upgradeMs: 10_000, welcomeMs: 5_000 };

/** One attempt: connects, upgrades, says HELLO, waits for WELCOME. Never rejects; what failed is closed already. */
export function dialTunnel(options: DialOptions): Promise<DialOutcome> {
  const url = parseTunnelUrl(options.url);
  if (typeof url === "string") return Promise.resolve({ kind: "failed", code: "URL", detail: url });
  return new Promise((resolve) => {
    const connect = { ...options, url, timeouts: { ...defaultTimeouts, ...options.timeouts } };
    const attempt = connectCarrier(connect, (outcome) => {
      if (outcome.kind !== "open") settle(outcome);
      else greetRelay(outcome.carrier, options, settle);
    });
    const abort = (): void => {
      attempt.abort();
      settle({ kind: "failed", code: "ABORTED", detail: "the dial was ended" });
    };
    function settle(outcome: DialOutcome): void {
      options.signal?.removeEventListener("abort", abort);
      resolve(outcome);
    }
    if (options.signal?.aborted === true) abort();
    else options.signal?.addEventListener("abort", abort);
  });
}

/** HELLO to WELCOME on an open carrier. `done` is called once, when the session listens already. */
export function greetRelay(carrier: Carrier, options: GreetOptions, done: (outcome: DialOutcome) => void): void {
  const limits = { ...defaultLimits, ...options.limits };
  const { welcomeMs } = { ...defaultTimeouts, ...options.timeouts };
  awaitWelcome(carrier, { clock: options.clock, timeoutMs: welcomeMs }, (greeting) => {
    done(conclude(carrier, options, limits, greeting));
  });
  const advert = { rev: 1, draining: false, servers: options.servers };
  const { gateway, servers } = options;
  const features = options.needsAgentTokens === true ? [agentTokenFeature] : [];
  carrier.send(encodeHello({ versions, features, gateway, limits, servers, advert }));
}

function conclude(carrier: Carrier, options: GreetOptions, limits: TunnelLimits, greeting: Greeting): DialOutcome {
  switch (greeting.kind) {
    case "welcome":
      return begin(carrier, options, limits, greeting);
    case "goAway":
      carrier.close(1000);
      return {
        kind: "refused",
        status: undefined,
        reason: greeting.goAway.fault ?? greeting.goAway.reason,
        retryAfterMs: greeting.goAway.reconnectInMs || undefined,
      };
    case "fault":
      turnAway(carrier, greeting.fault.reason, greeting.fault.fault);
      return { kind: "failed", code: "PROTOCOL", detail: greeting.fault.fault };
    case "closed":
      return { kind: "failed", code: "CLOSED", detail: greeting.detail };
    case "timeout":
    case "hello":
      carrier.terminate();
      return { kind: "failed", code: "TIMEOUT", detail: "no welcome in time" };
  }
}

function begin(
  carrier: Carrier,
  options: GreetOptions,
  limits: TunnelLimits,
  greeting: { readonly welcome: Welcome; readonly message: Buffer; readonly next: number },
): DialOutcome {
  const { welcome } = greeting;
  if (!versions.includes(welcome.version)) {
    turnAway(carrier, "PROTOCOL_ERROR", "bad-payload");
    return { kind: "failed", code: "PROTOCOL", detail: "a version that was not offered" };
  }
  const carriesAgentTokens = options.needsAgentTokens === true && welcome.features.includes(agentTokenFeature);
  if (options.needsAgentTokens === true && !carriesAgentTokens) {
    turnAway(carrier, "SHUTDOWN");
    return { kind: "failed", code: "FEATURE", detail: "the relay does not pass the agents' tokens on" };
  }
  const keepalive = { ...defaultKeepalive, ...options.keepalive };
  const session = new Session({
    clock: options.clock,
    random: options.random,
    logger: options.logger,
    role: "gateway",
    carrier,
    connId: welcome.connId,
    peer: { ...welcome.node, slot: 0 },
    advert: { rev: 1, draining: false, servers: options.servers },
    limits,
    peerLimits: welcome.limits,
    keepalive: { ...keepalive, intervalMs: Math.min(keepalive.intervalMs, welcome.heartbeatMs) },
    onStream: options.onStream,
    carriesAgentTokens,
  });
  if (greeting.next < greeting.message.length) session.receive(greeting.message, greeting.next);
  return { kind: "session", session };
}

export type { ConnectOutcome };
