import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { WebSocketServer } from "ws";
import type { Carrier } from "./carrier.ts";
import { encodeWelcome } from "./encode.ts";
import type { HelloFrame } from "./frame.ts";
import { awaitHello, chooseVersion, type Greeting, type Hello, turnAway } from "./hello.ts";
import {
  agentTokenFeature,
  defaultKeepalive,
  defaultLimits,
  type KeepaliveOptions,
  type TunnelContext,
  type TunnelLimits,
  tunnelSubprotocol,
} from "./options.ts";
import { refuseUpgrade } from "./refuse.ts";
import { Session } from "./session.ts";
import type { GoAwayReason, TunnelSession } from "./types.ts";
import { WsCarrier, wsOptions } from "./ws-carrier.ts";

/** The relay's end of a dial: WebSocket handshake, HELLO, WELCOME. */

/** What the relay answers to a HELLO. Refusals travel as GOAWAY. */
export type HelloVerdict =
  | { readonly kind: "accept" }
  | { readonly kind: "refuse"; readonly reason: GoAwayReason; readonly detail: string };

export interface WelcomeOptions extends TunnelContext {
  /** This relay node, as the gateway sees it in `session.peer`. Ids of 1 to 128 printable ASCII characters. */
  readonly node: { readonly id: string; readonly instance: string; readonly software: string };
  readonly limits?: Partial<TunnelLimits>;
  readonly keepalive?: Partial<KeepaliveOptions>;
  /** HELLO must have come this long after the upgrade; default 5 s. */
  readonly helloTimeoutMs?: number;
  /** Synchronous: called once, with a well-formed HELLO of a version that both speak. */
  readonly onHello: (hello: Hello) => HelloVerdict;
}

export interface AcceptOptions extends WelcomeOptions {
  /** The raw upgrade, already authorised. The socket must have had an 'error' listener before any await. */
  readonly req: IncomingMessage;
  readonly socket: Duplex;
  readonly head: Buffer;
}

export type AcceptOutcome =
  | { readonly kind: "session"; readonly session: TunnelSession; readonly hello: Hello }
  | { readonly kind: "refused"; readonly reason: string; readonly detail: string };

const defaultHelloTimeoutMs = 5_000;

/**
 * Finishes the WebSocket handshake, waits for HELLO, says WELCOME. Never rejects; whatever was refused is closed already. The
 * session may have ended by the time the promise is seen: look at `ended`.
 */
export function acceptTunnel(options: AcceptOptions): Promise<AcceptOutcome> {
  const { req, socket, head } = options;
  if (!offersSubprotocol(req)) {
    refuseUpgrade(socket, 426, { title: `the subprotocol ${tunnelSubprotocol} is needed` });
    return Promise.resolve({ kind: "refused", reason: "no-common-version", detail: "subprotocol not offered" });
  }
  return new Promise((resolve) => {
    const gone = (): void => resolve({ kind: "refused", reason: "closed", detail: "the socket closed" });
    socket.on("close", gone);
    // The library would take the first of several that are offered, which a newer gateway may begin with.
    const handleProtocols = (): string => tunnelSubprotocol;
    const server = new WebSocketServer({ ...wsOptions, noServer: true, clientTracking: false, handleProtocols });
    server.on("wsClientError", () => {
      refuseUpgrade(socket, 400, { title: "no WebSocket handshake" });
      resolve({ kind: "refused", reason: "bad-handshake", detail: "no WebSocket handshake" });
    });
    server.handleUpgrade(req, socket, head, (ws) => {
      socket.off("close", gone);
      welcomeGateway(new WsCarrier(ws, socket), options, resolve);
    });
  });
}

/** HELLO to WELCOME on an open carrier. `done` is called once, when the session listens already. */
export function welcomeGateway(
  carrier: Carrier,
  options: WelcomeOptions,
  done: (outcome: AcceptOutcome) => void,
): void {
  const timeoutMs = options.helloTimeoutMs ?? defaultHelloTimeoutMs;
  awaitHello(carrier, { clock: options.clock, timeoutMs }, (greeting) => done(answer(carrier, options, greeting)));
}

function answer(carrier: Carrier, options: WelcomeOptions, greeting: Greeting): AcceptOutcome {
  switch (greeting.kind) {
    case "hello":
      return judge(carrier, options, greeting.hello);
    case "fault":
      turnAway(carrier, greeting.fault.reason, greeting.fault.fault);
      return { kind: "refused", reason: greeting.fault.reason, detail: greeting.fault.fault };
    case "closed":
      return { kind: "refused", reason: "closed", detail: greeting.detail };
    case "timeout":
    case "welcome":
    case "goAway":
      carrier.terminate();
      return { kind: "refused", reason: "timeout", detail: "no hello in time" };
  }
}

function judge(carrier: Carrier, options: WelcomeOptions, hello: HelloFrame): AcceptOutcome {
  const version = chooseVersion(hello.versions);
  if (version === undefined) {
    turnAway(carrier, "PROTOCOL_ERROR", "no-common-version");
    return { kind: "refused", reason: "PROTOCOL_ERROR", detail: "no-common-version" };
  }
  const verdict = ask(options, hello);
  if (verdict.kind === "refuse") {
    turnAway(carrier, verdict.reason);
    return { kind: "refused", reason: verdict.reason, detail: verdict.detail };
  }
  return { kind: "session", session: startSession(carrier, options, hello, version), hello };
}

function ask(options: WelcomeOptions, hello: HelloFrame): HelloVerdict {
  try {
    return options.onHello(hello);
  } catch {
    options.logger.error("judging a hello failed", { gateway: hello.gateway.id });
    return { kind: "refuse", reason: "INTERNAL", detail: "judging the hello failed" };
  }
}

function startSession(carrier: Carrier, options: WelcomeOptions, hello: HelloFrame, version: number): Session {
  const limits = { ...defaultLimits, ...options.limits };
  const keepalive = { ...defaultKeepalive, ...options.keepalive };
  const connId = createConnId(options.random);
  const features = hello.features.includes(agentTokenFeature) ? [agentTokenFeature] : [];
  carrier.send(
    encodeWelcome({
      version,
      features,
      node: options.node,
      connId,
      limits,
      heartbeatMs: keepalive.intervalMs,
    }),
  );
  return new Session({
    clock: options.clock,
    random: options.random,
    logger: options.logger,
    role: "relay",
    carrier,
    connId,
    peer: hello.gateway,
    advert: hello.advert,
    limits,
    peerLimits: hello.limits,
    keepalive,
    carriesAgentTokens: features.length > 0,
  });
}

function createConnId(random: () => number): string {
  const part = (): string =>
    Math.floor(random() * 2 ** 32)
      .toString(16)
      .padStart(8, "0");
  return `${part()}${part()}${part()}`;
}

function offersSubprotocol(req: IncomingMessage): boolean {
  const offered = req.headers["sec-websocket-protocol"] ?? "";
  return offered.split(",").some((token) => token.trim() === tunnelSubprotocol);
}
