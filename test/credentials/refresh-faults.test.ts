/** Each step of a refresh fails once: nothing is spent twice, and nothing that was bought is lost. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Injection } from "../../src/credentials/index.ts";
import { json, TokenEndpoint } from "../support/token-endpoint.ts";
import type { Fault } from "../support/vault-fake.ts";
import { agent } from "./harness.ts";
import { entry, isWrite, RefreshBench } from "./refresh-setup.ts";

const claimMs = 30_000;
const away: Fault = { kind: "status", status: 503 };

function claimOf(bench: RefreshBench, untilMs: number) {
  return { owner: "edge-2", nonce: "n-1", until: new Date(bench.clock.wall() + untilMs).toISOString() };
}

function loggedBy(lines: readonly string[], event: string): Record<string, unknown>[] {
  return lines.map((line) => JSON.parse(line) as Record<string, unknown>).filter(({ msg }) => msg === event);
}

describe("C26 before anything is spent", () => {
  it.each([
    ["its owner's clock is right", claimMs],
    ["its owner's clock is behind", -claimMs],
    ["its owner's clock is hours behind", -14 * 3_600_000],
    ["its owner's clock is ahead", 10 * claimMs],
  ])("waits for a claim as long as claims last, whenever it says that it ends: %s", async (_, untilMs) => {
    const bench = await RefreshBench.start();
    await bench.put({ ...(await bench.record()), refresh_claim: claimOf(bench, untilMs) });
    const gateway = await bench.gateway();
    const startedAt = bench.clock.now();
    bench.endpoint.answer = (res, asked) => {
      expect(bench.clock.now() - startedAt).toBeGreaterThanOrEqual(claimMs);
      bench.server.answer(res, asked);
    };
    expect(await bench.inject(gateway)).toMatch(/^Bearer access-/);
    expect(bench.clock.now() - startedAt).toBeLessThan(claimMs + 2_000);
  });

  it("does not wait for a claim that ended long ago", async () => {
    const bench = await RefreshBench.start();
    await bench.put({ ...(await bench.record()), refresh_claim: claimOf(bench, -25 * 3_600_000) });
    const startedAt = bench.clock.now();
    await bench.inject(await bench.gateway());
    expect(bench.clock.now()).toBe(startedAt);
  });

  it("takes what the owner of the claim brings", async () => {
    const bench = await RefreshBench.start();
    const { refresh_token } = await bench.record();
    await bench.put({ refresh_token, refresh_claim: claimOf(bench, claimMs) });
    const gateway = await bench.gateway();
    const injected = bench.inject(gateway);
    await bench.reads(3);
    const expires_at = new Date(bench.clock.wall() + 3_600_000).toISOString();
    await bench.put({ refresh_token: "refresh-of-the-other", access_token: "of-the-other", expires_at });
    expect(await injected).toBe("Bearer of-the-other");
    expect(bench.endpoint.asked).toEqual([]);
  });

  it("a claim that comes second leaves the first alone", async () => {
    const bench = await RefreshBench.start();
    const { refresh_token } = await bench.record();
    let isFirst = true;
    bench.store.fault = (request) => {
      if (!isWrite(request) || !isFirst) return undefined;
      isFirst = false;
      const expires_at = new Date(bench.clock.wall() + 3_600_000).toISOString();
      void bench.put({ refresh_token, access_token: "of-the-other", expires_at });
      return undefined;
    };
    expect(await bench.inject(await bench.gateway())).toBe("Bearer of-the-other");
    expect([bench.writes.length, bench.endpoint.asked.length]).toEqual([1, 0]);
  });

  it("gives up on a record that others never let go", async () => {
    const bench = await RefreshBench.start();
    const fields = await bench.record();
    bench.store.fault = ({ method }) => {
      if (method === "GET")
        void bench.put({ ...fields, refresh_claim: { ...claimOf(bench, claimMs), nonce: `${bench.clock.now()}` } });
      return undefined;
    };
    const error = await bench.failure(await bench.gateway());
    expect(error).toMatchObject({ code: "record-busy", isAway: true });
    expect(bench.endpoint.asked).toEqual([]);
  });

  it("spends nothing while the store takes no writes, and the old token serves", async () => {
    const bench = await RefreshBench.start();
    const gateway = await bench.gateway();
    const first = await bench.inject(gateway);
    bench.store.fault = (request) => (isWrite(request) ? away : undefined);
    bench.clock.advance(3_600_000 - 50_000);
    expect(await bench.inject(gateway)).toBe(first);
    await bench.reads(3);
    await bench.until(() => loggedBy(gateway.lines, "access token not refreshed, the older one serves").length === 1);
    bench.clock.advance(51_000);
    expect((await bench.failure(gateway)).code).toBe("store-sealed");
    expect(bench.endpoint.asked).toHaveLength(1);
    bench.store.fault = () => undefined;
    bench.clock.advance(5_000);
    expect(await bench.inject(gateway)).toMatch(/^Bearer access-/);
  });

  it("goes on with a claim whose answer was lost", async () => {
    const bench = await RefreshBench.start();
    let isFirst = true;
    bench.store.fault = (request) => {
      if (!isWrite(request) || !isFirst) return undefined;
      isFirst = false;
      void bench.put(request.body["data"] as Record<string, unknown>);
      return { kind: "reset" };
    };
    const startedAt = bench.clock.now();
    expect(await bench.inject(await bench.gateway())).toMatch(/^Bearer access-/);
    expect(bench.clock.now()).toBe(startedAt);
    expect((await bench.record())["refresh_claim"]).toBeUndefined();
  });

  it("does not begin what a slow store leaves no time for", async () => {
    const bench = await RefreshBench.start();
    bench.store.fault = (request) => {
      // Within the deadline of one request, and yet more than a third of the claim.
      if (isWrite(request) && bench.writes.length === 1) bench.clock.advance(9_000);
      return undefined;
    };
    expect((await bench.failure(await bench.gateway({ claimMs: 24_000 }))).code).toBe("store-timeout");
    expect(bench.endpoint.asked).toEqual([]);
    expect((await bench.record())["refresh_claim"]).toBeUndefined();
  });

  it("does not begin what was claimed before the machine was suspended", async () => {
    const bench = await RefreshBench.start();
    bench.store.fault = (request) => {
      if (isWrite(request) && bench.writes.length === 1) bench.clock.suspend(2 * claimMs);
      return undefined;
    };
    expect((await bench.failure(await bench.gateway())).code).toBe("store-timeout");
    expect(bench.endpoint.asked).toEqual([]);
  });

  it("does not send what was claimed before the machine was suspended, also while the client's secret is read", async () => {
    const bench = await RefreshBench.start();
    const file = join(mkdtempSync(join(tmpdir(), "postern-rt-")), "secret");
    writeFileSync(file, "s3cret-of-the-client", { mode: 0o600 });
    const gateway = await bench.gateway({ client: { auth: "basic", secret: { file } } });
    const wall = bench.clock.wall.bind(bench.clock);
    let isClaimed = false;
    bench.clock.wall = () => {
      // The last look at the clock before the secret is read: the claim is a moment old.
      if (bench.writes.length === 1 && !isClaimed) {
        isClaimed = true;
        bench.clock.advance(1_001);
        setImmediate(() => bench.clock.suspend(2 * claimMs));
      }
      return wall();
    };
    expect((await bench.failure(gateway)).code).toBe("endpoint-timeout");
    expect(bench.endpoint.asked).toEqual([]);
    rmSync(dirname(file), { recursive: true });
  });

  it("reads the client's secret before it claims", async () => {
    const bench = await RefreshBench.start();
    const gateway = await bench.gateway({ client: { auth: "basic", secret: { env: "NOT_THERE" } } });
    expect((await bench.failure(gateway)).code).toBe("source-missing");
    expect(bench.writes).toEqual([]);
  });

  it.each([
    ["missing", {}, "field-missing"],
    ["empty", { refresh_token: "" }, "field-missing"],
    ["a number", { refresh_token: 5 }, "field-not-string"],
  ])("says what is wrong with a refresh token that is %s", async (_, fields, code) => {
    const bench = await RefreshBench.start();
    await bench.put(fields);
    expect((await bench.failure(await bench.gateway())).code).toBe(code);
    expect([bench.writes.length, bench.endpoint.asked.length]).toEqual([0, 0]);
  });
});

describe("C26 a request that brings nothing", () => {
  it.each([
    ["400 invalid_client", 400, { error: "invalid_client" }, "grant-denied"],
    ["401", 401, {}, "grant-denied"],
    ["429", 429, {}, "endpoint-failing"],
    ["400 slow_down", 400, { error: "slow_down" }, "endpoint-failing"],
    ["a redirect", 307, {}, "endpoint-redirects"],
  ])("takes the claim back when the endpoint answers %s", async (_, status, body, code) => {
    const bench = await RefreshBench.start({ note: "kept" });
    const before = await bench.record();
    bench.endpoint.answer = (res) => json(res, status, body);
    const gateway = await bench.gateway();
    expect((await bench.failure(gateway)).code).toBe(code);
    expect(await bench.record()).toEqual(before);
    expect(bench.endpoint.asked).toHaveLength(1);
  });

  it("takes the claim back when the endpoint was not there", async () => {
    const bench = await RefreshBench.start();
    const before = await bench.record();
    const gone = await TokenEndpoint.start();
    const { url: tokenEndpoint } = gone;
    await gone.stop();
    const gateway = await bench.gateway({ at: { tokenEndpoint } });
    expect((await bench.failure(gateway)).code).toBe("endpoint-unreachable");
    expect(await bench.record()).toEqual(before);
  });

  it.each(["hangs", "breaks off", "answers 500", "answers nonsense"])(
    "sends nothing more until the claim is over when the endpoint %s",
    async (how) => {
      const bench = await RefreshBench.start();
      bench.endpoint.answer = (res) => {
        if (how === "breaks off") res.socket?.resetAndDestroy();
        if (how === "answers 500") json(res, 500, {});
        if (how === "answers nonsense") json(res, 200, { hello: "world" });
      };
      const gateway = await bench.gateway();
      const failed = bench.failure(gateway);
      if (how === "hangs") {
        await bench.until(() => bench.endpoint.asked.length === 1);
        bench.clock.advance(20_000);
      }
      expect((await failed).isAway).toBe(true);
      expect((await bench.record())["refresh_claim"]).toBeDefined();
      bench.endpoint.answer = bench.server.answer;
      const claimedAt =
        Date.parse(((await bench.record()) as { refresh_claim: { until: string } }).refresh_claim.until) - claimMs;
      bench.clock.advance(2_000);
      expect(await bench.inject(gateway)).toMatch(/^Bearer access-/);
      expect(bench.clock.wall() - claimedAt).toBeGreaterThanOrEqual(claimMs);
      expect(bench.endpoint.asked).toHaveLength(2);
    },
  );
});

describe("C26 a refused refresh token", () => {
  it("is known by GitHub's word for it, which comes with status 200", async () => {
    const bench = await RefreshBench.start();
    const before = await bench.record();
    bench.endpoint.answer = (res) => json(res, 200, { error: "bad_refresh_token" });
    expect((await bench.failure(await bench.gateway())).code).toBe("needs-reauth");
    expect(await bench.record()).toEqual(before);
  });

  it("tries the one that somebody wrote meanwhile, once", async () => {
    const bench = await RefreshBench.start();
    const stale = (await bench.record())["refresh_token"];
    const fresh = bench.server.authorise();
    bench.endpoint.answer = (res, asked) => {
      if (asked.form.get("refresh_token") === fresh) bench.server.answer(res, asked);
      else {
        void bench.put({ refresh_token: fresh, note: "by hand" });
        json(res, 400, { error: "invalid_grant" });
      }
    };
    expect(await bench.inject(await bench.gateway())).toMatch(/^Bearer access-/);
    expect(bench.spent).toEqual([stale, fresh]);
    expect(await bench.record()).toMatchObject({ note: "by hand", refresh_token: expect.stringMatching(/^refresh-/) });
  });

  it("tries no third one", async () => {
    const bench = await RefreshBench.start();
    bench.endpoint.answer = (res) => {
      void bench.put({ refresh_token: `refresh-${bench.endpoint.asked.length}` });
      json(res, 400, { error: "invalid_grant" });
    };
    expect((await bench.failure(await bench.gateway())).code).toBe("needs-reauth");
    expect(bench.spent).toHaveLength(2);
  });

  it("is counted, said once, not sent again, and nothing is deleted; a new one works without a restart", async () => {
    const bench = await RefreshBench.start({ note: "kept" });
    const before = await bench.record();
    bench.endpoint.answer = (res) => json(res, 400, { error: "invalid_grant" });
    const gateway = await bench.gateway();
    for (let i = 0; i < 3; i += 1) {
      expect(await bench.failure(gateway)).toMatchObject({ code: "needs-reauth", isAway: false });
      bench.clock.advance(60_000);
    }
    expect(bench.spent).toEqual([before["refresh_token"]]);
    expect(await bench.record()).toEqual(before);
    const said = loggedBy(gateway.lines, "refresh token needs a new authorisation");
    expect(said.map(({ count, code }) => [count, code])).toEqual([[1, "needs-reauth"]]);
    bench.endpoint.answer = bench.server.answer;
    await bench.put({ ...before, refresh_token: bench.server.authorise() });
    expect(await bench.inject(gateway)).toMatch(/^Bearer access-/);
  });

  it("is not given up while another gateway may just be writing the next one", async () => {
    const bench = await RefreshBench.start();
    const { refresh_token } = await bench.record();
    const next = bench.server.authorise();
    bench.endpoint.answer = (res, asked) => {
      if (asked.form.get("refresh_token") === next) bench.server.answer(res, asked);
      else {
        void bench.put({ refresh_token, refresh_claim: claimOf(bench, claimMs) });
        json(res, 400, { error: "invalid_grant" });
      }
    };
    const injected = bench.inject(await bench.gateway());
    await bench.reads(4);
    await bench.put({ refresh_token: next });
    expect(await injected).toMatch(/^Bearer access-/);
  });
});

describe("C26 after the answer", () => {
  it("writes over what was spent only its own fields, whatever else was written meanwhile", async () => {
    const bench = await RefreshBench.start();
    const { refresh_token } = await bench.record();
    bench.endpoint.answer = (res, asked) => {
      void bench.put({ refresh_token, note: "from elsewhere" });
      bench.server.answer(res, asked);
    };
    const token = await bench.inject(await bench.gateway());
    expect(await bench.record()).toEqual({
      refresh_token: bench.server.issued.at(-1),
      access_token: token?.slice("Bearer ".length),
      expires_at: expect.any(String),
      note: "from elsewhere",
    });
  });

  it("leaves a newer refresh token alone", async () => {
    const bench = await RefreshBench.start();
    const newer = bench.server.authorise();
    bench.endpoint.answer = (res, asked) => {
      void bench.put({ refresh_token: newer, note: "authorised anew" });
      bench.server.answer(res, asked);
    };
    const gateway = await bench.gateway();
    expect(await bench.inject(gateway)).toMatch(/^Bearer access-/);
    expect(await bench.record()).toEqual({ refresh_token: newer, note: "authorised anew" });
    bench.endpoint.answer = bench.server.answer;
    bench.clock.advance(3_600_000);
    await bench.inject(gateway);
    expect(bench.spent.at(-1)).toBe(newer);
  });

  it("tries the write five times", async () => {
    const bench = await RefreshBench.start();
    let fails = 4;
    bench.store.fault = (request) => {
      if (!isWrite(request) || bench.writes.length < 2 || fails === 0) return undefined;
      fails -= 1;
      return fails % 2 === 0 ? away : { kind: "reset" };
    };
    const gateway = await bench.gateway();
    const token = await bench.inject(gateway);
    expect(await bench.record()).toMatchObject({
      access_token: token?.slice(7),
      refresh_token: bench.server.issued.at(-1),
    });
    expect(loggedBy(gateway.lines, "refresh token is in memory only")).toEqual([]);
  });

  it("takes a write whose answer was lost for what it is", async () => {
    const bench = await RefreshBench.start();
    bench.store.fault = (request) => {
      if (!isWrite(request) || bench.writes.length !== 2) return undefined;
      void bench.put(request.body["data"] as Record<string, unknown>);
      return { kind: "reset" };
    };
    await bench.inject(await bench.gateway());
    expect(bench.writes).toHaveLength(2);
    expect((await bench.record())["refresh_token"]).toBe(bench.server.issued.at(-1));
  });

  async function startUnsaved() {
    const bench = await RefreshBench.start({ note: "kept" });
    let isAway = true;
    bench.store.fault = (request) => (isAway && isWrite(request) && bench.writes.length >= 2 ? away : undefined);
    const gateway = await bench.gateway();
    const token = await bench.inject(gateway);
    expect(token).toMatch(/^Bearer access-/);
    expect(bench.writes).toHaveLength(1 + 5);
    const alarms = loggedBy(gateway.lines, "refresh token is in memory only");
    expect(alarms).toMatchObject([{ level: "error", path: "secret/mcp/rt" }]);
    const comeBack = (): void => {
      isAway = false;
    };
    return { bench, gateway, token, comeBack };
  }

  it("keeps in memory what the store will not take, and writes it as soon as it does", async () => {
    const { bench, gateway, token, comeBack } = await startUnsaved();
    expect(await bench.inject(gateway)).toBe(token);
    bench.clock.advance(5_000);
    await bench.until(() => bench.writes.length === 7);
    comeBack();
    const isSaved = async (): Promise<boolean> =>
      (await bench.record())["refresh_token"] === bench.server.issued.at(-1);
    await bench.settle(bench.until(isSaved), 5_000);
    expect(await bench.record()).toMatchObject({ note: "kept", access_token: token?.slice(7) });
    await bench.until(() => loggedBy(gateway.lines, "refresh token written back late").length === 1);
    bench.clock.advance(3_600_000);
    expect(await bench.inject(gateway)).toMatch(/^Bearer access-/);
    expect(bench.server.revocations).toBe(0);
  });

  it("writes it within seconds of a long absence, before another gateway takes what is spent for unspent", async () => {
    const { bench, gateway, comeBack } = await startUnsaved();
    // While a request is under way its deadline, of ten seconds, comes next.
    const isWaiting = (): boolean => (bench.clock.nextInMs ?? 10_000) < 3_000;
    for (let i = 0; i < 30; i += 1) {
      const writes = bench.writes.length;
      bench.clock.advance(bench.clock.nextInMs ?? 0);
      await bench.until(() => bench.writes.length > writes && isWaiting());
    }
    comeBack();
    bench.clock.advance(3_000);
    await bench.until(() => loggedBy(gateway.lines, "refresh token written back late").length === 1);
    expect((await bench.record())["refresh_token"]).toBe(bench.server.issued.at(-1));
  });

  it("does not say that it wrote what another refresh token had replaced", async () => {
    const { bench, gateway, comeBack } = await startUnsaved();
    comeBack();
    await bench.put({ refresh_token: bench.server.authorise() });
    bench.clock.advance(5_000);
    await bench.until(
      () => loggedBy(gateway.lines, "refresh token not written back, a newer one stands there").length > 0,
    );
    expect(loggedBy(gateway.lines, "refresh token written back late")).toEqual([]);
  });

  it("spends nothing more while the last one is in memory only", async () => {
    const { bench, gateway } = await startUnsaved();
    bench.clock.advance(3_600_000);
    expect((await bench.failure(gateway)).code).toBe("store-sealed");
    expect(bench.endpoint.asked).toHaveLength(1);
  });

  it("writes it at the latest when it stops", async () => {
    const { bench, gateway, comeBack } = await startUnsaved();
    comeBack();
    await bench.settle(gateway.credentials.close());
    expect((await bench.record())["refresh_token"]).toBe(bench.server.issued.at(-1));
  });

  it("says what is lost when it stops without", async () => {
    const { bench, gateway } = await startUnsaved();
    await bench.settle(gateway.credentials.close());
    expect(loggedBy(gateway.lines, "refresh token is lost")).toHaveLength(1);
  });
});

describe("C26 an end in the middle", () => {
  it("lets a request that is under way bring what it brings, and writes it", async () => {
    const bench = await RefreshBench.start();
    const gateway = await bench.gateway();
    let letGo = (): void => undefined;
    bench.endpoint.answer = (res, asked) => {
      letGo = () => bench.server.answer(res, asked);
    };
    const injected: Promise<Injection | undefined> = Promise.resolve(gateway.credentials.forServer("a").inject(agent));
    injected.catch(() => undefined);
    await bench.until(() => bench.endpoint.asked.length === 1);
    const closed = gateway.credentials.close();
    letGo();
    await bench.settle(closed);
    expect((await bench.record())["refresh_token"]).toBe(bench.server.issued.at(-1));
    expect((await bench.record())["refresh_claim"]).toBeUndefined();
  });

  it("waits for an answer as long as a request may take", async () => {
    const bench = await RefreshBench.start();
    const gateway = await bench.gateway();
    let letGo = (): void => undefined;
    bench.endpoint.answer = (res, asked) => {
      letGo = () => bench.server.answer(res, asked);
    };
    Promise.resolve(gateway.credentials.forServer("a").inject(agent)).catch(() => undefined);
    await bench.until(() => bench.endpoint.asked.length === 1);
    const closed = gateway.credentials.close();
    bench.clock.advance((2 * claimMs) / 3 - 1_000);
    await new Promise((resolve) => setImmediate(resolve));
    letGo();
    await bench.settle(closed);
    expect((await bench.record())["refresh_token"]).toBe(bench.server.issued.at(-1));
  });

  it("begins nothing more", async () => {
    const bench = await RefreshBench.start();
    const gateway = await bench.gateway();
    let closed: Promise<void> | undefined;
    bench.store.fault = (request) => {
      if (isWrite(request)) closed ??= gateway.credentials.close();
      return undefined;
    };
    expect((await bench.failure(gateway)).code).toBe("closed");
    await bench.settle(closed ?? Promise.resolve());
    expect(bench.endpoint.asked).toEqual([]);
    expect((await bench.record())["refresh_claim"]).toBeUndefined();
    expect(bench.store.seen.filter(({ path }) => path === entry).length).toBeGreaterThan(0);
  });
});
