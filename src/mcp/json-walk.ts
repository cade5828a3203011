import { isUtf8 } from "node:buffer";

/** Walks over a JSON text that is known to be valid, by byte positions, so that what is kept keeps its bytes. */

const maxDepth = 2048;

/** Where the next value, key or sign begins. */
export function skipSpace(bytes: Buffer, at: number): number {
  let i = at;
  for (;;) {
    const c = bytes[i];
    if (c !== 0x20 && c !== 0x0a && c !== 0x0d && c !== 0x09) return i;
    i += 1;
  }
}

/** The position after the string whose quote stands at `at`. */
function skipString(bytes: Buffer, at: number): number {
  const length = bytes.length;
  for (let i = at + 1; i < length; i += 1) {
    const c = bytes[i];
    if (c === 0x22) return i + 1;
    if (c === 0x5c) i += 1;
  }
  return length;
}

/** The position after the value that begins at `at`. */
function skipValue(bytes: Buffer, at: number): number {
  const length = bytes.length;
  let depth = 0;
  let i = at;
  while (i < length) {
    const c = bytes[i];
    if (c === 0x22) {
      i = skipString(bytes, i);
      if (depth === 0) return i;
      continue;
    }
    if (c === 0x7b || c === 0x5b) depth += 1;
    else if (c === 0x7d || c === 0x5d) {
      depth -= 1;
      if (depth <= 0) return depth < 0 ? i : i + 1;
    } else if (depth === 0 && isScalarEnd(c)) return i;
    i += 1;
    if (depth > maxDepth) return length;
  }
  return length;
}

function isScalarEnd(c: number | undefined): boolean {
  return c === 0x2c || c === 0x20 || c === 0x0a || c === 0x0d || c === 0x09;
}

/** A value's place: `end` is the position after its last byte. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

/** Visits the members of the object at `at` in order, repeated keys included; visits nothing if it is no object. */
export function eachMember(bytes: Buffer, at: number, visit: (key: string, value: Span) => void): void {
  if (bytes[at] !== 0x7b) return;
  let i = skipSpace(bytes, at + 1);
  while (bytes[i] === 0x22) {
    const keyEnd = skipString(bytes, i);
    const start = skipSpace(bytes, skipSpace(bytes, keyEnd) + 1);
    const end = skipValue(bytes, start);
    visit(textOf(bytes, i + 1, keyEnd - 1), { start, end });
    i = skipSpace(bytes, end);
    if (bytes[i] !== 0x2c) return;
    i = skipSpace(bytes, i + 1);
  }
}

/** More than any list has; an object is made for each. */
const maxElements = 100_000;

/** The elements of the array at `at`; undefined if it is no array, or has more than 100,000. */
export function elementsOf(bytes: Buffer, at: number): Span[] | undefined {
  if (bytes[at] !== 0x5b) return undefined;
  const elements: Span[] = [];
  let start = skipSpace(bytes, at + 1);
  if (bytes[start] === 0x5d) return elements;
  while (start < bytes.length) {
    if (elements.length === maxElements) return undefined;
    const end = skipValue(bytes, start);
    elements.push({ start, end });
    const next = skipSpace(bytes, end);
    if (bytes[next] !== 0x2c) break;
    start = skipSpace(bytes, next + 1);
  }
  return elements;
}

/** The text of the string at `value`; undefined if it is no string or no valid UTF-8. */
export function stringAt(bytes: Buffer, value: Span): string | undefined {
  if (bytes[value.start] !== 0x22) return undefined;
  if (!isUtf8(bytes.subarray(value.start, value.end))) return undefined;
  return textOf(bytes, value.start + 1, value.end - 1);
}

function textOf(bytes: Buffer, start: number, end: number): string {
  const text = bytes.toString("utf8", start, end);
  return text.includes("\\") ? (JSON.parse(`"${text}"`) as string) : text;
}
