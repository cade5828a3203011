import { describe, expect, it } from "vitest";
import { ByName } from "../../src/lib/index.ts";

describe("what is known of a header by its name", () => {
  it("is worked out once for each spelling", () => {
    const asked: string[][] = [];
    const lengths = new ByName((lower, name) => {
      asked.push([lower, name]);
      return lower.length;
    });
    expect(["Accept", "accept", "Accept", "accept"].map((name) => lengths.get(name))).toEqual([6, 6, 6, 6]);
    expect(asked).toEqual([
      ["accept", "Accept"],
      ["accept", "accept"],
    ]);
  });

  it("is remembered for falsy answers too", () => {
    let count = 0;
    const nothing = new ByName(() => {
      count += 1;
      return 0;
    });
    expect([nothing.get("x"), nothing.get("x"), count]).toEqual([0, 0, 1]);
  });

  it("is told of every name, but remembered of a few hundred only: a peer may make up millions", () => {
    let count = 0;
    const names = new ByName((lower) => {
      count += 1;
      return lower;
    });
    const first = Array.from({ length: 512 }, (_, i) => `x-${i}`);
    for (const name of [...first, ...first]) expect(names.get(name)).toBe(name.toLowerCase());
    expect(count).toBe(512);
    for (const name of ["Y-1", "Y-1", ...first]) expect(names.get(name)).toBe(name.toLowerCase());
    expect(count).toBe(512 + 1 + 512);
  });

  it("is not remembered of a name that no header has: a stranger's head may be 64 KiB", () => {
    let count = 0;
    const names = new ByName((lower) => {
      count += 1;
      return lower.length;
    });
    const long = "x".repeat(65);
    expect([names.get(long), names.get(long), count]).toEqual([65, 65, 2]);
  });

  it("of the usual ones is remembered again after a flood of others", () => {
    let count = 0;
    const names = new ByName((lower) => {
      if (lower === "accept") count += 1;
      return lower;
    });
    for (let i = 0; i < 600; i += 1) names.get(`x-${i}`);
    for (let i = 0; i < 10; i += 1) names.get("Accept");
    expect(count).toBe(1);
  });
});
