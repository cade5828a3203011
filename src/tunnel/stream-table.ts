import { maxStreamId } from "./frame.ts";
import type { Stream } from "./stream.ts";

/** The open streams of a session, and which ids it has used: odd, rising, never twice. */
export class StreamTable {
  readonly #open = new Map<number, Stream>();
  #lastId = 0;

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

  /** For the other side: false if the opener may not use this id any more. */
  take(id: number): boolean {
    if (id <= this.#lastId) return false;
    this.#lastId = id;
    return true;
  }

  /** Whether `id` was given out; it may be over. */
  wasOpened(id: number): boolean {
    return id <= this.#lastId;
  }

  add(stream: Stream): void {
    this.#open.set(stream.id, stream);
  }

  get(id: number): Stream | undefined {
    return this.#open.get(id);
  }

  delete(id: number): void {
    this.#open.delete(id);
  }

  /** A copy: streams may end while the caller walks it. */
  all(): Stream[] {
    return [...this.#open.values()];
  }

  above(id: number): Stream[] {
    return this.all().filter((stream) => stream.id > id);
  }
}
