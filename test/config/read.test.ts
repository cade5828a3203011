import { chmodSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { formatProblem, loadAny, loadPolicy } from "../../src/config/index.ts";
import { ticketsPolicy, writeConfig } from "./traps.ts";

const sound = ticketsPolicy("    tools: [get_x]\n");

function problemOf(file: string): string {
  const loaded = loadPolicy(file);
  if (loaded.kind === "ok") throw new Error("this was accepted");
  return loaded.problems.map(({ at, message }) => `${at.line}:${at.column} ${message}`).join("\n");
}

describe("reading", () => {
  it("a file that is not there, a folder, a device, a path through a file", () => {
    const folder = dirname(writeConfig("a.yaml", sound));
    expect(problemOf(join(folder, "none.yaml"))).toBe("1:1 this file does not exist");
    expect(problemOf(folder)).toBe("1:1 this file is no regular file");
    expect(problemOf("/dev/zero")).toBe("1:1 this file is no regular file");
    expect(problemOf(join(writeConfig("a.yaml", sound), "b.yaml"))).toBe("1:1 this file does not exist");
  });

  it("a file without permission", () => {
    const file = writeConfig("a.yaml", sound);
    chmodSync(file, 0o000);
    // Modes do not bind root, so root steps down for the look.
    const isRoot = process.geteuid?.() === 0;
    if (isRoot) process.seteuid?.(65534);
    try {
      expect(problemOf(file)).toBe("1:1 this file may not be read by this user");
    } finally {
      if (isRoot) process.seteuid?.(0);
    }
  });

  it("more than 1 MiB is refused, 1 MiB is not", () => {
    const filler = (bytes: number) => `${sound}#${" ".repeat(bytes - Buffer.byteLength(sound) - 1)}`;
    expect(loadPolicy(writeConfig("a.yaml", filler(1024 * 1024))).kind).toBe("ok");
    expect(problemOf(writeConfig("a.yaml", filler(1024 * 1024 + 1)))).toBe("1:1 this file is larger than 1 MiB");
  });

  it("bytes that are not UTF-8, with their place; UTF-16 by name", () => {
    const bytes = Buffer.concat([Buffer.from(ticketsPolicy("    tools: [gr\u00fc")), Buffer.from([0xff, 0x5d])]);
    expect(problemOf(writeConfig("a.yaml", bytes))).toBe("4:16 these bytes are not UTF-8");
    const utf16 = Buffer.from(`\ufeff${sound}`, "utf16le");
    expect(problemOf(writeConfig("a.yaml", utf16))).toBe("1:1 this file is saved as UTF-16");
  });

  it("a byte order mark is dropped and shifts no column", () => {
    expect(loadPolicy(writeConfig("a.yaml", `\ufeff${sound}`)).kind).toBe("ok");
    expect(problemOf(writeConfig("a.yaml", "\ufeffversion: 2\nservers: {}"))).toBe("1:10 `version` must be 1");
  });
});

it("a lone carriage return, and signs that a terminal would obey, never reach a message as they are", () => {
  expect(problemOf(writeConfig("a.yaml", "version: 1\r\nservers: {}\rtool: []"))).toBe("2:12 control character U+000d");
  const message = problemOf(writeConfig("a.yaml", 'version: 1\nservers: {}\n"a\\u001b[2J\\n\\u202e": 1'));
  expect(message).toBe("3:1 unknown key `a\\u{1b}[2J\\u{a}\\u{202e}`");
});

describe("hostile documents", () => {
  it.each([
    ["brackets", "[".repeat(1_000_000)],
    ["braces", "{a: ".repeat(250_000)],
    ["dashes", "- ".repeat(500_000)],
    ["question marks", "? ".repeat(500_000)],
    ["colons", "a: ".repeat(300_000)],
    ["steps", Array.from({ length: 1_400 }, (_, i) => `${" ".repeat(i)}a:`).join("\n")],
    ["dashes in steps", Array.from({ length: 1_000 }, (_, i) => `${" ".repeat(i)}-`).join("\n")],
  ])("%s without end are refused before the parser recurses", (_, yaml) => {
    expect(problemOf(writeConfig("a.yaml", yaml))).toContain("this nests deeper than any configuration does");
  });

  it("C17 whatever the text, it is read or refused with a place, and nothing is thrown", () => {
    const word = fc.constantFrom(
      ..."version: 1|servers:|tickets:|tools:|deny:|grants:|- |  |\n|[|]|{|}|, |: |*|&a |!x |'|\"|#|~|null|true|1|get_x|<<: |? |%YAML 1.1|---|...|\t|\r|\ufeff|\\|\u2028|publicUrl: |relay: |token: |policy: |url: ".split(
        "|",
      ),
    );
    let bad = 0;
    const file = writeConfig("a.yaml", "");
    fc.assert(
      fc.property(fc.array(word, { maxLength: 40 }), (words) => {
        writeFileSync(file, words.join(""));
        const { loaded } = loadAny(file);
        if (loaded.kind === "ok") return;
        bad += 1;
        expect(loaded.problems.length).toBeGreaterThan(0);
        for (const problem of loaded.problems)
          expect(formatProblem(problem)).toMatch(/:[1-9]\d*:[1-9]\d*: .+\n {2}write instead: ./);
      }),
      { numRuns: 1_500 },
    );
    expect(bad).toBeGreaterThan(1_000);
  });
});
