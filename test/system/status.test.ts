import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type FixtureServer, startFixtureServer } from "../fixtures/fixture-server/server.ts";
import { callTool } from "../support/agent-requests.ts";
import { findLeaks } from "../support/canary.ts";
import { startChild } from "../support/child.ts";
import { type Stack, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { mintSecret, requireBao, startVaultBacking, type VaultBacking } from "../support/vault-backed.ts";

/** `postern status` and `/metrics` of real processes, before and after their Vault is gone. */
const binary = requireBao();
const main = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));
const upstreamToken = mintSecret("upstream");
const gatewayAdminToken = mintSecret("gateway-admin");
const relayAdminToken = mintSecret("relay-admin");

interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

describe.skipIf(binary === undefined)("status", () => {
  let vault: VaultBacking;
  let fixture: FixtureServer;
  let stack: Stack;
  let stranger: Server | undefined;
  const outputs: { name: string; text: string }[] = [];

  async function run(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Ran> {
    const child = startChild({ name: "status", command: process.execPath, args: [main, ...args], env });
    const code = await child.ended;
    outputs.push({ name: args.join(" "), text: child.stdout() + child.stderr() });
    return { code, out: child.stdout(), err: child.stderr() };
  }
  const status = (file: "gateway" | "relay", ...more: string[]): Promise<Ran> =>
    run(["status", "-c", join(stack.dir, `${file}.yaml`), ...more], { RELAY_ADMIN: relayAdminToken });
  const metrics = async (admin: string): Promise<string> => {
    const text = await (await fetch(`${admin}/metrics`)).text();
    outputs.push({ name: `${admin}/metrics`, text });
    return text;
  };

  beforeAll(async () => {
    vault = await startVaultBacking(binary ?? "", ["secret/data/mcp/*"]);
    await vault.bao.putSecret("secret", "mcp/good", { token: upstreamToken });
    fixture = await startFixtureServer({ bearer: upstreamToken, extras: true });
    const at = (path: string): object => ({
      type: "bearer",
      token: { vault: { mount: "secret", path, field: "token" } },
    });
    stack = await startStack({
      vault: { ...vault.yaml, ttl: "100ms" },
      secretFiles: { "secret-id": vault.secretId, "admin-token": gatewayAdminToken },
      servers: {
        good: { url: fixture.url, credential: at("mcp/good") },
        absent: { url: fixture.url, credential: at("mcp/absent") },
        free: { url: fixture.url },
      },
      policy: Object.fromEntries(["good", "absent", "free"].map((name) => [name, { tools: ["echo"] }])),
      relayEnv: { RELAY_ADMIN: relayAdminToken },
      adminTokens: { gateway: { file: "./admin-token" }, relay: { env: "RELAY_ADMIN" } },
    });
  });

  afterAll(async () => {
    stranger?.close();
    const printed = [...outputs, ...stack.outputs()];
    const secrets = {
      ...vault.secrets,
      "upstream token": upstreamToken,
      "gateway's admin token": gatewayAdminToken,
      "relay's admin token": relayAdminToken,
      "agent key": stack.agentKey,
      "tunnel token": stack.tunnelToken,
    };
    await stack.stop();
    await fixture.close();
    await vault.bao.stop();
    expect(outputs.length).toBeGreaterThan(8);
    expect(findLeaks(printed, secrets)).toEqual([]);
  });

  const echo = async (server: string): Promise<number> =>
    (await callTool(stack.agentUrl(server), stack.agentKey, "echo", { value: "argument-of-a-call" })).status;

  it("shows a gateway with its servers, credentials and vault", async () => {
    expect([await echo("good"), await echo("absent"), await echo("free")]).toEqual([200, 502, 502]);
    const { code, out } = await status("gateway");
    expect(code).toBe(0);
    expect(out).toMatch(/^gateway edge-1: ready, postern\//);
    expect(out).toMatch(/tunnel {2}acme at ws:\/\/127\.0\.0\.1:\d+: connected for/);
    expect(out).toMatch(/vault .* by approle: valid, token expires in/);
    expect(out).toMatch(/logins 1 ok 0 failed/);
    expect(out).toMatch(/^good +bearer +valid/m);
    expect(out).toMatch(/^absent +bearer +failed .* noCredential/m);
    expect(out).toMatch(/absent: last error .* not-found: there is nothing at secret\/data\/mcp\/absent/);
    expect(out).toMatch(/absent: cure: write the secret there/);
    expect(out).toMatch(/^free +none/m);
    const { out: json } = await status("gateway", "--json");
    const report = JSON.parse(json) as { part: string; servers: { name: string; credential?: { state: string } }[] };
    expect(report.part).toBe("gateway");
    expect(report.servers.map(({ name, credential }) => [name, credential?.state])).toEqual([
      ["good", "valid"],
      ["absent", "failed"],
      ["free", undefined],
    ]);
  });

  it("shows a relay with its tunnels and gateways", async () => {
    const { code, out } = await status("relay");
    expect(code).toBe(0);
    expect(out).toMatch(/^relay http:\/\/127\.0\.0\.1:\d+: listening/);
    expect(out).toMatch(/^acme +1 +0 +0 +edge +edge-1 +connected .* good, absent, free$/m);
    const { out: json } = await status("relay", "--json");
    expect(JSON.parse(json)).toMatchObject({ part: "relay", isListening: true, tunnels: [{ name: "acme" }] });
  });

  it("metrics of both parts count what happened, and name nothing that was called", async () => {
    const gateway = await metrics(stack.gatewayAdmin);
    expect(gateway).toContain('postern_gateway_calls_total{server="good",outcome="ok"} 1');
    expect(gateway).toContain('postern_gateway_calls_total{server="absent",outcome="noCredential"} 1');
    expect(gateway).toContain('postern_credentials_state{server="good",state="valid"} 1');
    expect(gateway).toContain('postern_credentials_store_logins_total{result="ok"} 1');
    expect(gateway).toContain("postern_gateway_tunnels 1");
    const relay = await metrics(stack.relayAdmin);
    expect(relay).toContain('postern_relay_tunnel_sessions{tunnel="acme"} 1');
    expect(relay).toContain('postern_relay_requests_total{status="2xx"} 1');
    expect(gateway + relay).not.toMatch(/echo"|argument-of-a-call|key:tester|mcp\/good/);
  });

  it("C28 tells of a vault that is away, while the older secret serves", async () => {
    await vault.bao.stop();
    await until(async () => {
      expect(await echo("good")).toBe(200);
      return (await status("gateway")).out.includes("stale");
    }, "the older secret serves");
    const { code, out } = await status("gateway");
    expect(code).toBe(0);
    expect(out).toMatch(/^good +bearer +stale/m);
    expect(out).toMatch(/good: last error .* store-unreachable/);
    expect(await metrics(stack.gatewayAdmin)).toContain('postern_credentials_state{server="good",state="stale"} 1');
  });

  it("says what to do about a wrong token, a part that is away, and another program at its port", async () => {
    const relayFile = join(stack.dir, "relay.yaml");
    const wrong = await run(["status", "-c", relayFile], { RELAY_ADMIN: "some-other-token-of-length" });
    expect(wrong.code).toBe(1);
    expect(wrong.err).toMatch(/does not take this token\ncure: /);
    const none = await run(["status", "-c", relayFile]);
    expect(none.code).toBe(1);
    expect(none.err).toMatch(/environment variable RELAY_ADMIN is not set\ncure: set RELAY_ADMIN/);
    expect((await run(["status"])).code).toBe(2);
    expect((await run(["status", "-c", join(stack.dir, "policy.yaml")])).code).toBe(2);
    await stack.gateway()?.stop();
    const away = await status("gateway");
    expect(away.code).toBe(1);
    expect(away.err).toMatch(/no gateway answers at http:\/\/127\.0\.0\.1:\d+: ECONNREFUSED\ncure: start it/);
    let heard = "";
    stranger = createServer((req, res) => {
      heard += JSON.stringify(req.headers);
      res.end("<p>hello</p>");
    });
    const port = Number(new URL(stack.gatewayAdmin).port);
    await new Promise<void>((resolve) => stranger?.listen(port, "127.0.0.1", resolve));
    expect((stranger.address() as AddressInfo).port).toBe(port);
    const other = await status("gateway");
    expect(other.code).toBe(1);
    expect(other.err).toMatch(/is not this gateway: no JSON\ncure: /);
    expect(heard).not.toContain(gatewayAdminToken);
    expect(heard).not.toBe("");
  });
});
