import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { bearerAt, byRole, byToken, open } from "../credentials/harness.ts";
import { storeSuite } from "../credentials/store-suite.ts";
import { type Bao, findBao, startBao } from "../support/bao.ts";
import { until } from "../support/until.ts";

const binary = findBao();

if (binary !== undefined) {
  storeSuite("a store as OpenBao is", () => startBao(binary));
  describe("OpenBao over TLS", () => checkTls(binary));
  describe("OpenBao in time", () => checkLife(binary));
} else if (process.env["CI"] !== undefined) {
  throw new Error("no bao binary: run scripts/install-bao.sh");
} else {
  describe("a store as OpenBao is", () => it.skip("needs a bao binary: run scripts/install-bao.sh", () => undefined));
}

function checkTls(file: string): void {
  let bao: Bao;
  let folder: string;

  beforeAll(async () => {
    bao = await startBao(file, { tls: true });
    folder = await mkdtemp(join(tmpdir(), "ca-"));
    await bao.putSecret("secret", "mcp/a", { token: "over-tls" });
  });
  afterAll(async () => {
    vi.unstubAllEnvs();
    await bao.stop();
    await rm(folder, { recursive: true, force: true });
  });

  const openWith = (ca: string | undefined) =>
    open({
      vault: byToken(bao.address, { ca }),
      servers: { a: bearerAt("mcp/a") },
      env: { STORE_TOKEN: bao.rootToken },
    });

  it("is believed when its certificate comes from the configured CA", async () => {
    const { inject, credentials } = openWith(bao.caFile);
    expect(await inject()).toEqual(["Authorization", "Bearer over-tls"]);
    await credentials.close();
  });

  it("is not believed otherwise, whatever the environment says", async () => {
    vi.stubEnv("NODE_TLS_REJECT_UNAUTHORIZED", "0");
    vi.stubEnv("VAULT_SKIP_VERIFY", "1");
    const { failure, credentials } = openWith(undefined);
    expect(await failure()).toMatchObject({
      code: "store-unreachable",
      message: expect.stringMatching(/: (UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_)[A-Z_]+$/),
      cure: expect.stringContaining("vault.ca"),
    });
    await credentials.close();
  });

  it("is believed again, without a restart, once the CA file holds the right CA", async () => {
    const ca = join(folder, "ca.pem");
    const { failure, inject, credentials } = openWith(ca);
    expect(await failure()).toMatchObject({ message: expect.stringContaining("CA_FILE_UNREADABLE") });
    await writeFile(ca, await readFile(bao.caFile ?? ""));
    await until(
      () =>
        inject().then(
          () => true,
          () => false,
        ),
      "the store to be believed",
      10_000,
    );
    await credentials.close();
  });
}

function checkLife(file: string): void {
  it("C28 outlives its token's leases and maximum: TTL 2 s, maximum 5 s, a read each second", async () => {
    const bao = await startBao(file);
    await bao.putSecret("secret", "mcp/a", { token: "value" });
    const rules = 'path "secret/data/mcp/*" { capabilities = ["read"] }';
    const { roleId, secretId } = await bao.enableApprole(rules, { token_ttl: "2s", token_max_ttl: "5s" });
    const vault = byRole(bao.address, roleId, { ttlMs: 100, staleForMs: 0 });
    const { inject, lines, credentials } = open({
      vault,
      servers: { a: bearerAt("mcp/a") },
      env: { SECRET_ID: secretId },
    });
    const endAt = performance.now() + 9_000;
    await until(
      async () => {
        expect(await inject()).toEqual(["Authorization", "Bearer value"]);
        return performance.now() > endAt;
      },
      "9 s to pass",
      20_000,
    );
    expect(lines.filter((line) => line.includes("failed") || line.includes("not renewed"))).toEqual([]);
    expect(lines.filter((line) => line.includes("store token granted")).length).toBeGreaterThan(4);
    await credentials.close();
    await bao.stop();
  });
}
