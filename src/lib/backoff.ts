/** Redial delay with full jitter: a random wait between zero and a doubling, capped ceiling. */
export class Backoff {
  readonly #baseMs: number;
  readonly #capMs: number;
  readonly #random: () => number;
  #attempts = 0;

  /** `random` yields numbers in [0, 1), like `Math.random`. */
  constructor(options: { readonly baseMs: number; readonly capMs: number; readonly random: () => number }) {
    this.#baseMs = options.baseMs;
    this.#capMs = options.capMs;
    this.#random = options.random;
  }

  /** Whole milliseconds to wait before the next attempt; jitter holds for the first one too. */
  nextMs(): number {
    const ceiling = Math.min(this.#capMs, this.#baseMs * 2 ** Math.min(this.#attempts, 30));
    this.#attempts += 1;
    return Math.round(this.#random() * ceiling);
  }

  reset(): void {
    this.#attempts = 0;
  }
}
