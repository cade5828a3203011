import type { Clock, Timer } from "../lib/index.ts";

const sliceMs = 3_600_000;

/**
 * A timer for waits of any length. It sleeps in slices of an hour at most, because one timer cannot hold more than
 * 2^31-1 ms, and it believes whichever clock moved further, because the monotonic one stands still in a suspended machine.
 */
export class LongTimer {
  readonly #clock: Clock;
  #timer: Timer | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Replaces a wait that was set before. */
  set(ms: number, fire: () => void): void {
    this.cancel();
    this.#sleep(Math.max(0, ms), fire);
  }

  cancel(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #sleep(leftMs: number, fire: () => void): void {
    const now = this.#clock.now();
    const wall = this.#clock.wall();
    const slice = Math.min(leftMs, sliceMs);
    this.#timer = this.#clock.after(slice, () => {
      this.#timer = undefined;
      const passed = Math.max(slice, this.#clock.now() - now, this.#clock.wall() - wall);
      if (passed >= leftMs) fire();
      else this.#sleep(leftMs - passed, fire);
    });
  }
}
