/** Something that holds bytes back until the current tick is over. */
export interface Flushable {
  flush(): void;
  /** `flush` threw: no exception may leave the tick, it would end the process with every other exchange in it. */
  flushFailed(): void;
}

/**
 * Calls back at the end of the tick. An answer that is complete by then goes out in one write; one that is not has waited
 * for less than the tunnel message in hand took to read.
 */
export class Flusher {
  #queue: Flushable[] = [];
  readonly #run = (): void => {
    const queue = this.#queue;
    this.#queue = [];
    for (const entry of queue) {
      try {
        entry.flush();
      } catch {
        entry.flushFailed();
      }
    }
  };

  add(entry: Flushable): void {
    if (this.#queue.push(entry) === 1) process.nextTick(this.#run);
  }
}
