import { ReceiveCredit, SendCredit } from "./credit.ts";
import { encodeHead } from "./encode.ts";
import { ProtocolFault } from "./errors.ts";
import { maxHeadBytes } from "./frame.ts";
import type { Head, Reset, ResetCode, StreamSink, TunnelStream } from "./types.ts";

/** Where a stream waits to be sent. */
export interface StreamOutbox {
  /** `stream.headFrame` or its END waits to go out, ahead of all data. */
  queueHead(stream: Stream): void;
  queueData(stream: Stream): void;
  queueGrant(stream: Stream): void;
  /** The stream has queued the last that it sends. */
  flushIfAlone(): void;
}

/** What a stream asks of its session. */
export interface StreamOwner {
  queueReset(stream: Stream, code: ResetCode, message: string): void;
  /** The stream is over. */
  onOver(stream: Stream): void;
  /** A sink threw. */
  onSinkError(stream: Stream): void;
}

/** What all streams of a session have in common. */
export interface StreamCommon {
  readonly owner: StreamOwner;
  readonly outbox: StreamOutbox;
  /** True at the relay. */
  readonly isOpener: boolean;
  readonly sendWindowBytes: number;
  readonly receiveWindowBytes: number;
}

/** Above this much unsent data `write` asks the producer to wait. */
const highWaterBytes = 65_536;

/** One end of a stream: its credit, its unsent data and its place in the state rules of docs/protocol.md section 5. */
export class Stream implements TunnelStream {
  readonly id: number;
  readonly sendCredit: SendCredit;
  readonly receiveCredit: ReceiveCredit;
  isOver = false;
  /** OPEN or HEAD, until it has been packed into a message. */
  headFrame: Buffer | undefined;
  /** For the outbox: whether it has this stream in its ring of data, or in its list of grants. */
  isInRing = false;
  isGrantQueued = false;
  /** OPEN has not left this side. */
  isUnsent = false;
  queuedBytes = 0;
  sentBytes = 0;
  isEndQueued = false;
  isCloseDelimited = false;
  /** `write` returned false and the sink has not been told to go on. */
  isDrainOwed = false;

  #sink: StreamSink | undefined;
  /** Lost before there was a sink to tell. */
  #untold: Reset | undefined;
  readonly #owner: StreamOwner;
  readonly #outbox: StreamOutbox;
  readonly #isOpener: boolean;
  readonly #chunks: Buffer[] = [];
  /** First chunk that is not wholly packed, and how much of it is. */
  #chunkAt = 0;
  #chunkOffset = 0;
  #receivedBytes = 0;
  #hasHead = false;
  #isLocalDone: boolean;
  #isRemoteDone: boolean;

  /** `hasBody`: whether the request has one. */
  constructor(id: number, hasBody: boolean, common: StreamCommon) {
    this.id = id;
    this.#owner = common.owner;
    this.#outbox = common.outbox;
    this.#isOpener = common.isOpener;
    this.#isLocalDone = common.isOpener && !hasBody;
    this.#isRemoteDone = !common.isOpener && !hasBody;
    this.isEndQueued = this.#isLocalDone;
    this.sendCredit = new SendCredit(common.sendWindowBytes);
    this.receiveCredit = new ReceiveCredit(common.receiveWindowBytes);
  }

  // TunnelStream

