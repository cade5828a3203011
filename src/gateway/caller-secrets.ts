import { logEndsOf, logFormsOf } from "../lib/index.ts";
import type { Match } from "./needle-matcher.ts";

/**
 * The secrets of all callers of one server, to be found in an answer to another one of them: a server that mixes its
 * callers up must not give the token of one to the next.
 *
 * 1. A secret is known by the last 8 bytes of each of its forms (plain, JSON, base64, hexadecimal digits), since tokens of one
 *    issuer begin alike. Adding one touches nothing else: there is nothing to build anew when secrets change.
 * 2. Nothing is ever taken out singly. What was not used again goes with its generation: at the earliest 10 minutes later, or when
 *    `maxEnds` newer ends have come.
 * 3. The cost of a search is that of the text's length: a hash and a look at a table for each byte.
 */

const endBytes = 8;
/** Shorter ones are what people make up: they stand in texts by chance, and could be found out by trying. */
const minChars = 16;
/** Of one generation: about 20,000 secrets. */
const maxEnds = 128 * 1024;
/** Those that end alike, as with a constant at the end; the latest stay. */
const maxAlike = 8;
const none: string[] = [];
/** A Bloom filter: two bits in one of 65,536 words, so that a byte of a text costs one look at memory that is near. */
const wordCount = 1 << 16;

class Generation {
  readonly since: number;
  /** What ends with these bytes, by their hash; a list only where there are several, as memory counts here. */
  readonly byEnd = new Map<number, string | string[]>();
  /** Which hashes there may be. */
  readonly bits = new Uint32Array(wordCount);

  constructor(since: number) {
    this.since = since;
  }

  add(text: string): void {
    for (const end of new Set(logEndsOf(text))) {
      const bytes = Buffer.from(end);
      if (bytes.length < endBytes) continue;
      const from = bytes.length - endBytes;
      const hash = hashOf(bytes.readInt32BE(from), bytes.readInt32BE(from + 4));
      const alike = this.at(hash).filter((other) => other !== text);
      this.byEnd.set(hash, alike.length === 0 ? text : [...alike, text].slice(-maxAlike));
      this.bits[hash >>> 16] = (this.bits[hash >>> 16] ?? 0) | bitsOf(hash);
    }
  }

  at(hash: number): readonly string[] {
    const found = this.byEnd.get(hash) ?? none;
    return typeof found === "string" ? [found] : found;
  }
}

export class CallerSecrets {
  readonly #keptMs: number;
  #latest = new Generation(Number.NEGATIVE_INFINITY);
  #before = this.#latest;

  /** `keptMs`: how long a secret is looked for after its last use, at least. */
  constructor(keptMs: number) {
    this.#keptMs = keptMs;
  }

  /** Where what is in use must be added again, once it is another one than before. `now`: `Clock.now()`. */
  generationAt(now: number): object {
    const { since, byEnd } = this.#latest;
    if (now - since < this.#keptMs && byEnd.size < maxEnds) return this.#latest;
    this.#before = this.#latest;
    this.#latest = new Generation(now);
    return this.#latest;
  }

  add(texts: readonly string[]): void {
    for (const text of texts) if (text.length >= minChars) this.#latest.add(text);
  }

  /** All places where one of them stands, in no order; they may overlap. */
  find(bytes: Buffer): readonly Match[] {
    const { bits } = this.#latest;
    const { bits: bitsBefore } = this.#before;
    const { length } = bytes;
    const found: Match[] = [];
    let forms: Map<string, readonly Buffer[]> | undefined;
    let high = 0;
    let low = 0;
    for (let at = 0; at < length; ) {
      high = (high << 8) | (low >>> 24);
      low = (low << 8) | (bytes[at] as number);
      at += 1;
      const hash = hashOf(high, low);
      const wanted = bitsOf(hash);
      const word = (bits[hash >>> 16] as number) | (bitsBefore[hash >>> 16] as number);
      if ((word & wanted) !== wanted || !this.#has(hash)) continue;
      forms ??= new Map();
      this.#addMatches(found, bytes, at, hash, forms);
    }
    return found;
  }

  #has(hash: number): boolean {
    return this.#latest.byEnd.has(hash) || this.#before.byEnd.has(hash);
  }

  #addMatches(found: Match[], bytes: Buffer, end: number, hash: number, forms: Map<string, readonly Buffer[]>): void {
    const texts = this.#before === this.#latest ? none : this.#before.at(hash);
    for (const text of [...this.#latest.at(hash), ...texts]) {
      const known = forms.get(text) ?? logFormsOf(text).map((form) => Buffer.from(form));
      forms.set(text, known);
      for (const form of known) {
        const start = end - form.length;
        // The first byte first: whoever repeats the end of a secret must not have us compare all of its forms each time.
        if (start < 0 || bytes[start] !== form[0] || form.compare(bytes, start, end) !== 0) continue;
        found.push({ start, end });
        break;
      }
    }
  }
}

function bitsOf(hash: number): number {
  return (1 << (hash & 31)) | (1 << ((hash >>> 5) & 31));
}

function hashOf(high: number, low: number): number {
  const hash = Math.imul(high, 0x9e3779b1) ^ Math.imul(low, 0x85ebca6b);
  return hash ^ (hash >>> 15);
}
