import type { Clock } from "../lib/index.ts";
import type { Answer } from "../mcp/index.ts";
import type { Head, ResetCode, TunnelStream } from "../tunnel/index.ts";

/** The way back to the agent: the stream's response direction, with what the audit wants to know of it. */
export class Reply {
  readonly #stream: TunnelStream;
  readonly #clock: Clock;
  #status: number | undefined;
  #by: Head["by"] | undefined;
  #bytesOut = 0;
  #headAt: number | undefined;
  #isOver = false;

  constructor(stream: TunnelStream, clock: Clock) {
    this.#stream = stream;
    this.#clock = clock;
  }

  get status(): number | undefined {
    return this.#status;
  }

  get by(): Head["by"] | undefined {
    return this.#by;
  }

  get bytesOut(): number {
    return this.#bytesOut;
  }

  /** `Clock.now()` of the head, if it went out. */
  get headAt(): number | undefined {
    return this.#headAt;
  }

  /** Ended or reset, by either side. */
  get isOver(): boolean {
    return this.#isOver;
  }

  head(head: Head): void {
    if (this.#isOver || this.#headAt !== undefined) return;
    this.#status = head.status;
    this.#by = head.by;
    this.#headAt = this.#clock.now();
    this.#stream.sendHead(head);
  }

  /** False: wait for the stream's `onDrain`. */
  write(chunk: Buffer): boolean {
    if (this.#isOver || chunk.length === 0) return true;
    this.#bytesOut += chunk.length;
    return this.#stream.write(chunk);
  }

  end(closeDelimited: boolean): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#stream.end({ closeDelimited });
  }

  reset(code: ResetCode, message: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#stream.reset(code, message);
  }

  /** A whole answer of our own; no head may have gone out. */
  answer(answer: Answer): void {
    this.head({ status: answer.status, headers: answer.headers, by: "gateway" });
    this.write(answer.body);
    this.end(false);
  }

  /** The peer reset the stream: nothing can be said any more. */
  close(): void {
    this.#isOver = true;
  }
}
