/**
 * One pass over a JSON text without building its value: checks the grammar (RFC 8259), finds keys that repeat in one
 * object, and tells where the members of the message and of its `params` stand. To build the value would cost several
 * times more, and for a body of tiny objects hold up the event loop for half a second. Recurses no deeper than `maxDepth`.
 */

export type ScanFault =
  | "syntax"
  | "depth"
  /** A key stands twice in one object, compared after unescaping. */
  | "repeat"
  /** A key holds half a surrogate pair. */
  | "surrogate";

/** Key, unescaped, to the text of its value. */
export type MemberTexts = ReadonlyMap<string, string>;

export interface ScannedObject {
  readonly members: MemberTexts;
  /** Of `params`, when that is an object. */
  readonly params: MemberTexts | undefined;
}

const quote = 0x22;
const comma = 0x2c;
const minus = 0x2d;
const dot = 0x2e;
const colon = 0x3a;
const openBracket = 0x5b;
const backslash = 0x5c;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;

/** Scans a text whose first sign is `{`. Depth counts from 1, the outermost object. */
export function scanObject(text: string, maxDepth: number): ScannedObject | ScanFault {
  const scanner = new Scanner(text, maxDepth);
  const fault = scanner.run();
  return fault ?? { members: scanner.members, params: scanner.params };
}

/** Keys up to this many are compared one by one; beyond it a set is made. */
const fewKeys = 8;

class Scanner {
  readonly members = new Map<string, string>();
  params: Map<string, string> | undefined;
  readonly #text: string;
  readonly #maxDepth: number;
  #at = 0;
  /** For each open container: whether it is an object, and where its keys begin in `#keys`. */
  readonly #isObject: boolean[] = [];
  readonly #firstKey: number[] = [];
  readonly #sets: (Set<string> | undefined)[] = [];
  /** Keys of all open objects that have no set. */
  readonly #keys: string[] = [];
  /** How many of `#keys` count; to set the length of an array is slow. */
  #keyCount = 0;
  #depth = 0;
  /** Key and start of the member in progress, of the message and of an object in it. */
  #outerKey = "";
  #outerStart = 0;
  #innerKey = "";
  #innerStart = 0;

  constructor(text: string, maxDepth: number) {
    this.#text = text;
    this.#maxDepth = maxDepth;
  }

  run(): ScanFault | undefined {
    this.#skipBlanks();
    for (;;) {
      const fault = this.#readValue() ?? this.#endValues();
      if (fault === "end") return undefined;
      if (fault !== undefined) return fault;
    }
  }

  /** From the start of a value to its end, or to the start of the first value in it. */
  #readValue(): ScanFault | undefined {
    const code = this.#text.charCodeAt(this.#at);
    if (code === openBrace || code === openBracket) return this.#open(code === openBrace);
    const end = endOfScalar(this.#text, this.#at, code);
    if (end < 0) return "syntax";
    this.#at = end;
    return undefined;
  }

