import type { Carrier, CarrierListener } from "./carrier.ts";
import { ReceiveCredit, SendCredit } from "./credit.ts";
import { decodeFrame } from "./decode.ts";
import { deferred } from "./deferred.ts";
import { beginDrain, type Drain } from "./drain.ts";
import { Echoes } from "./echo.ts";
import { encodeAdvert, encodeGoAway, encodeOpen, encodeReset } from "./encode.ts";
import { ProtocolFault } from "./errors.ts";
import { type Advert, type FrameHandler, type GoAway, maxHeadBytes } from "./frame.ts";
import { faultOfOpen } from "./heads.ts";
import { Keepalive } from "./keepalive.ts";
import type { SessionStart } from "./options.ts";
import { Outbox } from "./outbox.ts";
import type { Stream, StreamOwner } from "./stream.ts";
import { StreamTable } from "./stream-table.ts";
import {
  type GoAwayReason,
  type Head,
  type Leave,
  type Open,
  type Reset,
  type ResetCode,
  resetCodeOf,
  resetCodes,
  type SessionEnd,
  type StreamSink,
  type TunnelSession,
  type TunnelStream,
} from "./types.ts";

/**
 * One tunnel session, at either end: dispatches what comes in, owns the streams, and ends exactly once. Invariants:
 * 1. a fault of the peer ends the session with its name; a bad head, a wrong count or a throwing sink ends one stream;
 * 2. `#finish` is the one way to the end: the state is set first, then everything that waits is told;
 * 3. after the end no frame, timer or send is acted upon.
 */

type State = { readonly kind: "open" } | ({ readonly kind: "draining" } & Drain) | { readonly kind: "ended" };

/** How much longer than its own `drainMs` the peer may take to end the session. */
const drainGraceMs = 5_000;
/** What open streams still get when the stream ids are used up: the gateway has dialled anew long before. */
const usedUpDrainMs = 600_000;
const maxTimerMs = 0x7fff_ffff;

export class Session implements TunnelSession, FrameHandler, CarrierListener, StreamOwner {
  readonly connId: string;
  readonly peer: TunnelSession["peer"];
  readonly carriesAgentTokens: boolean;
  readonly #end = deferred<SessionEnd>();
  readonly ended = this.#end.promise;
  readonly #leave = deferred<Leave>();
  readonly leaving = this.#leave.promise;

  readonly #start: SessionStart;
  readonly #carrier: Carrier;
  readonly #streams: StreamTable;
  readonly #sendCredit: SendCredit;
  readonly #receiveCredit: ReceiveCredit;
  readonly #outbox: Outbox;
  readonly #keepalive: Keepalive;
  readonly #echoes: Echoes;
  #advert: Advert;
  #state: State = { kind: "open" };

