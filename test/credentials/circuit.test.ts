import { describe, expect, it } from "vitest";
import { Circuit } from "../../src/credentials/circuit.ts";
import { LocalReader } from "../../src/credentials/index.ts";
import { LeaseFields } from "../../src/credentials/lease.ts";
import { LeaseReader } from "../../src/credentials/lease-reader.ts";
import { StoreHealth } from "../../src/credentials/store-health.ts";
import type { TokenManager } from "../../src/credentials/vault-auth.ts";
import { VaultFailure } from "../../src/credentials/vault-failure.ts";
import type { VaultTransport } from "../../src/credentials/vault-transport.ts";
import { WrappedSecretId } from "../../src/credentials/wrapped-secret.ts";
import { Secret } from "../../src/lib/index.ts";
import { silentLogger } from "../../src/telemetry/index.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { until } from "../support/until.ts";

const sealed = new VaultFailure("status", "status 503", { status: 503 });

function setUp(random = 0.5) {
  const clock = new ManualClock();
  const waits: number[] = [];
  const closed: number[] = [];
  const circuit = new Circuit({
    clock,
    random: () => random,
    onOpen: (_, waitMs) => waits.push(waitMs),
    onClose: (ms) => closed.push(ms),
  });
  const fail = (): void => circuit.end(circuit.begin(), "down", sealed);
  const open = (): void => [1, 2, 3].forEach(fail);
  return { clock, circuit, waits, closed, fail, open };
}

describe("Circuit", () => {
  it("C28 opens at the third failure in a row, which a sign of life begins anew", () => {
    const { circuit, fail, waits } = setUp();
    fail();
    fail();
    circuit.end(circuit.begin(), "alive");
    fail();
    fail();
    expect(circuit.blocked).toBeUndefined();
    fail();
    expect(circuit.blocked).toBe(sealed);
    expect(waits).toEqual([1_000]);
  });

  it("C28 takes failures that ran side by side for one: a lost connection takes many requests along", () => {
    const { circuit } = setUp();
    for (const round of [1, 2, 3]) {
      expect(circuit.blocked, `before round ${round}`).toBeUndefined();
      const together = Array.from({ length: 50 }, () => circuit.begin());
      for (const attempt of together) circuit.end(attempt, "down", sealed);
    }
    expect(circuit.blocked).toBe(sealed);
  });

  it("C28 lets exactly one through after the pause, and the next only after a longer one", () => {
    const { circuit, clock, open } = setUp(0.999_999);
    open();
    clock.advance(999);
    expect(circuit.blocked).toBe(sealed);
    clock.advance(1);
    expect(circuit.blocked).toBeUndefined();
    const probe = circuit.begin();
    clock.advance(3_600_000);
    expect(circuit.blocked, "while the probe is on its way").toBe(sealed);
    circuit.end(probe, "down", sealed);
    clock.advance(1_990);
    expect(circuit.blocked, "within the second pause").toBe(sealed);
    clock.advance(10);
    expect(circuit.blocked).toBeUndefined();
  });

  it.each([
    [0, 1_000, 1_000],
    [0.999_999, 59_000, 60_000],
  ])("C28 pauses at least a second and at most a minute (random %d)", (random, least, most) => {
    const { circuit, clock, open, fail } = setUp(random);
    open();
    for (let i = 0; i < 20; i += 1) {
      clock.advance(60_000);
      fail();
    }
    clock.advance(least - 1);
    expect(circuit.blocked).toBe(sealed);
    clock.advance(most - least + 1);
    expect(circuit.blocked).toBeUndefined();
  });

  it("C28 closes with the first sign of life, whoever brings it, and pauses briefly the next time", () => {
    const { circuit, clock, open, waits, closed, fail } = setUp(0.999_999);
    const early = circuit.begin();
    open();
    for (let i = 0; i < 5; i += 1) {
      clock.advance(60_000);
      fail();
    }
    circuit.end(early, "alive");
    expect([circuit.blocked, circuit.openForMs]).toEqual([undefined, undefined]);
    expect(closed).toEqual([300_000]);
    open();
    expect(waits.map((ms) => Math.round(ms))).toEqual([1_000, 1_000]);
  });

  it("C28 lets another probe at once where one came to nothing", () => {
    const { circuit, clock, open } = setUp();
    open();
    clock.advance(1_000);
    circuit.end(circuit.begin(), "unknown");
    expect(circuit.blocked).toBeUndefined();
    expect(circuit.openForMs).toBe(1_000);
  });

  it("C28 is not held up by what was asked although it was open, and failed", () => {
    const { circuit, clock, open } = setUp();
    open();
    circuit.end(circuit.begin(), "down", sealed);
    clock.advance(1_000);
    expect(circuit.blocked).toBeUndefined();
  });
});

