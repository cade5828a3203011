import { execFileSync } from "node:child_process";
import { chmod, mkdtemp, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type CredentialError, readSecret } from "../../src/credentials/index.ts";
import { createLogger, silentLogger } from "../../src/telemetry/index.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { open } from "./harness.ts";

const canary = "canary-71c2f0aa9d3e4b18";
const pipeMaker = "mkfifo";
let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "sources-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

async function put(name: string, content: string | Buffer, mode = 0o600): Promise<string> {
  const file = join(folder, name);
  await writeFile(file, content);
  await chmod(file, mode);
  return file;
}

const readFileSource = async (file: string): Promise<string> =>
  (await readSecret({ file }, { env: {}, logger: silentLogger })).reveal();

const failureOf = async (file: string): Promise<CredentialError> => {
  const error: unknown = await readFileSource(file).catch((thrown: unknown) => thrown);
  expect(inspect(error)).not.toContain(canary);
  return error as CredentialError;
};

describe("readSecret from a file", () => {
  it.each([
    ["no newline", canary, canary],
    ["one newline", `${canary}\n`, canary],
    ["a carriage return too", `${canary}\r\n`, canary],
    ["two newlines", `${canary}\n\n`, `${canary}\n`],
    ["leading space", ` ${canary}`, ` ${canary}`],
  ])("cuts one trailing newline and nothing else: %s", async (_, content, text) => {
    expect(await readFileSource(await put("token", content))).toBe(text);
  });

  it("refuses a file that everybody may write", async () => {
    const file = await put("token", canary, 0o602);
    expect(await failureOf(file)).toMatchObject({ code: "source-unsafe", cure: `chmod o-w ${file}` });
  });

  it("warns once of a file that everybody may read", async () => {
    const file = await put("token", canary, 0o644);
    const lines: string[] = [];
    const logger = createLogger({ level: "debug", destination: { write: (line) => void lines.push(line) } });
    const clock = new ManualClock();
    const { credentials } = open({ servers: {} });
    await credentials.close();
    const server = { type: "bearer", token: { file } } as const;
    const harness = open({ servers: { a: server }, clock });
    await harness.inject();
    clock.advance(5_000);
    await harness.inject();
    expect(harness.lines.filter((line) => line.includes("readable by everybody"))).toHaveLength(1);
    await readSecret({ file: await put("private", canary) }, { env: {}, logger });
    expect(lines).toEqual([]);
  });

  it.each([
    ["missing", async () => join(folder, "none"), "source-missing"],
    ["below a file", async () => join(await put("token", canary), "x"), "source-missing"],
    ["a folder", async () => folder, "source-unreadable"],
    ["empty", () => put("token", ""), "value-empty"],
    ["only a newline", () => put("token", "\n"), "value-empty"],
    ["too large", () => put("token", canary.repeat(3_000)), "source-unreadable"],
    [
      "not UTF-8",
      () => put("token", Buffer.concat([Buffer.from(canary), Buffer.from([0xff, 0xfe])])),
      "source-unreadable",
    ],
    [
      "a pipe",
      async () => {
        execFileSync(pipeMaker, [join(folder, "pipe")]);
        return join(folder, "pipe");
      },
      "source-unreadable",
    ],
  ])("refuses a file that is %s", async (what, make, code) => {
    const file = await make();
    const error = await failureOf(file);
    expect(error.code).toBe(code);
    expect(error.message).toContain(file);
    expect(error.message.includes("not a regular file")).toBe(what === "a folder" || what === "a pipe");
  });

  it("reads 64 KiB to the byte", async () => {
    expect(await readFileSource(await put("token", "x".repeat(64 * 1024)))).toHaveLength(64 * 1024);
    expect((await failureOf(await put("token", "x".repeat(64 * 1024 + 1)))).code).toBe("source-unreadable");
  });

  it("C24 follows a rotated file on the next call, also through the links of a mounted secret", async () => {
    const clock = new ManualClock();
    await put("v1", "first-value");
    await put("v2", "second-value");
    await symlink("v1", join(folder, "..data"));
    await symlink("..data", join(folder, "token"));
    const harness = open({ servers: { a: { type: "bearer", token: { file: join(folder, "token") } } }, clock });
    expect(await harness.inject()).toEqual(["Authorization", "Bearer first-value"]);
    await symlink("v2", join(folder, "..new"));
    await rename(join(folder, "..new"), join(folder, "..data"));
    clock.advance(1_001);
    expect(await harness.inject()).toEqual(["Authorization", "Bearer second-value"]);
    await rm(join(folder, "..data"));
    clock.advance(1_001);
    expect((await harness.failure()).code).toBe("source-missing");
  });
});

describe("readSecret from the environment", () => {
  it("takes the variable out, and still knows it for a second reader", async () => {
    const env: Record<string, string | undefined> = { TOKEN: canary, OTHER: "x" };
    const deps = { env, logger: silentLogger };
    expect((await readSecret({ env: "TOKEN" }, deps)).reveal()).toBe(canary);
    expect(env).toEqual({ OTHER: "x" });
    expect((await readSecret({ env: "TOKEN" }, deps)).reveal()).toBe(canary);
    expect((await readSecret({ env: "TOKEN" }, { ...deps })).reveal()).toBe(canary);
  });

  it.each([
    ["is not set", {}, "source-missing"],
    ["is inherited", Object.create({ TOKEN: canary }) as Record<string, string>, "source-missing"],
    ["is empty", { TOKEN: "" }, "value-empty"],
  ])("refuses a variable that %s", async (_, env, code) => {
    const read = readSecret({ env: "TOKEN" }, { env, logger: silentLogger });
    await expect(read).rejects.toMatchObject({ code, message: expect.stringContaining("TOKEN") });
  });
});
