/** OpenBao can seal one namespace by itself: who reads there is told so, and nobody else notices. */
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type FixtureServer, startFixtureServer } from "../fixtures/fixture-server/server.ts";
import { callTool } from "../support/agent-requests.ts";
import { type Bao, type SealableSpace, startBao } from "../support/bao.ts";
import { findLeaks } from "../support/canary.ts";
import { startChild } from "../support/child.ts";
import { type Stack, startStack } from "../support/stack.ts";
import type { StoreSpace } from "../support/store-under-test.ts";
import { until } from "../support/until.ts";
import { mintSecret, requireBao } from "../support/vault-backed.ts";

const binary = requireBao();
const main = join(import.meta.dirname, "../../dist/cli/main.js");
const rules = 'path "secret/data/mcp/*" { capabilities = ["read"] }';
const upstreamToken = mintSecret("upstream");
const adminToken = mintSecret("admin");

describe.skipIf(binary === undefined)("a namespace that is sealed by itself", () => {
  let bao: Bao;
  let ill: SealableSpace;
  let well: SealableSpace;
  let fixture: FixtureServer;
  const stacks: Stack[] = [];

  async function start(
    space: StoreSpace,
    vault: object,
    servers: Record<string, string>,
    role: string,
  ): Promise<Stack> {
    const { roleId, secretId } = await space.enableApprole(role);
    const auth = { method: "approle", roleId, secretId: { file: "./secret-id" } };
    const at = (mount: string): object => ({
      type: "bearer",
      token: { vault: { mount, path: "mcp/a", field: "token" } },
    });
    const stack = await startStack({
      vault: { address: bao.address, auth, ttl: "300ms", staleFor: "1s", ...vault },
      secretFiles: { "secret-id": secretId, "admin-token": adminToken },
      servers: Object.fromEntries(
        Object.entries(servers).map(([name, mount]) => [name, { url: fixture.url, credential: at(mount) }]),
      ),
      policy: Object.fromEntries(Object.keys(servers).map((name) => [name, { tools: ["echo"] }])),
      adminTokens: { gateway: { file: "./admin-token" } },
    });
    stacks.push(stack);
    return stack;
  }

  beforeAll(async () => {
    bao = await startBao(binary ?? "");
    fixture = await startFixtureServer({ bearer: upstreamToken, extras: true });
    [ill, well] = [await bao.sealableNamespace("ill"), await bao.sealableNamespace("well")];
    for (const space of [ill, well]) await space.putSecret("secret", "mcp/a", { token: upstreamToken });
  });
  afterAll(async () => {
    const outputs = stacks.flatMap((stack) => stack.outputs());
    for (const stack of stacks) await stack.stop();
    await fixture?.close();
    await bao?.stop();
    expect(findLeaks(outputs, { upstream: upstreamToken, admin: adminToken })).toEqual([]);
  });

  const call = async (stack: Stack, server: string): Promise<number> =>
    (await callTool(stack.agentUrl(server), stack.agentKey, "echo", { value: "x" })).status;
  const log = (stack: Stack): string => stack.gateway()?.stderr() ?? "";
  const status = async (stack: Stack): Promise<string> => {
    const args = [main, "status", "-c", join(stack.dir, "gateway.yaml")];
    const child = startChild({ name: "status", command: process.execPath, args, env: {} });
    await child.ended;
    return child.stdout();
  };
  const metric = async (stack: Stack, name: string): Promise<string | undefined> => {
    const text = await (await fetch(`${stack.gatewayAdmin}/metrics`)).text();
    return new RegExp(`^${name} (\\S+)$`, "m").exec(text)?.[1];
  };
  const isReady = async (stack: Stack): Promise<boolean> => (await fetch(`${stack.gatewayAdmin}/readyz`)).ok;

  it("C28 fails the calls of its own gateway with a cure, none of the other's, and comes back", async () => {
    const atIll = await start(ill, { namespace: "ill" }, { a: "secret" }, rules);
    const atWell = await start(well, { namespace: "well" }, { a: "secret" }, rules);
    expect([await call(atIll, "a"), await call(atWell, "a")]).toEqual([200, 200]);
    await ill.seal();
    const healthy: number[] = [];
    const isDown = async (): Promise<boolean> => {
      healthy.push(await call(atWell, "a"));
      return (await call(atIll, "a")) === 502 && (await metric(atIll, "postern_credentials_store_down")) === "1";
    };
    await until(isDown, "the sealed namespace to be known as down", 30_000);
    const line = log(atIll)
      .split("\n")
      .find((text) => text.includes("store down, not asked for now"));
    expect(JSON.parse(line ?? "{}")).toMatchObject({ code: "store-sealed", store: bao.address });
    expect(JSON.parse(line ?? "{}").reason).toContain("answers, but the namespace is sealed");
    expect(JSON.parse(line ?? "{}").cure).toContain("unseal that namespace");
    const told = await status(atIll);
    expect(told).toMatch(/vault {3}\S+ namespace ill by approle/);
    expect(told).toMatch(/DOWN for \d+s; probed now and then, \d+ requests? not sent/);
    expect(told).toMatch(/cure: unseal that namespace/);
    expect(await isReady(atIll), "readiness is the tunnel's").toBe(true);
    for (let i = 0; i < 20; i += 1) healthy.push(await call(atWell, "a"));
    expect(new Set(healthy)).toEqual(new Set([200]));
    expect(await status(atWell)).not.toContain("DOWN");
    expect(await metric(atWell, "postern_credentials_store_downs_total")).toBe("0");
    await ill.unseal();
    await until(async () => (await call(atIll, "a")) === 200, "the namespace to be read again", 75_000);
    expect(await metric(atIll, "postern_credentials_store_down")).toBe("0");
    expect(log(atIll).split("store down, not asked for now")).toHaveLength(2);
    expect(log(atIll).split("store asked again")).toHaveLength(2);
  }, 180_000);

  it("C28 that one gateway reads beside another namespace fails its own servers only", async () => {
    const both = ["ill", "well"].map((name) => `path "${name}/secret/data/mcp/*" { capabilities = ["read"] }`);
    const stack = await start(bao, {}, { ill: "ill/secret", well: "well/secret" }, both.join("\n"));
    expect([await call(stack, "ill"), await call(stack, "well")]).toEqual([200, 200]);
    await ill.seal();
    const healthy: number[] = [];
    const isDown = async (): Promise<boolean> => {
      healthy.push(await call(stack, "well"));
      return (
        (await call(stack, "ill")) === 502 && (await metric(stack, "postern_credentials_store_parts_down")) === "1"
      );
    };
    await until(isDown, "the part to be known as down", 30_000);
    expect(await status(stack)).toMatch(/DOWN in part: ill; probed now and then/);
    for (let i = 0; i < 20; i += 1) healthy.push(await call(stack, "well"));
    expect(new Set(healthy)).toEqual(new Set([200]));
    expect(await metric(stack, "postern_credentials_store_down")).toBe("0");
    await ill.unseal();
    await until(async () => (await call(stack, "ill")) === 200, "the namespace to be read again", 75_000);
    expect(await metric(stack, "postern_credentials_store_parts_down")).toBe("0");
  }, 180_000);
});
