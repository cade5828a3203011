/** A place in a file that a person wrote; line and column count from 1. */
export interface Position {
  readonly file: string;
  readonly line: number;
  readonly column: number;
}

export function formatPosition(at: Position): string {
  return `${at.file}:${at.line}:${at.column}`;
}
