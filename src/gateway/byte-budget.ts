/** Memory that exchanges share: one budget for request bodies, one for answers that are held. */
export class ByteBudget {
  readonly #limit: number;
  /** What this one is a part of. */
  readonly #whole: ByteBudget | undefined;
  readonly #share: number;
  readonly #byOwner = new Map<string, number>();
  #used = 0;

  /** `shareBytes`: the most that one owner may have of it. */
  constructor(limitBytes: number, shareBytes = limitBytes, whole?: ByteBudget) {
    this.#limit = limitBytes;
    this.#share = shareBytes;
    this.#whole = whole;
  }

  /** A budget of its own for somebody who may have no more than `limitBytes` of this one. */
  part(limitBytes: number): ByteBudget {
    return new ByteBudget(limitBytes, limitBytes, this);
  }

  get used(): number {
    return this.#used;
  }

  /** False, and nothing taken, when it would pass the limit, or the owner's share. */
  take(bytes: number, owner?: string): boolean {
    if (this.#used + bytes > this.#limit) return false;
    const owned = owner === undefined ? 0 : (this.#byOwner.get(owner) ?? 0) + bytes;
    if (owned > this.#share || this.#whole?.take(bytes) === false) return false;
    if (owner !== undefined) this.#byOwner.set(owner, owned);
    this.#used += bytes;
    return true;
  }

  /** What `take` took for the same owner. */
  give(bytes: number, owner?: string): void {
    this.#used -= bytes;
    this.#whole?.give(bytes);
    if (owner === undefined) return;
    const owned = (this.#byOwner.get(owner) ?? 0) - bytes;
    if (owned > 0) this.#byOwner.set(owner, owned);
    else this.#byOwner.delete(owner);
  }
}
