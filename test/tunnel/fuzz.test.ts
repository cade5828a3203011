import { describe, expect, it } from "vitest";
import { fuzzDecoder, fuzzSessions } from "./fuzz.ts";

/** The short form of `npm run fuzz`: the same inputs every time, so that a failure is nobody's bad luck. */
const seed = 20_260;

describe("hostile bytes", () => {
  it("cause nothing but typed faults in the decoder", async () => {
    const { inputs, outcomes } = await fuzzDecoder(seed, 30_000);
    expect(inputs).toBe(30_000);
    // The inputs reach every fault that the decoder can find, and some are in order.
    expect(Object.keys(outcomes).toSorted()).toEqual([
      "bad-increment",
      "bad-length",
      "bad-payload",
      "bad-stream-id",
      "bad-utf8",
      "empty-message",
      "frame-overruns-message",
      "none",
      "short-header",
      "unknown-type",
      "wrong-stream",
    ]);
  });

  it("end a session by a named fault or not at all, and leave no stream, timer or credit", async () => {
    const { inputs, outcomes } = await fuzzSessions(seed, 20_000);
    expect(inputs).toBeGreaterThanOrEqual(20_000);
    const faults = [
      "stream-never-opened",
      "second-head",
      "data-before-head",
      "data-after-end",
      "stream-credit-exceeded",
    ];
    for (const fault of faults) expect(outcomes).toHaveProperty(fault);
    expect(outcomes["none"]).toBeGreaterThan(100);
  });
});
