/** Many paths, one store that is down: how often it is dialled, and how soon it is used again. */
import { setImmediate as immediate } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { credentialMetrics } from "../../src/credentials/index.ts";
import { renderMetrics } from "../../src/telemetry/index.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { until } from "../support/until.ts";
import { type Fault, type Seen, VaultFake } from "../support/vault-fake.ts";
import { bearerAt, byRole, type Harness, type HarnessOptions, open } from "./harness.ts";

const pathCount = 50;
const stepS = 10;
const names = Array.from({ length: pathCount }, (_, i) => `s${i}`);
const rules = 'path "secret/data/*" { capabilities = ["read"] }\npath "team/kv/data/*" { capabilities = ["read"] }';
const sealed: Fault = { kind: "status", status: 503, body: { errors: ["Vault is sealed"] } };
const opened = "store down, not asked for now";
const closed = "store asked again";

let clock: ManualClock;
let store: VaultFake;
let harnesses: Harness[];
beforeEach(async () => {
  clock = new ManualClock();
  store = await VaultFake.start(() => clock.now());
  harnesses = [];
  for (const name of names) await store.putSecret("secret", name, { token: `value-of-${name}` });
});
afterEach(async () => {
  await Promise.all(harnesses.map(({ credentials }) => credentials.close()));
  await store.stop();
});

async function start(more: Partial<HarnessOptions> = {}, ttl = "86400s"): Promise<Harness> {
  const { roleId, secretId } = await store.enableApprole(rules, { token_ttl: ttl });
  const vault = byRole(store.address, roleId);
  const harness = open({ vault, servers: serversOf(names), env: { SECRET_ID: secretId }, clock, ...more });
  harnesses.push(harness);
  return harness;
}

/** Every few seconds a call to each of `servers`; gives how many got no credential. */
async function callAll(harness: Harness, seconds: number, servers = names): Promise<number> {
  let lost = 0;
  for (let s = 0; s < seconds; s += stepS) {
    clock.advance(stepS * 1_000);
    for (const name of servers) {
      harness.inject(name).catch(() => {
        lost += 1;
      });
    }
    await settled();
  }
  return lost;
}

/** Nothing is on its way to the store: a request ends in ten seconds at most, and what else ends as soon is waited for in vain. */
async function settled(): Promise<void> {
  const isBusy = (): boolean => (clock.nextInMs ?? Number.POSITIVE_INFINITY) <= 10_000;
  await immediate();
  for (let i = 0; isBusy() && i < 300; i += 1) await immediate();
}

const serversOf = (paths: readonly string[]): HarnessOptions["servers"] =>
  Object.fromEntries(paths.map((path) => [path, bearerAt(path)]));
const linesOf = (harness: Harness, event: string): string[] => harness.lines.filter((line) => line.includes(event));

describe("a store that is down for an hour, with 50 paths", () => {
  it.each<[string, Fault]>([
    ["sealed", sealed],
    ["unreachable", { kind: "reset" }],
  ])("C28 is asked some hundred times while it is %s, and no call is lost", async (_, fault) => {
    const harness = await start();
    await Promise.all(names.map((name) => harness.inject(name)));
    store.fault = () => fault;
    const before = store.seen.length;
    expect(await callAll(harness, 3_600)).toBe(0);
    const asked = store.seen.length - before;
    // Three rounds in which everybody finds out, then a probe every half minute.
    expect(asked).toBeLessThan(4 * pathCount + 3_600 / 20);
    expect(asked, "probed on").toBeGreaterThan(60);
    expect(linesOf(harness, opened)).toHaveLength(1);
    expect(linesOf(harness, closed)).toHaveLength(0);
    store.fault = () => undefined;
    for (const name of names) await store.putSecret("secret", name, { token: `new-of-${name}` });
    // One pause, and then what each path itself waits after a failure.
    expect(await callAll(harness, 60 + 2 * stepS)).toBe(0);
    const values = await Promise.all(names.map(async (name) => (await harness.inject(name))[1]));
    expect(values).toEqual(names.map((name) => `Bearer new-of-${name}`));
    expect(linesOf(harness, closed)).toHaveLength(1);
  });
});

