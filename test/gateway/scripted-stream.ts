import type { Head, Open, Reset, ResetCode, StreamHandler, StreamSink, TunnelStream } from "../../src/tunnel/index.ts";

/** A stream whose other end is the test: it plays the relay and records what the gateway says. */
export class ScriptedStream implements TunnelStream {
  readonly id = 1;
  head: Head | undefined;
  readonly chunks: Buffer[] = [];
  ended: { closeDelimited: boolean } | undefined;
  resetBy: Reset | undefined;
  consumedBytes = 0;
  /** `write` answers false while set, as a stream without credit does. */
  isStalled = false;
  #sink: StreamSink | undefined;
  #isGone = false;
  #isRequestOver: boolean;

  /** Opens the stream as the relay does. */
  constructor(handler: StreamHandler, open: Open) {
    this.#isRequestOver = !open.hasBody;
    this.#sink = handler(open, this);
  }

  get body(): Buffer {
    return Buffer.concat(this.chunks);
  }

  get text(): string {
    return this.body.toString();
  }

  get isOver(): boolean {
    return this.ended !== undefined || this.resetBy !== undefined;
  }

  sendHead(head: Head): void {
    if (this.#isGone) return;
    if (this.head !== undefined || this.isOver) throw new Error("a second head, or one after the end");
    this.head = head;
  }

  write(chunk: Buffer): boolean {
    if (this.#isGone) return true;
    if (this.head === undefined) throw new Error("a body before the head");
    if (this.isOver) throw new Error("a body after the end");
    this.chunks.push(Buffer.from(chunk));
    return !this.isStalled;
  }

  end(options: { readonly closeDelimited?: boolean } = {}): void {
    if (this.#isGone) return;
    if (this.head === undefined) throw new Error("an end before the head");
    if (this.isOver) throw new Error("a second end");
    this.ended = { closeDelimited: options.closeDelimited === true };
  }

  reset(code: ResetCode, message = ""): void {
    if (this.#isGone) return;
    if (this.resetBy !== undefined || (this.ended && this.#isRequestOver)) throw new Error("a reset after the end");
    this.resetBy = { code, message };
  }

  consumed(bytes: number): void {
    this.consumedBytes += bytes;
  }

  /** The agent's body: all of `bytes`, in pieces of `size`, then its end. */
  send(bytes: Buffer, size = bytes.length): void {
    for (let at = 0; at < bytes.length; at += size) this.push(bytes.subarray(at, at + size));
    this.#isRequestOver = true;
    this.#sink?.onEnd(false);
  }

  push(bytes: Buffer): void {
    // The message that a chunk came in may be overwritten once it was handed over.
    const chunk = Buffer.from(bytes);
    this.#sink?.onData(chunk);
    if (chunk.length < 8192) chunk.fill(0x20);
  }

  /** The agent left, or the tunnel died. */
  cancel(code: ResetCode = "CANCEL"): void {
    this.#isGone = true;
    this.#sink?.onReset({ code, message: "" });
  }

  drain(): void {
    this.isStalled = false;
    this.#sink?.onDrain?.();
  }
}
