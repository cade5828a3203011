import type { Clock, Timer } from "../lib/index.ts";

/** Something that waits. `deadlineAt` is a `Clock.now()`; Infinity: no end. */
export interface Waiting {
  readonly deadlineAt: number;
  /** Called once; the entry is out of the set by then. */
  onDeadline(): void;
}

/**
 * Deadlines of many calls with one timer: a timer for each call would cost more than the rest of its bookkeeping. A
 * deadline fires up to one tick late.
 */
export class Deadlines {
  readonly #clock: Clock;
  readonly #tickMs: number;
  readonly #entries = new Set<Waiting>();
  #timer: Timer | undefined;

  constructor(options: { readonly clock: Clock; readonly tickMs: number }) {
    this.#clock = options.clock;
    this.#tickMs = options.tickMs;
  }

  get size(): number {
    return this.#entries.size;
  }

  add(entry: Waiting): void {
    this.#entries.add(entry);
    if (this.#timer === undefined) this.#arm();
  }

  delete(entry: Waiting): void {
    this.#entries.delete(entry);
  }

  #arm(): void {
    this.#timer = this.#clock.after(this.#tickMs, () => this.#sweep());
  }

  #sweep(): void {
    this.#timer = undefined;
    const now = this.#clock.now();
    for (const entry of this.#entries) {
      if (entry.deadlineAt > now) continue;
      this.#entries.delete(entry);
      entry.onDeadline();
    }
    if (this.#entries.size > 0 && this.#timer === undefined) this.#arm();
  }
}
