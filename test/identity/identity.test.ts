import { createHash } from "node:crypto";
import { inspect } from "node:util";
import { describe, expect, it } from "vitest";
import { createToken, hashToken, KeyTable, keyPrincipal, parseToken, readBearer } from "../../src/identity/index.ts";

describe("tokens", () => {
  it("have the form and the hash that relay.yaml expects", () => {
    for (const [kind, prefix] of [
      ["agent", "pak_"],
      ["tunnel", "ptk_"],
    ] as const) {
      const { token, sha256 } = createToken(kind);
      expect(token.reveal()).toMatch(new RegExp(`^${prefix}[A-Za-z0-9_-]{43}$`));
      expect(sha256).toBe(createHash("sha256").update(token.reveal()).digest("hex"));
      expect(parseToken(token.reveal(), kind)?.reveal()).toBe(token.reveal());
      expect(inspect(token)).not.toContain(token.reveal());
    }
    expect(createToken("agent").sha256).not.toBe(createToken("agent").sha256);
  });

  it("of any other form are refused before they are hashed", () => {
    const good = createToken("agent").token.reveal();
    const bad = [
      undefined,
      "",
      "pak_",
      good.slice(0, -1),
      `${good}A`,
      ` ${good}`,
      `${good}\n`,
      good.replace("pak_", "ptk_"),
    ];
    bad.push(good.toUpperCase(), `pak_${"é".repeat(43)}`, `pak_${"=".repeat(43)}`, `pak_${"+".repeat(43)}`);
    for (const text of bad) expect([text, parseToken(text, "agent")]).toEqual([text, undefined]);
    expect(parseToken(good, "tunnel")).toBeUndefined();
  });

  it("stand in an Authorization header as RFC 6750 has it", () => {
    expect(readBearer("Bearer abc")).toBe("abc");
    expect(readBearer("bearer  abc ")).toBe("abc");
    for (const header of [undefined, "", "Bearer", "Bearer ", "Basic abc", "Bearer a b", "Bearerabc", "X Bearer abc"]) {
      expect([header, readBearer(header)]).toEqual([header, undefined]);
    }
  });
});

describe("a key table", () => {
  it("finds the owner of each of its hashes, and nobody else's", () => {
    const [old, fresh, other, foreign] = [1, 2, 3, 4].map(() => createToken("agent"));
    if (!(old && fresh && other && foreign)) throw new Error("four tokens");
    const table = new KeyTable("agent", [
      { sha256: [old.sha256, fresh.sha256], value: "rotating" },
      { sha256: [other.sha256], value: "other" },
    ]);
    expect([old, fresh, other, foreign].map(({ token }) => table.find(token.reveal()))).toEqual([
      "rotating",
      "rotating",
      "other",
      undefined,
    ]);
    expect(table.find(old.sha256)).toBeUndefined();
    expect(table.find(undefined)).toBeUndefined();
  });

  it("refuses a hash that is malformed or has two owners", () => {
    const { sha256, token } = createToken("agent");
    expect(hashToken(token)).toBe(sha256);
    expect(() => new KeyTable("agent", [{ sha256: [sha256.toUpperCase()], value: 1 }])).toThrow("64 lower-case hex");
    expect(() => new KeyTable("agent", [{ sha256: [sha256.slice(1)], value: 1 }])).toThrow("64 lower-case hex");
    const twice = [
      { sha256: [sha256], value: 1 },
      { sha256: [sha256], value: 2 },
    ];
    expect(() => new KeyTable("agent", twice)).toThrow("stands twice");
  });

  it("names its principal by the entry", () => {
    expect(keyPrincipal("claude-prod")).toEqual({ id: "key:claude-prod", kind: "key", claims: {} });
  });
});
