import { inspect } from "node:util";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CredentialError } from "../../src/credentials/errors.ts";
import { headerNameProblem, shapeOf } from "../../src/credentials/shapes.ts";
import { Secret } from "../../src/lib/index.ts";

const bearer = shapeOf({ type: "bearer", token: { env: "X" } });
const keyed = shapeOf({ type: "header", name: "X-Api-Key", value: { env: "X" }, prefix: "Token " });

describe("shapeOf", () => {
  it("builds the bearer header", () => {
    expect(bearer.build(new Secret("abc|1:2~"), "here").headers).toEqual(["Authorization", "Bearer abc|1:2~"]);
  });

  it("puts the prefix before the value as it stands", () => {
    expect(keyed.build(new Secret("a b"), "here").headers).toEqual(["X-Api-Key", "Token a b"]);
  });

  it.each([
    ["a line break", "canary\r\nX-Evil: 1"],
    ["a lone newline inside", "canary\nx"],
    ["a second newline at the end", "canary\n\n"],
    ["NUL", "canary\0"],
    ["a tab", "canary\tx"],
    ["DEL", "canary\x7f"],
    ["non-ASCII", "canaryü"],
    ["a leading space", " canary"],
    ["a trailing space", "canary "],
    ["undefined", "undefined"],
    ["null", "null"],
    ["an object that was printed", "[object Object]"],
    ["more than 8 KiB", "canary".repeat(2_000)],
  ])("C27 refuses a value with %s, without quoting it", (_, text) => {
    for (const shape of [bearer, keyed]) {
      const error = thrownBy(() => shape.build(new Secret(text), "file /run/token"));
      expect(error).toMatchObject({ code: "value-invalid", message: expect.stringContaining("file /run/token") });
      expect(inspect(error)).not.toContain("canary");
    }
  });

  it("refuses a bearer value that brings the word Bearer along", () => {
    expect(thrownBy(() => bearer.build(new Secret("Bearer abc"), "here"))).toMatchObject({
      cure: expect.stringContaining("Bearer"),
    });
  });

  it("builds no value that could end a header line, whatever the secret", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        try {
          const value = keyed.build(new Secret(text), "here").headers[1] ?? "";
          expect(value).toMatch(/^Token [\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/);
        } catch (error) {
          expect(error).toBeInstanceOf(CredentialError);
        }
      }),
    );
  });

  it.each([
    "Host",
    "content-length",
    "Content-Type",
    "Mcp-Session-Id",
    "MCP-Protocol-Version",
    "Connection",
    "TE",
    "Transfer-Encoding",
    "Proxy-Authorization",
    "Last-Event-ID",
    "X-Forwarded-For",
    "Traceparent",
    "a b",
    "a:b",
    "",
    "ü",
    "a\n",
  ])("refuses the header name %j", (name) => {
    expect(headerNameProblem(name)).toBeDefined();
    expect(() => shapeOf({ type: "header", name, value: { env: "X" } })).toThrow(CredentialError);
  });

  it.each(["X-Api-Key", "Authorization", "Cookie", "PRIVATE-TOKEN"])("accepts the header name %s", (name) => {
    expect(headerNameProblem(name)).toBeUndefined();
  });

  it("refuses a prefix that cannot be sent", () => {
    expect(() => shapeOf({ type: "header", name: "X-A", value: { env: "X" }, prefix: "a\r\nb: " })).toThrow(
      CredentialError,
    );
  });
});

function thrownBy(act: () => unknown): unknown {
  try {
    act();
  } catch (error) {
    return error;
  }
  return undefined;
}