describe("StoreHealth", () => {
  function setUpHealth() {
    const clock = new ManualClock();
    const asked: string[] = [];
    let failure: Error | undefined = sealed;
    const ask = async (path: string): Promise<undefined> => {
      asked.push(path);
      if (failure !== undefined) throw failure;
      return undefined;
    };
    const bare: VaultTransport = { address: "https://store", read: ask, write: ask, close: async () => undefined };
    const health = new StoreHealth({ address: bare.address, clock, random: () => 0.5, logger: silentLogger });
    const transport = health.watch(bare);
    const failWith = (next: Error | undefined): void => {
      failure = next;
    };
    /** What `times` requests met, one after the other. */
    const meet = async (to: VaultTransport, times = 3): Promise<unknown[]> => {
      const met: unknown[] = [];
      for (let i = 0; i < times; i += 1)
        met.push(await to.read(`any-${i}`, undefined).catch((error: unknown) => error));
      return met;
    };
    return { clock, asked, failWith, health, transport, meet };
  }
  const unreachable = new VaultFailure("unreachable", "ECONNREFUSED");
  const isOpen = (health: StoreHealth): boolean => health.state().openForMs !== undefined;

  it("C28 stands for the answer with what was met last, unsent and with nothing left to wait for", async () => {
    const { asked, transport, meet, health, failWith } = setUpHealth();
    failWith(new VaultFailure("status", "status 503", { status: 503, retryAfterMs: 30_000, hint: "namespace-sealed" }));
    await meet(transport);
    const [met] = await meet(transport, 1);
    expect(asked).toHaveLength(3);
    expect(met).toMatchObject({ status: 503, hint: "namespace-sealed", isUnsent: true, retryAfterMs: undefined });
    expect(health.state().refused).toBe(1);
  });

  it("C28 sends what insists in any case, and takes its answer for a sign of life, but its failure for none of death", async () => {
    const { asked, transport, meet, health, failWith } = setUpHealth();
    await meet(transport.insistent(), 10);
    expect(isOpen(health)).toBe(false);
    await meet(transport);
    expect(isOpen(health)).toBe(true);
    asked.length = 0;
    await meet(transport.insistent(), 4);
    expect(asked).toHaveLength(4);
    expect(isOpen(health)).toBe(true);
    failWith(undefined);
    await meet(transport.insistent(), 1);
    expect(isOpen(health)).toBe(false);
  });

  it.each(["aside", "part"] as const)(
    "C28 hears of an address that is not reached from whoever dials: %s",
    async (way) => {
      const { transport, meet, health, failWith } = setUpHealth();
      const side = way === "aside" ? transport.aside() : transport.part("team");
      await meet(side, 10);
      expect(isOpen(health), "sealed").toBe(false);
      expect(health.state().openParts).toEqual(way === "part" ? ["team"] : []);
      failWith(unreachable);
      await meet(transport.part("another"));
      expect(isOpen(health)).toBe(true);
      expect(health.state().openParts).not.toContain("another");
      const [met] = await meet(transport, 1);
      expect(met).toMatchObject({ kind: "unreachable", isUnsent: true });
    },
  );

  it.each([
    ["500", new VaultFailure("status", "status 500", { status: 500 }), true],
    ["474", new VaultFailure("status", "status 474", { status: 474 }), true],
    ["473", new VaultFailure("status", "status 473", { status: 473 }), false],
    ["429", new VaultFailure("status", "status 429", { status: 429 }), false],
    ["404", new VaultFailure("status", "status 404", { status: 404 }), false],
    ["307", new VaultFailure("status", "status 307", { status: 307 }), false],
    ["no answer in time", new VaultFailure("timeout", "no answer in time"), true],
    ["no JSON", new VaultFailure("bad-answer", "it is no JSON object", { status: 200 }), false],
    ["closed by us", new VaultFailure("aborted", "closed"), false],
    ["what is no failure of the store", new Error("x"), false],
  ])("C28 tells a store that is down from one that answers: %s", async (_, failure, opens) => {
    const { transport, meet, health, failWith } = setUpHealth();
    failWith(failure);
    await meet(transport, 5);
    expect(isOpen(health)).toBe(opens);
  });
});

