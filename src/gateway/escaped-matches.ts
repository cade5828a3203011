import { findAll } from "./byte-scrubber.ts";
import type { Match, NeedleMatcher } from "./needle-matcher.ts";

/**
 * Needles that a JSON text hides by its escapes (`\u0041` for `A`, `\/` for `/`). The escapes are read where they stand,
 * without a parser: so a duplicate key hides nothing, numbers keep their digits, and only the place of a match is edited.
 */

const backslash = 0x5c;
const slash = 0x2f;
const letterU = 0x75;
/** Texts within texts within texts: a tool's result is often JSON in a JSON string. */
const maxDepth = 3;

const simpleEscapes: { readonly [letter: number]: number } = {
  34: 0x22, // "
  92: 0x5c, // \
  47: 0x2f, // /
  98: 0x08, // b
  102: 0x0c, // f
  110: 0x0a, // n
  114: 0x0d, // r
  116: 0x09, // t
};

/** Bytes without their escapes, and where each came from. */
interface View {
  readonly bytes: Buffer;
  /** In pairs: a place right behind an escape in `bytes`, and in the text. */
  readonly marks: readonly number[];
}

/** Matches in what `bytes` means, as places of `bytes`; in order, none within another. */
export function findEscaped(matcher: NeedleMatcher, bytes: Buffer, depth = maxDepth): Match[] {
  if (depth === 0 || !mayHide(matcher, bytes)) return [];
  const view = withoutEscapes(bytes);
  const matches = merge([...findAll(matcher, view.bytes), ...findEscaped(matcher, view.bytes, depth - 1)]);
  return matches.map(({ start, end }) => ({ start: placeOf(view, start), end: placeOf(view, end) }));
}

/**
 * Whether an escape stands for a byte of a needle, or for a part of an escape. Most texts have none: their escapes are
 * quotes, line ends and letters beyond ASCII. (Escaped quotes and backslashes are in needles of their own.)
 */
function mayHide(matcher: NeedleMatcher, bytes: Buffer): boolean {
  const { length } = bytes;
  for (let at = bytes.indexOf(backslash); at >= 0 && at + 1 < length; at += 1) {
    if (bytes[at] !== backslash) continue;
    const letter = bytes[at + 1] as number;
    if (letter === slash && matcher.hasByte(slash)) return true;
    if (letter !== letterU) continue;
    const unit = readUnit(bytes, at);
    if (unit >= 0x80 ? matcher.isWide : isOfEscape(unit) || matcher.hasByte(unit)) return true;
  }
  return false;
}

function isOfEscape(unit: number): boolean {
  return unit === backslash || unit === letterU || hexDigit(unit) >= 0;
}

/** Joins what overlaps. */
export function merge(matches: readonly Match[]): Match[] {
  const merged: Match[] = [];
  for (const match of [...matches].sort((a, b) => a.start - b.start)) {
    const last = merged.at(-1);
    if (last === undefined || match.start >= last.end) merged.push(match);
    else merged[merged.length - 1] = { start: last.start, end: Math.max(last.end, match.end) };
  }
  return merged;
}

/** Never longer than `bytes`: no escape is shorter than what it stands for. */
function withoutEscapes(bytes: Buffer): View {
  const out = Buffer.allocUnsafe(bytes.length);
  const marks: number[] = [];
  const { length } = bytes;
  let size = 0;
  for (let at = 0; at < length; ) {
    const byte = bytes[at] as number;
    if (byte !== backslash) {
      out[size] = byte;
      size += 1;
      at += 1;
      continue;
    }
    const letter = bytes[at + 1] ?? 0;
    const unit = letter === letterU ? readUnit(bytes, at) : -1;
    if (unit < 0) {
      out[size] = simpleEscapes[letter] ?? letter;
      size += 1;
      at = Math.min(length, at + 2);
    } else if (unit < 0x80) {
      out[size] = unit;
      size += 1;
      at += 6;
    } else {
      const text = isHighHalf(unit) ? pairAt(bytes, at, unit) : String.fromCharCode(unit);
      size += out.write(text, size, "utf8");
      at += 6 * text.length;
    }
    marks.push(size, at);
  }
  return { bytes: out.subarray(0, size), marks };
}

function isHighHalf(unit: number): boolean {
  return unit >= 0xd800 && unit < 0xdc00;
}

/** The character that two escapes stand for; a half without the other stays alone. */
function pairAt(bytes: Buffer, at: number, high: number): string {
  const low = bytes[at + 6] === backslash && bytes[at + 7] === letterU ? readUnit(bytes, at + 6) : -1;
  return low >= 0xdc00 && low < 0xe000 ? String.fromCharCode(high, low) : String.fromCharCode(high);
}

/** The code unit of the `\uXXXX` at `at`; -1: it is none. */
function readUnit(bytes: Buffer, at: number): number {
  let unit = 0;
  for (let i = at + 2; i < at + 6; i += 1) {
    const digit = hexDigit(bytes[i] ?? 0);
    if (digit < 0) return -1;
    unit = unit * 16 + digit;
  }
  return unit;
}

function hexDigit(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const letter = byte | 0x20;
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : -1;
}

/** Where in the text the place `at` of its view is: the last mark before it says how far they are apart. */
function placeOf({ marks }: View, at: number): number {
  let low = 0;
  let high = marks.length / 2;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((marks[2 * middle] ?? 0) <= at) low = middle + 1;
    else high = middle;
  }
  return low === 0 ? at : at - (marks[2 * low - 2] ?? 0) + (marks[2 * low - 1] ?? 0);
}
