import type { Clock } from "../../src/lib/index.ts";
import type { Logger } from "../../src/telemetry/index.ts";
import { welcomeGateway } from "../../src/tunnel/accept.ts";
import type { Carrier, CarrierListener, CloseCode } from "../../src/tunnel/carrier.ts";
import { decodeMessage } from "../../src/tunnel/decode.ts";
import { greetRelay } from "../../src/tunnel/dial.ts";
import { ProtocolFault } from "../../src/tunnel/errors.ts";
import { type FrameHandler, frameTypes, maxMessageBytes } from "../../src/tunnel/frame.ts";
import { Session } from "../../src/tunnel/session.ts";
import type { Head, Reset, SessionEnd, StreamSink, TunnelStream } from "../../src/tunnel/types.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { gatewayIdentity, node, okHead, open } from "./ends.ts";
import { Dice, goodPayloads, hostileMessage, type Place, placeAt, rawFrame } from "./fuzz-input.ts";

/**
 * Feeds hostile messages to the decoder and to whole session ends of both roles. Nothing but typed faults may come of them:
 * no exception, no callback out of order, no stream, timer or credit left, no buffer that grows. The first thing that is not so
 * ends the run with the seed that shows it again.
 */

export class Violation extends Error {}

function must(holds: boolean, what: string): void {
  if (!holds) throw new Violation(what);
}

const ignored = (): void => undefined;
const quiet: FrameHandler = {
  onHello: ignored,
  onWelcome: ignored,
  onPing: ignored,
  onPong: ignored,
  onGoAway: ignored,
  onAdvert: ignored,
  onOpen: ignored,
  onHead: ignored,
  onBadHead: ignored,
  onData: ignored,
  onEnd: ignored,
  onReset: ignored,
  onWindow: ignored,
};

export interface FuzzResult {
  readonly inputs: number;
  /** By fault name; `none` for messages that are in order. */
  readonly outcomes: Readonly<Record<string, number>>;
}

const decoderTurn = 20_000;

/** `count` messages through the decoder alone. `progress` hears now and then how many are done. */
export async function fuzzDecoder(
  seed: number,
  count: number,
  progress: (done: number) => void = ignored,
): Promise<FuzzResult> {
  const dice = new Dice(seed);
  const outcomes: Record<string, number> = {};
  for (let i = 0; i < count; i += 1) {
    const place = placeAt(dice.once(2) ? "relay" : "gateway", 1 + 2 * dice.below(8), 2);
    const outcome = decodeOutcome(hostileMessage(dice, place), seed, i);
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    if (i % decoderTurn !== 0) continue;
    progress(i);
    await new Promise((resolve) => setImmediate(resolve));
  }
  return { inputs: count, outcomes };
}

function decodeOutcome(message: Buffer, seed: number, i: number): string {
  try {
    decodeMessage(message, quiet);
    return "none";
  } catch (error) {
    if (error instanceof ProtocolFault) return error.fault;
    throw new Violation(`seed ${seed}, input ${i}: ${String(error)} for ${message.toString("hex").slice(0, 400)}`);
  }
}

/** A carrier without a wire: what is sent is counted, checked now and then, and forgotten. */
class FuzzCarrier implements Carrier {
  listener: CarrierListener | undefined;
  closedBy: CloseCode | "terminated" | undefined;
  bufferedBytes = 0;
  pendingMessages = 0;
  peakBytes = 0;
  isStuck = false;
  lastMessage: Buffer | undefined;
  readonly #isChecked: boolean;

  constructor(isChecked: boolean) {
    this.#isChecked = isChecked;
  }

  listen(listener: CarrierListener): void {
    this.listener = listener;
  }

