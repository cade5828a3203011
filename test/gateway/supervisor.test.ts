import { randomUUID } from "node:crypto";
import { describe, expect, it } from "vitest";
import { Supervisor } from "../../src/gateway/supervisor.ts";
import { Secret } from "../../src/lib/index.ts";
import { createLogger } from "../../src/telemetry/index.ts";
import type {
  DialOptions,
  DialOutcome,
  GatewaySession,
  GoAwayReason,
  Leave,
  SessionEnd,
} from "../../src/tunnel/index.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { until } from "../support/until.ts";

/** A session whose relay is the test. */
class FakeSession {
  readonly connId = randomUUID();
  readonly peer = { id: "relay", instance: "i", slot: 0, software: "test" };
  readonly servers = [];
  isAccepting = true;
  openStreamCount = 0;
  lastEchoAt: number | undefined;
  answersEcho = true;
  echoes = 0;
  goAways: { reason: GoAwayReason; drainMs: number }[] = [];
  terminated: string | undefined;
  end: (end: SessionEnd) => void = () => undefined;
  readonly ended = new Promise<SessionEnd>((resolve) => {
    this.end = resolve;
  });
  #settleLeaving: (leave: Leave) => void = () => undefined;
  readonly leaving = new Promise<Leave>((resolve) => {
    this.#settleLeaving = resolve;
  });
  readonly #clock: ManualClock;

  constructor(clock: ManualClock) {
    this.#clock = clock;
  }

  /** The relay says GOAWAY. */
  async leave(reconnectInMs = 0): Promise<void> {
    this.isAccepting = false;
    this.#settleLeaving({ reconnectInMs });
    await tick();
  }

  echo(): Promise<number> {
    this.echoes += 1;
    if (!this.answersEcho) return Promise.reject(new Error("no pong"));
    this.lastEchoAt = this.#clock.now();
    return Promise.resolve(1);
  }
  goAway(reason: GoAwayReason, drainMs: number): void {
    this.isAccepting = false;
    this.goAways.push({ reason, drainMs });
  }
  terminate(reason: string): void {
    this.terminated = reason;
    this.end({ reason: "LOST", detail: "terminated", by: "local" });
  }
}

interface Attempt {
  readonly options: DialOptions;
  readonly at: number;
  settle(outcome: DialOutcome): Promise<void>;
}

const tick = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function make(random: () => number = () => 1) {
  const clock = new ManualClock();
  const attempts: Attempt[] = [];
  const log: string[] = [];
  let reads = 0;
  const readToken = (): Secret => {
    reads += 1;
    return new Secret(`ptk_${reads}`);
  };
  const state: { token: () => Secret | Promise<Secret> } = { token: readToken };
  const supervisor = new Supervisor({
    dial: (options) =>
      new Promise((resolve) => {
        attempts.push({
          options,
          at: clock.now(),
          settle: async (outcome) => {
            resolve(outcome);
            await tick();
          },
        });
      }),
    target: {
      url: "wss://relay",
      tunnel: "acme",
      gateway: { id: "edge", instance: "i", slot: 0, software: "s" },
      servers: ["tickets"],
      onStream: () => {
        throw new Error("no stream");
      },
    },
    readToken: () => state.token(),
    clock,
    random,
    logger: createLogger({ level: "debug", destination: { write: (line) => log.push(line) } }),
  });
  const session = (): FakeSession & GatewaySession => new FakeSession(clock) as unknown as FakeSession & GatewaySession;
  const nextAttempt = async (): Promise<Attempt> => {
    const before = attempts.length;
    expect(clock.armed).toBeGreaterThan(0);
    clock.advance(clock.nextInMs ?? 0);
    await until(() => attempts.length > before, "an attempt");
    return attempts[before]!;
  };
  const connect = async (): Promise<FakeSession & GatewaySession> => {
    const made = session();
    const attempt = await nextAttempt();
    await attempt.settle({ kind: "session", session: made });
    expect(supervisor.status().state).toBe("connected");
    return made;
  };
  return { clock, attempts, log, state, supervisor, session, nextAttempt, connect };
}

