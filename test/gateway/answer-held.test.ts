import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { HeldBytes } from "../../src/gateway/answer-held.ts";
import { ByteBudget } from "../../src/gateway/byte-budget.ts";

describe("HeldBytes", () => {
  it("does not copy a chunk that stays alone", () => {
    const held = new HeldBytes(new ByteBudget(1_000_000));
    const chunk = Buffer.from("x");
    held.add(chunk);
    expect(held.takeJoined()).toBe(chunk);
    expect(held.byteLength).toBe(0);
    expect(held.take()).toEqual([]);
  });

  it("says when all together hold too much, and gives back what it took", () => {
    const budget = new ByteBudget(10);
    const [one, two] = [new HeldBytes(budget), new HeldBytes(budget)];
    expect([one.add(Buffer.alloc(6)), two.add(Buffer.alloc(6)), two.add(Buffer.alloc(4))]).toEqual([true, false, true]);
    expect(two.takeJoined()).toHaveLength(10);
    expect(budget.used).toBe(6);
    one.take();
    expect(budget.used).toBe(0);
  });

  it("packs a dribble", () => {
    const held = new HeldBytes(new ByteBudget(1_000_000));
    for (let i = 0; i < 100_000; i += 1) held.add(Buffer.from([i & 0xff]));
    expect(held.byteLength).toBe(100_000);
    const parts = held.take();
    expect(parts.length).toBeLessThan(10);
    expect(Buffer.concat(parts)).toEqual(Buffer.from(Array.from({ length: 100_000 }, (_, i) => i & 0xff)));
  });

  it("gives back what it was given, in order, again and again", () => {
    const chunk = fc.oneof(fc.uint8Array({ maxLength: 5 }), fc.uint8Array({ minLength: 1_000, maxLength: 1_100 }));
    fc.assert(
      fc.property(fc.array(fc.array(chunk, { maxLength: 40 }), { maxLength: 3 }), (rounds) => {
        const held = new HeldBytes(new ByteBudget(1_000_000));
        for (const chunks of rounds) {
          for (const bytes of chunks) held.add(Buffer.from(bytes));
          expect(Buffer.concat(held.take()).equals(Buffer.concat(chunks))).toBe(true);
        }
      }),
    );
  });
});
