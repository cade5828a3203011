import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { VaultOptions } from "../../src/credentials/index.ts";
import { findLeaks } from "../support/canary.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { VaultFake } from "../support/vault-fake.ts";
import { bearerAt, type Harness, Opened, readMcp } from "./harness.ts";

const canary = "canary-5c0e2ff1a97b4f02";

let fake: VaultFake;
let folder: string;
const opened = new Opened();

beforeEach(async () => {
  fake = await VaultFake.start();
  folder = await mkdtemp(join(tmpdir(), "logins-"));
  for (const path of ["mcp/a", "mcp/b"]) await fake.putSecret("secret", path, { token: "value" });
});
afterEach(async () => {
  await opened.close();
  await fake.stop();
  await rm(folder, { recursive: true, force: true });
});

function openWith(auth: VaultOptions["auth"], more: Partial<VaultOptions> = {}): Harness {
  const servers = { a: bearerAt("mcp/a"), b: bearerAt("mcp/b") };
  return opened.open({ vault: { address: fake.address, auth, ...more }, servers });
}

/** Put in place as a kubelet does it: by a rename. */
async function place(name: string, text: string): Promise<string> {
  const file = join(folder, name);
  await writeFile(`${file}.new`, text, { mode: 0o600 });
  await rename(`${file}.new`, file);
  return file;
}

describe.each(["kubernetes", "jwt"] as const)("%s", (method) => {
  it("logs in by role with the token of a file", async () => {
    const file = await place("token", `${canary}\n`);
    fake.enableLogin(method, ({ role, jwt }) => role === "postern" && jwt === canary, readMcp);
    const { inject } = openWith({ method, role: "postern", jwt: { file } });
    expect(await inject("a")).toEqual(["Authorization", "Bearer value"]);
    const [login] = fake.seen;
    expect(login).toMatchObject({ path: `auth/${method}/login`, token: undefined });
    expect(login?.body).toEqual({ role: "postern", jwt: canary });
  });

  it("C28 reads the file anew at every login", async () => {
    const file = await place("token", "first");
    let living = "first";
    fake.enableLogin(method, ({ jwt }) => jwt === living, readMcp);
    const { inject } = openWith({ method, role: "postern", jwt: { file } });
    await inject("a");
    living = "second";
    await place("token", "second");
    await fake.revokeLogins();
    expect(await inject("b")).toEqual(["Authorization", "Bearer value"]);
  });

  it("takes a mount of another name", async () => {
    const file = await place("token", canary);
    fake.enableLogin("clusters/east", () => true, readMcp);
    const { inject } = openWith({ method, role: "postern", jwt: { file }, mount: "clusters/east" });
    expect(await inject("a")).toEqual(["Authorization", "Bearer value"]);
  });

  it("says how it was refused, without the token", async () => {
    const file = await place("token", canary);
    fake.enableLogin(method, () => false, readMcp);
    const { failure, lines } = openWith({ method, role: "postern", jwt: { file } });
    const error = await failure("a");
    expect(error).toMatchObject({ code: "login-denied", status: 400, cure: expect.stringContaining("role postern") });
    expect(error.message).toContain(`refused the ${method} login at auth/${method}`);
    expect(findLeaks([{ name: "error", text: inspect(error) + lines.join("") }], { canary })).toEqual([]);
  });

  it("refuses a file that holds more than a token, before anything is sent", async () => {
    const file = await place("token", `${canary} x`);
    const { failure } = openWith({ method, role: "postern", jwt: { file } });
    expect(await failure("a")).toMatchObject({ code: "value-invalid" });
    expect(fake.seen).toEqual([]);
  });
});

