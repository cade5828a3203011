import { inspect } from "node:util";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CredentialError } from "../../src/credentials/errors.ts";
import { headerNameProblem, type Shape, shapeOf } from "../../src/credentials/shapes.ts";
import { Secret } from "../../src/lib/index.ts";

const bearer = shapeOf({ type: "bearer", token: { file: "/run/token" } });
const keyed = shapeOf({ type: "header", name: "X-Api-Key", value: { file: "/run/token" }, prefix: "Token " });
const build = (shape: Shape, ...texts: string[]): readonly string[] =>
  shape.build(texts.map((text) => new Secret(text))).headers;

describe("shapeOf", () => {
  it("builds the bearer header", () => {
    expect(build(bearer, "abc|1:2~")).toEqual(["Authorization", "Bearer abc|1:2~"]);
  });

  it("puts the prefix before the value as it stands", () => {
    expect(build(keyed, "a b")).toEqual(["X-Api-Key", "Token a b"]);
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
      const error = thrownBy(() => build(shape, text));
      expect(error).toMatchObject({ code: "value-invalid", message: expect.stringContaining("file /run/token") });
      expect(inspect(error)).not.toContain("canary");
    }
  });

  it("refuses a bearer value that brings the word Bearer along", () => {
    expect(thrownBy(() => build(bearer, "Bearer abc"))).toMatchObject({
      cure: expect.stringContaining("Bearer"),
    });
  });

  it("builds no value that could end a header line, whatever the secret", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        try {
          const value = build(keyed, text)[1] ?? "";
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

describe("basic", () => {
  const named = shapeOf({ type: "basic", username: "svc-ü", password: { file: "/run/token" } });
  const read = shapeOf({ type: "basic", username: { env: "U" }, password: { file: "/run/token" } });
  const decode = ([, value = ""]: readonly string[]): string =>
    Buffer.from(value.slice("Basic ".length), "base64").toString("utf8");

  it("sends base64 of UTF-8, with the user name as text or from a source", () => {
    // The example of RFC 7617, section 2.1: a pound sign in UTF-8.
    expect(build(shapeOf({ type: "basic", username: "test", password: { env: "X" } }), "123£")).toEqual([
      "Authorization",
      "Basic dGVzdDoxMjPCow==",
    ]);
    expect(decode(build(named, "pass:with:colons "))).toBe("svc-ü:pass:with:colons ");
    expect(decode(build(read, "who\n", "what\r\n"))).toBe("who:what");
  });

  it.each([
    ["a colon in the user name", ["canary:x", "p"], "environment variable U"],
    ["an empty user name", ["\n", "p"], "environment variable U"],
    ["a control character in the user name", ["canary\0", "p"], "environment variable U"],
    ["an empty password", ["u", ""], "file /run/token"],
    ["a control character in the password", ["u", "canary\tx"], "file /run/token"],
    ["a second line in the password", ["u", "canary\nx"], "file /run/token"],
    ["half a character", ["u", "canary\ud800"], "file /run/token"],
    ["the word of a missing value", ["u", "undefined"], "file /run/token"],
    ["more than 8 KiB", ["u", "canary".repeat(2_000)], "file /run/token"],
  ])("refuses %s, without quoting it", (_, texts, place) => {
    const error = thrownBy(() => build(read, ...texts));
    expect(error).toMatchObject({
      code: expect.stringMatching(/^value-/),
      message: expect.stringContaining(place),
    });
    expect(inspect(error)).not.toContain("canary");
  });

  it.each(["a:b", "", "a\nb"])("does not load with the user name %j", (username) => {
    expect(() => shapeOf({ type: "basic", username, password: { env: "X" } })).toThrow(CredentialError);
  });
});

describe("headers", () => {
  it("sets several, from sources and as text, in the order of the file", () => {
    const shape = shapeOf({
      type: "headers",
      headers: { "X-Api-Key": { env: "A" }, "X-Org": "acme", "X-Second": { file: "/run/token" } },
    });
    expect(shape.names).toEqual(["X-Api-Key", "X-Org", "X-Second"]);
    expect(build(shape, "one\n", "two")).toEqual(["X-Api-Key", "one", "X-Org", "acme", "X-Second", "two"]);
    expect(thrownBy(() => build(shape, "one", "canary\n\n"))).toMatchObject({
      code: "value-invalid",
      message: expect.stringContaining("file /run/token"),
    });
  });

  it.each([
    ["no header", {}],
    ["a header that is HTTP's own", { "Mcp-Session-Id": { env: "A" } }],
    ["what agents send", { tracestate: "x" }],
    ["one name in two spellings", { "X-Key": { env: "A" }, "x-key": { env: "B" } }],
    ["a text that cannot be sent", { "X-Org": "a\r\nb: c" }],
    ["an empty text", { "X-Org": "" }],
  ])("does not load with %s", (_, headers) => {
    expect(() => shapeOf({ type: "headers", headers })).toThrow(CredentialError);
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
