/** The parts of the JSON grammar (RFC 8259) that are read byte by byte. */

const steps = { sign: 0, zero: 1, int: 2, point: 3, fraction: 4, exponent: 5, exponentSign: 6, digits: 7 } as const;

const dot = 0x2e;
const minus = 0x2d;
const plus = 0x2b;

/** The step after so many letters of a word is eight times its place here, plus that number: always above those of numbers. */
const words = [undefined, "true", "false", "null"];

/** The step after a first byte that may begin a number or a word; -1: it may not. */
export function beginScalar(c: number): number {
  return firstSteps[c] as number;
}

/** The step after the byte `c`; -1: it does not belong to the number or word. */
export function stepScalar(step: number, c: number): number {
  return table[(step << 8) | c] as number;
}

function computeFirstStep(c: number): number {
  if (c === minus) return steps.sign;
  const word = words.findIndex((text) => text?.charCodeAt(0) === c);
  return word < 0 ? computeStep(steps.sign, c) : word * 8 + 1;
}

function computeStep(step: number, c: number): number {
  const word = words[step >> 3];
  if (word !== undefined) return word.charCodeAt(step & 7) === c ? step + 1 : -1;
  const isDigit = c >= 0x30 && c <= 0x39;
  switch (step) {
    case steps.sign:
      if (c === 0x30) return steps.zero;
      return isDigit ? steps.int : -1;
    case steps.int:
      return isDigit ? steps.int : stepPastInteger(c);
    case steps.zero:
      return stepPastInteger(c);
    case steps.fraction:
      if (isDigit) return steps.fraction;
      return isExponentMark(c) ? steps.exponent : -1;
    case steps.exponent:
      if (c === plus || c === minus) return steps.exponentSign;
      return isDigit ? steps.digits : -1;
    case steps.point:
      return isDigit ? steps.fraction : -1;
    default:
      return isDigit ? steps.digits : -1;
  }
}

const firstSteps = Int8Array.from({ length: 256 }, (_, c) => computeFirstStep(c));
/** Every step for every byte: numbers are a large part of what structured results hold. */
const table = Int8Array.from({ length: words.length << 11 }, (_, index) => computeStep(index >> 8, index & 0xff));

/** Whether a number or word may end after this step. */
export function canScalarEnd(step: number): boolean {
  if (step === steps.zero || step === steps.int || step === steps.fraction || step === steps.digits) return true;
  return words[step >> 3]?.length === (step & 7);
}

function stepPastInteger(c: number): number {
  if (c === dot) return steps.point;
  return isExponentMark(c) ? steps.exponent : -1;
}

function isExponentMark(c: number): boolean {
  return c === 0x65 || c === 0x45;
}

/** Whether the character may follow a backslash, beside `u`. */
export function isEscaped(c: number | undefined): boolean {
  // " \ / b f n r t
  return c === 0x22 || c === 0x5c || c === 0x2f || c === 0x62 || c === 0x66 || c === 0x6e || c === 0x72 || c === 0x74;
}

export function isHexDigit(c: number): boolean {
  return (c >= 0x30 && c <= 0x39) || (c >= 0x41 && c <= 0x46) || (c >= 0x61 && c <= 0x66);
}

/** A string that has gone on for so long is read by words: below that, the view of them would cost more than it saves. */
const longBytes = 256;
const lows = 0x01010101;
const highs = 0x80808080;

/** From `at`, inside a string: where its closing quote, an escape that needs care or a control character stands; or the length. */
export function endOfPlain(bytes: Buffer, at: number): number {
  const length = bytes.length;
  const longAt = at + longBytes;
  let i = at;
  while (i < length) {
    const c = bytes[i] as number;
    if (c === 0x22 || c < 0x20) return i;
    if (c !== 0x5c) i += 1;
    else if (isEscaped(bytes[i + 1])) i += 2;
    else return i;
    if (i >= longAt) return endOfLong(bytes, i);
  }
  return length;
}

/** As `endOfPlain`, four bytes at a time. */
function endOfLong(bytes: Buffer, at: number): number {
  const length = bytes.length;
  const view = new DataView(bytes.buffer, bytes.byteOffset, length);
  const lastWord = length - 4;
  let i = at;
  while (i < length) {
    while (i <= lastWord && !hasSpecial(view.getInt32(i))) i += 4;
    if (i >= length) break;
    const c = bytes[i] as number;
    if (c === 0x22 || c < 0x20) return i;
    if (c !== 0x5c) i += 1;
    else if (isEscaped(bytes[i + 1])) i += 2;
    else return i;
  }
  return length;
}

/** Whether any byte of the word is a quote, a backslash or below 0x20: a byte less than its bound borrows into its top bit. */
function hasSpecial(word: number): boolean {
  const quotes = word ^ 0x22222222;
  const backslashes = word ^ 0x5c5c5c5c;
  const borrows = ((word - 0x20202020) & ~word) | ((quotes - lows) & ~quotes) | ((backslashes - lows) & ~backslashes);
  return (borrows & highs) !== 0;
}
