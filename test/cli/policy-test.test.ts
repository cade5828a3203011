import { describe, expect, it } from "vitest";
import { policyTest } from "../../src/cli/policy-test.ts";
import { gatewayWith, writeConfig } from "../config/traps.ts";
import { run } from "./command-io.ts";

const policy = `policy:
  version: 1
  servers:
    tickets:
      tools: [search, { name: "get_*", except: [get_secret] }]
      prompts: [summarize]
      resources: ["ticket://open/*"]
      deny: { tools: ["*_all"] }`;
const servers = "servers: { tickets: { url: http://t.internal/mcp }, crm: { url: http://c.internal/mcp } }";
const file = writeConfig("gateway.yaml", gatewayWith(3, policy).replace(/^servers: .*$/m, servers));

function ask(...args: string[]) {
  return run(policyTest, "-c", file, ...args);
}

describe("one question", () => {
  it("is answered where the files of certificates are not", async () => {
    const own = "servers: { tickets: { url: https://t.internal/mcp, ca: /etc/postern/nowhere.pem } }";
    const elsewhere = writeConfig("gateway.yaml", gatewayWith(3, policy).replace(/^servers: .*$/m, own));
    const asked = await run(policyTest, "-c", elsewhere, "--server", "tickets", "--tool", "search");
    expect([asked.code, asked.err]).toEqual([0, []]);
  });

  it("allow: the rule, its line, and why; exit 0", async () => {
    expect(
      await ask("--server", "tickets", "--tool", "get_x", "--args", '{"id":1}', "--principal", '{"id":"key:a"}'),
    ).toEqual({
      code: 0,
      err: [],
      out: [
        'allow: tool "get_x" on tickets',
        `  rule: servers.tickets.tools[1] at ${file}:7:23`,
        "  why: this rule allows it, and no deny pattern matches",
      ],
    });
  });

  it.each([
    ["--tool", "search", 0],
    ["--tool", "get_secret", 3],
    ["--tool", "get_all", 3],
    ["--tool", "GET_X", 3],
    ["--tool", "search ", 3],
    ["--tool", "", 3],
    ["--prompt", "summarize", 0],
    ["--prompt", "search", 3],
    ["--resource", "ticket://open/1", 0],
    ["--resource", "ticket://open/1/x", 3],
    ["--resource", "ticket://open/../closed", 3],
    ["--method", "tools/list", 0],
    ["--method", "initialize", 0],
    ["--method", "server/discover", 0],
    ["--method", "notifications/cancelled", 0],
    ["--method", "notifications/roots/list_changed", 3],
    ["--method", "GET", 0],
    ["--method", "tasks/list", 3],
    ["--method", "Tools/List", 3],
  ])("C16 %s %j on tickets: exit %i", async (flag, name, code) => {
    const ran = await ask("--server", "tickets", flag, name);
    expect([ran.code, ran.out[0]?.split(":")[0]]).toEqual([code, code === 0 ? "allow" : "deny"]);
  });

  it("a server without a grant denies everything, GET included", async () => {
    for (const question of [
      ["--method", "initialize"],
      ["--method", "GET"],
      ["--tool", "x"],
    ]) {
      const ran = await ask("--server", "crm", ...question);
      expect([ran.code, ran.out.at(-1)]).toEqual([
        3,
        "  why: the policy grants nothing on this server, so it answers 403 to everything",
      ]);
    }
  });

  it("--json names what denied", async () => {
    const { code, out } = await ask("--server", "tickets", "--tool", "drop_all", "--json");
    expect([code, JSON.parse(out[0] ?? "")]).toEqual([
      3,
      {
        decision: "deny",
        server: "tickets",
        tool: "drop_all",
        rule: "servers.tickets.deny.tools[0]",
        at: { file, line: 10, column: 23 },
        why: "a deny pattern matches, and deny wins over every grant",
      },
    ]);
  });
});

