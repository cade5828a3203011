/** The grammar of a JSON number (RFC 8259, section 6), one character at a time. */

const steps = { sign: 0, zero: 1, int: 2, point: 3, fraction: 4, exponent: 5, exponentSign: 6, digits: 7 } as const;

const dot = 0x2e;
const minus = 0x2d;
const plus = 0x2b;

/** The step after a first character that may begin a number; -1: it may not. */
export function beginNumber(c: number): number {
  return c === minus ? steps.sign : stepNumber(steps.sign, c);
}

/** The step after `c`; -1: it does not belong to the number. */
export function stepNumber(step: number, c: number): number {
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

/** Whether a number may end after this step. */
export function canNumberEnd(step: number): boolean {
  return step === steps.zero || step === steps.int || step === steps.fraction || step === steps.digits;
}

function stepPastInteger(c: number): number {
  if (c === dot) return steps.point;
  return isExponentMark(c) ? steps.exponent : -1;
}

function isExponentMark(c: number): boolean {
  return c === 0x65 || c === 0x45;
}
