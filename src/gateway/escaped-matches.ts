import { findAll } from "./byte-scrubber.ts";
import type { Match, NeedleMatcher } from "./needle-matcher.ts";

/**
 * Needles that a JSON text hides by its escapes (`\u0041` for `A`, `\/` for `/`). The escapes are read where they stand,
 * without a parser: so a duplicate key hides nothing, numbers keep their digits, and only the place of a match is edited.
 */

const backslash = 0x5c;
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
  if (depth === 0 || !mayHide(bytes)) return [];
  const view = withoutEscapes(bytes);
  const matches = merge([...findAll(matcher, view.bytes), ...findEscaped(matcher, view.bytes, depth - 1)]);
  return matches.map(({ start, end }) => ({ start: placeOf(view, start), end: placeOf(view, end) }));
}

/** The other escapes are needles of their own, since every encoder writes them alike. */
function mayHide(bytes: Buffer): boolean {
  return bytes.includes("\\u") || bytes.includes("\\/");
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
  let at = 0;
  let size = 0;
  for (;;) {
    const next = bytes.indexOf(backslash, at);
    const end = next < 0 ? bytes.length : next;
    size += bytes.copy(out, size, at, end);
    if (next < 0) return { bytes: out.subarray(0, size), marks };
    at = next + 2;
    const letter = bytes[next + 1] ?? 0;
    const unit = letter === letterU ? readUnit(bytes, next) : undefined;
    if (unit !== undefined) {
      at = next + unit.length;
      size += out.write(unit.text, size, "utf8");
    } else {
      out[size] = simpleEscapes[letter] ?? letter;
      size += 1;
    }
    marks.push(size, Math.min(at, bytes.length));
  }
}

/** One `\uXXXX`, or two that are one character. */
function readUnit(bytes: Buffer, at: number): { text: string; length: number } | undefined {
  const read = bytes.toString("latin1", at, at + 12);
  const pair = /^\\u(d[89ab][\da-f]{2})\\u(d[c-f][\da-f]{2})/i.exec(read);
  if (pair !== null) return { text: fromHex(pair[1]) + fromHex(pair[2]), length: 12 };
  const single = /^\\u([\da-f]{4})/i.exec(read);
  return single === null ? undefined : { text: fromHex(single[1]), length: 6 };
}

function fromHex(digits: string | undefined): string {
  return String.fromCharCode(Number.parseInt(digits ?? "0", 16));
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
