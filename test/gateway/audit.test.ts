import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { AuditLog, type AuditOutcome, type AuditSubject } from "../../src/gateway/audit.ts";
import { createLogger, silentLogger } from "../../src/telemetry/index.ts";
import { ManualClock } from "../support/manual-clock.ts";

const subject: AuditSubject = {
  exchangeId: "boot-1",
  requestId: "req-1",
  principalId: "key:claude",
  server: "tickets",
  verb: "POST",
  method: "tools/call",
  name: "get_ticket",
};

const folder = mkdtempSync(join(tmpdir(), "postern-audit-"));
let fileCount = 0;
afterAll(() => rmSync(folder, { recursive: true }));

function open(): { audit: AuditLog; read: () => Record<string, unknown>[]; clock: ManualClock } {
  fileCount += 1;
  const file = join(folder, `${fileCount}.jsonl`);
  const clock = new ManualClock();
  const audit = new AuditLog(
    { target: { file }, onError: "deny" },
    { tunnel: "acme", gateway: "edge-1", clock, logger: silentLogger },
  );
  const read = (): Record<string, unknown>[] =>
    readFileSync(file, "utf8")
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  return { audit, read, clock };
}

const ended: AuditOutcome = {
  status: 200,
  by: "upstream",
  end: "complete",
  bytesIn: 10,
  bytesOut: 20,
  scrubbed: 0,
  firstByteMs: 1.23456,
  durationMs: 2,
};
const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const nobody = { onAudited: () => undefined };

describe("audit records", () => {
  it("have exactly the members that are documented, in a stable order", async () => {
    const { audit, read } = open();
    const text = audit.describe(subject);
    audit.decision(
      text,
      { kind: "allow", rule: "servers.tickets.tools[0]", at: { file: "p.yaml", line: 3, column: 5 } },
      nobody,
    );
    audit.decision(text, { kind: "deny", reason: "not-allowed", rule: undefined, at: undefined }, nobody);
    audit.outcome(text, ended);
    audit.outcome(text, {
      status: undefined,
      by: undefined,
      end: "CANCEL",
      bytesIn: 0,
      bytesOut: 0,
      scrubbed: 0,
      firstByteMs: undefined,
      durationMs: 2,
    });
    await audit.close();
    const [allow, deny, outcome, cancelled] = read();
    const shared = [
      "event",
      "position",
      "time",
      "gateway",
      "tunnel",
      "exchangeId",
      "requestId",
      "principal",
      "server",
      "verb",
    ];
    expect(Object.keys(allow ?? {})).toEqual([...shared, "method", "name", "decision", "rule", "at"]);
    expect(Object.keys(deny ?? {})).toEqual([...shared, "method", "name", "decision", "reason"]);
    expect(Object.keys(cancelled ?? {})).toEqual([
      ...shared,
      "method",
      "name",
      "end",
      "bytesIn",
      "bytesOut",
      "durationMs",
    ]);
    expect(allow).toMatchObject({ at: "p.yaml:3:5", time: "2027-01-15T08:00:01.000Z", position: 1 });
    expect(outcome).toMatchObject({ status: 200, by: "upstream", firstByteMs: 1.235, position: 3 });
  });

  it("stay one line of JSON each, whatever an agent calls things", async () => {
    const { audit, read } = open();
    const names = ['"},{"decision":"allow', "a\nb\r\u2028c", "\u0000\\", "\ud800", "x".repeat(5000)];
    for (const name of names)
      audit.decision(audit.describe({ ...subject, name, method: name }), { kind: "refused", reason: name }, nobody);
    await audit.close();
    const records = read();
    expect(records).toHaveLength(names.length);
    expect(records.slice(0, 4).map((record) => record["name"])).toEqual(names.slice(0, 4));
    expect(records.every((record) => record["decision"] === "deny")).toBe(true);
    expect(String(records[4]?.["name"])).toHaveLength(1025);
  });

  it("of what ended wait a moment for a decision to share a write with, and for no longer", async () => {
    const { audit, read, clock } = open();
    const text = audit.describe(subject);
    const events = (): unknown[] => read().map(({ event, position }) => `${position} ${event}`);
    const decide = (): Promise<boolean> =>
      new Promise((resolve) => audit.decision(text, { kind: "refused", reason: "x" }, { onAudited: resolve }));
    audit.outcome(text, ended);
    audit.outcome(text, ended);
    expect(events()).toEqual([]);
    await decide();
    expect(events()).toEqual(["1 outcome", "2 outcome", "3 decision"]);
    audit.outcome(text, ended);
    clock.advance(10);
    await decide();
    expect(events().slice(3)).toEqual(["4 outcome", "5 decision"]);
    audit.outcome(text, ended);
    await audit.close();
    expect([events().slice(5), clock.armed]).toEqual([["6 outcome"], 0]);
  });

  it("of what ended are written when no decision comes", async () => {
    const { audit, read, clock } = open();
    audit.outcome(audit.describe(subject), ended);
    clock.advance(9);
    await nextTurn();
    expect(read()).toEqual([]);
    clock.advance(1);
    await nextTurn();
    expect(read()).toMatchObject([{ event: "outcome", position: 1 }]);
    await audit.close();
  });

  it("go on in the old file where the new one cannot be had, and a person is told", async () => {
    const place = join(folder, "rotated");
    mkdirSync(place);
    const lines: string[] = [];
    const audit = new AuditLog(
      { target: { file: join(place, "audit.jsonl") }, onError: "deny" },
      {
        tunnel: "acme",
        gateway: "edge-1",
        clock: new ManualClock(),
        logger: createLogger({ level: "info", destination: { write: (line: string) => void lines.push(line) } }),
      },
    );
    renameSync(place, `${place}-1`);
    audit.reopen();
    expect(lines).toHaveLength(1);
    expect(JSON.parse(lines[0] ?? "")).toMatchObject({ msg: "audit file not opened anew", code: "ENOENT" });
    const mayProceed = await new Promise<boolean>((resolve) =>
      audit.decision(audit.describe(subject), { kind: "refused", reason: "batch" }, { onAudited: resolve }),
    );
    expect([mayProceed, audit.isWritable]).toEqual([true, true]);
    await audit.close();
    expect(readFileSync(join(`${place}-1`, "audit.jsonl"), "utf8")).toContain('"reason":"batch"');
  });
});