/** Everybody has had a value, is due for another, and has found the store down. */
async function goDown(harness: Harness, fault: Fault | ((request: Seen) => Fault | undefined)): Promise<void> {
  await Promise.all(names.map((name) => harness.inject(name)));
  store.fault = typeof fault === "function" ? fault : () => fault;
  clock.advance(61_000);
  await callAll(harness, 4 * stepS);
  expect(linesOf(harness, opened)).toHaveLength(1);
}

describe("a store that is known to be down", () => {
  it("C28 is probed by exactly one of 50 paths; the others are served what they had", async () => {
    const harness = await start();
    await goDown(harness, sealed);
    store.fault = () => ({ kind: "hang" });
    clock.advance(60_000);
    const before = store.seen.length;
    await Promise.all(names.map((name) => harness.inject(name)));
    await until(() => store.seen.length > before, "the probe");
    clock.advance(5_000);
    await Promise.all(names.map((name) => harness.inject(name)));
    await immediate();
    expect(store.seen.length - before, "while the probe hangs").toBe(1);
  });

  it("C28 refuses a first read at once, without asking, with what was found and its cure", async () => {
    const harness = await start({ servers: { ...serversOf(names), fresh: bearerAt("fresh") } });
    await store.putSecret("secret", "fresh", { token: "value-of-fresh" });
    await goDown(harness, sealed);
    const before = store.seen.length;
    const failure = await harness.failure("fresh");
    expect(store.seen.length).toBe(before);
    expect(failure).toMatchObject({ code: "store-sealed", isAway: true, isUnsent: true, status: 503 });
    expect(failure.message).toContain("is sealed or in maintenance; not asked again yet");
    expect(failure.cure).toContain("unseal the store");
    store.fault = () => undefined;
    await callAll(harness, 60 + 2 * stepS);
    expect((await harness.inject("fresh"))[1]).toBe("Bearer value-of-fresh");
  });

  it("C28 gets no login either, and is logged in to once it answers", async () => {
    const harness = await start({}, "300s");
    await goDown(harness, sealed);
    const logins = store.count("auth/approle/login");
    expect(await callAll(harness, 600)).toBe(0);
    const tried = store.count("auth/approle/login") - logins;
    // The token died on the way: a login is then the only thing to probe with.
    expect(tried).toBeGreaterThan(2);
    expect(tried).toBeLessThan(600 / 20);
    expect(harness.credentials.states().store?.epoch, "a refused login begins no life").toBeLessThan(100);
    store.fault = () => undefined;
    await callAll(harness, 60 + 60);
    expect(harness.credentials.states().store).toMatchObject({ condition: "valid", circuit: { openForMs: undefined } });
  });

  it("C28 is told in status, metrics and one line each in the log", async () => {
    const harness = await start();
    const told = async (): Promise<string> =>
      (await renderMetrics(credentialMetrics(harness.credentials.states()))).text;
    expect(await told()).toMatch(/^postern_credentials_store_down 0$/m);
    await goDown(harness, sealed);
    await callAll(harness, 300);
    const { circuit } = harness.credentials.states().store ?? {};
    expect(circuit).toMatchObject({ openParts: [], opened: 1, lastDown: { code: "store-sealed" } });
    expect(circuit?.openForMs).toBeGreaterThan(300_000);
    expect(await told()).toMatch(/^postern_credentials_store_down 1$/m);
    expect(await told()).toMatch(/^postern_credentials_store_downs_total 1$/m);
    expect(await told()).toMatch(/^postern_credentials_store_unsent_total [1-9]\d+$/m);
    const [line = ""] = linesOf(harness, opened);
    expect(JSON.parse(line)).toMatchObject({
      level: "warn",
      store: store.address,
      code: "store-sealed",
      waitMs: 1_000,
    });
    expect(JSON.parse(line).cure).toContain("unseal");
    store.fault = () => undefined;
    await callAll(harness, 60 + stepS);
    expect(await told()).toMatch(/^postern_credentials_store_down 0$/m);
    const lines = linesOf(harness, closed);
    expect(lines).toHaveLength(1);
    expect(JSON.parse(lines[0] ?? "")).toMatchObject({ level: "info", store: store.address });
    expect(harness.credentials.states().store?.circuit.openForMs).toBeUndefined();
  });
});