  constructor(start: SessionStart) {
    this.#start = start;
    this.#carrier = start.carrier;
    this.connId = start.connId;
    this.peer = start.peer;
    this.carriesAgentTokens = start.carriesAgentTokens;
    this.#advert = start.advert;
    this.#sendCredit = new SendCredit(start.peerLimits.tunnelWindowBytes);
    this.#receiveCredit = new ReceiveCredit(start.limits.tunnelWindowBytes);
    this.#outbox = new Outbox({
      carrier: start.carrier,
      clock: start.clock,
      sendCredit: this.#sendCredit,
      receiveCredit: this.#receiveCredit,
      onFlushed: () => this.#endIfDrained(),
      isAlone: () => this.#streams.size === 1,
    });
    this.#echoes = new Echoes(start.clock, this.#outbox);
    this.#streams = new StreamTable({
      owner: this,
      outbox: this.#outbox,
      isOpener: start.role === "relay",
      sendWindowBytes: start.peerLimits.streamWindowBytes,
      receiveWindowBytes: start.limits.streamWindowBytes,
    });
    this.#keepalive = new Keepalive({
      clock: start.clock,
      random: start.random,
      keepalive: start.keepalive,
      sendPing: () => this.#echoes.ping(),
      sendStalledSince: () => this.#outbox.stalledSince,
      onDead: (detail) => this.terminate("LOST", detail),
    });
    this.#carrier.listen(this);
    this.#keepalive.start();
  }

  // TunnelSession

  get servers(): readonly string[] {
    return this.#advert.servers;
  }

  get isAccepting(): boolean {
    return this.#state.kind === "open" && !this.#advert.draining;
  }

  get drainReason(): GoAwayReason | undefined {
    return this.#state.kind === "draining" ? this.#state.reason : undefined;
  }

  get openStreamCount(): number {
    return this.#streams.size;
  }

  get lastEchoAt(): number | undefined {
    return this.#echoes.lastEchoAt;
  }

  /** For tests: at rest, each end's send credit and what the other end holds back add up to the window. */
  get credit(): { readonly send: number; readonly receive: ReceiveCredit } {
    return { send: this.#sendCredit.available, receive: this.#receiveCredit };
  }

  openStream(open: Open, sink: StreamSink): TunnelStream | Reset {
    if (!this.isAccepting) return { code: "DRAINING", message: "the tunnel takes no new streams" };
    if (this.#start.role !== "relay") return { code: "REFUSED", message: "only a relay opens streams" };
    const maxStreams = Math.min(this.#start.limits.maxStreams, this.#start.peerLimits.maxStreams);
    if (this.#streams.size >= maxStreams) return { code: "OVERLOADED", message: "too many streams on this tunnel" };
    const why = faultOfOpen(open);
    if (why !== undefined) return { code: "REFUSED", message: `the request has ${why}` };
    const id = this.#streams.nextId();
    if (id === undefined) {
      this.goAway("MAX_AGE", usedUpDrainMs);
      return { code: "DRAINING", message: "the tunnel has used all stream ids" };
    }
    const frame = encodeOpen(id, this.#agreed(open));
    if (frame.length > maxHeadBytes) return { code: "TOO_LARGE", message: "the request headers are too large" };
    const stream = this.#streams.add(id, open.hasBody);
    stream.attach(sink);
    stream.isUnsent = true;
    stream.headFrame = frame;
    this.#outbox.queueHead(stream);
    return stream;
  }

  /** A token that was not asked for neither leaves nor comes in. */
  #agreed(open: Open): Open {
    return this.carriesAgentTokens || open.agentToken === undefined ? open : { ...open, agentToken: undefined };
  }

  echo(timeoutMs: number): Promise<number> {
    if (this.#state.kind === "ended") return Promise.reject(new Error("the tunnel session ended"));
    return this.#echoes.measure(timeoutMs);
  }

  advertise(servers: readonly string[]): void {
    if (this.#state.kind === "ended") return;
    this.#advert = { rev: this.#advert.rev + 1, draining: false, servers };
    this.#outbox.queueAdvert(encodeAdvert(this.#advert));
  }

  goAway(reason: GoAwayReason, drainMs: number): void {
    if (this.#state.kind === "ended") return;
    if (drainMs <= 0) {
      this.terminate(reason, "ended by this side");
      return;
    }
    this.#outbox.sendNow(this.#encodeGoAway(reason, drainMs));
    this.#drain(reason, "local", drainMs);
    this.#endIfDrained();
  }

  terminate(reason: GoAwayReason | "LOST", detail: string): void {
    if (this.#state.kind === "ended") return;
    if (reason !== "LOST") this.#outbox.sendNow(this.#encodeGoAway(reason, 0));
    this.#finish({ reason, detail, by: "local" });
  }

  // CarrierListener

  onMessage(message: Buffer): void {
    this.receive(message, 0);
  }

  /** As `onMessage`, for a message whose frames up to `start` belonged to the hello. */
  receive(message: Buffer, start: number): void {
    try {
      if (message.length === 0) throw new ProtocolFault("empty-message");
      let at = start;
      while (at < message.length && this.#state.kind !== "ended") at = decodeFrame(message, at, this);
    } catch (error) {
      this.#fault(error);
    }
  }

  onText(): void {
    this.#fault(new ProtocolFault("text-message"));
  }

  onBytes(): void {
    this.#keepalive.heard();
  }

  onSent(): void {
    this.#outbox.onSent();
  }

  onClose(detail: string, isViolation: boolean): void {
    const state = this.#state;
    if (state.kind === "ended") return;
    if (isViolation) this.#finish({ reason: "PROTOCOL_ERROR", detail, by: "local" });
    else if (state.kind === "draining") this.#finish({ reason: state.reason, detail, by: state.by });
    else this.#finish({ reason: "LOST", detail, by: "peer" });
  }

  // FrameHandler

  onHello(): void {
    throw new ProtocolFault(this.#start.role === "relay" ? "unexpected-hello" : "wrong-direction");
  }

  onWelcome(): void {
    throw new ProtocolFault(this.#start.role === "gateway" ? "unexpected-hello" : "wrong-direction");
  }

  onPing(opaque: Buffer): void {
    this.#echoes.onPing(opaque);
  }

  onPong(opaque: Buffer): void {
    this.#echoes.onPong(opaque);
  }

  onGoAway(goAway: GoAway): void {
    const { reason, fault, drainMs, lastStream, reconnectInMs } = goAway;
    if (this.#start.role === "relay") this.#streams.loseAbove(lastStream);
    if (drainMs === 0) {
      const detail = fault === undefined ? "the peer said so" : `the peer found ${fault}`;
      this.#finish({ reason, detail, by: "peer", reconnectInMs });
      return;
    }
    this.#leave.settle({ reconnectInMs });
    this.#drain(reason, "peer", Math.min(drainMs + drainGraceMs, maxTimerMs));
  }

  onAdvert(advert: Advert): void {
    this.#mustBe("relay");
    if (advert.rev > this.#advert.rev) this.#advert = advert;
  }

  onOpen(id: number, open: Open): void {
    this.#takeId(id);
    const refusal = this.#refusal();
    if (refusal !== undefined) {
      this.#replyReset(id, refusal);
      return;
    }
    const stream = this.#streams.add(id, open.hasBody);
    try {
      const sink = this.#start.onStream?.(this.#agreed(open), stream);
      if (sink !== undefined) stream.attach(sink);
    } catch {
      this.onSinkError(stream);
      stream.fail("INTERNAL", "internal error");
    }
  }

  onHead(id: number, head: Head): void {
    this.#mustBe("relay");
    this.#streams.find(id)?.receiveHead(head);
  }

  onBadHead(id: number, of: "OPEN" | "HEAD", why: string): void {
    if (of === "OPEN") {
      this.#takeId(id);
      this.#replyReset(id, { code: "REFUSED", message: `the request has ${why}` });
      return;
    }
    this.#mustBe("relay");
    this.#streams.find(id)?.fail("INTERNAL", `the response has ${why}`);
  }

  onData(id: number, chunk: Buffer): void {
    if (!this.#receiveCredit.receive(chunk.length)) throw new ProtocolFault("tunnel-credit-exceeded");
    // On receipt, also for a stream that is gone: else its bytes would be lost to all the others.
    if (this.#receiveCredit.release(chunk.length)) this.#outbox.queueTunnelGrant();
    this.#streams.find(id)?.receiveData(chunk);
  }

  onEnd(id: number, totalBytes: number, closeDelimited: boolean): void {
    this.#streams.find(id)?.receiveEnd(totalBytes, closeDelimited);
  }

  onReset(id: number, code: number, message: string): void {
    this.#streams.find(id)?.lose({ code: resetCodeOf(code), message });
  }

  onWindow(id: number, increment: number): void {
    const isTaken =
      id === 0 ? this.#sendCredit.add(increment) : (this.#streams.find(id)?.receiveWindow(increment) ?? true);
    if (!isTaken) throw new ProtocolFault("credit-overflow");
    if (id === 0) this.#outbox.onTunnelCredit();
  }

  // StreamOwner

  queueReset(stream: Stream, code: ResetCode, message: string): void {
    // The peer has never heard of a stream whose OPEN is still here.
    if (stream.isUnsent) return;
    this.#outbox.queueControl(encodeReset(stream.id, resetCodes[code], message));
  }

  onOver(stream: Stream): void {
    this.#streams.delete(stream.id);
    this.#outbox.onStreamOver();
    // The last frames go out first: whoever drains looks again when they have.
    if (this.#state.kind === "draining" && this.#streams.size === 0) this.#outbox.requestFlush();
  }

  onSinkError(stream: Stream): void {
    this.#start.logger.error("a stream callback threw", { streamId: stream.id, connection: this.connId });
  }

  #takeId(id: number): void {
    this.#mustBe("gateway");
    this.#streams.take(id);
  }

  #mustBe(role: "relay" | "gateway"): void {
    if (this.#start.role !== role) throw new ProtocolFault("wrong-direction");
  }

  #refusal(): Reset | undefined {
    if (this.#state.kind !== "open") return { code: "DRAINING", message: "the gateway takes no new streams" };
    if (this.#streams.size < this.#start.limits.maxStreams) return undefined;
    return { code: "OVERLOADED", message: "too many streams on this tunnel" };
  }

  #replyReset(id: number, reset: Reset): void {
    this.#outbox.queueReply(encodeReset(id, resetCodes[reset.code], reset.message));
  }

  #encodeGoAway(reason: GoAwayReason, drainMs: number, fault?: string): Buffer {
    const lastStream = this.#streams.lastId;
    return encodeGoAway({ reason, lastStream, drainMs, reconnectInMs: 0, fault });
  }

  /** From now on nothing new; the end after `drainMs` at the latest. */
  #drain(reason: GoAwayReason, by: "local" | "peer", drainMs: number): void {
    const before = this.#state.kind === "draining" ? this.#state : undefined;
    const drain = beginDrain(this.#start.clock, before, { reason, by, drainMs }, (why) =>
      this.terminate(why, "the drain time is over"),
    );
    this.#state = { kind: "draining", ...drain };
  }

  #endIfDrained(): void {
    const state = this.#state;
    if (state.kind !== "draining" || state.by !== "local") return;
    if (this.#streams.size > 0 || !this.#outbox.isEmpty) return;
    this.#finish({ reason: state.reason, detail: "drained", by: "local" });
  }

  #fault(error: unknown): void {
    if (this.#state.kind === "ended") return;
    if (!(error instanceof ProtocolFault)) {
      this.#start.logger.error("the tunnel session broke", { connection: this.connId });
      this.terminate("INTERNAL", "an error of this side's own");
      return;
    }
    this.#outbox.sendNow(this.#encodeGoAway(error.reason, 0, error.fault));
    this.#finish({ reason: error.reason, detail: error.fault, by: "local" });
  }

  #finish(end: SessionEnd): void {
    if (this.#state.kind === "draining") this.#state.timer.cancel();
    this.#state = { kind: "ended" };
    this.#keepalive.stop();
    this.#outbox.close();
    if (end.reason === "LOST") this.#carrier.terminate();
    else this.#carrier.close(end.reason.endsWith("_ERROR") ? 1002 : 1001);
    this.#streams.loseAll();
    this.#echoes.close();
    this.#end.settle(end);
  }
}
