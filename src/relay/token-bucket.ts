import type { Clock } from "../lib/index.ts";

/** So many events a minute, with bursts up to the same number. */
export class TokenBucket {
  #perMinute: number;
  readonly #clock: Clock;
  #tokens: number;
  #at: number;

  constructor(perMinute: number, clock: Clock) {
    this.#perMinute = perMinute;
    this.#clock = clock;
    this.#tokens = perMinute;
    this.#at = clock.now();
  }

  /** 0 when the event may happen, else the milliseconds until one may. */
  take(): number {
    this.#fill();
    if (this.#tokens < 1) return ((1 - this.#tokens) * 60_000) / this.#perMinute;
    this.#tokens -= 1;
    return 0;
  }

  /** From now on; what is used up stays so. */
  changeRate(perMinute: number): void {
    this.#fill();
    this.#perMinute = perMinute;
    this.#tokens = Math.min(this.#tokens, perMinute);
  }

  #fill(): void {
    const now = this.#clock.now();
    this.#tokens = Math.min(this.#perMinute, this.#tokens + ((now - this.#at) * this.#perMinute) / 60_000);
    this.#at = now;
  }
}
