import { ProtocolFault } from "./errors.ts";
import { maxStreamId } from "./frame.ts";
import { Stream, type StreamCommon } from "./stream.ts";

/** The streams of a session: the open ones, and which ids it has used: odd, rising, never twice. */
export class StreamTable {
  readonly #open = new Map<number, Stream>();
  readonly #common: StreamCommon;
  #lastId = 0;

  constructor(common: StreamCommon) {
    this.#common = common;
  }

  get size(): number {
    return this.#open.size;
  }

  /** The highest id used so far, 0 for none. */
  get lastId(): number {
    return this.#lastId;
  }

  /** For the opener. Undefined once all are used. */
  nextId(): number | undefined {
    const id = this.#lastId === 0 ? 1 : this.#lastId + 2;
    if (id > maxStreamId) return undefined;
    this.#lastId = id;
    return id;
  }

  /** For the other side: throws a `ProtocolFault` if the opener may not use this id any more. */
  take(id: number): void {
    if (id <= this.#lastId) throw new ProtocolFault("stream-id-not-rising");
    this.#lastId = id;
  }

  add(id: number, hasBody: boolean): Stream {
    const stream = new Stream(id, hasBody, this.#common);
    this.#open.set(id, stream);
    return stream;
  }

  /** Undefined when it is over; throws a `ProtocolFault` if there was none. */
  find(id: number): Stream | undefined {
    const stream = this.#open.get(id);
    if (stream === undefined && id > this.#lastId) throw new ProtocolFault("stream-never-opened");
    return stream;
  }

  delete(id: number): void {
    this.#open.delete(id);
  }

  /** Those that the gateway never took up: they can be opened again elsewhere. */
  loseAbove(lastId: number): void {
    for (const stream of [...this.#open.values()]) {
      if (stream.id > lastId) stream.lose({ code: "DRAINING", message: "the gateway takes no new streams" });
    }
  }

  /** The session is over. */
  loseAll(): void {
    // A copy: each leaves the table as it is lost.
    for (const stream of [...this.#open.values()]) {
      const reset = { code: "TUNNEL_LOST", message: "the tunnel was lost" } as const;
      stream.lose(stream.isUnsent ? { ...reset, isUnsent: true } : reset);
    }
  }
}
