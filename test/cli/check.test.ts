import { expect, it } from "vitest";
import { check } from "../../src/cli/check.ts";
import { gatewayWith, ticketsPolicy, writeConfig } from "../config/traps.ts";
import { run } from "./command-io.ts";

it.each(["gateway", "relay", "policy"])("config/%s.yaml passes", async (kind) => {
  const file = `config/${kind}.yaml`;
  expect(await run(check, "-c", file)).toEqual({ code: 0, out: [`${file}: a ${kind} file without faults`], err: [] });
});

it("prints every problem with its place and what to write instead, and exits 2", async () => {
  const file = writeConfig("policy.yaml", ticketsPolicy("    tool: [a]\n    prompts:"));
  expect(await run(check, "--config", file)).toEqual({
    code: 2,
    err: [],
    out: [
      `${file}:4:5: unknown key \`tool\` in \`servers.tickets\`\n  write instead: tools`,
      `${file}:5:5: \`servers.tickets.prompts\` has no value\n  write instead: prompts: [summarize]   ([] allows none)`,
      `${file}: 2 problems`,
    ],
  });
});

it("a warning is printed and passes", async () => {
  const file = writeConfig("policy.yaml", ticketsPolicy('    tools: ["a "]'));
  const { code, out } = await run(check, "-c", file);
  expect(code).toBe(0);
  expect(out[0]).toContain(`${file}:4:13: warning: \`servers.tickets.tools[0]\` has a space`);
});

it("--json says the same to a program", async () => {
  const file = writeConfig("gateway.yaml", gatewayWith(3, "policy:"));
  const { code, out } = await run(check, "-c", file, "--json");
  const problem = { file, line: 3, column: 1, message: "`policy` has no value", cure: "policy: ./policy.yaml" };
  expect(code).toBe(2);
  expect(out.map((line) => JSON.parse(line))).toEqual([
    { file, document: "gateway", ok: false, problems: [problem], warnings: [] },
  ]);
});

it("a file that could be any of the three, or is none, is a problem of its own", async () => {
  const { code, out } = await run(check, "-c", writeConfig("x.yaml", "servers: {}"));
  expect([code, out[0]]).toEqual([2, expect.stringContaining("this may be a gateway, a relay or a policy file")]);
  expect((await run(check, "-c", "/nowhere.yaml")).out[0]).toContain("/nowhere.yaml:1:1: this file does not exist");
});

it.each([[[]], [["-c"]], [["--nonsense"]], [["-c", "a", "b"]]])("%j is bad usage", async (args) => {
  const { code, out, err } = await run(check, ...args);
  expect([code, out, err[0]]).toEqual([2, [], "usage: postern check -c FILE [--principal ID] [--json]"]);
});

it("--principal prints where a principal's own secrets belong", async () => {
  const file = writeConfig(
    "gateway.yaml",
    [
      gatewayWith(
        2,
        "servers: { tickets: { url: http://t.internal/mcp, credential: { type: basic, username: { vault: { mount: kv, path: 'mcp/{principal.id}', field: user } }, password: { vault: { mount: kv, path: 'mcp/{principal.id}', field: password } } } } }",
      ),
      "vault: { address: https://v.internal, auth: { method: token, token: { file: t } } }",
      "agents: { verify: edge, issuers: [ { issuer: https://i.com, audience: urn:edge } ] }",
    ].join("\n"),
  );
  const { code, out } = await run(check, "-c", file, "--principal", "oauth:https://i.com#../bob");
  expect([code, out[1], out[2]]).toEqual([
    0,
    "tickets: mount kv, path mcp/oauth~3ahttps~3a~2f~2fi.com~23~2e~2e~2fbob",
    undefined,
  ]);
  const json = await run(check, "-c", file, "--principal", "key:a", "--json");
  expect(JSON.parse(json.out[0] ?? "")).toMatchObject({
    ok: true,
    paths: [{ server: "tickets", mount: "kv", path: "mcp/key~3aa" }],
  });
  expect((await run(check, "-c", file, "--principal", "bob")).err[0]).toContain("--principal is key:<name>");
  expect((await run(check, "-c", file, "--principal", "key:\ud800")).err[0]).toContain("is no text");
  expect((await run(check, "-c", "config/relay.yaml", "--principal", "key:a")).code).toBe(2);
  const fixed = writeConfig("gateway.yaml", gatewayWith(4, ""));
  expect((await run(check, "-c", fixed, "--principal", "key:a")).out[1]).toBe("no secret depends on the principal");
});
