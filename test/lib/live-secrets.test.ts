import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import { concealSecrets, Secret } from "../../src/lib/index.ts";
import { createLogger } from "../../src/telemetry/index.ts";

const token = 'live-"7f3a\\91c0"-token~é';
const kept = new Secret(token);
const asJson = (text: string): string => JSON.stringify(text).slice(1, -1);

describe("concealSecrets", () => {
  it.each([
    ["plain", token],
    ["in JSON", asJson(token)],
    ["in JSON within JSON", asJson(asJson(token))],
    ...["", "x", "xy"].map((before): [string, string] => [
      `in base64 behind ${before.length} bytes`,
      Buffer.from(`${before}${token}`).toString("base64"),
    ]),
    ["in base64url", Buffer.from(token).toString("base64url")],
    ["in hex", Buffer.from(token).toString("hex")],
    ["in capital hex", Buffer.from(token).toString("hex").toUpperCase()],
  ])("L62 cuts a living secret out of a line: %s", (_, text) => {
    const line = concealSecrets(`{"reason":"before ${text} after"}\n`);
    expect(line).toMatch(/^\{"reason":"before [\w=+/-]{0,6}\[secret\][\w=+/-]{0,4} after"\}\n$/);
    expect(kept.reveal()).toBe(token);
  });

  it("cuts each of several, and leaves a line without any alone", () => {
    const others = ["another-secret-1", "another-secret-2\n"].map((text) => new Secret(text));
    expect(concealSecrets("another-secret-1another-secret-2 another-secret-3")).toBe(
      "[secret][secret] another-secret-3",
    );
    expect(others).toHaveLength(2);
  });

  it("takes the longest of those that begin alike", () => {
    const alike = ["prefix-0123", "prefix-0123-longer", "prefix-01"].map((text) => new Secret(text));
    expect(concealSecrets("a prefix-0123-longer b")).toBe("a [secret] b");
    expect(alike).toHaveLength(3);
  });

  it("finds each line of a key", () => {
    const lines = ["MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"];
    const key = new Secret(`-----BEGIN PRIVATE KEY-----\n${lines.join("\n")}\n-----END PRIVATE KEY-----\n`);
    expect(concealSecrets(`-----BEGIN PRIVATE KEY----- ${lines[1]}`)).toBe("-----BEGIN PRIVATE KEY----- [secret]");
    expect(key.reveal()).toContain(lines[0]);
  });

  it("looks neither for what is shorter than 8 characters nor for what passes", () => {
    const ignored = [new Secret("abcdefg"), new Secret("shown-by-an-agent", "passing")];
    expect(concealSecrets("abcdefg shown-by-an-agent")).toBe("abcdefg shown-by-an-agent");
    expect(ignored).toHaveLength(2);
  });

  it("keeps no secret alive that was replaced", async () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const gone = (() => new WeakRef(new Secret("rotated-away-long-ago")))();
    concealSecrets("a line, so that it is known");
    // What was looked at in this turn of the loop is alive until its end.
    await new Promise((resolve) => setImmediate(resolve));
    collect();
    expect(gone.deref()).toBeUndefined();
    expect(concealSecrets("rotated-away-long-ago")).toBe("rotated-away-long-ago");
  });

  it("costs a line its length, however many secrets live", () => {
    const many = Array.from({ length: 5_000 }, (_, i) => new Secret(`${i.toString(36)}-of-many-secrets-${i * 7919}`));
    concealSecrets("the first line learns them");
    const line = "an ordinary log line of some length that holds no secret at all ".repeat(5);
    const before = process.cpuUsage();
    for (let i = 0; i < 1_000; i += 1) concealSecrets(line);
    expect(process.cpuUsage(before).user / 1_000).toBeLessThan(1_000);
    expect(concealSecrets(many[4_999]?.reveal() ?? "")).toBe("[secret]");
  });
});

describe("the log", () => {
  it("L62 is written without the secrets that a message or a field should not have held", () => {
    const lines: string[] = [];
    const logger = createLogger({ level: "info", destination: { write: (line) => lines.push(line) } });
    logger.with({ url: `http://x/?t=${token}` }).warn(`could not send ${token}`, { reason: `header ${token}` });
    expect(lines).toHaveLength(1);
    expect(JSON.parse(lines[0] ?? "")).toMatchObject({
      msg: "could not send [secret]",
      reason: "header [secret]",
      url: "http://x/?t=[secret]",
    });
  });
});
