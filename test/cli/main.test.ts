import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const main = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));

describe("the command line as a process", () => {
  it("a reader that left costs the exit code, not a stack trace", async () => {
    const child = spawn(process.execPath, ["--import", "tsx", main, "--help"], { stdio: ["ignore", "pipe", "pipe"] });
    child.stdout.destroy();
    let err = "";
    child.stderr.on("data", (chunk: Buffer) => {
      err += chunk.toString();
    });
    const code = await new Promise((resolve) => child.once("close", resolve));
    expect(err).toBe("");
    expect(code).toBe(1);
  }, 30_000);

  it.each(["lock", "policy explain"])(
    "says that `%s` is not there yet",
    async (command) => {
      const args = ["--import", "tsx", main, ...command.split(" ")];
      const child = spawn(process.execPath, args, { stdio: ["ignore", "ignore", "pipe"] });
      let err = "";
      child.stderr.on("data", (chunk: Buffer) => {
        err += chunk.toString();
      });
      const code = await new Promise((resolve) => child.once("close", resolve));
      expect(err).toBe(`\`postern ${command}\` is not in this version yet\n`);
      expect(code).toBe(2);
    },
    30_000,
  );
});
