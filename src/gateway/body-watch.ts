import type { Clock, Timer } from "../lib/index.ts";

/**
 * Deadlines of request bodies. A relay cuts agents that are slow; one that is hostile, or broken, may leave a request open
 * for ever, and its stream with it. One timer looks after all of them: a body mostly comes with its head.
 */

export interface AwaitedBody {
  /** `Clock.now()` by which the body must be there. */
  readonly bodyUntil: number;
  /** It is not; called once, and no more is expected of it. */
  onBodyLate(): void;
}

/** Above the time that a relay gives an agent (120 s), whose answer is the better one. */
export const maxBodyMs = 150_000;
const lookEveryMs = 1_000;

export class BodyWatch {
  readonly #clock: Clock;
  readonly #awaited = new Set<AwaitedBody>();
  #timer: Timer | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(body: AwaitedBody): void {
    this.#awaited.add(body);
    this.#timer ??= this.#clock.after(lookEveryMs, () => this.#look());
  }

  delete(body: AwaitedBody): void {
    this.#awaited.delete(body);
  }

  #look(): void {
    const now = this.#clock.now();
    for (const body of this.#awaited) {
      if (body.bodyUntil > now) continue;
      this.#awaited.delete(body);
      body.onBodyLate();
    }
    this.#timer = this.#awaited.size === 0 ? undefined : this.#clock.after(lookEveryMs, () => this.#look());
  }
}
