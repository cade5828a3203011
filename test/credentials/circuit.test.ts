import { describe, expect, it } from "vitest";
import { Circuit } from "../../src/credentials/circuit.ts";
import { VaultFailure } from "../../src/credentials/vault-failure.ts";
import { ManualClock } from "../support/manual-clock.ts";

const sealed = new VaultFailure("status", "status 503", { status: 503 });

function setUp(random = 0.5) {
  const clock = new ManualClock();
  const waits: number[] = [];
  const closed: number[] = [];
  const circuit = new Circuit({
    clock,
    random: () => random,
    onOpen: (_, waitMs) => waits.push(waitMs),
    onClose: (ms) => closed.push(ms),
  });
  const fail = (): void => circuit.end(circuit.begin(), "down", sealed);
  const open = (): void => [1, 2, 3].forEach(fail);
  return { clock, circuit, waits, closed, fail, open };
}

describe("Circuit", () => {
  it("C28 opens at the third failure in a row, which a sign of life begins anew", () => {
    const { circuit, fail, waits } = setUp();
    fail();
    fail();
    circuit.end(circuit.begin(), "alive");
    fail();
    fail();
    expect(circuit.blocked).toBeUndefined();
    fail();
    expect(circuit.blocked).toBe(sealed);
    expect(waits).toEqual([1_000]);
  });

  it("C28 takes failures that ran side by side for one: a lost connection takes many requests along", () => {
    const { circuit } = setUp();
    for (const round of [1, 2, 3]) {
      expect(circuit.blocked, `before round ${round}`).toBeUndefined();
      const together = Array.from({ length: 50 }, () => circuit.begin());
      for (const attempt of together) circuit.end(attempt, "down", sealed);
    }
    expect(circuit.blocked).toBe(sealed);
  });

  it("C28 lets exactly one through after the pause, and the next only after a longer one", () => {
    const { circuit, clock, open } = setUp(0.999_999);
    open();
    clock.advance(999);
    expect(circuit.blocked).toBe(sealed);
    clock.advance(1);
    expect(circuit.blocked).toBeUndefined();
    const probe = circuit.begin();
    clock.advance(3_600_000);
    expect(circuit.blocked, "while the probe is on its way").toBe(sealed);
    circuit.end(probe, "down", sealed);
    clock.advance(1_990);
    expect(circuit.blocked, "within the second pause").toBe(sealed);
    clock.advance(10);
    expect(circuit.blocked).toBeUndefined();
  });

  it.each([
    [0, 1_000, 1_000],
    [0.999_999, 59_000, 60_000],
  ])("C28 pauses at least a second and at most a minute (random %d)", (random, least, most) => {
    const { circuit, clock, open, fail } = setUp(random);
    open();
    for (let i = 0; i < 20; i += 1) {
      clock.advance(60_000);
      fail();
    }
    clock.advance(least - 1);
    expect(circuit.blocked).toBe(sealed);
    clock.advance(most - least + 1);
    expect(circuit.blocked).toBeUndefined();
  });

  it("C28 closes with the first sign of life, whoever brings it, and pauses briefly the next time", () => {
    const { circuit, clock, open, waits, closed, fail } = setUp(0.999_999);
    const early = circuit.begin();
    open();
    for (let i = 0; i < 5; i += 1) {
      clock.advance(60_000);
      fail();
    }
    circuit.end(early, "alive");
    expect([circuit.blocked, circuit.openForMs]).toEqual([undefined, undefined]);
    expect(closed).toEqual([300_000]);
    open();
    expect(waits.map((ms) => Math.round(ms))).toEqual([1_000, 1_000]);
  });

  it("C28 lets another probe at once where one came to nothing", () => {
    const { circuit, clock, open } = setUp();
    open();
    clock.advance(1_000);
    circuit.end(circuit.begin(), "unknown");
    expect(circuit.blocked).toBeUndefined();
    expect(circuit.openForMs).toBe(1_000);
  });

  it("C28 is not held up by what was asked although it was open, and failed", () => {
    const { circuit, clock, open } = setUp();
    open();
    circuit.end(circuit.begin(), "down", sealed);
    clock.advance(1_000);
    expect(circuit.blocked).toBeUndefined();
  });
});
