import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type FixtureServer, startFixtureServer } from "../fixtures/fixture-server/server.ts";
import { type AgentAnswer, callTool } from "../support/agent-requests.ts";
import { findLeaks } from "../support/canary.ts";
import { type Stack, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { mintSecret, requireBao, startVaultBacking, type VaultBacking } from "../support/vault-backed.ts";

/** What goes wrong with a vault costs the servers that need it, each call with a clear word, and nobody else. */
const binary = requireBao();
const upstreamToken = mintSecret("upstream");
const readable = "secret/data/mcp/*";

const fromVault = (path: string, field = "token"): object => ({
  type: "bearer",
  token: { vault: { mount: "secret", path, field } },
});

describe.skipIf(binary === undefined)("vault faults", () => {
  let vault: VaultBacking;
  let fixture: FixtureServer;
  let stack: Stack;

  beforeEach(async () => {
    vault = await startVaultBacking(binary ?? "", [readable]);
    await vault.bao.putSecret("secret", "mcp/good", { token: upstreamToken, empty: "", number: 7 });
    await vault.bao.putSecret("secret", "private/denied", { token: upstreamToken });
    fixture = await startFixtureServer({ bearer: upstreamToken, extras: true });
    const server = (credential: object): object => ({ url: fixture.url, credential });
    const names = ["good", "denied", "absent", "nofield", "emptyfield", "numberfield", "filed"];
    stack = await startStack({
      vault: vault.yaml,
      secretFiles: { "secret-id": vault.secretId, "upstream-token": upstreamToken },
      servers: {
        good: server(fromVault("mcp/good")),
        denied: server(fromVault("private/denied")),
        absent: server(fromVault("mcp/absent")),
        nofield: server(fromVault("mcp/good", "tokne")),
        emptyfield: server(fromVault("mcp/good", "empty")),
        numberfield: server(fromVault("mcp/good", "number")),
        filed: server({ type: "bearer", token: { file: "./upstream-token" } }),
      },
      policy: Object.fromEntries(names.map((name) => [name, { tools: ["echo"] }])),
    });
  });

  afterEach(async () => {
    const secrets = { ...vault.secrets, "upstream token": upstreamToken, "agent key": stack.agentKey };
    const leaks = findLeaks(stack.outputs(), secrets);
    await stack.stop();
    await fixture.close();
    await vault.bao.stop();
    expect(leaks).toEqual([]);
  });

  const echo = (server: string): Promise<AgentAnswer> =>
    callTool(stack.agentUrl(server), stack.agentKey, "echo", { value: `for ${server}` });

  async function expectNoCredential(server: string): Promise<void> {
    const before = fixture.recorded.length;
    const answer = await echo(server);
    expect(answer.status).toBe(502);
    expect(answer.json().error?.code).toBe(-33020);
    // The agent learns nothing of the vault.
    expect(answer.text).not.toMatch(/vault|secret\/|mcp\/|private|127\.0\.0\.1/i);
    expect(fixture.recorded.length).toBe(before);
    const lines = (): string[] => (stack.gateway()?.stderr() ?? "").split("\n");
    const isCure = (line: string): boolean => line.includes(`"server":"${server}"`) && line.includes('"cure"');
    await until(() => lines().some(isCure), `a log line with a cure for ${server}: ${lines().join("\n")}`);
  }

  it("C27 a secret that may not be read, is not there, or lacks its field: that server only", async () => {
    expect((await echo("good")).status).toBe(200);
    for (const server of ["denied", "absent", "nofield", "emptyfield", "numberfield"]) await expectNoCredential(server);
    expect((await echo("good")).text).toContain("for good");
    expect((await echo("filed")).text).toContain("for filed");
  });

  it("C27 says at start which path the policy withholds", async () => {
    const warnings = (): string[] =>
      (stack.gateway()?.stderr() ?? "").split("\n").filter((line) => line.includes("store policy lacks a path"));
    await until(() => warnings().length > 0, "a warning");
    expect(warnings().map((line) => (JSON.parse(line) as { path: string }).path)).toEqual([
      "secret/data/private/denied",
    ]);
  });

  it("a sealed vault: servers that need it fail, others go on, the process stays up", async () => {
    await vault.bao.seal();
    await expectNoCredential("good");
    expect((await echo("filed")).text).toContain("for filed");
    expect(stack.gateway()?.exitCode()).toBeUndefined();
    expect((await fetch(`${stack.gatewayAdmin}/livez`)).status).toBe(200);
  });

  it("a vault that is gone: servers that need it fail, others go on", async () => {
    await vault.bao.stop();
    await expectNoCredential("good");
    expect((await echo("filed")).text).toContain("for filed");
    expect(stack.gateway()?.exitCode()).toBeUndefined();
  });
});
