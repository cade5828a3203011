import type { Clock } from "../lib/index.ts";
import type { Carrier } from "./carrier.ts";
import type { ReceiveCredit, SendCredit } from "./credit.ts";
import { writeEnd, writeHeader, writeWindow } from "./encode.ts";
import { ProtocolFault } from "./errors.ts";
import { Fifo } from "./fifo.ts";
import {
  endFrameBytes,
  frameTypes,
  headerBytes,
  maxDataBytes,
  maxMessageBytes,
  maxPackedBytes,
  windowFrameBytes,
} from "./frame.ts";
import type { Stream } from "./stream.ts";

/**
 * The send queue of a session. Order: control, then grants, then OPEN and HEAD (and END of streams without data), then DATA
 * in turns. What gathers within one turn of the event loop leaves in as few messages as hold it. Invariants:
 * 1. nothing enters the carrier while it holds more than `maxCarrierBytes`, so that priority is decided here, late;
 * 2. no DATA passes a HEAD or OPEN that waits;
 * 3. a stream is at most once in the ring, and only with data and stream credit.
 */

export const maxCarrierBytes = 131_072;
const slabBytes = 65_536;
const noBytes = Buffer.alloc(0);
/**
 * Where messages are packed, one after the other; a full slab lives as long as the last message in it. All sessions share it
 * as they would share Node's own buffer pool: packing and handing over run to their end in one go, and an idle session holds
 * nothing.
 */
const slab = { bytes: noBytes, used: 0 };
/** One flush in the process at a time: one within another would give back room that the outer one has in use. */
let isFlushing = false;
/** Less room than this at the end of a slab is given up. */
const minRoomBytes = 4_096;
/** A shorter slice of a long body is not worth a frame. Well below `minRoomBytes`, so that an empty message always takes one. */
const minSliceBytes = 2_048;
const maxReplyBytes = 1_048_576;
/** Streams that are over stay in the queues until they come up; past this many they are swept out. */
const maxDeadEntries = 1_024;

export interface OutboxOptions {
  readonly carrier: Carrier;
  readonly clock: Clock;
  readonly sendCredit: SendCredit;
  readonly receiveCredit: ReceiveCredit;
  /** After each flush, when its messages are with the carrier. */
  readonly onFlushed: () => void;
  /** Whether there is one stream only. */
  readonly isAlone: () => boolean;
}

export class Outbox {
  readonly #carrier: Carrier;
  readonly #clock: Clock;
  readonly #sendCredit: SendCredit;
  readonly #receiveCredit: ReceiveCredit;
  readonly #onFlushed: () => void;
  readonly #isAlone: () => boolean;

  #control = Buffer.allocUnsafe(1_024);
  #controlLength = 0;
  #replyBytes = 0;
  #advert: Buffer | undefined;
  readonly #grants = new Fifo<Stream>();
  readonly #heads = new Fifo<Stream>();
  readonly #ring = new Fifo<Stream>();
  #drained: Stream[] = [];
  #deadEntries = 0;
  #isTunnelGrantDue = false;

  #isScheduled = false;
  #isClosed = false;
  #progressAt: number;

  /** The message that is being packed: `#slab` from `#start` to `#at`, at most to `#end`. */
  #slab: Buffer = noBytes;
  #start = 0;
  #at = 0;
  #end = 0;

