/**
 * Signals and endings of the long-running commands. The order of an ending: stop taking work, let open exchanges finish
 * within the grace, close what is left, exit. A second signal does not wait.
 */
import type { Logger } from "../telemetry/index.ts";
import { type ExitCode, exitCodes } from "./io.ts";

/** A part that runs until it is told to stop. */
export interface RunningPart {
  /** Ends in order; resolves when nothing is left open. A second call may shorten the grace of the first. */
  stop(graceMs: number): Promise<void>;
  /** Settles when the part ended by itself, with the reason; that is fatal for the process. */
  readonly failed: Promise<string>;
}

export const stopGraceMs = 25_000;

/** Waits for SIGTERM or SIGINT (or for the part's own end) and stops the part. */
export async function runUntilSignal(part: RunningPart, logger: Logger): Promise<ExitCode> {
  const ended = await Promise.race([
    nextSignal().then((signal) => ({ kind: "signal" as const, signal })),
    part.failed.then((reason) => ({ kind: "failed" as const, reason })),
  ]);
  if (ended.kind === "failed") {
    logger.error("a part ended by itself", { reason: ended.reason });
    await part.stop(0);
    return exitCodes.failed;
  }
  logger.info("stopping", { signal: ended.signal });
  const hurry = nextSignal().then(async (signal) => {
    logger.warn("stopping at once", { signal });
    await part.stop(0);
  });
  await Promise.race([part.stop(stopGraceMs), hurry]);
  logger.info("stopped");
  return exitCodes.done;
}

function nextSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    const settle = (signal: NodeJS.Signals): void => {
      process.off("SIGTERM", settle);
      process.off("SIGINT", settle);
      resolve(signal);
    };
    process.on("SIGTERM", settle);
    process.on("SIGINT", settle);
  });
}