describe("approle with a wrapped secret id", () => {
  const creationPath = "auth/approle/role/postern/secret-id";
  const isAlarm = (line: string): boolean => line.includes("wrapped secret id may be known to others");

  async function wrapped(path = creationPath): Promise<{ harness: Harness; roleId: string; secretId: string }> {
    const { roleId, secretId } = await fake.enableApprole(readMcp);
    const wrappedSecretId = { file: await place("wrapped", `${fake.wrap(path, { secret_id: secretId })}\n`) };
    return { harness: openWith({ method: "approle", roleId, wrappedSecretId }), roleId, secretId };
  }

  it("looks first, unwraps once, and keeps the secret id for later logins", async () => {
    const { harness, secretId } = await wrapped();
    await harness.inject("a");
    const paths = fake.seen.slice(0, 3).map(({ path }) => path);
    expect(paths).toEqual(["sys/wrapping/lookup", "sys/wrapping/unwrap", "auth/approle/login"]);
    await fake.revokeLogins();
    await rm(join(folder, "wrapped"));
    expect(await harness.inject("b")).toEqual(["Authorization", "Bearer value"]);
    expect(fake.count("sys/wrapping/unwrap")).toBe(1);
    expect(harness.lines.filter(isAlarm)).toEqual([]);
    expect(findLeaks([{ name: "log", text: harness.lines.join("") }], { secretId })).toEqual([]);
  });

  it.each([
    ["another mount", "auth/other/role/postern/secret-id"],
    ["another kind of secret", "secret/data/mcp/a"],
    ["a path around it", "auth/approle/role/x/y/secret-id"],
    ["a longer path", "auth/approle/role/postern/secret-id/lookup"],
  ])("does not unwrap what was made at %s", async (_, path) => {
    const { harness } = await wrapped(path);
    expect(await harness.failure("a")).toMatchObject({ code: "wrapping-refused" });
    expect(fake.count("sys/wrapping/unwrap")).toBe(0);
    expect(harness.lines.filter(isAlarm)).toHaveLength(1);
  });

  it("raises the alarm when somebody else was first, asks no more, and goes on with a new one", async () => {
    const { roleId, secretId } = await fake.enableApprole(readMcp);
    const wrappedSecretId = { file: await place("wrapped", "s.taken-already") };
    const clock = new ManualClock();
    const servers = { a: bearerAt("mcp/a") };
    const harness = opened.open({
      vault: { address: fake.address, auth: { method: "approle", roleId, wrappedSecretId } },
      servers,
      clock,
    });
    for (let i = 0; i < 3; i += 1) {
      expect(await harness.failure("a")).toMatchObject({ code: "wrapping-refused" });
      clock.advance(120_000);
    }
    expect(fake.seen.map(({ path }) => path)).toEqual(["sys/wrapping/lookup"]);
    expect(harness.lines.filter(isAlarm)).toHaveLength(1);
    expect(harness.lines.find(isAlarm)).toContain('"error"');
    await place("wrapped", fake.wrap(creationPath, { secret_id: secretId }));
    expect(await harness.inject("a")).toEqual(["Authorization", "Bearer value"]);
  });

  it("looks again when the store was away, but never unwraps again", async () => {
    const { roleId, secretId } = await fake.enableApprole(readMcp);
    const wrappedSecretId = { file: await place("wrapped", fake.wrap(creationPath, { secret_id: secretId })) };
    const clock = new ManualClock();
    const servers = { a: bearerAt("mcp/a") };
    const harness = opened.open({
      vault: { address: fake.address, auth: { method: "approle", roleId, wrappedSecretId } },
      servers,
      clock,
    });
    fake.fault = ({ path }) => (path === "sys/wrapping/lookup" ? { kind: "status", status: 503 } : undefined);
    expect((await harness.failure("a")).code).toBe("store-sealed");
    clock.advance(120_000);
    fake.fault = ({ path }) => (path === "sys/wrapping/unwrap" ? { kind: "reset" } : undefined);
    expect((await harness.failure("a")).code).toBe("wrapping-refused");
    clock.advance(120_000);
    fake.fault = () => undefined;
    expect((await harness.failure("a")).code).toBe("wrapping-refused");
    expect(fake.count("sys/wrapping/unwrap")).toBe(1);
  });
});

describe("agent", () => {
  /** Plays the agent: the token is its own, and a request that carries another shows in `fake.seen`. */
  function playAgent(): void {
    fake.fault = (seen) => {
      if (seen.token !== undefined || seen.headers["x-vault-request"] !== "true")
        return { kind: "status", status: 403 };
      const data = seen.path.startsWith("sys/")
        ? { path: "secret/", type: "kv", options: { version: "2" } }
        : { data: { token: "value" }, metadata: {} };
      return { kind: "status", status: seen.path === "secret/data/mcp/b" ? 403 : 200, body: { data } };
    };
  }

  it("sends no token and logs in nowhere", async () => {
    playAgent();
    const { inject, credentials } = openWith(
      { method: "agent", agent: { address: fake.address } },
      { address: "https://vault.invalid" },
    );
    expect(await inject("a")).toEqual(["Authorization", "Bearer value"]);
    await credentials.close();
    expect(fake.seen.map(({ path }) => path)).toEqual(["sys/internal/ui/mounts/secret", "secret/data/mcp/a"]);
    expect(fake.seen.filter(({ token }) => token !== undefined)).toEqual([]);
  });

  it("tells a denial from a dead token as ever", async () => {
    playAgent();
    const { failure } = openWith({ method: "agent", agent: { address: fake.address } });
    expect(await failure("b")).toMatchObject({ code: "denied" });
    expect(fake.count("auth/token/lookup-self")).toBe(1);
  });

  it("is never asked over a network in the clear", () => {
    expect(() => openWith({ method: "agent", agent: { address: "http://agent.internal:8100" } })).toThrow(
      expect.objectContaining({ code: "not-configured" }),
    );
  });
});
