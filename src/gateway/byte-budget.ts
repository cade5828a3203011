/** Memory that all exchanges of the process share: one budget for request bodies, one for answers that are held. */
export class ByteBudget {
  readonly #limit: number;
  readonly #share: number;
  readonly #byOwner = new Map<string, number>();
  #used = 0;

  /** `shareBytes`: the most that one owner may have of it. */
  constructor(limitBytes: number, shareBytes = limitBytes) {
    this.#limit = limitBytes;
    this.#share = shareBytes;
  }

  get used(): number {
    return this.#used;
  }

  /** False, and nothing taken, when it would pass the limit, or the owner's share. */
  take(bytes: number, owner?: string): boolean {
    if (this.#used + bytes > this.#limit) return false;
    if (owner !== undefined) {
      const owned = (this.#byOwner.get(owner) ?? 0) + bytes;
      if (owned > this.#share) return false;
      this.#byOwner.set(owner, owned);
    }
    this.#used += bytes;
    return true;
  }

  /** What `take` took for the same owner. */
  give(bytes: number, owner?: string): void {
    this.#used -= bytes;
    if (owner === undefined) return;
    const owned = (this.#byOwner.get(owner) ?? 0) - bytes;
    if (owned > 0) this.#byOwner.set(owner, owned);
    else this.#byOwner.delete(owner);
  }
}
