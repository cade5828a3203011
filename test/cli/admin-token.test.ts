import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openAdminToken } from "../../src/cli/admin-token.ts";
import { createLogger } from "../../src/telemetry/index.ts";

let folder: string;
let file: string;
let log: string[];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "admin-token-"));
  file = join(folder, "token");
  log = [];
});
afterEach(() => rm(folder, { recursive: true, force: true }));

/** As often as somebody asks for /status, with or without the token; each answer is the token or what went wrong. */
async function ask(read: (() => Promise<{ reveal(): string }>) | undefined, times: number): Promise<string[]> {
  const answers: string[] = [];
  for (let i = 0; i < times; i += 1) {
    const answer = read?.().then(
      (token) => token.reveal(),
      (error: Error) => error.constructor.name,
    );
    answers.push((await answer) ?? "no reader");
  }
  return answers;
}

function open(): (() => Promise<{ reveal(): string }>) | undefined {
  const logger = createLogger({ level: "debug", destination: { write: (line: string) => void log.push(line) } });
  return openAdminToken({ file }, {}, logger);
}

const told = (part: string): number => log.filter((line) => line.includes(part)).length;

describe("the reader of admin.token", () => {
  it("says once that everybody may read the file, however often it is asked", async () => {
    await writeFile(file, "an-admin-token-of-some-length\n");
    await chmod(file, 0o644);
    expect(new Set(await ask(open(), 5))).toEqual(new Set(["an-admin-token-of-some-length"]));
    expect(told("readable by everybody")).toBe(1);
    expect(log).toHaveLength(1);
  });

  it("says once that the file is not there, and again only when it has been there meanwhile", async () => {
    const read = open();
    expect(new Set(await ask(read, 5))).toEqual(new Set(["CredentialError"]));
    expect(told("admin.token could not be read")).toBe(1);
    await writeFile(file, "an-admin-token-of-some-length\n");
    await chmod(file, 0o600);
    expect(await ask(read, 1)).toEqual(["an-admin-token-of-some-length"]);
    await rm(file);
    await ask(read, 5);
    expect(told("admin.token could not be read")).toBe(2);
  });
});
