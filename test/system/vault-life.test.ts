/** Kinds of tokens, and a quota, as a real OpenBao has them: a read each moment while they come and go. */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import type { VaultOptions } from "../../src/credentials/index.ts";
import { bearerAt, byRole, type Harness, open } from "../credentials/harness.ts";
import { type Bao, startBao } from "../support/bao.ts";
import { until } from "../support/until.ts";
import { requireBao } from "../support/vault-backed.ts";

const binary = requireBao();
const rules = 'path "secret/data/mcp/*" { capabilities = ["read"] }';

describe.skipIf(binary === undefined)("the life of tokens at a real OpenBao", () => {
  let bao: Bao;
  let folder: string;

  beforeAll(async () => {
    bao = await startBao(binary ?? "");
    folder = await mkdtemp(join(tmpdir(), "life-"));
    await bao.putSecret("secret", "mcp/a", { token: "value" });
  });
  afterAll(async () => {
    await bao?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  function openWith(vault: VaultOptions, env: Record<string, string> = {}): Harness {
    const harness = open({ vault, servers: { a: bearerAt("mcp/a") }, env });
    onTestFinished(() => harness.credentials.close());
    return harness;
  }

  async function openByRole(role: Record<string, unknown>, more: Partial<VaultOptions> = {}): Promise<Harness> {
    const { roleId, secretId } = await bao.enableApprole(rules, role);
    const strict = { ttlMs: 50, staleForMs: 0, ...more };
    return openWith(byRole(bao.address, roleId, strict), { SECRET_ID: secretId });
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
    const { roleId, secretId } = await bao.enableApprole(rules, { token_ttl: "8s", token_max_ttl: "16s" });
    const sink = join(folder, "sink");
    const stop = await startAgent(binary ?? "", { address: bao.address, folder, roleId, secretId, sink });
    onTestFinished(stop);
    const auth = { method: "token", token: { file: sink } } as const;
    const harness = openWith({ address: bao.address, auth, ttlMs: 500, staleForMs: 0 });
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

interface AgentOptions {
  readonly address: string;
  readonly folder: string;
  readonly roleId: string;
  readonly secretId: string;
  readonly sink: string;
}

/** Logs in by role, keeps the token alive, and writes it to `sink`. */
async function startAgent(file: string, options: AgentOptions): Promise<() => Promise<void>> {
  const at = (name: string): string => join(options.folder, name);
  await writeFile(at("role-id"), options.roleId, { mode: 0o600 });
  await writeFile(at("secret-id"), options.secretId, { mode: 0o600 });
  const config = `
vault { address = "${options.address}" }
auto_auth {
  method "approle" {
    config = {
      role_id_file_path = "${at("role-id")}"
      secret_id_file_path = "${at("secret-id")}"
      remove_secret_id_file_after_reading = false
    }
  }
  sink "file" {
    config = {
      path = "${options.sink}"
      mode = 0600
    }
  }
}`;
  await writeFile(at("agent.hcl"), config);
  const child = spawn(file, ["agent", `-config=${at("agent.hcl")}`], {
    env: { HOME: options.folder },
    stdio: "ignore",
  });
  const stop = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await ended;
  };
  try {
    await until(() => child.exitCode !== null || existsSync(options.sink), "the agent to write its token", 20_000);
  } catch (error) {
    await stop();
    throw error;
  }
  return stop;
}