  readonly #flushNow = (): void => {
    this.#isScheduled = false;
    this.#flush();
  };

  constructor(options: OutboxOptions) {
    this.#carrier = options.carrier;
    this.#clock = options.clock;
    this.#progressAt = options.clock.now();
    this.#sendCredit = options.sendCredit;
    this.#receiveCredit = options.receiveCredit;
    this.#onFlushed = options.onFlushed;
    this.#isAlone = options.isAlone;
  }

  /** Takes a copy. */
  queueControl(frame: Buffer): void {
    if (this.#isClosed) return;
    const needed = this.#controlLength + frame.length;
    if (needed > this.#control.length) this.#growControl(needed);
    frame.copy(this.#control, this.#controlLength);
    this.#controlLength = needed;
    this.requestFlush();
  }

  /** As `queueControl`, for what only the peer caused. Throws a `ProtocolFault` when too much of that waits. */
  queueReply(frame: Buffer): void {
    this.queueControl(frame);
    this.#replyBytes += frame.length;
    if (this.#replyBytes > maxReplyBytes) throw new ProtocolFault("too-many-replies");
  }

  /** A later snapshot replaces one that has not left. */
  queueAdvert(frame: Buffer): void {
    this.#advert = frame;
    this.requestFlush();
  }

  queueHead(stream: Stream): void {
    this.#heads.push(stream);
    this.requestFlush();
  }

  queueData(stream: Stream): void {
    if (stream.isInRing || stream.sendCredit.available === 0) return;
    stream.isInRing = true;
    this.#ring.push(stream);
    this.requestFlush();
  }

  queueGrant(stream: Stream): void {
    if (stream.isGrantQueued) return;
    stream.isGrantQueued = true;
    this.#grants.push(stream);
    this.requestFlush();
  }

  queueTunnelGrant(): void {
    this.#isTunnelGrantDue = true;
    this.requestFlush();
  }

  /** The peer gave tunnel credit. */
  onTunnelCredit(): void {
    if (this.#ring.length > 0) this.requestFlush();
  }

  /** `stream` is over; what it still has in the queues is skipped. */
  onStreamOver(): void {
    this.#deadEntries += 1;
    if (this.#deadEntries < maxDeadEntries) return;
    this.#deadEntries = 0;
    for (const queue of [this.#heads, this.#ring, this.#grants]) queue.retain((stream) => !stream.isOver);
  }

  /** Sends what waits at the end of this turn, and calls `onFlushed` even if that is nothing. */
  requestFlush(): void {
    if (this.#isScheduled || this.#isClosed) return;
    this.#isScheduled = true;
    // The check phase comes after every socket of this turn has been read, so that what they caused is packed together.
    setImmediate(this.#flushNow);
  }

  /** A stream has no more to say. Where it is the only one, what it said need not wait for company. */
  flushIfAlone(): void {
    if (!isFlushing && this.#isAlone()) this.#flush();
  }

  /** Past everything that waits, at once. */
  sendNow(frame: Buffer): void {
    if (!this.#isClosed) this.#send(frame);
  }

  /** The carrier handed a message to the kernel. */
  onSent(): void {
    this.#progressAt = this.#clock.now();
    if (this.#hasWork() && !this.#isScheduled) this.#flush();
  }

  /** When the oldest message that the kernel has not taken last made progress; undefined with none. */
  get stalledSince(): number | undefined {
    return this.#carrier.pendingMessages > 0 ? this.#progressAt : undefined;
  }

  get isEmpty(): boolean {
    return !this.#hasWork();
  }

  close(): void {
    this.#isClosed = true;
    this.#controlLength = 0;
    this.#advert = undefined;
    this.#grants.clear();
    this.#heads.clear();
    this.#ring.clear();
  }

  #hasWork(): boolean {
    return (
      this.#controlLength > 0 ||
      this.#isTunnelGrantDue ||
      this.#advert !== undefined ||
      this.#grants.length > 0 ||
      this.#heads.length > 0 ||
      (this.#ring.length > 0 && this.#sendCredit.available > 0)
    );
  }

  #flush(): void {
    while (this.#maySend()) this.#sendInOneWrite();
    if (!this.#isClosed) this.#onFlushed();
  }

  #sendInOneWrite(): void {
    const { bytes, used } = slab;
    isFlushing = true;
    this.#carrier.cork();
    try {
      while (this.#maySend()) {
        this.#pack();
        this.#tellDrained();
      }
    } finally {
      this.#carrier.uncork();
      isFlushing = false;
    }
    // The kernel has a copy of it all, so the room can be had again; it is in the processor's cache besides.
    if (this.#carrier.bufferedBytes === 0) slab.used = slab.bytes === bytes ? used : 0;
  }

  #maySend(): boolean {
    return !this.#isClosed && this.#hasWork() && this.#carrier.bufferedBytes <= maxCarrierBytes;
  }

  #tellDrained(): void {
    if (this.#drained.length === 0) return;
    const drained = this.#drained;
    this.#drained = [];
    for (const stream of drained) stream.onDrained();
  }

  #send(message: Buffer): void {
    if (this.#carrier.pendingMessages === 0) this.#progressAt = this.#clock.now();
    this.#carrier.send(message);
  }

  /** Packs one message and sends it; a long head goes alone. */
  #pack(): void {
    if (slab.bytes.length - slab.used < minRoomBytes) {
      slab.bytes = Buffer.allocUnsafeSlow(slabBytes);
      slab.used = 0;
    }
    this.#slab = slab.bytes;
    this.#start = slab.used;
    this.#at = this.#start;
    this.#end = Math.min(this.#start + maxPackedBytes, slabBytes);
    this.#packControl();
    this.#packGrants();
    this.#packAdvert();
    this.#packHeads();
    if (this.#heads.length === 0) this.#packData();
    this.#slab = noBytes;
    if (this.#at === this.#start) return;
    slab.used = this.#at;
    this.#send(slab.bytes.subarray(this.#start, this.#at));
  }

  #room(): number {
    return this.#end - this.#at;
  }

  #packControl(): void {
    if (this.#controlLength === 0) return;
    const bytes = this.#controlLength <= this.#room() ? this.#controlLength : this.#wholeFrames(this.#room());
    this.#control.copy(this.#slab, this.#at, 0, bytes);
    this.#at += bytes;
    this.#control.copyWithin(0, bytes, this.#controlLength);
    this.#controlLength -= bytes;
    if (this.#controlLength > 0) return;
    this.#replyBytes = 0;
    if (this.#control.length > maxMessageBytes) this.#control = Buffer.allocUnsafe(1_024);
  }

  /** The length of the control frames that fit into `room`. Each is far shorter than `minRoomBytes`, so that it is never 0. */
  #wholeFrames(room: number): number {
    let bytes = 0;
    for (;;) {
      const next = bytes + headerBytes + this.#control.readUInt32BE(bytes + 6);
      if (next > room) return bytes;
      bytes = next;
    }
  }

  #packGrants(): void {
    if (this.#isTunnelGrantDue && this.#room() >= windowFrameBytes) {
      this.#isTunnelGrantDue = false;
      this.#packWindow(0, this.#receiveCredit.takeGrant());
    }
    while (this.#grants.length > 0 && this.#room() >= windowFrameBytes) {
      const stream = this.#grants.shift();
      if (stream === undefined || stream.isOver) continue;
      stream.isGrantQueued = false;
      this.#packWindow(stream.id, stream.receiveCredit.takeGrant());
    }
  }

  #packWindow(stream: number, increment: number): void {
    if (increment > 0) this.#at = writeWindow(this.#slab, this.#at, stream, increment);
  }

  #packAdvert(): void {
    if (this.#advert === undefined) return;
    if (this.#packFrame(this.#advert)) this.#advert = undefined;
  }

  /** False: there is no room for it in this message. */
  #packFrame(frame: Buffer): boolean {
    if (frame.length <= this.#room()) {
      this.#at += frame.copy(this.#slab, this.#at);
      return true;
    }
    if (this.#at > this.#start) return false;
    this.#send(frame);
    return true;
  }

  #packHeads(): void {
    for (;;) {
      const stream = this.#heads.peek();
      if (stream === undefined) return;
      if (!stream.isOver && !this.#packHead(stream)) return;
      // A stream that ended with its END may have been swept out already: the next one must not go in its stead.
      if (this.#heads.peek() === stream) this.#heads.shift();
    }
  }

  #packHead(stream: Stream): boolean {
    if (stream.headFrame !== undefined) {
      if (!this.#packFrame(stream.headFrame)) return false;
      stream.headFrame = undefined;
      stream.isUnsent = false;
    }
    return this.#packEnd(stream);
  }

  /** False: END is due and there is no room for it. */
  #packEnd(stream: Stream): boolean {
    if (!stream.isEndDue) return true;
    if (this.#room() < endFrameBytes) return false;
    this.#at = writeEnd(this.#slab, this.#at, stream.id, stream.sentBytes, stream.isCloseDelimited);
    stream.onEndPacked();
    return true;
  }

  #packData(): void {
    while (this.#sendCredit.available > 0) {
      const stream = this.#ring.peek();
      if (stream === undefined) return;
      if (!stream.isOver && stream.queuedBytes > 0 && !this.#packChunk(stream)) return;
      this.#ring.shift();
      stream.isInRing = false;
      this.#afterChunk(stream);
    }
  }

  /** One DATA frame of `stream`. False: there is no room for one that is worth it. */
  #packChunk(stream: Stream): boolean {
    const wanted = Math.min(stream.queuedBytes, stream.sendCredit.available, this.#sendCredit.available, maxDataBytes);
    const bytes = Math.min(wanted, this.#room() - headerBytes);
    if (bytes < wanted && bytes < minSliceBytes) return false;
    const at = writeHeader(this.#slab, this.#at, frameTypes.DATA, 0, stream.id, bytes);
    stream.takeData(this.#slab, at, bytes);
    this.#at = at + bytes;
    this.#sendCredit.spend(bytes);
    return true;
  }

  #afterChunk(stream: Stream): void {
    if (stream.isOver) return;
    if (stream.queuedBytes > 0) {
      this.queueData(stream);
      return;
    }
    if (stream.isDrainOwed) this.#drained.push(stream);
    if (!this.#packEnd(stream)) this.queueHead(stream);
  }

  #growControl(needed: number): void {
    const grown = Buffer.allocUnsafe(Math.max(needed, this.#control.length * 2));
    this.#control.copy(grown, 0, 0, this.#controlLength);
    this.#control = grown;
  }
}
