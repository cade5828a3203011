import { beginScalar, canScalarEnd, endOfPlain, isEscaped, isHexDigit, stepScalar } from "./json-grammar.ts";
import { JudgedKeys } from "./judged-keys.ts";
import { TextCapture } from "./text-capture.ts";

const states = {
  value: 0,
  firstElement: 1,
  firstKey: 2,
  key: 3,
  colon: 4,
  after: 5,
  string: 6,
  escape: 7,
  scalar: 8,
  done: 9,
  broken: 10,
} as const;

const messageKeys = new JudgedKeys(["jsonrpc", "id", "method", "params", "result", "error"]);
const idBit = messageKeys.bitOf("id");
const methodBit = messageKeys.bitOf("method");
const resultBit = messageKeys.bitOf("result");
const errorBit = messageKeys.bitOf("error");

const listKeys = ["tools", "prompts", "resources", "resourceTemplates"];
const resultKeys = new JudgedKeys([...listKeys, "inputRequests", "resultType"]);
const listBits = listKeys.reduce((bits, key) => bits | resultKeys.bitOf(key), 0);
const inputRequestsBit = resultKeys.bitOf("inputRequests");
const resultTypeBit = resultKeys.bitOf("resultType");

const maxDepth = 1024;
/** The longest judged key has 102 bytes when every character is escaped. */
const maxKeyBytes = 128;
/** The longest id or method that is read. */
const maxScalarBytes = 4096;

type Capture = "none" | "key" | "id" | "method" | "resultType";

/**
 * Learns from one JSON-RPC message, chunk by chunk, what decides over it: its id and method, and which judged members
 * stand in it and in its result. Only the text of short keys, the id and the method is kept: a message of any size
 * costs the same memory.
 *
 * The grammar is RFC 8259 without leniency, so whatever a client's parser accepts has the members that are seen here.
 * A judged key that repeats (first and last wins differ), or that a reader without case would take for one, makes the
 * message ambiguous. Other keys may repeat.
 */
export class MessageSkimmer {
  #state: number = states.value;
  #depth = 0;
  /** Per depth from 1 on: 1 for an object, 0 for an array. */
  #stack = new Uint8Array(32);
  #isKey = false;
  #hexLeft = 0;
  #scalarStep = 0;

  #capture: Capture = "none";
  readonly #text = new TextCapture();

  /** The judged member of the message whose value comes next, or is being read; 0 for any other. */
  #member = 0;
  #isResultObject = false;
  /** As `#member`, of the result. */
  #resultMember = 0;
  #resultType: string | undefined;
  #messageBits = 0;
  #resultBits = 0;
  #root: "unknown" | "object" | "array" | "scalar" = "unknown";
  #isAmbiguous = false;
  #idText: string | undefined;
  #method: string | undefined;