describe("one path of a store that answers", () => {
  it("C28 that gives 500 each time leaves the others alone; several of them together do not", async () => {
    const clock = new ManualClock();
    const failing = new Set(["bad"]);
    const ask = async (path: string): Promise<undefined> => {
      if (failing.has(path)) throw new VaultFailure("status", "status 500", { status: 500 });
      return undefined;
    };
    const bare: VaultTransport = { address: "https://store", read: ask, write: ask, close: async () => undefined };
    const health = new StoreHealth({ address: bare.address, clock, random: () => 0.5, logger: silentLogger });
    const transport = health.watch(bare);
    const isSent = async (path: string): Promise<boolean> =>
      await transport.read(path, undefined).then(
        () => true,
        (error: unknown) => error instanceof VaultFailure && !error.isUnsent,
      );
    for (let i = 0; i < 20; i += 1) expect(await isSent("bad")).toBe(true);
    expect(await isSent("good")).toBe(true);
    failing.add("good").add("another");
    for (const path of ["bad", "good", "bad", "another"]) expect(await isSent(path)).toBe(true);
    expect(await isSent("fourth")).toBe(false);
  });
});

describe("a wrapped secret id", () => {
  it("C28 is not used up by an unwrapping that was not sent", async () => {
    const met = [sealed.asUnsent(), undefined];
    const wrapped = { data: { creation_path: "auth/approle/role/r/secret-id", secret_id: "the-secret-id" } };
    const write = async (path: string): Promise<Record<string, unknown>> => {
      const failure = path.endsWith("unwrap") ? met.shift() : undefined;
      if (failure !== undefined) throw failure;
      return wrapped;
    };
    const transport: VaultTransport = { address: "https://store", read: write, write, close: async () => undefined };
    const reader = new LocalReader({ env: { WRAPPED: "s.wrapping" }, logger: silentLogger });
    const secretId = new WrappedSecretId({ env: "WRAPPED" }, "approle", { transport, reader, logger: silentLogger });
    await expect(secretId.read()).rejects.toMatchObject({ code: "store-sealed", isUnsent: true });
    expect((await secretId.read()).reveal()).toBe("the-secret-id");
  });
});

describe("a lease", () => {
  it("C28 has not ended because its renewal was not sent, whatever the failure was that stands for the answer", async () => {
    const clock = new ManualClock();
    const asked: string[] = [];
    const renewal = new VaultFailure("status", "status 500", { status: 500 }).asUnsent();
    const ask = async (path: string): Promise<undefined> => {
      asked.push(path);
      if (path === "sys/leases/renew") throw renewal;
      return undefined;
    };
    const transport: VaultTransport = { address: "https://store", read: ask, write: ask, close: async () => undefined };
    const token = new Secret("the-token");
    const tokens = { current: async () => token, holds: () => true, revokesLeases: true } as unknown as TokenManager;
    const life = { lifeMs: 60_000, leaseId: "db/1", renewable: true };
    const request = {
      policyPath: "db",
      apiPath: "db",
      body: undefined,
      cure: "none",
      parse: () => ({ fields: new LeaseFields({ password: "of-the-lease" }, "db"), ...life }),
    };
    const deps = { transport, tokens, clock, random: () => 0, logger: silentLogger, ttlMs: 60_000, staleForMs: 0 };
    const lease = new LeaseReader(request, deps);
    await lease.field("password").read();
    clock.advance(40_100);
    await until(() => lease.field("password").state?.().failures === 1, "a renewal that was not sent");
    expect(asked).toEqual(["db", "sys/leases/renew"]);
    await lease.close();
  });
});
