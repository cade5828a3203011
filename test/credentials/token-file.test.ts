/** A token that stands in a file, where a Vault Agent keeps it alive and writes the next one. */
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ManualClock } from "../support/manual-clock.ts";
import { until } from "../support/until.ts";
import { type Seen, VaultFake } from "../support/vault-fake.ts";
import { bearerAt, type Harness, open } from "./harness.ts";

const rules = 'path "secret/data/mcp/*" { capabilities = ["read"] }';
const lookup = "auth/token/lookup-self";
const renewal = "auth/token/renew-self";

let clock: ManualClock;
let store: VaultFake;
let folder: string;
let harness: Harness;

/** Agents write beside the file and put it in place by a rename. */
function place(token: string): void {
  writeFileSync(join(folder, "next"), `${token}\n`, { mode: 0o600 });
  renameSync(join(folder, "next"), join(folder, "sink"));
}

beforeEach(async () => {
  clock = new ManualClock();
  store = await VaultFake.start(() => clock.now());
  folder = mkdtempSync(join(tmpdir(), "postern-sink-"));
  await store.putSecret("secret", "mcp/a", { token: "value" });
  const auth = { method: "token", token: { file: join(folder, "sink") } } as const;
  harness = open({
    vault: { address: store.address, auth, ttlMs: 1_000, staleForMs: 0 },
    servers: { a: bearerAt("mcp/a") },
    clock,
  });
});
afterEach(async () => {
  await harness.credentials.close();
  await store.stop();
  rmSync(folder, { recursive: true });
});

const newToken = (ttlMs = 300_000): Promise<string> => store.createToken({ ttlMs, rules });
const isOurs = ({ headers }: Seen): boolean => headers["x-vault-request"] === "true";
const ours = (path: string): number => store.seen.filter((seen) => isOurs(seen) && seen.path === path).length;
const lastToken = (): string | undefined => store.seen.filter(({ path }) => path.includes("/data/")).at(-1)?.token;

/** Moves on until a value that was read is old, and makes a call. */
async function useAgain(): Promise<string | undefined> {
  clock.advance(2_000);
  expect(await harness.inject()).toEqual(["Authorization", "Bearer value"]);
  return lastToken();
}

/** Moves on to the moment when we look at the token, and waits for what comes of it. */
async function advanceToLook(): Promise<void> {
  const before = ours(lookup);
  clock.advance(clock.nextInMs ?? 0);
  await until(() => ours(lookup) > before && (clock.nextInMs ?? 0) > 60_000, "the look and what follows");
}

async function useUntil(token: string): Promise<void> {
  await until(async () => (await useAgain()) === token, "the new token to be used");
}

function renewAsAgent(token: string): Promise<unknown> {
  return fetch(`${store.address}/v1/${renewal}`, { method: "POST", headers: { "x-vault-token": token }, body: "{}" });
}

describe("a token in a file", () => {
  it("C28 is never renewed by us while an agent renews it, however long", async () => {
    const token = await newToken();
    place(token);
    await harness.inject();
    for (let i = 0; i < 10; i += 1) {
      clock.advance((clock.nextInMs ?? 0) - 35_000);
      await renewAsAgent(token);
      await advanceToLook();
      expect(await useAgain()).toBe(token);
    }
    expect(ours(lookup)).toBe(11);
    expect([ours(renewal), ours("auth/token/revoke-self")]).toEqual([0, 0]);
  });

  it("C28 that nobody renews is renewed by us before it ends", async () => {
    const token = await newToken();
    place(token);
    await harness.inject();
    for (const count of [1, 2, 3]) {
      expect(clock.nextInMs).toBeGreaterThanOrEqual(0.8 * 290_000);
      await advanceToLook();
      expect(ours(renewal)).toBe(count);
      expect(await useAgain()).toBe(token);
    }
  });

  it("C28 is followed when another stands in its place, while the old one lives", async () => {
    const [first, second] = [await newToken(), await newToken()];
    place(first);
    await harness.inject();
    expect(lastToken()).toBe(first);
    place(second);
    await useUntil(second);
    expect(clock.now()).toBeLessThan(100_000);
    expect(ours(renewal)).toBe(0);
  });

  it("C28 is read again when the store refuses it, once", async () => {
    place(await newToken());
    await harness.inject();
    await store.revokeLogins();
    const next = await newToken();
    place(next);
    expect(await useAgain()).toBe(next);
    expect(ours(lookup), "no loop").toBeLessThanOrEqual(3);
  });

  it("C28 that ended before the next one stood there costs no more calls than it must", async () => {
    place(await newToken());
    await harness.inject();
    await store.revokeLogins();
    clock.advance(2_000);
    for (let i = 0; i < 5; i += 1) {
      expect((await harness.failure()).code).toBe("login-denied");
      clock.advance(60_000);
    }
    expect((await harness.failure()).code).toBe("login-denied");
    const next = await newToken();
    place(next);
    expect(await useAgain()).toBe(next);
  });

  it("C28 goes on serving while its file is away, and while what stands there is no good", async () => {
    const first = await newToken();
    place(first);
    await harness.inject();
    rmSync(join(folder, "sink"));
    expect([await useAgain(), await useAgain()]).toEqual([first, first]);
    place("s.no-token-of-this-store");
    expect([await useAgain(), await useAgain()]).toEqual([first, first]);
    await until(() => harness.lines.some((line) => line.includes("store token not renewed")), "a word of it");
    const second = await newToken();
    place(second);
    await useUntil(second);
  });
});
