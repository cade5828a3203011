import { createHash } from "node:crypto";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { encodeCaller, fillPath, globOf, isPerCaller } from "../../src/credentials/caller-path.ts";
import { encodePath } from "../../src/credentials/vault-path.ts";

/** Reads a segment back, as nobody but this test has to. */
function decode(segment: string): string {
  const bytes = segment.replace(/~([0-9a-f]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  return Buffer.from(bytes, "latin1").toString("utf8");
}

/** Text of the kinds that have made one path out of two: separators, dots, escapes, case, composed and wide characters. */
const nasty = fc.array(
  fc.constantFrom(
    ..."ab.Z09/\\%+~-_ #?:@&=;{}<>\u0000\n\u007féİßſK😀é２Ｆ／․",
    "..",
    "%2F",
    "%2f",
    "~2f",
    "~sha256-",
    "/../",
  ),
  { maxLength: 30 },
);
const subject = fc.oneof(
  nasty.map((parts) => parts.join("")),
  fc.string({ unit: "grapheme", maxLength: 300 }),
  fc.string({ unit: "binary", maxLength: 40 }),
);
const id = fc.oneof(
  subject.map((sub) => `oauth:https://idp.example.com#${sub}`),
  fc.tuple(subject, subject).map(([issuer, sub]) => `oauth:${issuer}#${sub}`),
  subject.map((name) => `key:${name}`),
  subject.filter((text) => text !== ""),
);
const isText = (text: string): boolean => !/\p{Surrogate}/u.test(text);

describe("a principal in a path", () => {
  it.each([
    ["key:claude-prod", "key~3aclaude-prod"],
    ["oauth:https://idp.example.com#bob", "oauth~3ahttps~3a~2f~2fidp.example.com~23bob"],
    ["oauth:https://i#../bob", "oauth~3ahttps~3a~2f~2fi~23~2e~2e~2fbob"],
    ["oauth:https://i#%2Fbob", "oauth~3ahttps~3a~2f~2fi~23~252Fbob"],
    ["oauth:https://i#~2fbob", "oauth~3ahttps~3a~2f~2fi~23~7e2fbob"],
    ["oauth:https://i#a.b..c.", "oauth~3ahttps~3a~2f~2fi~23a.b~2e~2ec~2e"],
    ["oauth:https://i#Jürgen 😀", "oauth~3ahttps~3a~2f~2fi~23J~c3~bcrgen~20~f0~9f~98~80"],
    ["oauth:https://i#Bob", "oauth~3ahttps~3a~2f~2fi~23Bob"],
  ])("%s stands as %s", (given, expected) => {
    expect(encodeCaller(given)).toBe(expected);
  });

  it("of great length stands as its hash, as `printf %s ID | sha256sum` gives it", () => {
    const long = `oauth:https://i#${"é".repeat(1_000)}`;
    expect(encodeCaller(long)).toBe(`~sha256-${createHash("sha256").update(long).digest("hex")}`);
    const edge = `key:${"x".repeat(194)}`;
    expect(encodeCaller(edge)).toHaveLength(200);
    expect(encodeCaller(`${edge}x`)).toMatch(/^~sha256-[0-9a-f]{64}$/);
  });

  it("C24 is read back from its text alone, so no two give the same one", () => {
    fc.assert(
      fc.property(id, (one) => {
        fc.pre(isText(one));
        const text = encodeCaller(one);
        if (text.startsWith("~sha256-") && text.length === 72) {
          expect(text).toBe(`~sha256-${createHash("sha256").update(one).digest("hex")}`);
          return;
        }
        expect(decode(text)).toBe(one);
        // Nothing that stands for itself looks like a hash.
        expect(text).not.toMatch(/^~s/);
      }),
      { numRuns: 2_000 },
    );
  });

  it("C24 never leaves its segment, and means nothing to a URL, a store or a policy", () => {
    fc.assert(
      fc.property(id, (one) => {
        fc.pre(isText(one));
        const text = encodeCaller(one);
        expect(text).toMatch(/^(?!\.)(?!.*\.\.)[A-Za-z0-9._~-]{1,200}(?<!\.)$/);
        const path = fillPath("mcp/{principal.id}/x-{principal.id}", one);
        expect(path.split("/")).toEqual(["mcp", text, `x-${text}`]);
        // What goes over the wire is the very text, whatever reads the URL.
        expect(encodePath(path, "path")).toBe(path);
        expect(new URL(`http://v/v1/secret/data/${path}`).pathname).toBe(`/v1/secret/data/${path}`);
      }),
      { numRuns: 2_000 },
    );
  });

  it("C24 of two ids gives two paths in every template", () => {
    const template = fc.constantFrom(
      "{principal.id}",
      "a-{principal.id}",
      "{principal.id}.b/c",
      "x/{principal.id}/{principal.id}",
    );
    fc.assert(
      fc.property(id, id, template, (one, other, path) => {
        fc.pre(isText(one) && isText(other) && one !== other);
        expect(fillPath(path, one)).not.toBe(fillPath(path, other));
      }),
      { numRuns: 2_000 },
    );
  });

  it.each([
    ["half a pair", "oauth:https://i#\ud800"],
    ["the other half", "oauth:https://i#a\udc00"],
    ["nothing", ""],
  ])("C24 that holds %s has no path: others would have the same", (_, one) => {
    expect(() => encodeCaller(one)).toThrowError(expect.objectContaining({ code: "caller-unfit" }));
  });

  it("is one segment, as a policy sees it", () => {
    expect(globOf("mcp/tickets/{principal.id}")).toBe("mcp/tickets/+");
    expect(globOf("mcp/u-{principal.id}/token")).toBe("mcp/+/token");
    expect([isPerCaller("mcp/tickets"), isPerCaller("mcp/{principal.id}")]).toEqual([false, true]);
  });
});
