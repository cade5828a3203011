import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Clock } from "../../src/lib/index.ts";
import { Secret, systemClock } from "../../src/lib/index.ts";
import { silentLogger } from "../../src/telemetry/index.ts";
import { type AcceptOptions, acceptTunnel, type WelcomeOptions, welcomeGateway } from "../../src/tunnel/accept.ts";
import { type DialOptions, dialTunnel, type GreetOptions, greetRelay } from "../../src/tunnel/dial.ts";
import type { TunnelLimits } from "../../src/tunnel/options.ts";
import { Session } from "../../src/tunnel/session.ts";
import type { Head, Open, Reset, StreamHandler, StreamSink, TunnelStream } from "../../src/tunnel/types.ts";
import { type CarrierPair, createCarrierPair } from "../support/carrier-pair.ts";

/** Both ends of a session, joined, and what a test needs to drive them. */

export interface Ends {
  readonly relay: Session;
  readonly gateway: Session;
  close(): Promise<void>;
}

export interface EndsOptions {
  readonly onStream: StreamHandler;
  readonly clock?: Clock;
  readonly limits?: Partial<TunnelLimits>;
  readonly gatewayLimits?: Partial<TunnelLimits>;
}

export const node = { id: "relay-a", instance: "r1", software: "test" };
export const gatewayIdentity = { id: "edge-1", instance: "g1", slot: 0, software: "test" };

export function context(clock: Clock = systemClock) {
  return { clock, random: () => 0.5, logger: silentLogger };
}

export function welcomeOptions(options: Partial<WelcomeOptions> = {}): WelcomeOptions {
  return { ...context(), node, onHello: () => ({ kind: "accept" }), ...options };
}

export function greetOptions(onStream: StreamHandler, options: Partial<GreetOptions> = {}): GreetOptions {
  return { ...context(), gateway: gatewayIdentity, servers: ["tickets"], onStream, ...options };
}

function asSession(outcome: { readonly kind: string; readonly session?: unknown }): Session {
  if (!(outcome.session instanceof Session)) throw new Error(`no session: ${JSON.stringify(outcome)}`);
  return outcome.session;
}

export async function connectInMemory(options: EndsOptions): Promise<Ends & { readonly pair: CarrierPair }> {
  const pair = createCarrierPair();
  const clock = options.clock ?? systemClock;
  const relay = new Promise<Session>((resolve) => {
    const welcome = welcomeOptions({ clock, ...(options.limits === undefined ? {} : { limits: options.limits }) });
    welcomeGateway(pair.relay, welcome, (outcome) => resolve(asSession(outcome)));
  });
  const gateway = new Promise<Session>((resolve) => {
    const limits = options.gatewayLimits ?? options.limits;
    const greet = greetOptions(options.onStream, { clock, ...(limits === undefined ? {} : { limits }) });
    greetRelay(pair.gateway, greet, (outcome) => resolve(asSession(outcome)));
  });
  const ends = { relay: await relay, gateway: await gateway, pair };
  return {
    ...ends,
    close: async () => {
      ends.relay.terminate("SHUTDOWN", "the test is over");
      await Promise.all([ends.relay.ended, ends.gateway.ended]);
    },
  };
}

export interface Listener {
  readonly server: Server;
  readonly url: string;
  close(): Promise<void>;
}

export async function listen(server: Server = createServer()): Promise<Listener> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    server,
    url: `ws://127.0.0.1:${port}`,
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}

export function dialOptions(url: string, onStream: StreamHandler, options: Partial<DialOptions> = {}): DialOptions {
  return { ...greetOptions(onStream), url, tunnel: "acme", token: new Secret("ptk_test"), ...options };
}

