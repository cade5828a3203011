/** Memory that all exchanges of the process share for request bodies. */
export class ByteBudget {
  readonly #limit: number;
  #used = 0;

  constructor(limitBytes: number) {
    this.#limit = limitBytes;
  }

  get used(): number {
    return this.#used;
  }

  /** False, and nothing taken, when it would pass the limit. */
  take(bytes: number): boolean {
    if (this.#used + bytes > this.#limit) return false;
    this.#used += bytes;
    return true;
  }

  give(bytes: number): void {
    this.#used -= bytes;
  }
}
