/** Kinds of tokens, and a quota, as a real OpenBao has them: a read each moment while they come and go. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import type { VaultOptions } from "../../src/credentials/index.ts";
import { bearerAt, type Harness, Opened, readMcp } from "../credentials/harness.ts";
import { type Bao, startBao } from "../support/bao.ts";
import { startBaoHelper } from "../support/bao-helper.ts";
import { until } from "../support/until.ts";
import { requireBao } from "../support/vault-backed.ts";

const binary = requireBao();
const servers = { a: bearerAt("mcp/a") };

describe.skipIf(binary === undefined)("the life of tokens at a real OpenBao", () => {
  let bao: Bao;
  let folder: string;
  const opened = new Opened();

  beforeAll(async () => {
    bao = await startBao(binary ?? "");
    folder = await mkdtemp(join(tmpdir(), "life-"));
    await bao.putSecret("secret", "mcp/a", { token: "value" });
  });
  afterAll(async () => {
    await bao?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  afterEach(() => opened.close());

  function openByRole(role: Record<string, unknown>, more: Partial<VaultOptions> = {}): Promise<Harness> {
    return opened.byRole(bao, { role, vault: { ttlMs: 50, staleForMs: 0, ...more }, servers });
  }

  /** Reads for `ms`, each of which must succeed. */
  async function readFor(harness: Harness, ms: number): Promise<void> {
    const endAt = performance.now() + ms;
    const read = async (): Promise<boolean> => {
      expect(await harness.inject()).toEqual(["Authorization", "Bearer value"]);
      return performance.now() > endAt;
    };
    await until(read, "the reads", ms + 10_000);
  }

  /** How many tokens were used that came by a login. */
  async function logins(): Promise<number> {
    const listed = await bao.call("LIST", "auth/token/accessors").catch(() => ({ data: { keys: [] } }));
    return (listed["data"] as { keys: string[] }).keys.length;
  }

  const quiet = (harness: Harness): string[] =>
    harness.lines.filter((line) => /failed|not renewed|older secret/.test(line));

  it("C28 periodic: renewed for ever, by one login", async () => {
    const before = await logins();
    const harness = await openByRole({ token_period: "2s" });
    await readFor(harness, 7_000);
    expect(quiet(harness)).toEqual([]);
    expect(await logins()).toBe(before + 1);
  });

  it("C28 with an explicit maximum: another one before it", async () => {
    const harness = await openByRole({ token_ttl: "2s", token_explicit_max_ttl: "3s" });
    await readFor(harness, 8_000);
    expect(quiet(harness)).toEqual([]);
  });

  it("C28 batch: another one before it ends", async () => {
    const harness = await openByRole({ token_type: "batch", token_ttl: "2s" });
    await readFor(harness, 5_000);
    expect(quiet(harness)).toEqual([]);
  });

  it("C28 in a file that OpenBao's own agent keeps: no read fails over renewals and a new token", async () => {
    const role = await bao.enableApprole(readMcp, { token_ttl: "8s", token_max_ttl: "16s" });
    const makes = join(folder, "sink");
    const autoAuth = `sink "file" {
      config = {
        path = "${makes}"
        mode = 0600
      }
    }`;
    const stop = await startBaoHelper(binary ?? "", "agent", {
      address: bao.address,
      folder,
      ...role,
      autoAuth,
      makes,
    });
    onTestFinished(stop);
    const auth = { method: "token", token: { file: makes } } as const;
    const vault = { address: bao.address, auth, ttlMs: 500, staleForMs: 0 };
    const harness = opened.open({ vault, servers });
    await readFor(harness, 20_000);
    expect(quiet(harness)).toEqual([]);
  });

  it("C28 a quota on our rate: what was read before serves, and the quota is not beaten against", async () => {
    const harness = await openByRole({}, { ttlMs: 50, staleForMs: 60_000 });
    await readFor(harness, 200);
    await bao.call("POST", "sys/quotas/config", { enable_rate_limit_response_headers: true });
    const quota = { rate: 1, interval: "5s", block_interval: "5s", path: "secret" };
    await bao.call("POST", "sys/quotas/rate-limit/tight", quota);
    await readFor(harness, 6_000);
    const told = harness.lines.filter((line) => line.includes("older secret serves"));
    expect(told.length).toBeGreaterThan(0);
    expect(told[0]).toContain("store-rate-limited");
    await bao.call("DELETE", "sys/quotas/rate-limit/tight");
    await bao.putSecret("secret", "mcp/a", { token: "next" });
    await until(async () => (await harness.inject())[1] === "Bearer next", "the next value", 30_000);
    await bao.putSecret("secret", "mcp/a", { token: "value" });
  });
});
