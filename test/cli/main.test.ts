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

  it("a doctor's verdict is its end, whatever it could not break off still runs", async () => {
    // As the look-up of a name does that no name server answers.
    const running = "data:text/javascript,setInterval(() => undefined, 1000)";
    const args = ["--import", "tsx", "--import", running, main, "doctor", "-c", "/nowhere/gateway.yaml"];
    const child = spawn(process.execPath, args, { stdio: "ignore", timeout: 15_000 });
    expect(await new Promise((resolve) => child.once("close", (...ended) => resolve(ended)))).toEqual([2, null]);
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

  it.each([
    [["chek", "-c", "x"], 2, "", /^there is no command `chek`\nusage: postern COMMAND\n/],
    [["check", "--help"], 0, /^usage: postern check -c FILE/, ""],
    [["help", "relay"], 0, /^usage: postern relay -c FILE\n$/, ""],
    [["policy", "explain", "--help"], 2, "", /^`postern policy explain` is not in this version yet\n$/],
    [["policy", "test", "-h"], 0, /^usage: postern policy test -c gateway.yaml/, ""],
  ] as const)(
    "`%s` is answered where it was asked",
    async (args, expected, out, err) => {
      const child = spawn(process.execPath, ["--import", "tsx", main, ...args], { stdio: ["ignore", "pipe", "pipe"] });
      const said = ["", ""];
      child.stdout.on("data", (chunk: Buffer) => {
        said[0] += chunk.toString();
      });
      child.stderr.on("data", (chunk: Buffer) => {
        said[1] += chunk.toString();
      });
      expect(await new Promise((resolve) => child.once("close", resolve))).toBe(expected);
      expect(said).toEqual([out, err].map((text) => (text === "" ? "" : expect.stringMatching(text))));
    },
    30_000,
  );
});
