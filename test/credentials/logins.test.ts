import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { VaultOptions } from "../../src/credentials/index.ts";
import { findLeaks } from "../support/canary.ts";
import { VaultFake } from "../support/vault-fake.ts";
import { bearerAt, type Harness, open } from "./harness.ts";

const rules = 'path "secret/data/mcp/*" { capabilities = ["read"] }';
const canary = "canary-5c0e2ff1a97b4f02";

let fake: VaultFake;
let folder: string;
const opened: Harness[] = [];

beforeEach(async () => {
  fake = await VaultFake.start();
  folder = await mkdtemp(join(tmpdir(), "logins-"));
  for (const path of ["mcp/a", "mcp/b"]) await fake.putSecret("secret", path, { token: "value" });
});
afterEach(async () => {
  for (const { credentials } of opened.splice(0)) await credentials.close();
  await fake.stop();
  await rm(folder, { recursive: true, force: true });
});

function openWith(auth: VaultOptions["auth"], more: Partial<VaultOptions> = {}): Harness {
  const servers = { a: bearerAt("mcp/a"), b: bearerAt("mcp/b") };
  const harness = open({ vault: { address: fake.address, auth, ...more }, servers });
  opened.push(harness);
  return harness;
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
    fake.enableLogin(method, ({ role, jwt }) => role === "postern" && jwt === canary, rules);
    const { inject } = openWith({ method, role: "postern", jwt: { file } });
    expect(await inject("a")).toEqual(["Authorization", "Bearer value"]);
    const [login] = fake.seen;
    expect(login).toMatchObject({ path: `auth/${method}/login`, token: undefined });
    expect(login?.body).toEqual({ role: "postern", jwt: canary });
  });

  it("C28 reads the file anew at every login", async () => {
    const file = await place("token", "first");
    let living = "first";
    fake.enableLogin(method, ({ jwt }) => jwt === living, rules);
    const { inject } = openWith({ method, role: "postern", jwt: { file } });
    await inject("a");
    living = "second";
    await place("token", "second");
    await fake.revokeLogins();
    expect(await inject("b")).toEqual(["Authorization", "Bearer value"]);
  });

  it("takes a mount of another name", async () => {
    const file = await place("token", canary);
    fake.enableLogin("clusters/east", () => true, rules);
    const { inject } = openWith({ method, role: "postern", jwt: { file }, mount: "clusters/east" });
    expect(await inject("a")).toEqual(["Authorization", "Bearer value"]);
  });

  it("says how it was refused, without the token", async () => {
    const file = await place("token", canary);
    fake.enableLogin(method, () => false, rules);
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
