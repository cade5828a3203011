/**
 * Finds many exact byte strings in one pass: Wu and Manber's search ("A fast algorithm for multi-pattern searching",
 * 1994) with blocks of two bytes. A window as long as the shortest needle jumps over what no needle has in its beginning,
 * so that most bytes are never looked at, and the number of needles hardly matters.
 */

export interface Match {
  readonly start: number;
  /** Exclusive. */
  readonly end: number;
}

const tableBits = 12;
const tableMask = (1 << tableBits) - 1;
const maxShift = 255;
const none: readonly Buffer[] = [];

export class NeedleMatcher {
  /** Of the longest needle. */
  readonly maxBytes: number;
  readonly #window: number;
  /** How far the window may move on, by the hash of its last two bytes; 0: a needle may begin where it begins. */
  readonly #shifts: Uint8Array;
  /** Longest first, by the hash of the last two bytes in the window. */
  readonly #candidates = new Map<number, Buffer[]>();
  /** By their first two bytes. */
  readonly #byStart = new Map<number, Buffer[]>();

  /** 0: the byte stands in no needle; 2: one begins with it. */
  readonly #alphabet = new Uint8Array(256);
  /** A needle has bytes beyond ASCII. */
  isWide = false;

  /** At least one needle, none shorter than 2 bytes. */
  constructor(needles: readonly Buffer[]) {
    this.maxBytes = Math.max(...needles.map(({ length }) => length));
    this.#window = Math.min(maxShift, ...needles.map(({ length }) => length));
    this.#shifts = new Uint8Array(1 << tableBits).fill(this.#window - 1);
    for (const needle of [...needles].sort((a, b) => b.length - a.length)) this.#add(needle);
  }

  #add(needle: Buffer): void {
    // By index: needles are made for very many callers, and an iterator takes ten times as long.
    for (let at = 0; at < needle.length; at += 1) {
      const byte = needle[at] ?? 0;
      this.#alphabet[byte] ||= 1;
      if (byte >= 0x80) this.isWide = true;
    }
    for (let at = 1; at < this.#window; at += 1) {
      const hash = hashAt(needle, at);
      this.#shifts[hash] = Math.min(this.#shifts[hash] ?? 0, this.#window - 1 - at);
    }
    const hash = hashAt(needle, this.#window - 1);
    pushTo(this.#candidates, hash, needle);
    pushTo(this.#byStart, needle.readUInt16BE(0), needle);
    this.#alphabet[needle[0] ?? 0] = 2;
  }

  /** Whether any needle has this byte. */
  hasByte(byte: number): boolean {
    return this.#alphabet[byte] !== 0;
  }

  /** The leftmost match from `from` on, of those that begin there the longest. */
  find(bytes: Buffer, from = 0): Match | undefined {
    const shifts = this.#shifts;
    const last = this.#window - 1;
    const { length } = bytes;
    for (let at = from + last; at < length; ) {
      const hash = (((bytes[at - 1] as number) << 5) ^ (bytes[at] as number)) & tableMask;
      const shift = shifts[hash] as number;
      if (shift > 0) at += shift;
      else {
        const start = at - last;
        const end = this.#matchAt(bytes, start, hash);
        if (end > 0) return { start, end };
        at += 1;
      }
    }
    return undefined;
  }

  #matchAt(bytes: Buffer, start: number, hash: number): number {
    for (const needle of this.#candidates.get(hash) ?? none) {
      const end = start + needle.length;
      if (end <= bytes.length && bytes[start] === needle[0] && needle.compare(bytes, start, end) === 0) return end;
    }
    return 0;
  }

  /** The first place from `from` on whose bytes to the end are the beginning of a needle; `bytes.length` without one. */
  findBegun(bytes: Buffer, from: number): number {
    const { length } = bytes;
    for (let at = Math.max(from, length - this.maxBytes + 1); at < length; at += 1) {
      const first = bytes[at] as number;
      if (this.#alphabet[first] !== 2) continue;
      const left = length - at;
      if (left === 1) return at;
      for (const needle of this.#byStart.get((first << 8) | (bytes[at + 1] as number)) ?? none) {
        if (needle.length > left && needle.compare(bytes, at, length, 0, left) === 0) return at;
      }
    }
    return length;
  }
}

function pushTo(lists: Map<number, Buffer[]>, key: number, needle: Buffer): void {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [needle]);
  else list.push(needle);
}

function hashAt(bytes: Buffer, at: number): number {
  return (((bytes[at - 1] ?? 0) << 5) ^ (bytes[at] ?? 0)) & tableMask;
}
