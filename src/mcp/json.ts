import type { JsonObject } from "./types.ts";

/** What `JSON.parse` does not tell of a text: its depth, how many keys stand in it, and where the top-level id stands. */
export interface Outline {
  /** Deepest nesting; a scalar has 0, `{}` has 1. */
  readonly depth: number;
  /** Keys written in the text, repeats included. Only true of valid JSON. */
  readonly keyCount: number;
  /** The value of the top-level member `id` as it is written, or undefined. */
  readonly idText: string | undefined;
}

const quote = 0x22;
const comma = 0x2c;
const colon = 0x3a;
const openBracket = 0x5b;
const backslash = 0x5c;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;

/**
 * Reads the outline of a JSON text in one pass, in constant memory and without recursion. Checks no grammar: for what
 * is not JSON it returns something, and `JSON.parse` refuses it. Stops early once nesting passes `maxDepth`.
 */
export function outlineJson(text: string, maxDepth: number): Outline {
  let depth = 0;
  let deepest = 0;
  let keyCount = 0;
  let stringStart = -1;
  let stringEnd = -1;
  let valueStart = -1;
  let idText: string | undefined;
  for (let i = 0; i < text.length; i += 1) {
    const code = text.charCodeAt(i);
    if (code < quote) continue;
    switch (code) {
      case quote:
        stringStart = i;
        i = endOfString(text, i);
        stringEnd = i + 1;
        break;
      case colon:
        keyCount += 1;
        if (depth === 1 && isIdKey(text, stringStart, stringEnd)) valueStart = i + 1;
        break;
      case comma:
      case closeBrace:
        if (depth === 1 && valueStart >= 0) {
          idText = text.slice(valueStart, i).trim();
          valueStart = -1;
        }
        if (code === closeBrace) depth -= 1;
        break;
      case closeBracket:
        depth -= 1;
        break;
      case openBrace:
      case openBracket:
        depth += 1;
        if (depth > deepest) deepest = depth;
        if (depth > maxDepth) return { depth, keyCount, idText };
        break;
    }
  }
  return { depth: deepest, keyCount, idText };
}

/** Index of the quote that closes the string opened at `start`, or the length of the text. */
function endOfString(text: string, start: number): number {
  let at = start;
  for (;;) {
    at = text.indexOf('"', at + 1);
    if (at < 0) return text.length;
    let before = at - 1;
    while (before > start && text.charCodeAt(before) === backslash) before -= 1;
    if ((at - before) % 2 === 1) return at;
  }
}

function isIdKey(text: string, start: number, end: number): boolean {
  // The longest way to write "id" is two \u escapes.
  if (start < 0 || end - start > 14) return false;
  const written = text.slice(start, end);
  if (written === '"id"') return true;
  if (!written.includes("\\")) return false;
  try {
    return JSON.parse(written) === "id";
  } catch {
    return false;
  }
}

/** Keys of a parsed value, nested ones included. Fewer than `Outline.keyCount` when a key repeats in some object. */
export function countKeys(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  let count = 0;
  if (Array.isArray(value)) {
    for (const item of value) if (typeof item === "object") count += countKeys(item);
    return count;
  }
  const members = value as Record<string, unknown>;
  const keys = Object.keys(members);
  count = keys.length;
  for (const key of keys) {
    const member = members[key];
    if (typeof member === "object") count += countKeys(member);
  }
  return count;
}

const surrogate = /\p{Surrogate}/u;

/** Whether a string holds half a surrogate pair, which has no UTF-8 form. */
export function hasLoneSurrogate(text: string): boolean {
  return surrogate.test(text);
}

/** Whether some key of a parsed value, nested ones included, holds half a surrogate pair. */
export function hasLoneSurrogateKey(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (Array.isArray(value)) return value.some(hasLoneSurrogateKey);
  return Object.entries(value).some(([key, member]) => hasLoneSurrogate(key) || hasLoneSurrogateKey(member));
}

/** An object of a parsed JSON text; no array, not null. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
