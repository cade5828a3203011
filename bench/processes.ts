import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface, type Interface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Job, LoadResult } from "./load.ts";

const firstLineWithinMs = 20_000;

function run(script: string, env: Readonly<Record<string, string>>): ChildProcess {
  const file = fileURLToPath(new URL(script, import.meta.url));
  return spawn(process.execPath, ["--import", "tsx", file], {
    env: { ...process.env, ...env },
    stdio: ["pipe", "pipe", "inherit"],
  });
}

function linesOf(child: ChildProcess): Interface {
  if (child.stdout === null) throw new Error("no stdout");
  return createInterface({ input: child.stdout });
}

export interface Listening {
  readonly port: number;
  readonly pid: number;
  stop(): void;
}

/** Starts a script that prints its port as its first line. */
export async function startListening(script: string, env: Readonly<Record<string, string>> = {}): Promise<Listening> {
  const child = run(script, env);
  const port = await new Promise<number>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${script} printed no port`)), firstLineWithinMs);
    child.once("close", (code) => reject(new Error(`${script} ended with ${code}`)));
    linesOf(child).once("line", (line) => {
      clearTimeout(timer);
      resolve(Number(line));
    });
  });
  return { port, pid: child.pid ?? -1, stop: () => void child.kill() };
}

export interface LoadGenerator {
  perform(job: Job): Promise<LoadResult>;
  stop(): void;
}

export function startLoadGenerator(): LoadGenerator {
  const child = run("./load.ts", {});
  let waiting: { resolve(result: LoadResult): void; reject(error: Error): void } | undefined;
  linesOf(child).on("line", (line) => {
    const answer = JSON.parse(line) as LoadResult | { error: string };
    if ("error" in answer) waiting?.reject(new Error(answer.error));
    else waiting?.resolve(answer);
  });
  child.once("close", (code) => waiting?.reject(new Error(`the load generator ended with ${code}`)));
  return {
    perform: (job) =>
      new Promise((resolve, reject) => {
        waiting = { resolve, reject };
        child.stdin?.write(`${JSON.stringify(job)}\n`);
      }),
    stop: () => void child.kill(),
  };
}

/** Linux counts in hundredths of a second, whatever its kernel was built for. */
const ticksPerSecond = 100;

/** CPU seconds, user and system, that these processes have used so far; undefined where there is no /proc. */
export function cpuSeconds(pids: readonly number[]): number | undefined {
  try {
    const ticks = pids.map((pid) => {
      // Fields 14 and 15; the name in field 2 may hold spaces, so the count starts behind it.
      const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
      return Number(fields[11]) + Number(fields[12]);
    });
    return ticks.reduce((sum, count) => sum + count, 0) / ticksPerSecond;
  } catch {
    return undefined;
  }
}
