/** What a server's 401 makes of its credential: one re-read for all calls that meet it together (case C26). */
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { CredentialError, CredentialOptions, Injection, VaultOptions } from "../../src/credentials/index.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { VaultFake } from "../support/vault-fake.ts";
import { agent, bearerAt, Opened, sentBy } from "./harness.ts";

const entry = "secret/data/mcp/a";

let clock: ManualClock;
let store: VaultFake;
let folder: string;
const opened = new Opened();

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "postern-refresh-"));
  clock = new ManualClock();
  store = await VaultFake.start(() => clock.now());
  await store.putSecret("secret", "mcp/a", { token: "value-1", user: "svc" });
});
afterEach(async () => {
  await opened.close();
  await store.stop();
  rmSync(folder, { recursive: true });
});

async function start(
  credential: CredentialOptions = bearerAt("mcp/a"),
  env: Record<string, string> = {},
  more: Partial<VaultOptions> = {},
) {
  const harness = await opened.byRole(store, { vault: more, servers: { a: credential }, env, clock });
  return harness.credentials.forServer("a");
}

describe("a refused injection", () => {
  it("is read anew however fresh it is, and the new value serves from then on", async () => {
    const credential = await start();
    const first = await credential.inject(agent);
    await store.putSecret("secret", "mcp/a", { token: "value-2" });
    expect(sentBy(await credential.inject(agent))).toBe("Bearer value-1");
    expect(sentBy(await credential.refresh(first, agent))).toBe("Bearer value-2");
    expect(sentBy(await credential.inject(agent))).toBe("Bearer value-2");
    expect(store.count(entry)).toBe(2);
  });

  it("C26 causes one read for ten calls, those included that come when it is over", async () => {
    const credential = await start();
    const first = await credential.inject(agent);
    await store.putSecret("secret", "mcp/a", { token: "value-2" });
    const together = await Promise.all(Array.from({ length: 9 }, () => credential.refresh(first, agent)));
    const late = await credential.refresh(first, agent);
    expect([...together, late].map(sentBy)).toEqual(Array.from({ length: 10 }, () => "Bearer value-2"));
    expect(store.count(entry)).toBe(2);
  });

  it("C26 causes one read for ten calls that gain nothing by it", async () => {
    const credential = await start();
    const first = await credential.inject(agent);
    const together = await Promise.all(Array.from({ length: 9 }, () => credential.refresh(first, agent)));
    const late = await credential.refresh(first, agent);
    expect([...together, late].map(sentBy)).toEqual(Array.from({ length: 10 }, () => "Bearer value-1"));
    expect(store.count(entry)).toBe(2);
    // Together they count as one that gained nothing: the next refusal reads at once.
    await store.putSecret("secret", "mcp/a", { token: "value-2" });
    expect(sentBy(await credential.refresh(await credential.inject(agent), agent))).toBe("Bearer value-2");
  });

  it("causes no read when a younger value is at hand already", async () => {
    const credential = await start();
    const first = await credential.inject(agent);
    await store.putSecret("secret", "mcp/a", { token: "value-2" });
    clock.advance(121_000);
    const younger = await credential.inject(agent);
    expect(await credential.refresh(first, agent)).toBe(younger);
    expect(store.count(entry)).toBe(2);
  });

  it("does not turn a lasting 401 into a read per call, and takes a rotated value up all the same", async () => {
    const credential = await start();
    const callRefused = async (): Promise<Injection> => credential.refresh(await credential.inject(agent), agent);
    for (let i = 0; i < 50; i += 1) await callRefused();
    expect(store.count(entry)).toBe(3);
    await store.putSecret("secret", "mcp/a", { token: "value-2" });
    clock.advance(250);
    expect(sentBy(await callRefused())).toBe("Bearer value-2");
    await store.putSecret("secret", "mcp/a", { token: "value-3" });
    expect(sentBy(await callRefused())).toBe("Bearer value-3");
  });

  it("counts anew once the value has changed in the course of time", async () => {
    const credential = await start(bearerAt("mcp/a"), {}, { ttlMs: 1_000, staleForMs: 0 });
    for (let i = 0; i < 9; i += 1) {
      await credential.refresh(await credential.inject(agent), agent);
      clock.advance(10_000);
    }
    // Ten seconds without a re-read begin; the freshness of the value ends within them.
    await credential.refresh(await credential.inject(agent), agent);
    await store.putSecret("secret", "mcp/a", { token: "value-2" });
    clock.advance(1_500);
    const second = await credential.inject(agent);
    await store.putSecret("secret", "mcp/a", { token: "value-3" });
    expect([sentBy(second), sentBy(await credential.refresh(second, agent))]).toEqual([
      "Bearer value-2",
      "Bearer value-3",
    ]);
  });

  it("stays as it was while the store is away, and is gone when the store says no", async () => {
    const credential = await start();
    const first = await credential.inject(agent);
    await store.seal();
    expect(sentBy(await credential.refresh(first, agent))).toBe("Bearer value-1");
    // Nor is a store that is away asked again for each call that is refused.
    const asked = store.count(entry);
    expect(sentBy(await credential.refresh(first, agent))).toBe("Bearer value-1");
    expect(store.count(entry)).toBe(asked);
    await store.unseal();
    clock.advance(10_000);
    await store.deleteSecret("secret", "mcp/a");
    await expect(credential.refresh(first, agent)).rejects.toMatchObject({
      code: "deleted",
    } satisfies Partial<CredentialError>);
    await expect(async () => credential.inject(agent)).rejects.toMatchObject({ code: "deleted" });
  });

  it("reads an entry once though several of its fields are used", async () => {
    const vault = { mount: "secret", path: "mcp/a" };
    const credential = await start({
      type: "basic",
      username: { vault: { ...vault, field: "user" } },
      password: { vault: { ...vault, field: "token" } },
    });
    const first = await credential.inject(agent);
    expect(await credential.inject(agent)).toBe(first);
    await store.putSecret("secret", "mcp/a", { token: "value-2", user: "other" });
    const [, value = ""] = (await credential.refresh(first, agent)).headers;
    expect(Buffer.from(value.slice(6), "base64").toString()).toBe("other:value-2");
    expect(store.count(entry)).toBe(2);
  });

  it("reads a file again within its second, and has nothing to read in a variable or a text", async () => {
    const file = join(folder, "token");
    writeFileSync(file, "value-1");
    chmodSync(file, 0o600);
    const fromFile = await start({ type: "bearer", token: { file } });
    const first = await fromFile.inject(agent);
    writeFileSync(file, "value-2");
    expect(sentBy(await fromFile.refresh(first, agent))).toBe("Bearer value-2");

    const fromEnv = await start({ type: "bearer", token: { env: "T" } }, { T: "value-1" });
    const only = await fromEnv.inject(agent);
    expect(sentBy(await fromEnv.refresh(only, agent))).toBe("Bearer value-1");

    const text = await start({ type: "headers", headers: { "X-Org": "acme" } });
    const same = await text.inject(agent);
    expect(await text.inject(agent)).toBe(same);
    expect(await text.refresh(same, agent)).toBe(same);
  });
});

it("one part that fails leaves the promises of the others with an owner", async () => {
  const credential = await start({
    type: "headers",
    headers: { "X-A": { vault: { mount: "secret", path: "mcp/a", field: "none" } }, "X-B": { env: "MISSING" } },
  });
  for (let i = 0; i < 2; i += 1) await expect(async () => credential.inject(agent)).rejects.toThrow();
});