  send(message: Buffer): void {
    if (this.closedBy !== undefined) return;
    this.lastMessage = message;
    if (this.#isChecked) decodeMessage(message, quiet);
    must(message.length <= maxMessageBytes, "a message above the limit was sent");
    if (!this.isStuck) return;
    this.pendingMessages += 1;
    this.bufferedBytes += message.length;
    this.peakBytes = Math.max(this.peakBytes, this.bufferedBytes);
  }

  cork(): void {}

  uncork(): void {}

  unstick(): void {
    const messages = this.pendingMessages;
    this.isStuck = false;
    this.pendingMessages = 0;
    this.bufferedBytes = 0;
    for (let i = 0; i < messages; i += 1) this.listener?.onSent();
  }

  close(code: CloseCode): void {
    this.closedBy ??= code;
    this.listener = undefined;
  }

  terminate(): void {
    this.closedBy ??= "terminated";
    this.listener = undefined;
  }
}

const thrownOnPurpose = "a sink that throws";

/** Answers, takes, stalls, resets and throws as the dice say; knows the order in which it may be called. */
class FuzzSink implements StreamSink {
  stream: TunnelStream | undefined;
  readonly #dice: Dice;
  readonly #isOpener: boolean;
  readonly #maxUntaken: number;
  readonly #onViolation: (what: string) => void;
  #untaken = 0;
  #hasHead = false;
  #isRemoteDone = false;
  #isOver = false;

  constructor(dice: Dice, isOpener: boolean, onViolation: (what: string) => void) {
    this.#dice = dice;
    this.#isOpener = isOpener;
    this.#maxUntaken = limits.streamWindowBytes;
    this.#onViolation = onViolation;
  }

  /** Not by an exception: a session survives sinks that throw. */
  #must(holds: boolean, what: string): void {
    if (!holds) this.#onViolation(what);
  }

  onHead(_head: Head): void {
    this.#must(this.#isOpener && !this.#hasHead && !this.#isOver, "onHead out of order");
    this.#hasHead = true;
    this.#act();
  }

