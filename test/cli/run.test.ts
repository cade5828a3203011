import { describe, expect, it } from "vitest";
import { exitCodes } from "../../src/cli/io.ts";
import { type RunningPart, runUntilSignal, stopGraceMs } from "../../src/cli/run.ts";
import { silentLogger } from "../../src/telemetry/index.ts";
import { until } from "../support/until.ts";

/** A part whose first, patient stop never ends: an agent holds a stream open. */
class StuckPart implements RunningPart {
  readonly graces: number[] = [];
  readonly failed: Promise<string>;
  fail: (reason: string) => void = () => undefined;

  constructor() {
    this.failed = new Promise((resolve) => {
      this.fail = resolve;
    });
  }

  stop(graceMs: number): Promise<void> {
    this.graces.push(graceMs);
    return graceMs === 0 ? Promise.resolve() : new Promise(() => undefined);
  }
}

describe("a long-running command", () => {
  it("stops with grace at the first signal, and ends what is left at the second", async () => {
    const part = new StuckPart();
    const ended = runUntilSignal(part, silentLogger);
    process.emit("SIGTERM", "SIGTERM");
    await until(() => part.graces.length === 1, "the first stop");
    process.emit("SIGINT", "SIGINT");
    expect(await ended).toBe(exitCodes.done);
    expect(part.graces).toEqual([stopGraceMs, 0]);
  });

  it("fails when its part ends by itself", async () => {
    const part = new StuckPart();
    const ended = runUntilSignal(part, silentLogger);
    part.fail("the listener broke");
    expect(await ended).toBe(exitCodes.failed);
    expect(part.graces).toEqual([0]);
  });
});
