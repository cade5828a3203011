/** The members of a message that decide over it, as bits, so that repeats are noticed without a set per message. */

/**
 * A key as a reader without case sees it: Unicode simple case folding, as far as it can reach ASCII letters (the long
 * s and the Kelvin sign fold to `s` and `k`).
 */
function foldKey(key: string): string {
  return key.replaceAll("\u017f", "s").replaceAll("\u212a", "k").toLowerCase();
}

/** `foldKey` for the code of one character. */
function foldCode(code: number): number {
  if (code >= 0x41 && code <= 0x5a) return code + 0x20;
  return code === 0x17f ? 0x73 : code === 0x212a ? 0x6b : code;
}

/** A fixed set of judged keys, all ASCII. */
export class JudgedKeys {
  readonly #bits: ReadonlyMap<string, number>;
  readonly #folded: ReadonlySet<string>;
  /** Folded first characters by length: messages may hold millions of keys, and nearly all of them fail this test. */
  readonly #firsts: (Set<number> | undefined)[] = [];

  constructor(keys: readonly string[]) {
    this.#bits = new Map(keys.map((key, index) => [key, 1 << index]));
    this.#folded = new Set(keys.map(foldKey));
    for (const key of this.#folded) {
      const firsts = this.#firsts[key.length] ?? new Set();
      this.#firsts[key.length] = firsts.add(key.charCodeAt(0));
    }
  }

  /** The key's bit; 0: not judged; -1: not a judged key, yet some readers take it for one. */
  bitOf(key: string): number {
    const firsts = this.#firsts[key.length];
    if (firsts === undefined || !firsts.has(foldCode(key.charCodeAt(0)))) return 0;
    const bit = this.#bits.get(key);
    if (bit !== undefined) return bit;
    return this.#folded.has(foldKey(key)) ? -1 : 0;
  }
}