  onData(chunk: Buffer): void {
    this.#must(!this.#isOver && !this.#isRemoteDone && chunk.length > 0, "onData out of order");
    this.#must(!this.#isOpener || this.#hasHead, "onData before the head");
    this.#untaken += chunk.length;
    this.#must(this.#untaken <= this.#maxUntaken, "more than the stream's window is out");
    if (this.#dice.once(2)) this.take();
    this.#act();
  }

  onEnd(): void {
    this.#must(!this.#isOver && !this.#isRemoteDone, "onEnd out of order");
    this.#isRemoteDone = true;
    this.#act();
  }

  onReset(_reset: Reset): void {
    this.#must(!this.#isOver, "onReset twice, or after this end's own");
    this.#isOver = true;
    if (this.#dice.once(16)) throw new Error(thrownOnPurpose);
  }

  onDrain(): void {
    this.#must(!this.#isOver, "onDrain after the end");
    this.#act();
  }

  take(): void {
    this.stream?.consumed(this.#untaken);
    this.#untaken = 0;
  }

  #act(): void {
    const { stream } = this;
    if (stream === undefined) return;
    const choice = this.#dice.below(24);
    if (choice === 0) throw new Error(thrownOnPurpose);
    if (choice === 1) {
      this.#isOver = true;
      stream.reset("CANCEL", "enough");
    } else if (choice < 5) {
      stream.consumed(this.#dice.below(100_000));
    } else if (choice < 12) {
      this.write(stream);
    }
  }

  /** Writing at the wrong time is this side's own error: a TypeError, which costs the stream. */
  write(stream: TunnelStream): void {
    try {
      if (this.#dice.once(4)) stream.end();
      else stream.write(Buffer.allocUnsafe(this.#dice.below(40_000)));
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
    }
  }
}

const limits = { streamWindowBytes: 4_096, tunnelWindowBytes: 32_768, maxStreams: 8 };
const knownEnds: ReadonlySet<string> = new Set<SessionEnd["reason"]>([
  "SHUTDOWN",
  "MAX_AGE",
  "REBALANCE",
  "REPLACED",
  "AUTH_EXPIRED",
  "REVOKED",
  "PROTOCOL_ERROR",
  "FLOW_CONTROL_ERROR",
  "INTERNAL",
  "LOST",
]);
const maxBufferedBytes = 131_072 + 2 * maxMessageBytes;
const sessionsPerTurn = 128;
const turnsPerSession = 10;

/** One real session end and what attacks it. */
class Victim {
  readonly #dice: Dice;
  readonly #carrier: FuzzCarrier;
  readonly #clock = new ManualClock();
  readonly #place: Place;
  readonly #sinks: FuzzSink[] = [];
  readonly #streams: TunnelStream[] = [];
  #session: Session | undefined;
  #outcome: string | undefined;
  #end: SessionEnd | undefined;
  #problem: string | undefined;
  readonly #onViolation = (what: string): void => {
    this.#problem ??= what;
  };
  inputs = 0;

  constructor(dice: Dice) {
    this.#dice = dice;
    this.#carrier = new FuzzCarrier(dice.once(8));
    this.#place = placeAt(dice.once(2) ? "relay" : "gateway", 0, dice.pick([8, 32, 128]));
    const done = (outcome: { readonly kind: string; readonly session?: unknown }): void => this.#begin(outcome);
    const context = { clock: this.#clock as Clock, random: () => 0.5, logger: this.#logger(), limits };
    if (this.#place.role === "relay") {
      welcomeGateway(this.#carrier, { ...context, node, onHello: () => ({ kind: "accept" }) }, done);
    } else {
      const onStream = (_open: unknown, stream: TunnelStream): StreamSink => this.#onStream(stream);
      greetRelay(this.#carrier, { ...context, gateway: gatewayIdentity, servers: ["tickets"], onStream }, done);
    }
    this.#greet();
  }

  #logger(): Logger {
    const logger: Logger = {
      debug: ignored,
      info: ignored,
      warn: ignored,
      error: (event) => {
        if (event !== "a stream callback threw") this.#onViolation(`logged: ${event}`);
      },
      with: () => logger,
    };
    return logger;
  }

  #greet(): void {
    const type = this.#place.role === "relay" ? frameTypes.HELLO : frameTypes.WELCOME;
    const good = rawFrame(type, 0, Buffer.from(JSON.stringify(goodPayloads[type])));
    this.#feed(this.#dice.once(16) ? hostileMessage(this.#dice, this.#place) : good);
  }

  #begin(outcome: { readonly kind: string; readonly session?: unknown }): void {
    must(this.#outcome === undefined, "the greeting had two outcomes");
    this.#outcome = outcome.kind;
    if (!(outcome.session instanceof Session)) return;
    this.#session = outcome.session;
    void outcome.session.ended.then((end) => {
      this.#end = end;
    });
  }

  #onStream(stream: TunnelStream): StreamSink {
    const sink = new FuzzSink(this.#dice, false, this.#onViolation);
    sink.stream = stream;
    this.#sinks.push(sink);
    this.#streams.push(stream);
    if (this.#dice.once(32)) throw new Error(thrownOnPurpose);
    if (!this.#dice.once(4)) stream.sendHead(this.#dice.once(16) ? { ...okHead, status: 700 } : okHead);
    if (this.#dice.once(3)) sink.write(stream);
    return sink;
  }

  #openSome(session: Session): void {
    const hasBody = this.#dice.once(2);
    const sink = new FuzzSink(this.#dice, true, this.#onViolation);
    const stream = session.openStream(open({ hasBody }), sink);
    if ("code" in stream) return;
    sink.stream = stream;
    this.#sinks.push(sink);
    this.#streams.push(stream);
    this.#place.lastId = Math.max(this.#place.lastId, stream.id);
    if (hasBody && this.#dice.once(2)) sink.write(stream);
  }

  #feed(message: Buffer): void {
    const { listener } = this.#carrier;
    if (listener === undefined) return;
    this.inputs += 1;
    if (this.#dice.once(512)) listener.onText();
    else listener.onMessage(message);
    this.#carrier.listener?.onBytes();
  }

  /** Some messages, and some life of this end's own. */
  turn(): void {
    const session = this.#session;
    if (session !== undefined) {
      if (this.#place.role === "relay" && this.#dice.once(2)) this.#openSome(session);
      if (this.#dice.once(4) && this.#sinks.length > 0) this.#dice.pick(this.#sinks).take();
      if (this.#dice.once(64)) session.goAway("MAX_AGE", 1 + this.#dice.below(20_000));
      if (this.#dice.once(64)) session.echo(1_000).catch(ignored);
    }
    if (this.#dice.once(16)) this.#clock.advance(this.#dice.below(20_000));
    if (this.#dice.once(16)) this.#carrier.isStuck = true;
    else if (this.#carrier.isStuck && this.#dice.once(3)) this.#carrier.unstick();
    const messages = this.#dice.once(512) ? 400 : 1 + this.#dice.below(4);
    for (let i = 0; i < messages; i += 1) this.#feed(hostileMessage(this.#dice, this.#place));
  }

  /** How the session ended by itself; `none` while it stands. */
  get fault(): string {
    if (this.#end === undefined) return this.#session === undefined ? `greeting: ${this.#outcome ?? "none"}` : "none";
    return this.#end.reason.endsWith("_ERROR") ? this.#end.detail : this.#end.reason;
  }

  finish(): void {
    this.#session?.terminate("SHUTDOWN", "the test is over");
    // A greeting that is not answered ends by its deadline.
    if (this.#session === undefined) this.#clock.advance(10_000);
  }

  /** A turn after `finish`. */
  check(): void {
    must(this.#problem === undefined, this.#problem ?? "");
    must(this.#carrier.closedBy !== undefined, "the carrier was not closed");
    must(this.#clock.armed === 0, `${this.#clock.armed} timers are left`);
    must(this.#carrier.peakBytes <= maxBufferedBytes, `${this.#carrier.peakBytes} bytes were buffered`);
    const session = this.#session;
    if (session === undefined) return;
    must(this.#end !== undefined && knownEnds.has(this.#end.reason), "the session did not end");
    must(this.#end?.detail !== "an error of this side's own", "an error of this side's own");
    must(session.openStreamCount === 0, "streams are left");
    for (const stream of this.#streams) must((stream as { isOver?: boolean }).isOver === true, "a stream is not over");
    const { receive, send } = session.credit;
    must(receive.outstanding === 0, "tunnel credit is outstanding");
    must(receive.available + receive.held === receive.windowBytes, "tunnel credit is missing");
    must(send >= 0 && send <= 0x7fff_ffff, "send credit out of range");
  }
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** At least `count` messages to whole sessions, a hundred and some at a time. */
export async function fuzzSessions(
  seed: number,
  count: number,
  progress: (done: number) => void = ignored,
): Promise<FuzzResult> {
  const outcomes: Record<string, number> = {};
  let inputs = 0;
  for (let round = 0; inputs < count; round += 1) {
    const roundSeed = (seed + round * 0x9e37_79b9) >>> 0;
    try {
      inputs += await fuzzRound(new Dice(roundSeed), outcomes);
    } catch (error) {
      throw new Violation(`seed ${seed}, round ${round}: ${error instanceof Error ? error.stack : String(error)}`);
    }
    progress(inputs);
  }
  return { inputs, outcomes };
}

async function fuzzRound(dice: Dice, outcomes: Record<string, number>): Promise<number> {
  const victims = Array.from({ length: sessionsPerTurn }, () => new Victim(dice));
  for (let i = 0; i < turnsPerSession; i += 1) {
    for (const victim of victims) victim.turn();
    await turn();
  }
  let inputs = 0;
  for (const victim of victims) {
    outcomes[victim.fault] = (outcomes[victim.fault] ?? 0) + 1;
    victim.finish();
    inputs += victim.inputs;
  }
  await turn();
  for (const victim of victims) victim.check();
  return inputs;
}
