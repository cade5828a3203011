import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ByteScrubber } from "../../src/gateway/byte-scrubber.ts";
import { findEscaped } from "../../src/gateway/escaped-matches.ts";
import { NeedleMatcher } from "../../src/gateway/needle-matcher.ts";

const matcherOf = (...needles: string[]): NeedleMatcher => new NeedleMatcher(needles.map((text) => Buffer.from(text)));

/** What the scrubber must do, said in the plainest way. */
function scrubPlainly(text: string, needles: readonly string[]): string {
  const longestFirst = [...needles].sort((a, b) => b.length - a.length);
  let out = "";
  for (let at = 0; at < text.length; ) {
    const needle = longestFirst.find((candidate) => text.startsWith(candidate, at));
    out += needle === undefined ? text[at] : "[REDACTED:credential]";
    at += needle?.length ?? 1;
  }
  return out;
}

function scrubInPieces(text: string, needles: readonly string[], sizes: readonly number[]): string {
  const scrubber = new ByteScrubber(matcherOf(...needles));
  const out: Buffer[] = [];
  let at = 0;
  for (const size of sizes) {
    out.push(scrubber.push(Buffer.from(text.slice(at, at + size))).bytes);
    at += size;
    const passed = Buffer.concat(out).toString().replaceAll("[REDACTED:credential]", "");
    expect(passed.length).toBeLessThanOrEqual(text.length);
  }
  out.push(scrubber.push(Buffer.from(text.slice(at))).bytes, scrubber.end().bytes);
  return Buffer.concat(out).toString();
}

describe("the byte scrubber", () => {
  // Two letters only: needles overlap, begin and end one another, and repeat.
  const letters = (min: number, max: number) =>
    fc.array(fc.constantFrom("a", "b"), { minLength: min, maxLength: max }).map((all) => all.join(""));

  it("C24 gives the same in pieces as in one, for any needles and any cuts", () => {
    fc.assert(
      fc.property(
        fc.array(letters(3, 9), { minLength: 1, maxLength: 5 }),
        letters(0, 80),
        fc.array(fc.nat(9), { maxLength: 30 }),
        (needles, text, sizes) => {
          expect(scrubInPieces(text, needles, sizes)).toBe(scrubPlainly(text, needles));
        },
      ),
      { numRuns: 5_000 },
    );
  });

  it("C24 finds needles of very different lengths among other bytes, a byte at a time", () => {
    const needles = ["12345678", "12345678-and-more", "x".repeat(700), "secret/one+"];
    const text = `a 1234567 b 12345678 c 12345678-and-mor d 12345678-and-more e ${"x".repeat(1_500)} secret/one secret/one+`;
    expect(scrubInPieces(text, needles, Array(text.length).fill(1))).toBe(scrubPlainly(text, needles));
  });

  it("passes on the very object where nothing was found, and holds back no more than the beginning of a needle", () => {
    const scrubber = new ByteScrubber(matcherOf("top-secret-value"));
    const chunk = Buffer.from("nothing of the kind");
    expect(scrubber.push(chunk)).toEqual({ bytes: chunk, hits: 0 });
    expect(scrubber.push(chunk).bytes).toBe(chunk);
    expect(scrubber.push(Buffer.from("so far top-secret-")).bytes.toString()).toBe("so far ");
    expect(scrubber.push(Buffer.from("values")).bytes.toString()).toBe("[REDACTED:credential]s");
    expect(scrubber.push(Buffer.from("top-sec")).bytes.toString()).toBe("");
    expect(scrubber.end().bytes.toString()).toBe("top-sec");
    expect(scrubber.end().bytes.toString()).toBe("");
  });
});

describe("needles behind escapes", () => {
  const secret = "Sec/ret-1é😀";
  const matcher = matcherOf(secret);
  const places = (text: string): string[] => {
    const bytes = Buffer.from(text);
    return findEscaped(matcher, bytes).map(({ start, end }) => bytes.subarray(start, end).toString());
  };
  const allEscaped = [...Array(secret.length).keys()]
    .map((i) => `\\u${secret.charCodeAt(i).toString(16).padStart(4, "0")}`)
    .join("");

  it.each([
    ["every character", allEscaped],
    ["every character in capitals", allEscaped.toUpperCase().replaceAll("\\U", "\\u")],
    ["a slash", secret.replace("/", "\\/")],
    ["a letter amid the rest", secret.replace("r", "\\u0072")],
    ["escapes that were escaped again", allEscaped.replaceAll("\\", "\\\\")],
    ["and once more", allEscaped.replaceAll("\\", "\\\\\\\\")],
  ])("C24 finds %s, and nothing but that", (_, hidden) => {
    expect(places(`{"n":1\\u00e9,"a":"x\\n\\u00e9${hidden}\\u00e9"}`)).toEqual([hidden]);
  });

  it("is not misled by an escaped backslash, a half escape or half a character", () => {
    expect(places(`"\\\\u0053ec/ret-1é😀 \\u00 \\u00zz \\ud83d \\"`)).toEqual([`\\\\u0053ec/ret-1é😀`]);
    expect(places(`"Sec/ret-1é\\ud83d"`)).toEqual([]);
    expect(places(`"${secret}"`)).toEqual([]);
    expect(places("\\u")).toEqual([]);
  });
});
