/** The members of a message that decide over it, as bits, so that repeats are noticed without a set per message. */

/**
 * A key as a reader without case sees it: Unicode simple case folding, as far as it can reach ASCII letters (the long
 * s and the Kelvin sign fold to `s` and `k`).
 */
function foldKey(key: string): string {
  return key.replaceAll("\u017f", "s").replaceAll("\u212a", "k").toLowerCase();
}

/** A fixed set of judged keys. */
export class JudgedKeys {
  readonly #bits: ReadonlyMap<string, number>;
  readonly #folded: ReadonlySet<string>;

  constructor(keys: readonly string[]) {
    this.#bits = new Map(keys.map((key, index) => [key, 1 << index]));
    this.#folded = new Set(keys.map(foldKey));
  }

  /** The key's bit; 0: not judged; -1: not a judged key, yet some readers take it for one. */
  bitOf(key: string): number {
    const bit = this.#bits.get(key);
    if (bit !== undefined) return bit;
    return this.#folded.has(foldKey(key)) ? -1 : 0;
  }
}
