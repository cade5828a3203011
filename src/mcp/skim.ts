import { beginNumber, canNumberEnd, stepNumber } from "./json-number.ts";
import { JudgedKeys } from "./judged-keys.ts";

const states = {
  value: 0,
  firstElement: 1,
  firstKey: 2,
  key: 3,
  colon: 4,
  after: 5,
  string: 6,
  escape: 7,
  hex: 8,
  number: 9,
  literal: 10,
  done: 11,
  broken: 12,
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

const maxDepth = 1024;
/** The longest judged key has 102 bytes when every character is escaped. */
const maxKeyBytes = 128;
/** The longest id or method that is read. */
const maxScalarBytes = 4096;

const trueText = Buffer.from("true");
const falseText = Buffer.from("false");
const nullText = Buffer.from("null");

type Capture = "none" | "key" | "id" | "method";

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
  #numberStep = 0;
  #literal: Buffer = trueText;
  #literalAt = 0;

  #capture: Capture = "none";
  /** Where the captured text begins in the chunk at hand. */
  #captureStart = 0;
  /** What earlier chunks held of it. */
  #carry: Buffer | undefined;
  #isCaptureTooLong = false;

  /** The judged member of the message whose value comes next, or is being read; 0 for any other. */
  #member = 0;
  #isResultObject = false;
  #messageBits = 0;
  #resultBits = 0;
  #root: "unknown" | "object" | "array" | "scalar" = "unknown";
  #isAmbiguous = false;
  #idText: string | undefined;
  #method: string | undefined;

  /** The message is over and was valid JSON. A number at the top level never is: it may go on. */
  get isComplete(): boolean {
    return this.#state === states.done;
  }
  /** Not JSON, or nested deeper than 1,024, or with an id or method over 4 KiB. */
  get isBroken(): boolean {
    return this.#state === states.broken;
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

  /** Reads on; what `push` calls cut a message into makes no difference. Keeps no reference to `chunk`. */
  push(chunk: Buffer): void {
    const length = chunk.length;
    this.#captureStart = 0;
    let i = 0;
    while (i < length) {
      switch (this.#state) {
        case states.string:
          i = this.#readString(chunk, i);
          break;
        case states.escape:
          i = this.#readEscape(chunk, i);
          break;
        case states.hex:
          i = this.#readHex(chunk, i);
          break;
        case states.number:
          i = this.#readNumber(chunk, i);
          break;
        case states.literal:
          i = this.#readLiteral(chunk, i);
          break;
        case states.broken:
          return;
        default:
          i = this.#readStructure(chunk, i);
      }
    }
    if (this.#capture !== "none") this.#keep(chunk, length);
  }

  #readStructure(chunk: Buffer, start: number): number {
    const length = chunk.length;
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
    if (c === 0x22) {
      this.#state = states.string;
      this.#isKey = false;
    } else if (c === 0x7b || c === 0x5b) this.#open(c === 0x7b ? 1 : 0);
    else if (c === 0x74) this.#beginLiteral(trueText);
    else if (c === 0x66) this.#beginLiteral(falseText);
    else if (c === 0x6e) this.#beginLiteral(nullText);
    else {
      this.#numberStep = beginNumber(c);
      this.#state = this.#numberStep < 0 ? states.broken : states.number;
    }
  }

  /** The value of a judged member of the message begins. */
  #beginMember(c: number, at: number): void {
    const isString = c === 0x22;
    if (this.#member === idBit) {
      if (isString || c === 0x6e || beginNumber(c) >= 0) this.#beginCapture("id", at);
      else this.#isAmbiguous = true;
    } else if (this.#member === methodBit) {
      if (isString) this.#beginCapture("method", at + 1);
      else this.#isAmbiguous = true;
    } else if (this.#member === resultBit) this.#isResultObject = c === 0x7b;
  }

  #beginLiteral(text: Buffer): void {
    this.#literal = text;
    this.#literalAt = 1;
    this.#state = states.literal;
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
    if (this.#depth <= 1) this.#member = 0;
    this.#state = this.#depth === 0 ? states.done : states.after;
  }

  #readString(chunk: Buffer, start: number): number {
    const length = chunk.length;
    let i = start;
    while (i < length) {
      const c = chunk[i] as number;
      if (c === 0x22 || c === 0x5c || c < 0x20) break;
      i += 1;
    }
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

  #readEscape(chunk: Buffer, at: number): number {
    const c = chunk[at] as number;
    if (c === 0x75) {
      this.#hexLeft = 4;
      this.#state = states.hex;
    } else this.#state = isEscaped(c) ? states.string : states.broken;
    return at + 1;
  }

  #readHex(chunk: Buffer, at: number): number {
    if (!isHexDigit(chunk[at] as number)) this.#state = states.broken;
    else {
      this.#hexLeft -= 1;
      if (this.#hexLeft === 0) this.#state = states.string;
    }
    return at + 1;
  }

  #readNumber(chunk: Buffer, start: number): number {
    const length = chunk.length;
    for (let i = start; i < length; i += 1) {
      const next = stepNumber(this.#numberStep, chunk[i] as number);
      if (next < 0) {
        if (this.#capture !== "none") this.#endCapture(chunk, i);
        if (!canNumberEnd(this.#numberStep)) this.#state = states.broken;
        else if (this.#state === states.number) this.#endValue();
        return i;
      }
      this.#numberStep = next;
    }
    return length;
  }

  #readLiteral(chunk: Buffer, at: number): number {
    if (chunk[at] !== this.#literal[this.#literalAt]) {
      this.#state = states.broken;
      return at + 1;
    }
    this.#literalAt += 1;
    if (this.#literalAt === this.#literal.length) {
      if (this.#capture !== "none") this.#endCapture(chunk, at + 1);
      this.#endValue();
    }
    return at + 1;
  }

  #beginCapture(capture: Capture, start: number): void {
    this.#capture = capture;
    this.#captureStart = start;
    this.#carry = undefined;
    this.#isCaptureTooLong = false;
  }

  /** Copies what the chunk at hand holds of the captured text, up to the cap. */
  #keep(chunk: Buffer, end: number): void {
    const carried = this.#carry?.length ?? 0;
    const part = chunk.subarray(this.#captureStart, end);
    const cap = this.#capture === "key" ? maxKeyBytes : maxScalarBytes;
    if (carried + part.length > cap) this.#isCaptureTooLong = true;
    else this.#carry = this.#carry === undefined ? Buffer.from(part) : Buffer.concat([this.#carry, part]);
  }

  #endCapture(chunk: Buffer, end: number): void {
    const capture = this.#capture;
    let text = "";
    if (this.#carry === undefined && !this.#isCaptureTooLong) {
      const cap = capture === "key" ? maxKeyBytes : maxScalarBytes;
      if (end - this.#captureStart > cap) this.#isCaptureTooLong = true;
      else text = chunk.toString("utf8", this.#captureStart, end);
    } else {
      this.#keep(chunk, end);
      text = this.#carry?.toString() ?? "";
    }
    this.#capture = "none";
    this.#carry = undefined;
    if (capture === "key") this.#endKey(this.#isCaptureTooLong ? undefined : unescape(text));
    else if (this.#isCaptureTooLong) this.#state = states.broken;
    else if (capture === "id") this.#idText = text;
    else this.#method = unescape(text);
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
    this.#resultBits |= Math.max(bit, 0);
  }
}

/** The text of a string whose grammar has been checked, without its quotes. */
function unescape(text: string): string {
  return text.includes("\\") ? (JSON.parse(`"${text}"`) as string) : text;
}

function isEscaped(c: number): boolean {
  // " \ / b f n r t
  return (
    c === 0x22 || c === 0x5c || c === 0x2f || c === 0x62 || c === 0x66 || c === 0x6e || c === 0x72 || c === 0x74
  );
}

function isHexDigit(c: number): boolean {
  return (c >= 0x30 && c <= 0x39) || (c >= 0x41 && c <= 0x46) || (c >= 0x61 && c <= 0x66);
}
