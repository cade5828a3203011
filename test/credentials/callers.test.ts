/** Secrets that differ from caller to caller: each principal's entry for himself, and as much care for each as for one. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Cached } from "../../src/credentials/cache.ts";
import { CallerCredential, maxCallers } from "../../src/credentials/caller-credential.ts";
import { encodeCaller } from "../../src/credentials/caller-path.ts";
import {
  type CredentialOptions,
  credentialMetrics,
  type Injection,
  labelCallers,
  type ServerCredential,
} from "../../src/credentials/index.ts";
import { ShapedCredential } from "../../src/credentials/server-credential.ts";
import { type Shape, shapeOf } from "../../src/credentials/shapes.ts";
import { Secret } from "../../src/lib/index.ts";
import { createLogger, renderMetrics, silentLogger } from "../../src/telemetry/index.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { VaultFake } from "../support/vault-fake.ts";
import { bearerAt, failuresIn, type Harness, Opened, open, sentBy } from "./harness.ts";

const rules = 'path "secret/data/mcp/*" { capabilities = ["read"] } path "one*" { capabilities = ["read"] }';
const alice = { id: "key:alice" };
const bob = { id: "oauth:https://idp.example.com#bob" };
const template = "mcp/own/{principal.id}";
const apiPath = (id: string): string => `secret/data/mcp/own/${encodeCaller(id)}`;

let clock: ManualClock;
let store: VaultFake;
const opened = new Opened();

beforeEach(async () => {
  clock = new ManualClock();
  store = await VaultFake.start(() => clock.now());
  await put(alice.id, { token: "value-of-alice", user: "alice" });
  await put(bob.id, { token: "value-of-bob", user: "bob" });
});
afterEach(async () => {
  await opened.close();
  await store.stop();
});

async function put(id: string, data: Record<string, unknown>): Promise<void> {
  await store.putSecret("secret", `mcp/own/${encodeCaller(id)}`, data);
}

async function start(credential: CredentialOptions = bearerAt(template), areCallersVerified = true): Promise<Harness> {
  return await opened.byRole(store, { rules, servers: { a: credential }, areCallersVerified, clock });
}

async function startOne(credential?: CredentialOptions): Promise<ServerCredential> {
  return (await start(credential)).credentials.forServer("a");
}

describe("a credential whose path names the principal", () => {
  it("C24 gives each caller his own, at once and as the same object when warm", async () => {
    const credential = await startOne();
    expect(credential.isPerCaller).toBe(true);
    expect(credential.headerNames()).toEqual(["authorization"]);
    const [one, other] = await Promise.all([credential.inject(alice), credential.inject(bob)]);
    expect([sentBy(one), sentBy(other)]).toEqual(["Bearer value-of-alice", "Bearer value-of-bob"]);
    expect(credential.inject({ id: alice.id })).toBe(one);
    expect(credential.inject({ id: bob.id })).toBe(other);
  });

  it("tells how many principals are in which state, and names none of them in the metrics", async () => {
    const harness = await start();
    await Promise.all([harness.inject("a", alice), harness.inject("a", bob)]);
    await harness.failure("a", { id: "key:nobody" });
    const states = harness.credentials.states();
    expect(states.servers[0]).toMatchObject({
      condition: "valid",
      callers: { none: 0, valid: 2, stale: 0, failed: 1, "needs-reauth": 0 },
      loads: 2,
      failures: 1,
      lastError: { code: "not-found" },
    });
    const { callers } = states.servers[0] ?? {};
    const shown = callers === undefined ? undefined : labelCallers(callers);
    expect(shown).toEqual({ none: 0, valid: 2, stale: 0, failed: 1, needs_reauth: 0 });
    expect(states.store).toMatchObject({ reads: 2, readFailures: 1 });
    const { text } = await renderMetrics(credentialMetrics(states));
    expect(text).toContain('postern_credentials_callers{server="a",state="valid"} 2');
    expect(text).toContain('postern_credentials_callers{server="a",state="failed"} 1');
    expect(text).toContain('postern_credentials_callers{server="a",state="needs_reauth"} 0');
    expect(text).not.toMatch(/alice|bob|nobody|mcp\/own/);
    expect(JSON.stringify(states)).not.toMatch(/value-of/);
  });

  it("reads once for ten calls of one principal, and once for each principal", async () => {
    const credential = await startOne();
    await Promise.all(Array.from({ length: 10 }, (_, i) => credential.inject(i % 2 === 0 ? alice : bob)));
    expect([store.count(apiPath(alice.id)), store.count(apiPath(bob.id))]).toEqual([1, 1]);
  });

  it("reads several fields of one entry at once, and what all share once for all", async () => {
    await store.putSecret("secret", "mcp/app", { key: "value-of-the-app" });
    const own = (field: string) => ({ vault: { mount: "secret", path: template, field } });
    const credential = await startOne({
      type: "headers",
      headers: {
        "X-User": own("user"),
        "X-Token": own("token"),
        "X-App": { vault: { mount: "secret", path: "mcp/app", field: "key" } },
      },
    });
    const { headers, secrets } = await credential.inject(alice);
    expect(headers).toEqual(["X-User", "alice", "X-Token", "value-of-alice", "X-App", "value-of-the-app"]);
    expect(secrets).toHaveLength(3);
    await credential.inject(bob);
    expect([store.count(apiPath(alice.id)), store.count("secret/data/mcp/app")]).toEqual([1, 1]);
  });

  it("takes entries of two mounts for two, however mounts and paths are spelt", async () => {
    await store.mountKv("one two", "2");
    await store.mountKv("one", "2");
    const id = encodeCaller(alice.id);
    await store.putSecret("one two", `three/${id}`, { token: "of-the-first" });
    await store.putSecret("one", `two three/${id}`, { token: "of-the-second" });
    const own = (mount: string, path: string) => ({ vault: { mount, path: `${path}/{principal.id}`, field: "token" } });
    const credential = await startOne({
      type: "headers",
      headers: { "X-One": own("one two", "three"), "X-Two": own("one", "two three") },
    });
    const { headers } = await credential.inject(alice);
    expect(headers).toEqual(["X-One", "of-the-first", "X-Two", "of-the-second"]);
  });

  it("C26 reads anew for the caller who was refused, and for nobody else", async () => {
    const credential = await startOne();
    const first = await credential.inject(alice);
    const untouched = await credential.inject(bob);
    await put(alice.id, { token: "value-2-of-alice" });
    await put(bob.id, { token: "value-2-of-bob" });
    const next = await Promise.all(Array.from({ length: 5 }, () => credential.refresh(first, alice)));
    expect(new Set(next).size).toBe(1);
    expect(next.map(sentBy)[0]).toBe("Bearer value-2-of-alice");
    expect([store.count(apiPath(alice.id)), store.count(apiPath(bob.id))]).toEqual([2, 1]);
    expect(credential.inject(bob)).toBe(untouched);
  });

  it("C27 fails for a principal without an entry only, asks for it seldom, and says where it belongs", async () => {
    const harness = await start();
    const nobody = { id: "oauth:https://idp.example.com#../bob" };
    for (let i = 0; i < 5; i += 1) expect((await harness.failure("a", nobody)).code).toBe("not-found");
    expect(store.count(apiPath(nobody.id))).toBe(1);
    expect(await harness.inject("a", bob)).toEqual(["Authorization", "Bearer value-of-bob"]);
    const [line, second] = failuresIn(harness);
    expect(second).toBeUndefined();
    expect(line).toMatchObject({ server: "a", principal: nobody.id, code: "not-found" });
    expect(line?.["reason"]).toContain("secret/data/mcp/own/oauth~3ahttps~3a~2f~2fidp.example.com~23~2e~2e~2fbob");
    await put(nobody.id, { token: "value-of-nobody" });
    clock.advance(30_000);
    expect(await harness.inject("a", nobody)).toEqual(["Authorization", "Bearer value-of-nobody"]);
  });

  it("C28 serves each caller his older value while the store is away, and does not fill the log with it", async () => {
    const harness = await start();
    const callers = Array.from({ length: 100 }, (_, i) => ({ id: `key:agent-${i}` }));
    for (const [i, { id }] of callers.entries()) await put(id, { token: `value-of-${i}` });
    for (const caller of callers) await harness.inject("a", caller);
    await store.stop();
    const before = harness.lines.length;
    for (const minutes of [30, 60]) {
      clock.advance(minutes * 30_000);
      const sent = await Promise.all(callers.map((caller) => harness.inject("a", caller)));
      expect(sent.map(([, value]) => value)).toEqual(callers.map((_, i) => `Bearer value-of-${i}`));
    }
    const added = harness.lines.slice(before);
    expect(added.filter((line) => line.includes("store away")).length).toBeGreaterThan(0);
    expect(added.length).toBeLessThan(80);
    expect(added.some((line) => line.includes("more principals have the like"))).toBe(true);
  });

  it("tells how it is: it serves as long as anybody has a secret, and counts on past those who were forgotten", async () => {
    const harness = await start();
    const credential = harness.credentials.forServer("a");
    const mallory = { id: "key:mallory" };
    expect(credential.state?.()).toMatchObject({ condition: "none", loads: 0 });
    await expect(Promise.resolve(credential.inject(mallory))).rejects.toThrow();
    expect(credential.state?.()).toMatchObject({ condition: "failed", failures: 1, lastError: { code: "not-found" } });
    await credential.inject(alice);
    expect(credential.state?.()).toMatchObject({ condition: "valid", loads: 1, failures: 1 });
    clock.advance(24 * 3_600_000);
    await credential.inject(bob);
    expect(credential.state?.()).toMatchObject({ condition: "valid", loads: 2, failures: 1 });
  });

  it("fills no log, through whichever logger its lines come, and tells of what it did not foresee", async () => {
    const lines: string[] = [];
    const logger = createLogger({ level: "debug", destination: { write: (line) => void lines.push(line) } });
    const credential = new CallerCredential({
      headerNames: [],
      keyOf: ({ id }) => id,
      open: (_, callerLogger) => {
        const shape: Shape = {
          names: [],
          sources: [],
          build: () => {
            throw new TypeError("quotes value-of-alice");
          },
        };
        return new ShapedCredential(shape, [], { clock, logger: callerLogger.with({ store: "https://v.test" }) });
      },
      idleMs: 1_000,
      clock,
      logger,
    });
    for (let i = 0; i < 100; i += 1) {
      await expect(async () => credential.inject({ id: `key:${i}` })).rejects.toMatchObject({ code: "store-failing" });
    }
    expect(lines).toHaveLength(31);
    expect(JSON.parse(lines[0] ?? "")).toMatchObject({
      principal: "key:0",
      store: "https://v.test",
      code: "store-failing",
    });
    expect(lines.join("")).not.toContain("value-of-alice");
  });

  it("keeps no more callers than it may, the latest of them", () => {
    let openedCount = 0;
    const credential = new CallerCredential({
      headerNames: [],
      keyOf: ({ id }) => id,
      open: () => {
        openedCount += 1;
        const injection: Injection = { headers: [], secrets: [] };
        return { isPerCaller: false, inject: () => injection, refresh: () => injection, headerNames: () => [] };
      },
      idleMs: 3_600_000,
      clock,
      logger: silentLogger,
    });
    const first = credential.inject(alice);
    for (let i = 1; i < maxCallers; i += 1) void credential.inject({ id: `key:${i}` });
    expect(credential.inject(alice)).toBe(first);
    void credential.inject({ id: "key:one-too-many" });
    expect(credential.inject(alice)).toBe(first);
    expect(openedCount).toBe(maxCallers + 1);
    void credential.inject({ id: "key:1" });
    expect(openedCount).toBe(maxCallers + 2);
    clock.advance(3_600_000);
    expect(credential.inject(alice)).not.toBe(first);
  });

  it("tells how very many are without holding up the calls", async () => {
    const shape = shapeOf({ type: "bearer", token: { env: "X" } });
    const random = (): number => 0.5;
    const credential = new CallerCredential({
      headerNames: [],
      keyOf: ({ id }) => id,
      open: ({ id }, logger) => {
        const load = async (): Promise<Secret> => new Secret(`the value of ${id}`.replaceAll(" ", "-"));
        const cached = new Cached({ load, freshMs: 3_600_000, staleForMs: 0, clock, random });
        const reader = { read: () => cached.get(), reload: () => cached.reload(), state: cached.state };
        return new ShapedCredential(shape, [reader], { clock, logger });
      },
      idleMs: 3_600_000,
      clock,
      logger: silentLogger,
    });
    for (let i = 0; i < maxCallers; i += 1) await credential.inject({ id: `key:${i}` });
    const costs = Array.from({ length: 8 }, () => {
      const before = process.cpuUsage();
      expect(credential.state().callers?.valid).toBe(maxCallers);
      return process.cpuUsage(before).user / 1_000;
    });
    expect(Math.min(...costs)).toBeLessThan(20);
  });

  it.each([
    ["a relay is believed about who calls", () => start(bearerAt(template), false), "agents: { verify: edge, … }"],
    [
      "nobody calls",
      async () =>
        (await start(bearerAt("mcp/a"))).credentials.read({ vault: { mount: "secret", path: template, field: "x" } }),
      "a path without {principal.id}",
    ],
    [
      "there is no store",
      async () => open({ servers: { a: bearerAt(template) }, areCallersVerified: true }),
      "write the section vault",
    ],
  ])("cannot be where %s", async (_, begin, cure) => {
    await expect(begin).rejects.toMatchObject({ code: "not-configured", cure });
  });

  it("C24 fails for an id that is no text, since others would have the same path", async () => {
    const harness = await start();
    const error = await harness.failure("a", { id: "oauth:https://i#\ud800" });
    expect(error.code).toBe("caller-unfit");
    expect(failuresIn(harness)).toHaveLength(1);
    await harness.failure("a", { id: "oauth:https://i#\ud800" });
    expect(failuresIn(harness)).toHaveLength(1);
  });
});