describe("the supervisor", () => {
  it("waits at random before the first dial too, and grows the wait up to 30 s", async () => {
    const s = make();
    s.supervisor.start();
    s.supervisor.start();
    const waits: number[] = [];
    for (let i = 0; i < 9; i += 1) {
      waits.push(s.clock.nextInMs ?? 0);
      await (await s.nextAttempt()).settle({ kind: "failed", code: "CONNECT", detail: "ECONNREFUSED" });
    }
    expect(waits).toEqual([500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
    expect(s.supervisor.status()).toMatchObject({ state: "waiting", lastProblem: "CONNECT: ECONNREFUSED" });
    expect(s.supervisor.status().counts).toEqual({ connected: 0, refused: 0, failed: 9, lost: 0 });
    const half = make(() => 0.25);
    half.supervisor.start();
    expect(half.clock.nextInMs).toBe(125);
  });

  it("reads the token for each attempt, and survives one that cannot be read", async () => {
    const s = make();
    s.supervisor.start();
    const first = await s.nextAttempt();
    await first.settle({ kind: "failed", code: "DNS", detail: "x" });
    const second = await s.nextAttempt();
    expect([first, second].map(({ options }) => options.token.reveal())).toEqual(["ptk_1", "ptk_2"]);
    await second.settle({ kind: "failed", code: "DNS", detail: "x" });
    s.state.token = () => Promise.reject(new Error("vault said hvs.secret"));
    s.clock.advance(s.clock.nextInMs ?? 0);
    await until(() => s.supervisor.status().state === "waiting", "back to waiting");
    expect(s.clock.armed).toBe(1);
    expect(s.log.join("")).not.toContain("hvs.secret");
    s.state.token = () => new Secret("ptk_ok");
    expect((await s.nextAttempt()).options.token.reveal()).toBe("ptk_ok");
  });

  it.each([401, 403])("a refusal with %d is retried slowly and loudly", async (status) => {
    const s = make();
    s.supervisor.start();
    await (await s.nextAttempt()).settle({ kind: "refused", status, reason: "Unauthorized", retryAfterMs: undefined });
    expect(s.clock.nextInMs).toBeCloseTo(72_000);
    expect(s.log.join("")).toContain('"level":"error"');
    expect(s.supervisor.isReady()).toBe(false);
    await s.connect();
  });

  it("a 403 names what its two causes need: the Host that the relay knows, and the tunnel's token", async () => {
    const s = make();
    s.supervisor.start();
    const refused = {
      kind: "refused",
      status: 403,
      reason: "Host or Origin not allowed",
      retryAfterMs: undefined,
    } as const;
    await (await s.nextAttempt()).settle(refused);
    expect(s.log.join("")).toMatch(/"cure":"[^"]*allowedHosts[^"]*relay\.token/);
  });

  it("a relay without a feature that is needed is not served, and tried again slowly", async () => {
    const s = make();
    s.supervisor.start();
    await (await s.nextAttempt()).settle({ kind: "failed", code: "FEATURE", detail: "no tokens" });
    expect(s.clock.nextInMs).toBeCloseTo(72_000);
    expect(s.log.join("")).toMatch(/"level":"error".*"cure":"update the relay, or write agents: \{ verify: relay \}"/);
    expect(s.supervisor.isReady()).toBe(false);
  });

  it("Retry-After is honoured", async () => {
    const s = make();
    s.supervisor.start();
    await (await s.nextAttempt()).settle({ kind: "refused", status: 503, reason: "Busy", retryAfterMs: 9_000 });
    expect(s.clock.nextInMs).toBe(9_000);
  });

  it("whoever answers for the relay once cannot keep the gateway away for days", async () => {
    const s = make();
    s.supervisor.start();
    const outcome = { kind: "refused", status: 503, reason: "Busy", retryAfterMs: 999_999_000 } as const;
    await (await s.nextAttempt()).settle(outcome);
    expect(s.clock.nextInMs).toBe(600_000);
  });

  it("the wait is short again only after a session that lasted a minute", async () => {
    const s = make();
    s.supervisor.start();
    for (const [upMs, expected] of [
      [1_000, 1_000],
      [59_000, 2_000],
      [61_000, 500],
    ] as const) {
      const session = await s.connect();
      for (let passed = 0; passed < upMs; passed += 1_000) s.clock.advance(1_000);
      session.end({ reason: "LOST", detail: "gone", by: "local" });
      await tick();
      expect(s.clock.nextInMs).toBe(expected);
    }
  });

  it("readiness is a fresh echo, asked for every 15 s", async () => {
    const s = make();
    s.supervisor.start();
    const session = await s.connect();
    expect(s.supervisor.isReady()).toBe(true);
    for (let i = 0; i < 60; i += 1) s.clock.advance(1_000);
    expect(session.echoes).toBeGreaterThanOrEqual(4);
    expect(session.echoes).toBeLessThanOrEqual(5);
    expect(s.supervisor.isReady()).toBe(true);
    session.answersEcho = false;
    for (let i = 0; i < 46; i += 1) s.clock.advance(1_000);
    await tick();
    expect(s.supervisor.isReady()).toBe(false);
    expect(s.supervisor.status().state).toBe("connected");
    session.answersEcho = true;
    for (let i = 0; i < 16; i += 1) s.clock.advance(1_000);
    expect(s.supervisor.isReady()).toBe(true);
  });

  it("after GOAWAY the successor is dialled at once, while the old session goes on", async () => {
    const s = make(() => 0.5);
    s.supervisor.start();
    const old = await s.connect();
    old.openStreamCount = 3;
    s.clock.advance(60_000);
    await old.leave();
    expect(s.clock.nextInMs).toBe(500);
    expect(s.supervisor.isReady()).toBe(false);
    expect(s.supervisor.status()).toMatchObject({ state: "waiting", leavingSessions: 1, openStreams: 3 });
    const successor = await s.connect();
    expect(s.supervisor.isReady()).toBe(true);
    old.end({ reason: "SHUTDOWN", detail: "drained", by: "peer" });
    await tick();
    expect(s.supervisor.status()).toMatchObject({ state: "connected", connId: successor.connId, leavingSessions: 0 });
    expect(s.attempts).toHaveLength(2);
  });

  it.each([
    [0, 500],
    [200, 500],
    [20_000, 10_000],
    [2 ** 31 - 1, 30_000],
  ])(
    "waits a random time up to the %i ms that a GOAWAY asks for, and a minute at the most",
    async (askedMs, waitMs) => {
      const s = make(() => 0.5);
      s.supervisor.start();
      const session = await s.connect();
      s.clock.advance(60_000);
      await session.leave(askedMs);
      expect(s.clock.nextInMs).toBe(waitMs);
      const lost = await s.connect();
      s.clock.advance(60_000);
      lost.end({ reason: "SHUTDOWN", detail: "the peer said so", by: "peer", reconnectInMs: askedMs });
      await tick();
      expect(s.clock.nextInMs).toBe(askedMs <= 500 ? 250 : waitMs);
      const refused = await s.nextAttempt();
      await refused.settle({ kind: "refused", status: undefined, reason: "REBALANCE", retryAfterMs: askedMs });
      expect(s.clock.nextInMs).toBe(askedMs <= 500 ? 500 : waitMs);
    },
  );

  it("a relay that sends away whoever has just come is dialled more and more slowly", async () => {
    const s = make();
    s.supervisor.start();
    const waits: (number | undefined)[] = [];
    for (let i = 0; i < 8; i += 1) {
      const session = await s.connect();
      await session.leave();
      session.end({ reason: "SHUTDOWN", detail: "drained", by: "peer" });
      await tick();
      waits.push(s.clock.nextInMs);
    }
    expect(waits).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
  });

  it.each(["REPLACED", "REVOKED", "AUTH_EXPIRED"] as const)(
    "an end by %s is not repeated at full speed",
    async (reason) => {
      const s = make();
      s.supervisor.start();
      const session = await s.connect();
      session.end({ reason, detail: "by the relay", by: "peer" });
      await tick();
      expect(s.clock.nextInMs).toBeCloseTo(72_000);
      expect(s.log.join("")).toContain('"cure"');
      await s.connect();
    },
  );

  it("an attempt that hangs is given up, and a session that comes of it later is closed", async () => {
    const s = make();
    s.supervisor.start();
    const hung = await s.nextAttempt();
    s.clock.advance(60_000);
    expect(s.supervisor.status().state).toBe("waiting");
    expect(hung.options.signal?.aborted).toBe(true);
    const current = await s.connect();
    const late = s.session();
    await hung.settle({ kind: "session", session: late });
    expect(late.terminated).toBe("SHUTDOWN");
    expect(s.supervisor.status().connId).toBe(current.connId);
  });

  it("stop drains the session and dials no more", async () => {
    const s = make();
    s.supervisor.start();
    const session = await s.connect();
    let stopped = false;
    const stopping = s.supervisor.stop(5_000).then(() => {
      stopped = true;
    });
    await tick();
    expect(session.goAways).toEqual([{ reason: "SHUTDOWN", drainMs: 5_000 }]);
    expect([stopped, s.supervisor.isReady()]).toEqual([false, false]);
    session.end({ reason: "SHUTDOWN", detail: "drained", by: "local" });
    await stopping;
    await s.supervisor.stop(0);
    expect(s.clock.armed).toBe(0);
    expect(s.attempts).toHaveLength(1);
  });

  it("stop amid a dial ends the attempt and closes what comes of it", async () => {
    const s = make();
    s.supervisor.start();
    const attempt = await s.nextAttempt();
    await s.supervisor.stop(0);
    expect(attempt.options.signal?.aborted).toBe(true);
    const late = s.session();
    await attempt.settle({ kind: "session", session: late });
    expect(late.terminated).toBe("SHUTDOWN");
    expect(s.clock.armed).toBe(0);
  });

  it("some timer is armed at every moment, whatever comes", async () => {
    let seed = 7;
    const random = (): number => {
      seed = (seed * 1103515245 + 12345) % 2147483648;
      return seed / 2147483648;
    };
    const s = make(random);
    s.supervisor.start();
    for (let i = 0; i < 200; i += 1) {
      const attempt = await s.nextAttempt();
      expect(s.clock.armed).toBeGreaterThan(0);
      const pick = random();
      if (pick < 0.3) await attempt.settle({ kind: "failed", code: "TLS", detail: "x" });
      else if (pick < 0.5) await attempt.settle({ kind: "refused", status: 401, reason: "x", retryAfterMs: undefined });
      else if (pick < 0.6) s.clock.advance(60_000);
      else {
        const session = s.session();
        await attempt.settle({ kind: "session", session });
        if (pick < 0.8) await session.leave(pick < 0.7 ? 0 : 2 ** 31 - 1);
        else session.end({ reason: pick < 0.9 ? "LOST" : "REPLACED", detail: "x", by: "peer" });
        await tick();
        session.end({ reason: "LOST", detail: "x", by: "peer" });
        await tick();
      }
      expect(s.clock.armed).toBe(1);
    }
    expect(s.supervisor.status().leavingSessions).toBe(0);
  });
});