describe("a table of cases", () => {
  it("all as expected: exit 0", async () => {
    const cases = writeConfig(
      "cases.yaml",
      "- { server: tickets, tool: search, expect: allow }\n- { server: crm, method: ping, expect: deny }",
    );
    expect(await ask("--cases", cases)).toEqual({ code: 0, out: ["2 cases, 0 not as expected"], err: [] });
  });

  it("every mismatch with its place: exit 1; JSON is read as well, and written", async () => {
    const table = [
      { server: "tickets", tool: "get_all", expect: "allow" },
      { server: "tickets", prompt: "summarize", expect: "allow" },
      { server: "tickets", resource: "ticket://open/1", expect: "deny" },
    ];
    const cases = writeConfig("cases.json", JSON.stringify(table, null, 1));
    const { code, out } = await ask("--cases", cases);
    expect(code).toBe(1);
    expect(out).toEqual([
      `${cases}:2:2: expected allow, got deny: tool "get_all" on tickets: a deny pattern matches, and deny wins over every grant (servers.tickets.deny.tools[0])`,
      `${cases}:12:2: expected deny, got allow: resource "ticket://open/1" on tickets: this rule allows it, and no deny pattern matches (servers.tickets.resources[0])`,
      "3 cases, 2 not as expected",
    ]);
    const json = await ask("--cases", cases, "--json");
    expect(JSON.parse(json.out[0] ?? "")).toMatchObject({
      cases: 3,
      mismatches: [
        { line: 2, got: "deny" },
        { line: 12, got: "allow" },
      ],
    });
  });

  it("a misspelt server cannot pass for a denial: exit 2", async () => {
    const cases = writeConfig("cases.yaml", "- { server: tikets, tool: search, expect: deny }");
    const { code, out, err } = await ask("--cases", cases);
    expect([code, out]).toEqual([2, []]);
    expect(err).toEqual([`${cases}:1:3: there is no server "tikets"\n  write instead: one of: tickets, crm`]);
  });

  it("a table with faults, or none at all: exit 2", async () => {
    for (const yaml of ["[]", "- { server: tickets }", "tool: x"]) {
      const { code, out, err } = await ask("--cases", writeConfig("cases.yaml", yaml));
      expect([code, out]).toEqual([2, []]);
      expect(err[0]).toContain("write instead:");
    }
  });
});

describe("bad usage", () => {
  it.each([
    [[], "--server is missing"],
    [["--server", "tickets"], "exactly one of"],
    [["--server", "tickets", "--tool", "a", "--prompt", "b"], "exactly one of"],
    [["--server", "tickets", "--prompt", "a", "--args", "{}"], "--args belongs to --tool"],
    [["--server", "tickets", "--tool", "a", "--args", "[]"], "--args must be a JSON object"],
    [["--server", "tickets", "--tool", "a", "--args", "{"], "--args must be a JSON object"],
    [["--server", "tickets", "--tool", "a", "--principal", "key:a"], "--principal must be a JSON object"],
    [["--server", "tickets", "--method", "tools/call"], "ask with --tool"],
    [["--cases", "x", "--server", "tickets"], "--cases stands for all"],
    [["--nonsense"], "nonsense"],
    [["--server", "tikets", "--tool", "a"], "there is no server"],
  ])("%j: exit 2", async (args, message) => {
    const { code, out, err } = await ask(...args);
    expect([code, out]).toEqual([2, []]);
    expect(err[0]).toContain(message);
  });

  it("no file, or one with faults", async () => {
    expect((await run(policyTest, "--server", "a", "--tool", "b")).err[0]).toContain("-c FILE is missing");
    const broken = writeConfig("gateway.yaml", gatewayWith(3, "policy:"));
    const ran = await run(policyTest, "-c", broken, "--server", "tickets", "--tool", "a");
    expect([ran.code, ran.err[0]]).toEqual([2, expect.stringContaining(`${broken}:3:1: \`policy\` has no value`)]);
  });
});