export async function connectOverLoopback(options: EndsOptions): Promise<Ends> {
  const listener = await listen();
  const relay = new Promise<Session>((resolve, reject) => {
    listener.server.on("upgrade", (req, socket, head) => {
      const accept: AcceptOptions = { ...welcomeOptions(), req, socket, head, ...context(options.clock) };
      const limits = options.limits === undefined ? {} : { limits: options.limits };
      acceptTunnel({ ...accept, ...limits }).then((outcome) => resolve(asSession(outcome)), reject);
    });
  });
  const limits = options.gatewayLimits ?? options.limits;
  const dialled = await dialTunnel(
    dialOptions(listener.url, options.onStream, {
      ...context(options.clock),
      ...(limits === undefined ? {} : { limits }),
    }),
  );
  const ends = { relay: await relay, gateway: asSession(dialled) };
  return {
    ...ends,
    close: async () => {
      ends.relay.terminate("SHUTDOWN", "the test is over");
      await Promise.all([ends.relay.ended, ends.gateway.ended]);
      await listener.close();
    },
  };
}

export function open(overrides: Partial<Open> = {}): Open {
  return {
    server: "tickets",
    method: "POST",
    headers: ["content-type", "application/json"],
    hasBody: true,
    deadlineMs: 300_000,
    requestId: "r-1",
    principal: { id: "key:claude", kind: "key", claims: {} },
    ...overrides,
  };
}

export const okHead: Head = { status: 200, headers: ["content-type", "text/plain"], by: "upstream" };

/** A sink that takes everything at once and remembers it. */
export class Recorder implements StreamSink {
  readonly heads: Head[] = [];
  readonly chunks: Buffer[] = [];
  ends = 0;
  closeDelimited: boolean | undefined;
  reset: Reset | undefined;
  /** Set by the one who opened or was given the stream. */
  stream: TunnelStream | undefined;
  /** False: takes nothing, gives no credit back. */
  isHungry = true;

  get body(): Buffer {
    return Buffer.concat(this.chunks);
  }

  get isOver(): boolean {
    return this.ends > 0 || this.reset !== undefined;
  }

  onHead(head: Head): void {
    this.heads.push(head);
  }

  onData(chunk: Buffer): void {
    // A copy: chunks may share memory with their message.
    this.chunks.push(Buffer.from(chunk));
    if (this.isHungry) this.stream?.consumed(chunk.length);
  }

  onEnd(closeDelimited: boolean): void {
    this.ends += 1;
    this.closeDelimited = closeDelimited;
  }

  onReset(reset: Reset): void {
    if (this.reset !== undefined) throw new Error("reset twice");
    this.reset = reset;
  }
}

/** Opens a stream; throws if the session refuses. */
export function openWith(session: Session, recorder: Recorder, overrides: Partial<Open> = {}): TunnelStream {
  const stream = session.openStream(open(overrides), recorder);
  if (!("id" in stream)) throw new Error(`refused: ${stream.code}`);
  recorder.stream = stream;
  return stream;
}

/** Answers with the request's own body, chunk by chunk. */
export const echoHandler: StreamHandler = (_, stream) => {
  stream.sendHead(okHead);
  return {
    onData: (chunk) => {
      stream.write(Buffer.from(chunk));
      stream.consumed(chunk.length);
    },
    onEnd: () => stream.end(),
    onReset: () => undefined,
  };
};

/** Writes `total` bytes of `chunk` as fast as the stream takes them, then ends. */
export function pour(stream: TunnelStream, total: number, chunk = Buffer.alloc(16_384, "p")): { pump(): void } {
  let left = total;
  let isEnded = false;
  const pump = (): void => {
    while (left > 0) {
      const part = left < chunk.length ? chunk.subarray(0, left) : chunk;
      left -= part.length;
      if (!stream.write(part)) return;
    }
    if (!isEnded) stream.end();
    isEnded = true;
  };
  return { pump };
}

/** At rest, nothing of either window is missing. */
export function missingCredit({ relay, gateway }: Ends): number[] {
  const missing = (from: Session, to: Session): number =>
    to.credit.receive.windowBytes - from.credit.send - to.credit.receive.held - to.credit.receive.outstanding;
  return [missing(relay, gateway), missing(gateway, relay)];
}
