import type { Command, CommandIo, ExitCode } from "../../src/cli/io.ts";

/** What a command wrote, line by line, and its exit code. */
export interface Ran {
  readonly code: ExitCode;
  readonly out: readonly string[];
  readonly err: readonly string[];
}

export async function run(command: Command, ...args: string[]): Promise<Ran> {
  const out: string[] = [];
  const err: string[] = [];
  const io: CommandIo = { out: (text) => out.push(text), err: (text) => err.push(text), env: {} };
  const code = await command(args, io);
  return { code, out, err };
}
