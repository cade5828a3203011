import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { format, inspect } from "node:util";
import pino from "pino";
import { afterAll, describe, expect, it } from "vitest";
import { loadGatewayConfig } from "../../src/config/index.ts";
import { type CredentialOptions, createCredentials } from "../../src/credentials/index.ts";
import { Secret, systemClock } from "../../src/lib/index.ts";
import { silentLogger } from "../../src/telemetry/index.ts";
import { findLeaks } from "../support/canary.ts";
import { agent, open } from "./harness.ts";

/** What prints a value, or copies all that it holds. */
const printers: { readonly [name: string]: (value: object) => string } = {
  inspect: (value) => inspect(value, { depth: null, showHidden: true, getters: true }),
  "inspect without custom": (value) => inspect(value, { depth: null, showHidden: true, customInspect: false }),
  "%o": (value) => format("%o", value),
  "%O %s %j": (value) => format("%O %s %j", value, value, value),
  JSON: (value) => JSON.stringify({ value, list: [value] }),
  template: (value) => `${value}`,
  concatenation: (value) => `x${String(value)}`,
  spread: (value) => JSON.stringify({ ...value }),
  entries: (value) => inspect([Object.entries(value), Object.getOwnPropertyNames(value), Reflect.ownKeys(value)]),
  "an error's cause": (value) => inspect(new Error("x", { cause: value }), { depth: null }),
  "a property of an error": (value) => inspect(Object.assign(new Error("x"), { value }), { depth: null }),
  pino: (value) => {
    const lines: string[] = [];
    const logger = pino({}, { write: (line: string) => void lines.push(line) });
    logger.error(Object.assign(new Error("x"), { value, config: { headers: value } }));
    logger.info({ value, req: { headers: value } }, "%o", value);
    return lines.join("");
  },
};
const token = "printed-7c1e0a55-token";

describe("L49 what is printed of a credential", () => {
  const folder = mkdtempSync(join(tmpdir(), "postern-printing-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it.each(Object.entries(printers))("L49 a secret through %s", (_, print) => {
    expect(findLeaks([{ name: "secret", text: print(new Secret(token)) }], { token })).toEqual([]);
  });

  it.each([
    ["bearer", { type: "bearer", token: { env: "T" } }],
    ["basic", { type: "basic", username: "svc", password: { env: "T" } }],
    ["header", { type: "header", name: "X-Auth", prefix: "Key ", value: { env: "T" } }],
    ["headers", { type: "headers", headers: { "X-Api-Key": { env: "T" }, "X-Org": "acme" } }],
  ] satisfies [string, CredentialOptions][])("L49 the injection of %s", async (_, options) => {
    const { credentials, inject } = open({ servers: { a: options }, env: { T: token } });
    expect((await inject()).join(" ")).toMatch(/printed-7c1e0a55-token|Basic /);
    const injection = await credentials.forServer("a").inject(agent);
    const blob = Buffer.from(`svc:${token}`).toString("base64");
    for (const [name, print] of Object.entries(printers)) {
      for (const value of [injection, credentials, credentials.forServer("a")]) {
        expect(findLeaks([{ name, text: `${print(value)} ` }], { token, blob })).toEqual([]);
      }
    }
    await credentials.close();
  });

  it("L49 the configuration names places of secrets and holds none", () => {
    const env = { T: token };
    writeFileSync(join(folder, "token"), token, { mode: 0o600 });
    const file = join(folder, "gateway.yaml");
    const servers = "tickets: { url: http://t.internal/mcp, credential: { type: bearer, token: { env: T } } }";
    writeFileSync(
      file,
      `relay: { url: wss://r.example.com, tunnel: acme, token: { file: ./token } }\nservers: { ${servers} }\npolicy: { version: 1, servers: {} }\n`,
    );
    const loaded = loadGatewayConfig(file);
    if (loaded.kind === "bad") throw new Error(inspect(loaded.problems, { depth: null }));
    const { vault, servers: configured } = loaded.config;
    const credentials = createCredentials({
      vault,
      servers: { tickets: configured["tickets"]?.credential },
      env,
      clock: systemClock,
      random: Math.random,
      logger: silentLogger,
    });
    for (const [name, print] of Object.entries(printers)) {
      expect(findLeaks([{ name, text: print(loaded.config) }], { token })).toEqual([]);
    }
    expect(credentials.forServer("tickets")).toBeDefined();
  });
});
