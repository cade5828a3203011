import { formatPosition, type Position } from "../lib/index.ts";

/** What is wrong at one place of a file, and what to write there instead. Never holds a value that may be a secret. */
export interface Problem {
  readonly at: Position;
  /** Lower case, one line. */
  readonly message: string;
  /** Continues "write instead:". */
  readonly cure: string;
}

/** A configuration that was read, or everything that is wrong with it. Warnings do not stop a part from starting. */
export type Loaded<T> =
  | { readonly kind: "ok"; readonly config: T; readonly warnings: readonly Problem[] }
  | { readonly kind: "bad"; readonly problems: readonly Problem[] };

/** `file:line:column: message`, and on the next line the cure. */
export function formatProblem(problem: Problem): string {
  return `${formatPosition(problem.at)}: ${problem.message}\n  write instead: ${problem.cure}`;
}

/**
 * A message with every sign written out that a terminal would obey or not show: keys of the author's stand in it, and
 * in quotes YAML admits anything.
 */
export function makePrintable(problem: Problem): Problem {
  const writeOut = (text: string) =>
    text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, (sign) => `\\u{${sign.codePointAt(0)?.toString(16)}}`);
  return { ...problem, message: writeOut(problem.message), cure: writeOut(problem.cure) };
}

/** In the order of the file, so that a reader walks down it once. */
export function sortProblems(problems: readonly Problem[]): Problem[] {
  return problems.toSorted(
    (a, b) => a.at.file.localeCompare(b.at.file) || a.at.line - b.at.line || a.at.column - b.at.column,
  );
}