  sendHead(head: Head): void {
    if (this.isOver) return;
    if (this.#isOpener || this.#hasHead) throw new TypeError("the head of a stream is sent once, by the gateway");
    const frame = encodeHead(this.id, head);
    if (frame.length > maxHeadBytes) {
      this.fail("INTERNAL", "the response headers are too large");
      return;
    }
    this.#hasHead = true;
    this.headFrame = frame;
    this.#outbox.queueHead(this);
  }

  write(chunk: Buffer): boolean {
    if (this.isOver) return false;
    this.#checkWritable();
    if (chunk.length > 0) {
      this.#chunks.push(chunk);
      this.queuedBytes += chunk.length;
      this.#outbox.queueData(this);
    }
    if (this.queuedBytes < highWaterBytes) return true;
    this.isDrainOwed = true;
    return false;
  }

  end(options?: { readonly closeDelimited?: boolean }): void {
    if (this.isOver) return;
    this.#checkWritable();
    this.isEndQueued = true;
    this.isCloseDelimited = options?.closeDelimited === true;
    // With data still queued the END goes out right behind it.
    if (this.queuedBytes === 0) this.#outbox.queueHead(this);
    this.#outbox.flushIfAlone();
  }

  reset(code: ResetCode, message = ""): void {
    if (this.isOver) return;
    this.#owner.queueReset(this, code, message);
    this.#finish();
  }

  consumed(bytes: number): void {
    if (this.isOver || this.#isRemoteDone) return;
    if (this.receiveCredit.release(bytes)) this.#outbox.queueGrant(this);
  }

  // For the outbox

  /** Moves `bytes` of unsent data into `target`. `bytes` must not exceed `queuedBytes`. */
  takeData(target: Buffer, at: number, bytes: number): void {
    let missing = bytes;
    while (missing > 0) {
      const chunk = this.#chunks[this.#chunkAt];
      if (chunk === undefined) throw new RangeError("more than is queued");
      const taken = chunk.copy(target, at + bytes - missing, this.#chunkOffset, this.#chunkOffset + missing);
      missing -= taken;
      this.#chunkOffset += taken;
      if (this.#chunkOffset === chunk.length) this.#dropChunk();
    }
    this.queuedBytes -= bytes;
    this.sentBytes += bytes;
    this.sendCredit.spend(bytes);
  }

  /** END has been packed. */
  onEndPacked(): void {
    this.#isLocalDone = true;
    if (this.#isRemoteDone) this.#finish();
  }

  get isEndDue(): boolean {
    return this.isEndQueued && !this.#isLocalDone && this.queuedBytes === 0;
  }

  /** Who hears from now on. Nothing arrives before; but a handler may have broken the stream before it returned its sink. */
  attach(sink: StreamSink): void {
    const untold = this.#untold;
    if (!this.isOver) this.#sink = sink;
    else if (untold !== undefined) this.#tell(() => sink.onReset(untold));
  }

  // What the peer sent

  receiveHead(head: Head): void {
    if (this.#hasHead) throw new ProtocolFault("second-head");
    this.#hasHead = true;
    try {
      this.#sink?.onHead?.(head);
    } catch {
      this.#onSinkError();
    }
  }

  receiveData(chunk: Buffer): void {
    this.#checkReceivable();
    if (!this.receiveCredit.receive(chunk.length)) throw new ProtocolFault("stream-credit-exceeded");
    this.#receivedBytes += chunk.length;
    try {
      this.#sink?.onData(chunk);
    } catch {
      this.#onSinkError();
    }
  }

  receiveEnd(totalBytes: number, closeDelimited: boolean): void {
    this.#checkReceivable();
    if (totalBytes !== this.#receivedBytes) {
      this.fail("INTEGRITY", "the body is not as long as its end says");
      return;
    }
    this.#isRemoteDone = true;
    try {
      this.#sink?.onEnd(closeDelimited && this.#isOpener);
    } catch {
      this.#onSinkError();
    }
    if (this.#isLocalDone) this.#finish();
  }

  /** The peer gave stream credit. False: more than there can be. */
  receiveWindow(increment: number): boolean {
    if (!this.sendCredit.add(increment)) return false;
    if (this.queuedBytes > 0) this.#outbox.queueData(this);
    return true;
  }

  /** Both directions are over for a reason that is not this side's own doing. */
  lose(reset: Reset): void {
    if (this.isOver) return;
    const sink = this.#sink;
    this.#finish();
    if (sink === undefined) this.#untold = reset;
    try {
      sink?.onReset(reset);
    } catch {
      this.#owner.onSinkError(this);
    }
  }

  /** As `lose`, and tells the peer. */
  fail(code: ResetCode, message: string): void {
    if (this.isOver) return;
    this.#owner.queueReset(this, code, message);
    this.lose({ code, message });
  }

  /** Everything queued has left, and somebody waits to hear that. */
  onDrained(): void {
    if (this.isOver || !this.isDrainOwed || this.queuedBytes > 0) return;
    this.isDrainOwed = false;
    this.#tell(() => this.#sink?.onDrain?.());
  }

  #checkWritable(): void {
    if (this.isEndQueued) throw new TypeError("written after the end");
    if (!this.#isOpener && !this.#hasHead) throw new TypeError("the head comes before the body");
  }

  #checkReceivable(): void {
    if (this.#isOpener && !this.#hasHead) throw new ProtocolFault("data-before-head");
    if (this.#isRemoteDone) throw new ProtocolFault("data-after-end");
  }

  #tell(call: () => void): void {
    try {
      call();
    } catch {
      this.#onSinkError();
    }
  }

  #onSinkError(): void {
    this.#owner.onSinkError(this);
    this.fail("INTERNAL", "internal error");
  }

  #dropChunk(): void {
    this.#chunkOffset = 0;
    this.#chunkAt += 1;
    if (this.#chunkAt === this.#chunks.length) {
      this.#chunks.length = 0;
      this.#chunkAt = 0;
    } else if (this.#chunkAt === 256) {
      // Taken chunks must not stay in memory until a producer that never pauses does.
      this.#chunks.splice(0, this.#chunkAt);
      this.#chunkAt = 0;
    }
  }

  #finish(): void {
    if (this.isOver) return;
    this.isOver = true;
    this.headFrame = undefined;
    this.#sink = undefined;
    this.#chunks.length = 0;
    this.queuedBytes = 0;
    this.#owner.onOver(this);
  }
}