describe("what says nothing of the store", () => {
  it.each<[string, Fault]>([
    ["a limited rate", { kind: "status", status: 429 }],
    ["a refusal", { kind: "status", status: 403 }],
    ["an answer that is none", { kind: "text", status: 200, text: "<html>" }],
  ])("C28 leaves the circuit closed: %s", async (_, fault) => {
    const harness = await start();
    await Promise.all(names.map((name) => harness.inject(name)));
    store.fault = ({ path }) => (path.includes("/data/") ? fault : undefined);
    clock.advance(61_000);
    await callAll(harness, 6 * stepS);
    expect(linesOf(harness, opened)).toHaveLength(0);
  });

  it("C28 is a renewal that fails where reads do not", async () => {
    const harness = await start({}, "600s");
    await Promise.all(names.map((name) => harness.inject(name)));
    store.fault = ({ path }) => (path === "auth/token/renew-self" ? { kind: "status", status: 502 } : undefined);
    for (let i = 0; i < 12; i += 1) {
      clock.advance(clock.nextInMs ?? 0);
      await settled();
    }
    expect(store.count("auth/token/renew-self")).toBeGreaterThan(3);
    expect(linesOf(harness, opened)).toHaveLength(0);
  });
});

describe("one namespace of two", () => {
  it("C28 that is sealed leaves the other one of the same address alone", async () => {
    const both: Harness[] = [];
    for (const namespace of ["ill", "well"]) {
      const space = await store.namespace(namespace);
      for (const name of names) await space.putSecret("secret", name, { token: `${namespace}-${name}` });
      const { roleId, secretId } = await space.enableApprole(rules);
      both.push(await start({ vault: byRole(store.address, roleId, { namespace }), env: { SECRET_ID: secretId } }));
    }
    const [ill, well] = both as [Harness, Harness];
    await Promise.all(names.map((name) => well.inject(name)));
    const body = { errors: ["namespace is sealed"] };
    await goDown(ill, ({ namespace }) => (namespace === "ill" ? { kind: "status", status: 503, body } : undefined));
    const [line = ""] = linesOf(ill, opened);
    expect(JSON.parse(line)).toMatchObject({ code: "store-sealed" });
    expect(JSON.parse(line).cure).toContain("unseal that namespace");
    expect(await callAll(well, 120)).toBe(0);
    expect(linesOf(well, opened)).toHaveLength(0);
    expect(well.credentials.states().store).toMatchObject({ namespace: "well", readFailures: 0 });
  });

  it("C28 that the mount begins with is a part, and the rest is read on", async () => {
    await store.mountKv("team/kv", "2");
    for (const name of names) await store.putSecret("team/kv", name, { token: `team-${name}` });
    const inTeam = names.map((name) => `team-${name}`);
    const servers = {
      ...serversOf(names),
      ...Object.fromEntries(names.map((name) => [`team-${name}`, bearerAt(name, "token", "team/kv")])),
    };
    const harness = await start({ servers });
    await Promise.all([...names, ...inTeam].map((name) => harness.inject(name)));
    const body = { errors: ["namespace is sealed"] };
    store.fault = ({ path }) => (path.startsWith("team/kv/") ? { kind: "status", status: 503, body } : undefined);
    const before = store.seen.filter(({ path }) => path.startsWith("team/kv/")).length;
    expect(await callAll(harness, 600, [...names, ...inTeam])).toBe(0);
    expect(store.seen.filter(({ path }) => path.startsWith("team/kv/")).length - before).toBeLessThan(4 * pathCount);
    const state = harness.credentials.states();
    expect(state.store?.circuit).toMatchObject({ openForMs: undefined, openParts: ["team"] });
    expect((await renderMetrics(credentialMetrics(state))).text).toMatch(/^postern_credentials_store_parts_down 1$/m);
    expect(state.servers.filter(({ condition }) => condition === "valid")).toHaveLength(pathCount);
    expect(linesOf(harness, opened)).toHaveLength(1);
  });
});
