/** A vault that stops answering, dies, comes back sealed, is sealed again: calls go on with what was read before. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type FixtureServer, startFixtureServer } from "../fixtures/fixture-server/server.ts";
import { callTool } from "../support/agent-requests.ts";
import { findLeaks } from "../support/canary.ts";
import { type LastingBao, startLastingBao } from "../support/lasting-bao.ts";
import { type Stack, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { mintSecret, requireBao } from "../support/vault-backed.ts";

const binary = requireBao();
const rules = 'path "secret/data/mcp/*" { capabilities = ["read"] }';
/** Shorter than each outage, as is the life of the gateway's own token. */
const role = { token_ttl: "2s", token_max_ttl: "4s" };

describe.skipIf(binary === undefined)("a vault that is away", () => {
  const secrets = [mintSecret("first"), mintSecret("second")];
  let bao: LastingBao;
  let fixture: FixtureServer;
  let stack: Stack;
  /** What the fixture accepts now. */
  let accepted = new Set(secrets);

  const startWith = async (staleFor: string): Promise<Stack> => {
    const { roleId, secretId } = await bao.enableApprole(rules, role);
    const auth = { method: "approle", roleId, secretId: { file: "./secret-id" } };
    const token = { vault: { mount: "secret", path: "mcp/a", field: "token" } };
    return await startStack({
      vault: { address: bao.address, auth, ttl: "500ms", staleFor },
      secretFiles: { "secret-id": secretId },
      servers: { a: { url: fixture.url, credential: { type: "bearer", token } } },
      policy: { a: { tools: ["echo"] } },
    });
  };

  beforeAll(async () => {
    bao = await startLastingBao(binary ?? "");
    await bao.putSecret("secret", "mcp/a", { token: secrets[0] });
    fixture = await startFixtureServer({
      admits: async ({ authorization = "" }) => accepted.has(authorization.replace("Bearer ", "")),
      extras: true,
    });
  });
  afterAll(async () => {
    await stack?.stop();
    await fixture?.close();
    bao?.resume();
    await bao?.stop();
  });

  const status = async (): Promise<number> =>
    (await callTool(stack.agentUrl("a"), stack.agentKey, "echo", { value: "x" })).status;
  const log = (): string => stack.gateway()?.stderr() ?? "";
  const away = (): number => log().split("store away, older secret serves").length - 1;

  const back = (): number => log().split("store back").length - 1;

  /** Calls one after the other for `ms`, and counts what they got. */
  async function callFor(ms: number): Promise<Record<number, number>> {
    const endAt = performance.now() + ms;
    const counts: Record<number, number> = {};
    await until(
      async () => {
        const got = await status();
        counts[got] = (counts[got] ?? 0) + 1;
        return performance.now() > endAt;
      },
      "the calls",
      ms + 20_000,
    );
    return counts;
  }

  it("C28 loses no call within staleFor: paused, killed, restarted sealed, sealed by hand", async () => {
    stack = await startWith("10m");
    expect(await status()).toBe(200);
    const outages: Record<string, [() => unknown, () => Promise<void>, number]> = {
      paused: [() => bao.pause(), async () => bao.resume(), 12_000],
      killed: [() => bao.kill(), async () => undefined, 5_000],
      "restarted sealed": [() => bao.restart(), () => bao.unseal(), 5_000],
      "sealed by hand": [() => bao.seal(), () => bao.unseal(), 5_000],
    };
    for (const [name, [begin, end, ms]] of Object.entries(outages)) {
      const [before, backs] = [away(), back()];
      await begin();
      const counts = await callFor(ms);
      expect(Object.keys(counts), name).toEqual(["200"]);
      expect(counts[200], `calls while ${name}`).toBeGreaterThan(50);
      // The second outage goes over into the third without a moment between.
      if (name !== "restarted sealed") await until(() => away() > before, `a word of it: ${name}`, 15_000);
      await end();
      if (name === "killed") continue;
      const isBack = async (): Promise<boolean> => {
        expect(await status()).toBe(200);
        return back() > backs;
      };
      await until(isBack, `the end of it: ${name}`, 75_000);
    }
    // What is written now is read, so the gateway really is back.
    await bao.putSecret("secret", "mcp/a", { token: secrets[1] });
    accepted = new Set([secrets[1] ?? ""]);
    await until(async () => (await status()) === 200, "the new secret to be used", 75_000);
    expect(stack.gateway()?.exitCode()).toBeUndefined();
    expect((await fetch(`${stack.gatewayAdmin}/readyz`)).status).toBe(200);
    expect(findLeaks(stack.outputs(), { first: secrets[0] ?? "", second: secrets[1] ?? "" })).toEqual([]);
    await stack.stop();
  }, 240_000);

  it("C28 loses calls past staleFor, with a clear word, and none once it is back", async () => {
    stack = await startWith("2s");
    expect(await status()).toBe(200);
    await bao.seal();
    await until(async () => (await status()) === 502, "the end of the old secret", 15_000);
    expect(await status()).toBe(502);
    expect(log()).toContain('"code":"store-sealed"');
    await bao.unseal();
    await until(async () => (await status()) === 200, "the vault to be used again", 75_000);
  }, 240_000);
});
