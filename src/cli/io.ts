/** What a command may touch of the process, handed in so that tests can watch it. */
export interface CommandIo {
  /** Writes one result line to standard output. */
  out(text: string): void;
  /** Writes one line for people to standard error. */
  err(text: string): void;
  readonly env: Record<string, string | undefined>;
}

export const exitCodes = { done: 0, failed: 1, usage: 2, denied: 3 } as const;
export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes];

export type Command = (args: readonly string[], io: CommandIo) => Promise<ExitCode>;
