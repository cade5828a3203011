import type { Clock, Timer } from "../../src/lib/index.ts";

interface Pending {
  readonly at: number;
  readonly fire: () => void;
}

/** A clock that moves only when told; timers fire in order as time passes them. */
export class ManualClock implements Clock {
  #now = 1_000;
  #suspendedMs = 0;
  readonly #pending = new Set<Pending>();

  now(): number {
    return this.#now;
  }

  wall(): number {
    return 1_800_000_000_000 + this.#now + this.#suspendedMs;
  }

  after(ms: number, fire: () => void): Timer {
    if (ms > 2 ** 31 - 1) throw new RangeError(`a timer cannot hold ${ms} ms`);
    const pending = { at: this.#now + ms, fire };
    this.#pending.add(pending);
    return { cancel: () => void this.#pending.delete(pending) };
  }

  /** Timers armed and not yet fired. */
  get armed(): number {
    return this.#pending.size;
  }

  /** Milliseconds until the next timer; undefined when there is none. */
  get nextInMs(): number | undefined {
    const times = [...this.#pending].map(({ at }) => at - this.#now);
    return times.length === 0 ? undefined : Math.min(...times);
  }

  /** Moves on by `ms`, firing what falls due on the way. */
  advance(ms: number): void {
    const end = this.#now + ms;
    for (;;) {
      const due = [...this.#pending].filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
      if (due === undefined) break;
      this.#pending.delete(due);
      this.#now = Math.max(this.#now, due.at);
      due.fire();
    }
    this.#now = end;
  }

  /** The machine sleeps: wall time passes, the monotonic clock stands still. */
  suspend(ms: number): void {
    this.#suspendedMs += ms;
  }
}
