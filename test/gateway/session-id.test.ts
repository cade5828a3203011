import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { SessionIds } from "../../src/gateway/session-id.ts";

function make(tunnel = "acme", instance = "boot1"): SessionIds {
  return new SessionIds({ tunnel, instance });
}

describe("session ids", () => {
  it("C03 an id opens for the server and principal that it was made for, and only there", () => {
    const ids = make();
    const sealed = ids.seal("tickets", "key:a", "abc.def") ?? "";
    expect(sealed).toMatch(/^boot1\.[A-Za-z0-9_-]{22}\.abc\.def$/);
    expect(ids.open("tickets", "key:a", sealed)).toBe("abc.def");
    expect(ids.open("tickets", "key:b", sealed)).toBeUndefined();
    expect(ids.open("crm", "key:a", sealed)).toBeUndefined();
  });

  it("C01 an id of another boot, tunnel or key is unknown", () => {
    const sealed = make().seal("tickets", "key:a", "abc") ?? "";
    expect(make().open("tickets", "key:a", sealed)).toBeUndefined();
    expect(make("acme", "boot2").open("tickets", "key:a", sealed)).toBeUndefined();
  });

  it("the check holds without the memory of earlier ids", () => {
    const ids = make();
    const sealed = ids.seal("tickets", "key:a", "first") ?? "";
    for (let i = 0; i < 5000; i += 1) ids.seal("tickets", "key:a", `id-${i}`);
    expect(ids.open("tickets", "key:b", sealed)).toBeUndefined();
    expect(ids.open("tickets", "key:a", `${sealed}x`)).toBeUndefined();
    expect(ids.open("tickets", "key:a", sealed)).toBe("first");
  });

  it("parts cannot be moved across their borders", () => {
    const ids = make();
    const sealed = ids.seal("ab", "c", "d") ?? "";
    for (let i = 0; i < 5000; i += 1) ids.seal("x", "y", `id-${i}`);
    expect(ids.open("a", "bc", sealed)).toBeUndefined();
  });

  it("no changed byte of an id passes", () => {
    const ids = make();
    const sealed = ids.seal("tickets", "key:a", "0123456789abcdef") ?? "";
    fc.assert(
      fc.property(fc.nat(sealed.length - 1), fc.integer({ min: 0x21, max: 0x7e }), (at, code) => {
        const changed = sealed.slice(0, at) + String.fromCharCode(code) + sealed.slice(at + 1);
        expect(ids.open("tickets", "key:a", changed)).toBe(changed === sealed ? "0123456789abcdef" : undefined);
      }),
    );
  });

  it.each([
    ["blank", "a b"],
    ["control character", "a\u0001"],
    ["beyond ASCII", "é"],
    ["empty", ""],
    ["too long", "x".repeat(4097)],
  ])("an upstream id with %s is not sealed", (_what, id) => {
    expect(make().seal("tickets", "key:a", id)).toBeUndefined();
  });

  it.each(["", ".", "boot1", "boot1.", `boot1.${"A".repeat(22)}.`, `boot1.${"A".repeat(22)}.x`])(
    "an id that was never made is unknown: %s",
    (text) => {
      expect(make().open("tickets", "key:a", text)).toBeUndefined();
    },
  );

  it("an instance with a dot is refused", () => {
    expect(() => make("acme", "a.b")).toThrow(TypeError);
  });
});
