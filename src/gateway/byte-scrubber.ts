import type { Match, NeedleMatcher } from "./needle-matcher.ts";

/** Stands where a credential stood; says nothing of it. */
export const redaction = Buffer.from("[REDACTED:credential]");

const noBytes = Buffer.alloc(0);

/** What is left of some bytes, and how many times something was taken out. */
export interface Scrubbed {
  /** The bytes themselves, not a copy, where nothing was found. */
  readonly bytes: Buffer;
  readonly hits: number;
}

/**
 * Takes needles out of a stream of bytes, cut anywhere: leftmost first, of those that begin at one place the longest, and
 * so the same as in the whole text. Holds back only what may be the beginning of a needle, always less than the longest.
 */
export class ByteScrubber {
  readonly #matcher: NeedleMatcher;
  #carry = noBytes;

  constructor(matcher: NeedleMatcher) {
    this.#matcher = matcher;
  }

  push(chunk: Buffer): Scrubbed {
    const bytes = this.#carry.length === 0 ? chunk : Buffer.concat([this.#carry, chunk]);
    const matches: Match[] = [];
    let at = 0;
    let held = this.#matcher.findBegun(bytes, at);
    for (;;) {
      const match = this.#matcher.find(bytes, at);
      // A longer needle, or one that begins before the match, may still come.
      if (match === undefined || match.start >= held) break;
      matches.push(match);
      at = match.end;
      if (held < at) held = this.#matcher.findBegun(bytes, at);
    }
    // A copy: a few bytes must not keep a whole chunk alive.
    this.#carry = held === bytes.length ? noBytes : Buffer.from(bytes.subarray(held));
    const passing = held === bytes.length ? bytes : bytes.subarray(0, held);
    return { bytes: redact(passing, matches), hits: matches.length };
  }

  /** What was held back; nothing follows it. */
  end(): Scrubbed {
    const bytes = this.#carry;
    this.#carry = noBytes;
    const matches = findAll(this.#matcher, bytes);
    return { bytes: redact(bytes, matches), hits: matches.length };
  }
}

/** All matches of the whole text. */
export function findAll(matcher: NeedleMatcher, bytes: Buffer): Match[] {
  const matches: Match[] = [];
  for (let match = matcher.find(bytes); match !== undefined; match = matcher.find(bytes, match.end))
    matches.push(match);
  return matches;
}

/** `matches`: in order, none within another. */
export function redact(bytes: Buffer, matches: readonly Match[]): Buffer {
  if (matches.length === 0) return bytes;
  const parts: Buffer[] = [];
  let at = 0;
  for (const { start, end } of matches) {
    parts.push(bytes.subarray(at, start), redaction);
    at = end;
  }
  parts.push(bytes.subarray(at));
  return Buffer.concat(parts);
}