  /** The message is over and was valid JSON. A number or word at the top level never is: it may go on. */
  get isComplete(): boolean {
    return this.#state === states.done;
  }
  /** Not JSON, or nested deeper than 1,024, or with an id or method over 4 KiB. */
  get isBroken(): boolean {
    return this.#state === states.broken;
  }
  /** Nothing but blanks so far. */
  get isBlank(): boolean {
    return this.#root === "unknown" && this.#state !== states.broken;
  }
  get isObject(): boolean {
    return this.#root === "object";
  }
  /** A batch. */
  get isArray(): boolean {
    return this.#root === "array";
  }
  /** Two readers could take it for two different messages. */
  get isAmbiguous(): boolean {
    return this.#isAmbiguous;
  }
  /** Raw JSON text of the id; undefined: none, none yet, or not a string, number or null (then it is ambiguous). */
  get idText(): string | undefined {
    return this.#idText;
  }
  /** The method, unescaped; undefined: none, none yet, or no string (then it is ambiguous). */
  get method(): string | undefined {
    return this.#method;
  }
  get hasMethod(): boolean {
    return (this.#messageBits & methodBit) !== 0;
  }
  get hasResult(): boolean {
    return (this.#messageBits & resultBit) !== 0;
  }
  get hasError(): boolean {
    return (this.#messageBits & errorBit) !== 0;
  }
  /** The result has `tools`, `prompts`, `resources` or `resourceTemplates`. */
  get hasList(): boolean {
    return (this.#resultBits & listBits) !== 0;
  }
  get hasInputRequests(): boolean {
    return (this.#resultBits & inputRequestsBit) !== 0;
  }

  /** The result stands for a task that goes on (SEP-2663), rather than being what was asked for. */
  get isTask(): boolean {
    return this.#resultType === "task";
  }

  /** Reads on; what `push` calls cut a message into makes no difference. Keeps no reference to `chunk`. */
  push(chunk: Buffer): void {
    const length = chunk.length;
    let i = 0;
    while (i < length) {
      switch (this.#state) {
        case states.string:
          i = this.#readString(chunk, i);
          break;
        case states.escape:
          i = this.#readEscape(chunk, i);
          break;
        case states.scalar:
          i = this.#readScalar(chunk, i);
          break;
        case states.broken:
          return;
        default:
          i = this.#isDeep() ? this.#readDeep(chunk, i) : this.#readStructure(chunk, i, length);
      }
    }
    if (this.#capture !== "none") this.#text.suspend(chunk);
  }

  /** Nothing is judged at this depth or below. */
  #isDeep(): boolean {
    return this.#depth > (this.#isResultObject ? 2 : 1);
  }

  /**
   * What `#readStructure` does, for the bulk of a message: in locals, and without a step per string. Leaves it to the
   * others when the depth ends, and when a value is no plain string within the chunk.
   */
  #readDeep(chunk: Buffer, start: number): number {
    const length = chunk.length;
    let isObject = this.#stack[this.#depth] === 1;
    let state = this.#state;
    let i = start;
    while (i < length) {
      const c = chunk[i] as number;
      if (c === 0x22 && state !== states.after && state !== states.colon) {
        const isKey = state === states.key || state === states.firstKey;
        const end = endOfPlain(chunk, i + 1);
        if (end === length || chunk[end] !== 0x22) return this.#leaveInString(isKey, end);
        state = isKey ? states.colon : states.after;
        i = end + 1;
      } else if (c === 0x3a && state === states.colon) {
        state = states.value;
        i += 1;
      } else if (c === 0x2c && state === states.after) {
        state = isObject ? states.key : states.value;
        i += 1;
      } else if (c === 0x20 || c === 0x0a || c === 0x0d || c === 0x09) i += 1;
      else {
        this.#state = state;
        i = this.#readStructure(chunk, i, i + 1);
        if (this.#state >= states.string || !this.#isDeep()) return i;
        isObject = this.#stack[this.#depth] === 1;
        state = this.#state;
      }
    }
    this.#state = state;
    return i;
  }

  #leaveInString(isKey: boolean, at: number): number {
    this.#state = states.string;
    this.#isKey = isKey;
    return at;
  }

  #readStructure(chunk: Buffer, start: number, length: number): number {
    for (let i = start; i < length; i += 1) {
      const c = chunk[i] as number;
      if (c === 0x20 || c === 0x0a || c === 0x0d || c === 0x09) continue;
      switch (this.#state) {
        case states.after:
          this.#readAfter(c);
          continue;
        case states.colon:
          this.#state = c === 0x3a ? states.value : states.broken;
          continue;
        case states.firstKey:
          if (c === 0x7d) {
            this.#close(1);
            continue;
          }
          return this.#beginKey(c, i);
        case states.key:
          return this.#beginKey(c, i);
        case states.firstElement:
          if (c === 0x5d) {
            this.#close(0);
            continue;
          }
          break;
        case states.value:
          break;
        default:
          this.#state = states.broken;
          return length;
      }
      this.#beginValue(c, i);
      if (!this.#isJustOpened()) return i + 1;
    }
    return length;
  }

  #isJustOpened(): boolean {
    return this.#state === states.firstKey || this.#state === states.firstElement;
  }

  #readAfter(c: number): void {
    const isObject = this.#stack[this.#depth] === 1;
    if (c === 0x2c) this.#state = isObject ? states.key : states.value;
    else if (c === 0x7d) this.#close(1);
    else if (c === 0x5d) this.#close(0);
    else this.#state = states.broken;
  }

  #beginKey(c: number, at: number): number {
    if (c !== 0x22) {
      this.#state = states.broken;
      return at + 1;
    }
    this.#state = states.string;
    this.#isKey = true;
    if (this.#depth === 1 || (this.#depth === 2 && this.#isResultObject)) this.#beginCapture("key", at + 1);
    return at + 1;
  }

  #beginValue(c: number, at: number): void {
    if (this.#depth === 0) this.#root = c === 0x7b ? "object" : c === 0x5b ? "array" : "scalar";
    else if (this.#depth === 1 && this.#member !== 0) this.#beginMember(c, at);
    else if (this.#isResultObject && this.#depth === 2 && this.#resultMember === resultTypeBit && c === 0x22) {
      this.#beginCapture("resultType", at + 1);
    }
    if (c === 0x22) {
      this.#state = states.string;
      this.#isKey = false;
    } else if (c === 0x7b || c === 0x5b) this.#open(c === 0x7b ? 1 : 0);
    else {
      this.#scalarStep = beginScalar(c);
      this.#state = this.#scalarStep < 0 ? states.broken : states.scalar;
    }
  }

  /** The value of a judged member of the message begins. */
  #beginMember(c: number, at: number): void {
    const isString = c === 0x22;
    if (this.#member === idBit) {
      // Neither an object or array, nor `true` or `false`.
      if (isString || (beginScalar(c) >= 0 && c !== 0x74 && c !== 0x66)) this.#beginCapture("id", at);
      else this.#isAmbiguous = true;
    } else if (this.#member === methodBit) {
      if (isString) this.#beginCapture("method", at + 1);
      else this.#isAmbiguous = true;
    } else if (this.#member === resultBit) this.#isResultObject = c === 0x7b;
  }

  #open(isObject: 0 | 1): void {
    this.#depth += 1;
    if (this.#depth > maxDepth) {
      this.#state = states.broken;
      return;
    }
    if (this.#depth >= this.#stack.length) {
      const wider = new Uint8Array(this.#stack.length * 2);
      wider.set(this.#stack);
      this.#stack = wider;
    }
    this.#stack[this.#depth] = isObject;
    this.#state = isObject === 1 ? states.firstKey : states.firstElement;
  }

  #close(isObject: 0 | 1): void {
    if (this.#depth === 0 || this.#stack[this.#depth] !== isObject) {
      this.#state = states.broken;
      return;
    }
    this.#depth -= 1;
    if (this.#depth === 1) this.#isResultObject = false;
    this.#endValue();
  }

  #endValue(): void {
    this.#state = this.#depth === 0 ? states.done : states.after;
  }

  #readString(chunk: Buffer, start: number): number {
    const length = chunk.length;
    const i = endOfPlain(chunk, start);
    if (i === length) return i;
    const c = chunk[i];
    if (c === 0x5c) this.#state = states.escape;
    else if (c === 0x22) this.#endString(chunk, i);
    else this.#state = states.broken;
    return i + 1;
  }

  #endString(chunk: Buffer, at: number): void {
    const isKey = this.#isKey;
    if (this.#capture !== "none") this.#endCapture(chunk, this.#capture === "id" ? at + 1 : at);
    if (isKey && this.#state === states.string) this.#state = states.colon;
    else if (this.#state === states.string) this.#endValue();
  }

  /** What follows a backslash: one character, or `u` and four digits. */
  #readEscape(chunk: Buffer, at: number): number {
    const c = chunk[at] as number;
    if (this.#hexLeft > 0) {
      this.#hexLeft -= 1;
      if (!isHexDigit(c)) this.#state = states.broken;
      else if (this.#hexLeft === 0) this.#state = states.string;
    } else if (c === 0x75) this.#hexLeft = 4;
    else this.#state = isEscaped(c) ? states.string : states.broken;
    return at + 1;
  }

  #readScalar(chunk: Buffer, start: number): number {
    const length = chunk.length;
    for (let i = start; i < length; i += 1) {
      const next = stepScalar(this.#scalarStep, chunk[i] as number);
      if (next < 0) {
        if (this.#capture !== "none") this.#endCapture(chunk, i);
        if (!canScalarEnd(this.#scalarStep)) this.#state = states.broken;
        else if (this.#state === states.scalar) this.#endValue();
        return i;
      }
      this.#scalarStep = next;
    }
    return length;
  }

  #beginCapture(capture: Capture, start: number): void {
    this.#capture = capture;
    this.#text.begin(start, capture === "key" ? maxKeyBytes : maxScalarBytes);
  }

  #endCapture(chunk: Buffer, end: number): void {
    const capture = this.#capture;
    const text = this.#text.end(chunk, end);
    this.#capture = "none";
    if (capture === "key") this.#endKey(text === undefined ? undefined : unescapeText(text));
    else if (capture === "resultType") this.#resultType = text === undefined ? undefined : unescapeText(text);
    else if (text === undefined) this.#state = states.broken;
    else if (capture === "id") this.#idText = text;
    else this.#method = unescapeText(text);
  }

  /** `undefined`: too long for any judged key. */
  #endKey(key: string | undefined): void {
    if (this.#depth === 1) {
      const bit = key === undefined ? 0 : messageKeys.bitOf(key);
      if (bit < 0 || (bit & this.#messageBits) !== 0) this.#isAmbiguous = true;
      this.#member = Math.max(bit, 0);
      this.#messageBits |= this.#member;
      return;
    }
    const bit = key === undefined ? 0 : resultKeys.bitOf(key);
    if (bit < 0 || (bit & this.#resultBits) !== 0) this.#isAmbiguous = true;
    this.#resultMember = Math.max(bit, 0);
    this.#resultBits |= this.#resultMember;
  }
}

/** The text of a string whose grammar has been checked, without its quotes. */
function unescapeText(text: string): string {
  return text.includes("\\") ? (JSON.parse(`"${text}"`) as string) : text;
}
