import { describe, expect, it } from "vitest";
import { linesOf } from "../../src/cli/doctor/doctor.ts";
import { replicaOf } from "../../src/cli/doctor/gateway-stages.ts";
import { NotTried, runStages, type Stage, type StageResult, Trouble } from "../../src/cli/doctor/stages.ts";
import { Secret } from "../../src/lib/index.ts";

async function run(stages: readonly Stage[], totalMs?: number): Promise<string[]> {
  const heard: StageResult[] = [];
  const results = await runStages(stages, (result) => heard.push(result), totalMs);
  expect(heard).toEqual(results);
  return results.map(
    ({ name, state, detail, cure }) => `${name}: ${state}, ${detail}${cure === undefined ? "" : `, ${cure}`}`,
  );
}

const ok = (name: string, needs: string[] = []): Stage => ({ name, needs, run: () => Promise.resolve("fine") });
const never = (signal: AbortSignal, ended: string[], name: string): Promise<string> =>
  new Promise(() => signal.addEventListener("abort", () => ended.push(name)));

describe("the stages of a doctor", () => {
  it("skip what waits for one that failed, and name it, while the others go on", async () => {
    const tried: string[] = [];
    const stages: Stage[] = [
      { name: "a", run: () => Promise.reject(new Trouble("broken", "mend it")) },
      { name: "b", needs: ["a"], run: () => Promise.resolve(`${tried.push("b")}`) },
      { name: "c", needs: ["b"], run: () => Promise.resolve(`${tried.push("c")}`) },
      ok("d"),
    ];
    expect(await run(stages)).toEqual([
      "a: failed, broken, mend it",
      'b: skipped, waits for "a"',
      'c: skipped, waits for "b"',
      "d: ok, fine",
    ]);
    expect(tried).toEqual([]);
  });

  it("tell of what is better not tried", async () => {
    const stages: Stage[] = [{ name: "a", run: () => Promise.reject(new NotTried("it opens once")) }, ok("b", ["a"])];
    expect(await run(stages)).toEqual(["a: skipped, it opens once", 'b: skipped, waits for "a"']);
  });

  it("run beside each other where they can, and are told in their order", async () => {
    let release: () => void = () => undefined;
    const first: Stage = { name: "a", run: () => new Promise((resolve) => (release = () => resolve("late"))) };
    const second: Stage = { name: "b", run: () => Promise.resolve("early").finally(() => release()) };
    expect(await run([first, second])).toEqual(["a: ok, late", "b: ok, early"]);
  });

  it("end one that does not end, and tell it so", async () => {
    const ended: string[] = [];
    const stuck: Stage = { name: "a", deadlineMs: 20, run: (signal) => never(signal, ended, "a") };
    expect(await run([stuck, ok("b")])).toEqual([expect.stringMatching(/^a: failed, no end in time, /), "b: ok, fine"]);
    expect(ended).toEqual(["a"]);
  });

  it("end all of them at the total deadline, those that have not begun as well", async () => {
    const ended: string[] = [];
    const stages = ["a", "b"].map((name): Stage => ({ name, run: (signal) => never(signal, ended, name) }));
    const results = await run([...stages, ok("c", ["a"])], 30);
    expect(results).toEqual([
      expect.stringMatching(/^a: failed, not done within/),
      expect.stringMatching(/^b: failed, not done within/),
      'c: skipped, waits for "a"',
    ]);
    expect(ended).toEqual(["a", "b"]);
  });

  it("repeat nothing of an error that is not their own", async () => {
    const stages: Stage[] = [
      { name: "a", run: () => Promise.reject(new TypeError("ptk_secret is no header")) },
      {
        name: "b",
        run: () => {
          throw new RangeError("hvs.secret");
        },
      },
    ];
    const told = await run(stages);
    expect(told).toEqual([
      "a: failed, ended unexpectedly: TypeError, report this as a defect",
      "b: failed, ended unexpectedly: RangeError, report this as a defect",
    ]);
  });
});

describe("what a doctor prints and says", () => {
  it("lets no relay write on the terminal, or have our token shown", () => {
    const token = new Secret("ptk_of-the-doctor-stages-test");
    const detail = `connection c1, relay\u001b[2J\r\n${token.reveal()}`;
    expect(linesOf({ name: "relay hello", state: "ok", detail, ms: 1 }, 12)).toEqual([
      "ok      relay hello   connection c1, relay?[2J??[secret]",
    ]);
    expect(linesOf({ name: "a", state: "failed", detail: "no", cure: `not ${token.reveal()}`, ms: 1 }, 1)).toEqual([
      "failed  a  no",
      "           cure: not [secret]",
    ]);
  });

  it("is a replica that no gateway is, by an id that the wire takes", () => {
    expect(replicaOf("edge-1", "0123abcd")).toBe("edge-1-doctor-0123abcd");
    const long = replicaOf("x".repeat(128), "0123abcd");
    expect(long).toMatch(/^x{112}-doctor-0123abcd$/);
    expect(long).toHaveLength(128);
  });
});
