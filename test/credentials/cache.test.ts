import { describe, expect, it } from "vitest";
import { Cached } from "../../src/credentials/cache.ts";
import { CredentialError, type CredentialErrorCode } from "../../src/credentials/errors.ts";
import { ManualClock } from "../support/manual-clock.ts";

type Script = string | CredentialErrorCode | "defect";

/** A loader that answers when told, and a cache over it: fresh for 60 s, stale for 120 s more. */
function setUp(staleForMs = 120_000) {
  const clock = new ManualClock();
  const waiting: { resolve: (value: string) => void; reject: (error: unknown) => void }[] = [];
  const events: string[] = [];
  let loads = 0;
  const cached = new Cached<string>({
    load: () => {
      loads += 1;
      return new Promise((resolve, reject) => waiting.push({ resolve, reject }));
    },
    freshMs: 60_000,
    staleForMs,
    clock,
    random: () => 0,
    onStale: (error) => void events.push(`stale ${error.code}`),
    onRecovered: () => void events.push("recovered"),
  });
  /** Ends the load in flight and lets its callers run. */
  const settle = async (script: Script, retryAfterMs?: number): Promise<void> => {
    const load = waiting.shift();
    if (load === undefined) throw new Error("no load is in flight");
    if (script.startsWith("value")) load.resolve(script);
    else if (script === "defect") load.reject(new Error("canary"));
    else load.reject(new CredentialError(script as CredentialErrorCode, script, "", { retryAfterMs }));
    for (let i = 0; i < 5; i += 1) await Promise.resolve();
  };
  return { cached, clock, settle, events, loads: () => loads };
}

const codeOf = async (get: () => unknown): Promise<string> => {
  try {
    await get();
  } catch (error) {
    return (error as CredentialError).code;
  }
  return "none";
};

describe("Cached", () => {
  it("loads once for ten parallel callers, then answers at once", async () => {
    const { cached, settle, loads } = setUp();
    const all = Array.from({ length: 10 }, () => cached.get());
    await settle("value 1");
    expect(await Promise.all(all)).toEqual(Array.from({ length: 10 }, () => "value 1"));
    expect(cached.get()).toBe("value 1");
    expect(loads()).toBe(1);
  });

  it("serves the old value while one refresh runs, then the new one", async () => {
    const { cached, clock, settle, loads } = setUp();
    void cached.get();
    await settle("value 1");
    clock.advance(60_000);
    expect([cached.get(), cached.get()]).toEqual(["value 1", "value 1"]);
    expect(loads()).toBe(2);
    await settle("value 2");
    expect(cached.get()).toBe("value 2");
  });

  it("waits for the refresh when the value is long past its freshness and nothing says that the store is away", async () => {
    const { cached, clock, settle } = setUp();
    void cached.get();
    await settle("value 1");
    clock.advance(121_000);
    const got = cached.get();
    expect(got).toBeInstanceOf(Promise);
    await settle("value 2");
    expect(await got).toBe("value 2");
  });

  it("C26 waits for the refresh, too, when what is old would end before long", async () => {
    const { cached, clock, settle } = setUp(20_000);
    void cached.get();
    await settle("value 1");
    clock.advance(69_000);
    expect(cached.get()).toBe("value 1");
    await settle("value 2");
    clock.advance(70_000);
    const got = cached.get();
    expect(got).toBeInstanceOf(Promise);
    await settle("value 3");
    expect(await got).toBe("value 3");
  });

  it("C28 waits a second at most, once, for a store that hangs", async () => {
    const { cached, clock, settle, loads } = setUp();
    void cached.get();
    await settle("value 1");
    clock.advance(121_000);
    const [first, second] = [cached.get(), cached.get()];
    clock.advance(999);
    expect(cached.get()).toBeInstanceOf(Promise);
    clock.advance(1);
    expect(await Promise.all([first, second])).toEqual(["value 1", "value 1"]);
    expect(cached.get()).toBe("value 1");
    await settle("value 2");
    expect([cached.get(), loads(), clock.armed]).toEqual(["value 2", 2, 0]);
    // The next load is waited for again.
    clock.advance(121_000);
    const third = cached.get();
    expect(third).toBeInstanceOf(Promise);
    await settle("denied");
    expect(await codeOf(() => third)).toBe("denied");
    expect(clock.armed).toBe(0);
  });

  it("C28 lets the old value serve while the store is away, says so once, and ends it at its limit", async () => {
    const { cached, clock, settle, events, loads } = setUp();
    void cached.get();
    await settle("value 1");
    clock.advance(130_000);
    const got = cached.get();
    await settle("store-sealed");
    expect(await got).toBe("value 1");
    expect(cached.get()).toBe("value 1");
    expect(loads(), "no second load within the pause").toBe(2);
    clock.advance(10_000);
    expect(cached.get()).toBe("value 1");
    await settle("store-unreachable");
    expect(events).toEqual(["stale store-sealed"]);
    clock.advance(40_000);
    const late = codeOf(() => cached.get());
    await settle("store-unreachable");
    expect(await late).toBe("store-unreachable");
  });

  it("tells when the store is back", async () => {
    const { cached, clock, settle, events } = setUp();
    void cached.get();
    await settle("value 1");
    clock.advance(61_000);
    void cached.get();
    await settle("store-timeout");
    clock.advance(2_000);
    void cached.get();
    await settle("value 2");
    expect(events).toEqual(["stale store-timeout", "recovered"]);
    expect(cached.get()).toBe("value 2");
  });

  it("C28 lets nothing serve past its freshness when strict", async () => {
    const { cached, clock, settle } = setUp(0);
    void cached.get();
    await settle("value 1");
    clock.advance(60_000);
    const got = codeOf(() => cached.get());
    await settle("store-sealed");
    expect(await got).toBe("store-sealed");
  });

  it.each(["denied", "deleted", "not-found", "login-denied"] as const)(
    "ends the old value at once on %s",
    async (code) => {
      const { cached, clock, settle } = setUp();
      void cached.get();
      await settle("value 1");
      clock.advance(61_000);
      expect(cached.get()).toBe("value 1");
      await settle(code);
      expect(await codeOf(() => cached.get())).toBe(code);
    },
  );

  it.each([
    ["not-found", 4_999],
    ["store-unreachable", 499],
  ] as const)("remembers %s for %i ms", async (code, pauseMs) => {
    const { cached, clock, settle, loads } = setUp();
    const first = codeOf(() => cached.get());
    await settle(code);
    expect(await first).toBe(code);
    clock.advance(pauseMs);
    expect(await codeOf(() => cached.get())).toBe(code);
    expect(loads()).toBe(1);
    clock.advance(1);
    void codeOf(() => cached.get());
    expect(loads()).toBe(2);
  });

  it("honours Retry-After, but no longer than a minute", async () => {
    const { cached, clock, settle, loads } = setUp();
    void codeOf(() => cached.get());
    await settle("store-rate-limited", 3_600_000);
    clock.advance(59_999);
    void codeOf(() => cached.get());
    expect(loads()).toBe(1);
    clock.advance(1);
    void codeOf(() => cached.get());
    expect(loads()).toBe(2);
  });

  it("keeps nothing of an error that is not ours", async () => {
    const { cached, settle } = setUp();
    const got = Promise.resolve(cached.get()).catch((error: unknown) => error);
    await settle("defect");
    expect(await got).toBeInstanceOf(CredentialError);
    expect(String(await got)).not.toContain("canary");
  });
});
