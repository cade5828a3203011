import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { compileSegmented, compileSpanning } from "../../src/policy/pattern.ts";

/** The same meaning by regular expressions, which backtrack. */
function spanningRegExp(pattern: string): RegExp {
  return new RegExp(`^${pattern.split("*").map(escapeText).join(".*")}$`, "s");
}

function segmentedRegExp(pattern: string): RegExp {
  const source = pattern.replace(/\*+|[^*]/gs, (run) => {
    if (!run.startsWith("*")) return escapeText(run);
    return run.length === 1 ? "[^/?#]*" : ".*";
  });
  return new RegExp(`^${source}$`, "s");
}

function escapeText(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
}

const text = fc.string({ unit: fc.constantFrom("a", "b", "/", "?", "#", "\n", "."), maxLength: 12 });
const pattern = fc.string({ unit: fc.constantFrom("a", "b", "*", "/", "*", "?", "."), maxLength: 8 });

describe("patterns", () => {
  it("span like the plain regular expression", () => {
    fc.assert(
      fc.property(pattern, text, (written, name) => {
        expect(compileSpanning(written).matches(name)).toBe(spanningRegExp(written).test(name));
      }),
      { numRuns: 5000 },
    );
  });

  it.each([
    ["ab*ba", "aba", false],
    ["ab*ba", "abba", true],
    ["a*bc*cd", "abcd", false],
    ["a*bc*cd", "abccd", true],
    ["*aa*aa", "aaa", false],
  ])("%s takes no character of %s twice", (written, name, expected) => {
    expect(compileSpanning(written).matches(name)).toBe(expected);
    expect(compileSegmented(written).matches(name)).toBe(expected);
  });

  it("stay within a segment like the plain regular expression", () => {
    fc.assert(
      fc.property(pattern, text, (written, name) => {
        expect(compileSegmented(written).matches(name)).toBe(segmentedRegExp(written).test(name));
      }),
      { numRuns: 5000 },
    );
  });

  it("match what they were made from, half surrogates and all", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: "binary" }), { minLength: 2, maxLength: 5 }), (parts) => {
        const literal = parts.map((part) => part.replaceAll("*", "").replaceAll(/[/?#]/g, ""));
        const name = literal.join("x");
        expect(compileSpanning(literal.join("*")).matches(name)).toBe(true);
        expect(compileSegmented(literal.join("*")).matches(name)).toBe(true);
        expect(compileSegmented(literal.join("**")).matches(name)).toBe(true);
      }),
    );
  });

  it.each([
    ["spanning", compileSpanning],
    ["segmented", compileSegmented],
  ])("%s matching of a hostile name takes a time that grows with its length alone", (_, compile) => {
    const hostile = compile("*a*a*a*a*a*a*a*a*b");
    const started = performance.now();
    expect(hostile.matches("a".repeat(100_000))).toBe(false);
    expect(performance.now() - started).toBeLessThan(5000);
  });
});
