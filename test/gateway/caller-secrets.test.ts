import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CallerSecrets } from "../../src/gateway/caller-secrets.ts";

const keptMs = 600_000;

function secretsOf(texts: readonly string[]): CallerSecrets {
  const secrets = new CallerSecrets(keptMs);
  secrets.generationAt(0);
  secrets.add(texts);
  return secrets;
}

const placesOf = (secrets: CallerSecrets, text: string): string[] =>
  secrets.find(Buffer.from(text)).map(({ start, end }) => Buffer.from(text).subarray(start, end).toString());

describe("the secrets of all callers", () => {
  it("C24 are found wherever a text holds one whole, whatever stands around it", () => {
    // Two letters only: they overlap, hold and end one another.
    const letters = (min: number, max: number) =>
      fc.array(fc.constantFrom("a", "é"), { minLength: min, maxLength: max }).map((all) => all.join(""));
    fc.assert(
      fc.property(fc.uniqueArray(letters(16, 20), { minLength: 1, maxLength: 6 }), letters(0, 120), (texts, text) => {
        // Of those that end alike, one stands for all; the rest is within it or around it.
        const ends = Array.from(text, (_, i) => i + 1).filter((end) =>
          texts.some((secret) => text.slice(0, end).endsWith(secret)),
        );
        const found = placesOf(secretsOf(texts), text);
        expect(
          new Set(
            secretsOf(texts)
              .find(Buffer.from(text))
              .map(({ end }) => end),
          ),
        ).toEqual(new Set(ends.map((end) => Buffer.byteLength(text.slice(0, end)))));
        for (const place of found) expect(texts).toContain(place);
      }),
      { numRuns: 1_000 },
    );
  });

  it("C24 may end alike: the latest eight of those are found", () => {
    const texts = Array.from({ length: 12 }, (_, i) => `secret-${String(i).padStart(2, "0")}-with-a-constant-end`);
    const secrets = secretsOf(texts);
    expect(texts.map((text) => placesOf(secrets, `<${text}>`).length)).toEqual([0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]);
  });

  it("C24 are a bounded number: the oldest go when very many have come", () => {
    const secrets = new CallerSecrets(keptMs);
    const tokenAt = (i: number): string =>
      `token-${String(i).padStart(8, "0")}-${(i * 7919).toString(36).padStart(8, "x")}`;
    const first = secrets.generationAt(0);
    const generations = new Set<object>([first]);
    for (let i = 0; i < 60_000; i += 1) {
      generations.add(secrets.generationAt(1));
      secrets.add([tokenAt(i)]);
    }
    expect(generations.size).toBeGreaterThan(2);
    expect(placesOf(secrets, tokenAt(0))).toEqual([]);
    for (const i of [45_000, 59_999]) expect(placesOf(secrets, tokenAt(i))).toEqual([tokenAt(i)]);
  });

  it("C24 are to be added again when ten minutes are over, and not before", () => {
    const secrets = new CallerSecrets(keptMs);
    const first = secrets.generationAt(5);
    expect(secrets.generationAt(4 + keptMs)).toBe(first);
    expect(secrets.generationAt(5 + keptMs)).not.toBe(first);
  });
});
