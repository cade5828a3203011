import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, it, onTestFinished } from "vitest";
import { formatProblem, loadAny } from "../src/config/index.ts";
import { internalCa } from "./support/internal-ca.ts";
import { readYamlBlocks } from "./support/yaml-blocks.ts";

/** The files that our documents show are files that we accept. */
const documents = ["README.md", "docs/agents.md"];

const path = (document: string): string => fileURLToPath(new URL(`../${document}`, import.meta.url));

describe.each(documents)("%s", (document) => {
  const blocks = readYamlBlocks(readFileSync(path(document), "utf8"));
  const files = Object.keys(blocks).filter((name) => /^(?:relay|gateway|policy)\.yaml$/.test(name));
  let dir: string | undefined;

  afterEach(() => {
    if (dir !== undefined) rmSync(dir, { recursive: true, force: true });
  });

  it("shows a relay and a gateway", () => {
    expect(files).toEqual(expect.arrayContaining(["relay.yaml", "gateway.yaml"]));
  });

  it.each(files)("shows a %s without faults", (name) => {
    dir = mkdtempSync(join(tmpdir(), "postern-docs-"));
    for (const [file, content] of Object.entries(blocks)) writeFileSync(join(dir, file), content);
    const { loaded } = loadAny(join(dir, name));
    expect(loaded.kind === "bad" ? loaded.problems.map(formatProblem) : []).toEqual([]);
  });
});

describe("docs/credentials.md", () => {
  const text = readFileSync(path("docs/credentials.md"), "utf8");
  const sections = [...text.matchAll(/```yaml\n(vault:\n[\s\S]*?)```/g)].map(([, section = ""]) => section);
  const methods = sections.map((section) => /method: (\w+)/.exec(section)?.[1]);

  it("shows every login", () => {
    expect(new Set(methods)).toEqual(new Set(["kubernetes", "jwt", "approle", "token", "cert", "agent"]));
  });

  it.each(sections)("shows a section without faults: %s", (section) => {
    const dir = mkdtempSync(join(tmpdir(), "postern-docs-"));
    onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
    const rest = [
      "relay: { url: wss://relay.example.com, tunnel: acme, token: { file: token } }",
      "servers: { tickets: { url: http://tickets.internal:8080/mcp } }",
      "policy: { version: 1, servers: { tickets: { tools: [get_ticket] } } }",
    ];
    writeFileSync(join(dir, "gateway.yaml"), `${section}\n${rest.join("\n")}\n`);
    const { loaded } = loadAny(join(dir, "gateway.yaml"));
    expect(loaded.kind === "bad" ? loaded.problems.map(formatProblem) : []).toEqual([]);
  });
});

describe("docs/credentials-issued.md", () => {
  it("shows every type", () => {
    const text = readFileSync(path("docs/credentials-issued.md"), "utf8");
    const types = [...text.matchAll(/```yaml\n(servers:\n[\s\S]*?)```/g)].map(
      ([, section = ""]) => /type: (\w+)/.exec(section)?.[1],
    );
    expect(new Set(types)).toEqual(new Set(["mtls", "vaultDynamic", "vaultIdentity"]));
  });
});

describe.each(["docs/credentials.md", "docs/credentials-oauth.md", "docs/credentials-issued.md"])("%s", (document) => {
  const text = readFileSync(path(document), "utf8");
  const blocks = [...text.matchAll(/```yaml\n((?:agents|servers):\n[\s\S]*?)```/g)].map(([, block = ""]) => block);

  it("shows servers", () => expect(blocks.length).toBeGreaterThan(0));

  it.each(blocks)("shows a server without faults: %s", (block) => {
    const dir = mkdtempSync(join(tmpdir(), "postern-docs-"));
    onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
    const name = /servers:\n {2}([a-z]+):/.exec(block)?.[1] ?? "";
    const rest = [
      "relay: { url: wss://relay.example.com, tunnel: acme, token: { file: token } }",
      "vault: { address: https://vault.internal:8200, auth: { method: kubernetes, role: postern } }",
      `policy: { version: 1, servers: { ${name}: { tools: [get_ticket] } } }`,
    ];
    writeFileSync(join(dir, "internal-ca.pem"), internalCa);
    writeFileSync(join(dir, "gateway.yaml"), `${block}\n${rest.join("\n")}\n`);
    const { loaded } = loadAny(join(dir, "gateway.yaml"));
    expect(loaded.kind === "bad" ? loaded.problems.map(formatProblem) : []).toEqual([]);
  });
});

describe("docs/operations.md", () => {
  const source = fileURLToPath(new URL("../src", import.meta.url));
  const code = readdirSync(source, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts"))
    .map((file) => readFileSync(join(source, file), "utf8"))
    .join("\n");
  const rows = readFileSync(path("docs/operations.md"), "utf8")
    .split("## When it fails")[1]
    ?.split("\n")
    .filter((line) => line.startsWith("| "))
    .map((line) => line.split("|").slice(1, 3)) as [symptom: string, line: string][];
  const logged = rows.flatMap(([, line]) => [...line.matchAll(/`([^`]*\w [^`]*)`/g)].map(([, text = ""]) => text));
  const told = rows.flatMap(([symptom]) => [...symptom.matchAll(/"([^"]+)"/g)].map(([, text = ""]) => text));
  const messages = [...logged, ...told].filter((text) => !text.includes("…"));

  it("has a table of symptoms", () => {
    expect(messages.length).toBeGreaterThan(12);
  });

  it.each(messages)("quotes words that the program says: %s", (message) => {
    // Not toContain: a failure would print the whole source.
    expect(code.includes(message)).toBe(true);
  });
});

describe("docs/threat-model.md", () => {
  const rows = [...readFileSync(path("docs/threat-model.md"), "utf8").matchAll(/^\| (L\d\d) \|.*\| ([^|]+) \|$/gm)];
  const tests = fileURLToPath(new URL(".", import.meta.url));
  const idsIn = (file: string): string[] =>
    [...readFileSync(join(tests, file), "utf8").matchAll(/["'`][^"'`\n]*?\bL\d\d\b[^\n]*/g)].flatMap(
      ([title]) => title.match(/\bL\d\d\b/g) ?? [],
    );
  const files = readdirSync(tests, { recursive: true, encoding: "utf8" }).filter(
    (file) => file.endsWith(".test.ts") && file !== "docs.test.ts",
  );
  const found = new Map(files.map((file) => [file.slice(0, -".test.ts".length), new Set(idsIn(file))]));

  it("numbers at least 40 ways out of a credential, each once and in order", () => {
    const ids = rows.map(([, id]) => id);
    expect(ids.length).toBeGreaterThanOrEqual(40);
    expect(ids).toEqual(ids.map((_, i) => `L${String(i + 1).padStart(2, "0")}`));
  });

  it.each(rows.map(([, id = "", by = ""]) => [id, by]))("%s is tried where the table says: %s", (id, by) => {
    for (const word of by.split(", ")) {
      const name = word.includes("/") ? word : `system/leaks-${word}`;
      expect([name, found.get(name)?.has(id)]).toEqual([name, true]);
    }
  });

  it("knows every way that a test tries", () => {
    const known = new Set(rows.map(([, id]) => id));
    expect([...found.values()].flatMap((ids) => [...ids].filter((id) => !known.has(id)))).toEqual([]);
  });
});
