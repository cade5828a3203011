/**
 * Patterns of the policy: exact text in which only `*` is special. Case, Unicode forms and blanks count as written. No
 * regular expressions: matching never backtracks, so a hostile name cannot make it slow.
 */
export interface Pattern {
  /** What stands before the first `*`: a cheap test that most texts fail. */
  readonly prefix: string;
  matches(text: string): boolean;
}

/** Whether a pattern names one text only. */
export function isExact(pattern: string): boolean {
  return !pattern.includes("*");
}

function compileExact(pattern: string): Pattern {
  return { prefix: pattern, matches: (text) => text === pattern };
}

/** `*` is any run of characters, line ends and slashes included. `**` is the same. */
export function compileSpanning(pattern: string): Pattern {
  if (isExact(pattern)) return compileExact(pattern);
  const parts = pattern.split("*");
  const first = parts[0] ?? "";
  const last = parts[parts.length - 1] ?? "";
  const middle = parts.slice(1, -1).filter((part) => part !== "");
  return { prefix: first, matches: (text) => matchesParts(text, first, middle, last) };
}

/** Taking each part at its leftmost place leaves the most room for the rest, so no choice has to be undone. */
function matchesParts(text: string, first: string, middle: readonly string[], last: string): boolean {
  if (!text.startsWith(first) || !text.endsWith(last)) return false;
  const end = text.length - last.length;
  let at = first.length;
  for (const part of middle) {
    const found = text.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return at <= end;
}

const star = -1;
const globstar = -2;

/** `*` stays within one segment of a URI (it excludes `/`, `?` and `#`), `**` is any run of characters. */
export function compileSegmented(pattern: string): Pattern {
  if (isExact(pattern)) return compileExact(pattern);
  const prefix = pattern.slice(0, pattern.indexOf("*"));
  const tokens = tokenize(pattern.slice(prefix.length));
  return { prefix, matches: (text) => text.startsWith(prefix) && matchesTokens(text, prefix.length, tokens) };
}

/** Character codes, `star` and `globstar`. */
function tokenize(pattern: string): readonly number[] {
  const tokens: number[] = [];
  for (const [run] of pattern.matchAll(/\*+|[^*]/gs)) {
    if (run.startsWith("*")) tokens.push(run.length === 1 ? star : globstar);
    else for (let i = 0; i < run.length; i += 1) tokens.push(run.charCodeAt(i));
  }
  return tokens;
}

/**
 * Follows every way to match at once: `active` holds the tokens that may come next. One step per character and active
 * token, whatever the text.
 */
function matchesTokens(text: string, start: number, tokens: readonly number[]): boolean {
  const seen = new Int32Array(tokens.length + 1).fill(-1);
  let active: number[] = [];
  let next: number[] = [];
  activate(0, start, tokens, seen, active);
  for (let i = start; i < text.length; i += 1) {
    if (active.length === 0) return false;
    const code = text.charCodeAt(i);
    for (const at of active) {
      const token = tokens[at];
      if (token === globstar || (token === star && !isSeparator(code))) activate(at, i + 1, tokens, seen, next);
      else if (token === code) activate(at + 1, i + 1, tokens, seen, next);
    }
    [active, next] = [next, active];
    next.length = 0;
  }
  return active.includes(tokens.length);
}

/** Adds token `at`, and those behind it that a run of no characters reaches, to the tokens that may come at `position`. */
function activate(at: number, position: number, tokens: readonly number[], seen: Int32Array, active: number[]): void {
  for (let token = at; seen[token] !== position; token += 1) {
    seen[token] = position;
    active.push(token);
    const kind = tokens[token];
    if (kind !== star && kind !== globstar) return;
  }
}

function isSeparator(code: number): boolean {
  return code === 0x2f || code === 0x3f || code === 0x23;
}
