/** The store is away for an hour, which no test waits for: a clock of our own, and a call in each second of it. */
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ManualClock } from "../support/manual-clock.ts";
import { until } from "../support/until.ts";
import { type Fault, VaultFake } from "../support/vault-fake.ts";
import { bearerAt, byRole, type Harness, open } from "./harness.ts";

const rules = 'path "secret/data/mcp/*" { capabilities = ["read"] }';
const hourS = 3_600;

let clock: ManualClock;
let store: VaultFake;
let harness: Harness;

beforeEach(async () => {
  clock = new ManualClock();
  store = await VaultFake.start(() => clock.now());
  await store.putSecret("secret", "mcp/a", { token: "value-1" });
});
afterEach(async () => {
  await harness.credentials.close();
  await store.stop();
});

/** The token of the gateway lives for ten minutes, so it dies in the outage. */
async function start(staleForMs?: number): Promise<void> {
  const { roleId, secretId } = await store.enableApprole(rules, { token_ttl: "600s" });
  harness = open({
    vault: byRole(store.address, roleId, staleForMs === undefined ? {} : { staleForMs }),
    servers: { a: bearerAt("mcp/a"), b: bearerAt("mcp/b") },
    env: { SECRET_ID: secretId },
    clock,
  });
  await harness.inject();
}

/** A call in each of `seconds`; the store's answers arrive between them. Gives how many got no credential. */
async function callFor(seconds: number): Promise<number> {
  let lost = 0;
  for (let s = 0; s < seconds; s += 1) {
    clock.advance(1_000);
    await harness.inject().catch(() => {
      lost += 1;
    });
    if (s % 10 === 0) await delay(0);
  }
  return lost;
}

const away: [string, Fault][] = [
  ["sealed", { kind: "status", status: 503, body: { errors: ["Vault is sealed"] } }],
  ["unreachable", { kind: "reset" }],
  ["limiting our rate", { kind: "status", status: 429 }],
  ["a standby without an active node", { kind: "status", status: 500, body: { errors: ["local node not active"] } }],
  ["cut off from its active node", { kind: "status", status: 474 }],
  ["removed from its cluster", { kind: "status", status: 530 }],
  ["behind a load balancer without a backend", { kind: "text", status: 502, text: "<html>" }],
  ["hanging", { kind: "hang" }],
];

describe("a store that is away for an hour", () => {
  it.each(away)("C28 loses no call while it is %s, and is used again when it is back", async (_, fault) => {
    await start();
    store.fault = () => fault;
    const before = store.seen.length;
    expect(await callFor(hourS)).toBe(0);
    expect(store.seen.length - before, "asked on, about once a second at most").toBeLessThan(1.5 * hourS);
    expect(store.seen.length - before).toBeGreaterThan(20);
    store.fault = () => undefined;
    await store.putSecret("secret", "mcp/a", { token: "value-2" });
    await until(async () => {
      await callFor(10);
      return (await harness.inject())[1] === "Bearer value-2";
    }, "the new value");
    expect(harness.lines.filter((line) => line.includes("older secret serves"))).toHaveLength(1);
    expect(harness.lines.filter((line) => line.includes("store back"))).toHaveLength(1);
  });

  it("C28 loses every call from the end of staleFor on, and of what was never read at once", async () => {
    await start(1_800_000);
    store.fault = () => ({ kind: "status", status: 503 });
    // Fresh for a minute, stale for half an hour.
    expect(await callFor(60 + 1_800 - 1)).toBe(0);
    expect(await callFor(10)).toBe(10);
    expect((await harness.failure("b")).isAway).toBe(true);
  });

  it("C28 that says no is not away: the old value is gone at once", async () => {
    await start();
    clock.advance(61_000);
    await store.deleteSecret("secret", "mcp/a");
    await until(async () => (await callFor(1)) === 1, "the refusal");
    expect((await harness.failure()).code).toBe("deleted");
  });
});
