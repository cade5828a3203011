import { describe, expect, it } from "vitest";
import { findLeaks } from "./canary.ts";
import { noteAnswer, noteRelay, noteSecret, searchEverything } from "./known-secrets.ts";

const secret = "s3cret/tok+en~with:signs?ünd";
const find = (text: string) => findLeaks([{ name: "log", text }], { token: secret });

describe("findLeaks", () => {
  it("finds nothing in clean output", () => {
    expect(find("a line\nanother line with c2VjcmV0\n")).toEqual([]);
  });

  it("finds the raw text", () => {
    expect(find(`Authorization: Bearer ${secret}!`)).toMatchObject([
      { where: "log", secret: "token", encoding: "raw" },
    ]);
  });

  for (const prefix of ["", "B", "Be", "Bearer ", "user:"]) {
    it(`finds base64 with ${prefix.length} bytes before it`, () => {
      const text = Buffer.from(`${prefix}${secret} and more`).toString("base64");
      expect(find(`x ${text} y`).map((leak) => leak.encoding)).toContain("base64");
    });

    it(`finds base64url with ${prefix.length} bytes before it`, () => {
      const text = Buffer.from(`${prefix}${secret}`).toString("base64url");
      expect(find(text).map((leak) => leak.encoding)).toContain("base64url");
    });
  }

  it("finds hex in either case", () => {
    const hex = Buffer.from(`Bearer ${secret}`).toString("hex");
    expect(find(hex).map((leak) => leak.encoding)).toEqual(["hex"]);
    expect(find(hex.toUpperCase()).map((leak) => leak.encoding)).toEqual(["hex"]);
  });

  it("finds percent encoding, of what must be encoded and of all", () => {
    const all = [...Buffer.from(secret)].map((byte) => `%${byte.toString(16).toUpperCase()}`).join("");
    expect(find(encodeURIComponent(secret)).map((leak) => leak.encoding)).toContain("percent");
    expect(find(all).map((leak) => leak.encoding)).toEqual(["percent"]);
  });

  it("refuses a search that could prove nothing", () => {
    expect(() => findLeaks([{ name: "log", text: "" }], { token: secret })).toThrow("no output");
    expect(() => findLeaks([{ name: "log", text: "x" }], {})).toThrow("no secret");
    expect(() => findLeaks([{ name: "log", text: "x" }], { token: "short" })).toThrow("too short");
  });
});

describe("searchEverything", () => {
  const secret = noteSecret("made here", "q7Zp0vXw2LkT9sRb");
  const own = noteSecret("an agent's own", "pak_nBv4XcR1yQe8Wd0K", true);
  const log = (text: string) => [{ name: "log", text }];

  it("C24 finds whatever was made, in whatever was written", () => {
    expect(() => searchEverything(log("nothing here"))).not.toThrow();
    expect(() => searchEverything(log(`token ${secret}`))).toThrow(/made here 0 in log/);
    expect(() => searchEverything(log(Buffer.from(own).toString("hex")))).toThrow(/own 1 in log/);
  });

  it("C24 finds it in what an agent heard from a relay, but for what is the agent's own", () => {
    noteRelay(4711);
    noteAnswer("http://127.0.0.1:4712/acme/a/mcp", new Headers(), secret);
    noteAnswer("http://127.0.0.1:4711/acme/a/mcp", new Headers({ "x-own": own }), own);
    expect(() => searchEverything(log("nothing here"))).not.toThrow();
    noteAnswer("http://127.0.0.1:4711/acme/a/mcp", new Headers({ "x-debug": secret }), "");
    expect(() => searchEverything(log("nothing here"))).toThrow(/made here 0 in an agent/);
  });
});