  #open(isObject: boolean): ScanFault | undefined {
    if (this.#depth === this.#maxDepth) return "depth";
    this.#isObject[this.#depth] = isObject;
    this.#firstKey[this.#depth] = this.#keyCount;
    this.#sets[this.#depth] = undefined;
    this.#depth += 1;
    if (isObject && this.#depth === 2 && this.#outerKey === "params") this.params = new Map();
    this.#at += 1;
    this.#skipBlanks();
    if (this.#text.charCodeAt(this.#at) === (isObject ? closeBrace : closeBracket)) {
      this.#close();
      return undefined;
    }
    return (isObject ? this.#readKey() : undefined) ?? this.#readValue();
  }

  #close(): void {
    this.#depth -= 1;
    this.#at += 1;
    this.#keyCount = this.#firstKey[this.#depth] ?? 0;
  }

  /** After a value: closes what ends here, up to the start of the next value. */
  #endValues(): ScanFault | "end" | undefined {
    for (;;) {
      if (this.#depth <= 2) this.#keepMember();
      this.#skipBlanks();
      const code = this.#text.charCodeAt(this.#at);
      if (this.#depth === 0) return this.#at === this.#text.length ? "end" : "syntax";
      const isObject = this.#isObject[this.#depth - 1];
      if (code === comma) {
        this.#at += 1;
        this.#skipBlanks();
        return isObject === true ? this.#readKey() : undefined;
      }
      if (code !== (isObject === true ? closeBrace : closeBracket)) return "syntax";
      this.#close();
    }
  }

  #keepMember(): void {
    if (this.#depth === 1) this.members.set(this.#outerKey, this.#text.slice(this.#outerStart, this.#at));
    else if (this.#depth === 2 && this.#outerKey === "params" && this.#isObject[1] === true) {
      this.params?.set(this.#innerKey, this.#text.slice(this.#innerStart, this.#at));
    }
  }

  /** From the quote of a key to the start of its value. */
  #readKey(): ScanFault | undefined {
    const start = this.#at;
    if (this.#text.charCodeAt(start) !== quote) return "syntax";
    const end = endOfString(this.#text, start);
    if (end < 0) return "syntax";
    let key = this.#text.slice(start + 1, end - 1);
    if (key.includes("\\")) {
      key = JSON.parse(this.#text.slice(start, end)) as string;
      if (hasLoneSurrogate(key)) return "surrogate";
    }
    if (this.#isRepeated(key)) return "repeat";
    this.#at = end;
    this.#skipBlanks();
    if (this.#text.charCodeAt(this.#at) !== colon) return "syntax";
    this.#at += 1;
    this.#skipBlanks();
    this.#startMember(key);
    return undefined;
  }

  #startMember(key: string): void {
    if (this.#depth === 1) {
      this.#outerKey = key;
      this.#outerStart = this.#at;
    } else if (this.#depth === 2) {
      this.#innerKey = key;
      this.#innerStart = this.#at;
    }
  }

  /** Notes a key of the innermost object. */
  #isRepeated(key: string): boolean {
    const level = this.#depth - 1;
    const set = this.#sets[level];
    if (set !== undefined) return set.size === set.add(key).size;
    const keys = this.#keys;
    const first = this.#firstKey[level] ?? 0;
    const count = this.#keyCount;
    for (let i = first; i < count; i += 1) if (keys[i] === key) return true;
    keys[count] = key;
    this.#keyCount = count + 1;
    if (count - first >= fewKeys) this.#sets[level] = new Set(keys.slice(first, count + 1));
    return false;
  }

  #skipBlanks(): void {
    const text = this.#text;
    let at = this.#at;
    for (;;) {
      const code = text.charCodeAt(at);
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) break;
      at += 1;
    }
    this.#at = at;
  }
}

/** The position after the string, number or word that starts at `at` with `code`; negative when it is none. */
function endOfScalar(text: string, at: number, code: number): number {
  switch (code) {
    case quote:
      return endOfString(text, at);
    case 0x74:
      return text.startsWith("true", at) ? at + 4 : -1;
    case 0x66:
      return text.startsWith("false", at) ? at + 5 : -1;
    case 0x6e:
      return text.startsWith("null", at) ? at + 4 : -1;
    default:
      return endOfNumber(text, at, code);
  }
}

function endOfString(text: string, start: number): number {
  let at = start + 1;
  for (;;) {
    const code = text.charCodeAt(at);
    if (code === quote) return at + 1;
    if (code === backslash) {
      at = endOfEscape(text, at);
      if (at < 0) return -1;
    } else if (code >= 0x20) at += 1;
    // A control character, or NaN at the end of the text.
    else return -1;
  }
}

function endOfEscape(text: string, at: number): number {
  const code = text.charCodeAt(at + 1);
  switch (code) {
    case quote:
    case backslash:
    case 0x2f:
    case 0x62:
    case 0x66:
    case 0x6e:
    case 0x72:
    case 0x74:
      return at + 2;
    case 0x75:
      for (let i = at + 2; i < at + 6; i += 1) if (!isHexDigit(text.charCodeAt(i))) return -1;
      return at + 6;
    default:
      return -1;
  }
}

function isHexDigit(code: number): boolean {
  return isDigit(code) || (code >= 0x61 && code <= 0x66) || (code >= 0x41 && code <= 0x46);
}

function isDigit(code: number): boolean {
  return code >= 0x30 && code <= 0x39;
}

function endOfNumber(text: string, start: number, first: number): number {
  let at = first === minus ? start + 1 : start;
  if (text.charCodeAt(at) === 0x30) at += 1;
  else at = endOfDigits(text, at);
  if (at > 0 && text.charCodeAt(at) === dot) at = endOfDigits(text, at + 1);
  if (at < 0) return -1;
  const code = text.charCodeAt(at);
  if (code !== 0x65 && code !== 0x45) return at;
  const sign = text.charCodeAt(at + 1);
  return endOfDigits(text, sign === 0x2b || sign === minus ? at + 2 : at + 1);
}

/** The position after one digit or more; negative when there is none. */
function endOfDigits(text: string, start: number): number {
  let at = start;
  while (isDigit(text.charCodeAt(at))) at += 1;
  return at === start ? -1 : at;
}

/** Whether a string holds half a surrogate pair, which has no UTF-8 form. */
export function hasLoneSurrogate(text: string): boolean {
  return !text.isWellFormed();
}
