import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { RecentMap } from "../../src/lib/index.ts";
import { ManualClock } from "../support/manual-clock.ts";

describe("a bounded memory", () => {
  it("lets go of what was used least recently", () => {
    const map = new RecentMap<number>({ maxSize: 2, idleMs: 1_000, clock: new ManualClock() });
    map.set("a", 1);
    map.set("b", 2);
    expect(map.get("a")).toBe(1);
    map.set("c", 3);
    expect([map.get("a"), map.get("b"), map.get("c"), map.size]).toEqual([1, undefined, 3, 2]);
    map.set("a", 4);
    expect([map.get("a"), map.size]).toEqual([4, 2]);
  });

  it("lets go of what was idle, when anything else is used", () => {
    const clock = new ManualClock();
    const map = new RecentMap<number>({ maxSize: 9, idleMs: 1_000, clock });
    map.set("a", 1);
    map.set("b", 2);
    clock.advance(600);
    expect(map.get("b")).toBe(2);
    clock.advance(600);
    expect([map.get("b"), map.size]).toEqual([2, 1]);
    clock.advance(1_000);
    expect([map.get("b"), map.size]).toEqual([undefined, 0]);
  });

  it("never holds more than it may, and always the latest", () => {
    const key = fc.constantFrom("a", "b", "c", "d", "e", "f");
    const step = fc.record({ key, isSet: fc.boolean(), waitMs: fc.nat(300) });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const clock = new ManualClock();
        const map = new RecentMap<number>({ maxSize: 3, idleMs: 500, clock });
        steps.forEach((one, i) => {
          clock.advance(one.waitMs);
          if (one.isSet) map.set(one.key, i);
          else map.get(one.key);
          expect(map.size).toBeLessThanOrEqual(3);
          if (one.isSet) expect(map.get(one.key)).toBe(i);
        });
      }),
    );
  });
});
