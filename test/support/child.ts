import { type ChildProcess, spawn } from "node:child_process";

/** A child process whose whole output is kept, for readiness, for messages and for the canary search. */
export interface Child {
  readonly name: string;
  readonly pid: number;
  /** Everything that it has written so far. */
  stdout(): string;
  stderr(): string;
  /** Undefined while it runs; a signal counts as 128. */
  exitCode(): number | undefined;
  signal(name: NodeJS.Signals): void;
  /** Settles when it has ended and its output is complete. */
  readonly ended: Promise<number>;
  /** SIGTERM, then SIGKILL after `graceMs`. Safe when it has already ended. */
  stop(graceMs?: number): Promise<number>;
}

export interface ChildOptions {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

function collect(stream: NodeJS.ReadableStream | null): () => string {
  const chunks: Buffer[] = [];
  stream?.on("data", (chunk: Buffer) => chunks.push(chunk));
  return () => Buffer.concat(chunks).toString("utf8");
}

function whenEnded(process: ChildProcess, note: (code: number) => void): Promise<number> {
  return new Promise((resolve) => {
    const done = (code: number): void => {
      note(code);
      resolve(code);
    };
    process.once("close", (code) => done(code ?? 128));
    process.once("error", () => done(127));
  });
}

export function startChild(options: ChildOptions): Child {
  const process_ = spawn(options.command, options.args, {
    cwd: options.cwd,
    env: { PATH: process.env["PATH"] ?? "", HOME: process.env["HOME"] ?? "", ...options.env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const stdout = collect(process_.stdout);
  const stderr = collect(process_.stderr);
  let exitCode: number | undefined;
  const ended = whenEnded(process_, (code) => {
    exitCode = code;
  });
  return {
    name: options.name,
    pid: process_.pid ?? -1,
    stdout,
    stderr,
    exitCode: () => exitCode,
    signal: (name) => {
      process_.kill(name);
    },
    ended,
    stop: async (graceMs = 10_000) => {
      if (exitCode === undefined) process_.kill("SIGTERM");
      const timer = setTimeout(() => process_.kill("SIGKILL"), graceMs);
      const code = await ended;
      clearTimeout(timer);
      return code;
    },
  };
}
