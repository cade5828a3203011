import { describe, expect, it } from "vitest";
import { welcomeGateway } from "../../src/tunnel/accept.ts";
import { greetRelay } from "../../src/tunnel/dial.ts";
import { Keepalive } from "../../src/tunnel/keepalive.ts";
import { createCarrierPair } from "../support/carrier-pair.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { until } from "../support/until.ts";
import { connectInMemory, echoHandler, greetOptions, okHead, openWith, Recorder, welcomeOptions } from "./ends.ts";

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Time passes in steps, and what each step caused is delivered before the next. */
async function pass(clock: ManualClock, ms: number): Promise<void> {
  for (let step = 0; step < ms; step += 500) {
    clock.advance(500);
    for (let i = 0; i < 4; i += 1) await turn();
  }
}

describe("keepalive", () => {
  const start = (random: () => number) => {
    const clock = new ManualClock();
    const events: [string, number][] = [];
    const origin = clock.now();
    let stalledSince: number | undefined;
    const keepalive = new Keepalive({
      clock,
      random,
      keepalive: { intervalMs: 15_000, deadAfterMs: 45_000 },
      sendPing: () => events.push(["ping", clock.now() - origin]),
      sendStalledSince: () => stalledSince,
      onDead: (detail) => events.push([detail, clock.now() - origin]),
    });
    keepalive.start();
    return {
      clock,
      events,
      keepalive,
      stall: () => {
        stalledSince = clock.now();
      },
    };
  };

  it("pings in silence, then gives up after 45 s, and arms nothing more", () => {
    const { clock, events } = start(() => 0.5);
    clock.advance(44_999);
    expect(events).toEqual([
      ["ping", 15_000],
      ["ping", 30_000],
    ]);
    expect(clock.armed).toBe(1);
    clock.advance(1);
    expect(events.at(-1)).toEqual(["nothing was received for too long", 45_000]);
    expect(clock.armed).toBe(0);
  });

  it("the rhythm varies by a fifth either way", () => {
    for (const [random, first] of [
      [0, 12_000],
      [0.999999, 18_000],
    ] as const) {
      const { clock, events } = start(() => random);
      clock.advance(40_000);
      expect(events[0]?.[1]).toBeCloseTo(first, -1);
    }
  });

  it("any byte is life, and while there is some nobody pings", () => {
    const { clock, events, keepalive } = start(() => 0.5);
    for (let i = 0; i < 60; i += 1) {
      clock.advance(10_000);
      keepalive.heard();
    }
    expect(events).toEqual([]);
    clock.advance(15_000);
    expect(events).toEqual([["ping", 615_000]]);
  });

  it("a send that is stuck ends it, although bytes come in", () => {
    const { clock, events, keepalive, stall } = start(() => 0.5);
    clock.advance(5_000);
    stall();
    for (let i = 0; i < 44; i += 1) {
      clock.advance(1_000);
      keepalive.heard();
    }
    expect(events).toEqual([]);
    clock.advance(1_000);
    expect(events).toEqual([["a send was stuck for too long", 50_000]]);
  });

  it("a second start leaks no timer", () => {
    const { clock, keepalive } = start(() => 0.5);
    keepalive.start();
    expect(clock.armed).toBe(1);
    keepalive.stop();
    expect(clock.armed).toBe(0);
  });
});

describe("a half-open tunnel", () => {
  it("C31 when nothing arrives any more, each end notices within 45 s and its streams fail at once", async () => {
    const clock = new ManualClock();
    const held = new Recorder();
    const ends = await connectInMemory({ clock, onStream: () => held });
    const recorder = new Recorder();
    openWith(ends.relay, recorder);
    await until(() => ends.gateway.openStreamCount === 1, "the stream");
    ends.pair.relay.vanish();
    ends.pair.gateway.vanish();
    const startedAt = clock.now();
    let relayDeadAt = 0;
    void ends.relay.ended.then(() => {
      relayDeadAt = clock.now();
    });
    await pass(clock, 45_000);
    expect(await ends.relay.ended).toMatchObject({ reason: "LOST", by: "local" });
    expect(await ends.gateway.ended).toMatchObject({ reason: "LOST", by: "local" });
    expect(relayDeadAt - startedAt).toBeLessThanOrEqual(45_000);
    expect([recorder.reset?.code, held.reset?.code]).toEqual(["TUNNEL_LOST", "TUNNEL_LOST"]);
    expect(ends.pair.relay.closeCode).toBe("terminated");
    expect(clock.armed).toBe(0);
  });

  for (const deaf of ["relay", "gateway"] as const) {
    it(`C31 when only the ${deaf} hears nothing, it ends and takes the other end with it`, async () => {
      const clock = new ManualClock();
      const ends = await connectInMemory({ clock, onStream: echoHandler });
      ends.pair[deaf === "relay" ? "gateway" : "relay"].vanish();
      await pass(clock, 45_500);
      expect(await ends[deaf].ended).toMatchObject({ reason: "LOST", by: "local" });
      await Promise.all([ends.relay.ended, ends.gateway.ended]);
    });
  }

  it("C31 a large message in front of the pong is life too", async () => {
    const clock = new ManualClock();
    const ends = await connectInMemory({ clock, onStream: echoHandler });
    ends.pair.gateway.stall();
    for (let i = 0; i < 10; i += 1) {
      await pass(clock, 20_000);
      // Parts of one long message, no message yet.
      ends.pair.gateway.trickle();
      ends.pair.relay.trickle();
      if (i === 1) ends.pair.gateway.flow();
    }
    expect(ends.relay.isAccepting).toBe(true);
    await ends.close();
  });

  it("a quiet tunnel stays up for an hour on its pings", async () => {
    const clock = new ManualClock();
    const ends = await connectInMemory({ clock, onStream: echoHandler });
    await pass(clock, 600_000);
    expect(ends.relay.isAccepting && ends.gateway.isAccepting).toBe(true);
    expect(ends.relay.lastEchoAt ?? 0).toBeGreaterThan(clock.now() - 31_000);
    await ends.close();
    expect(clock.armed).toBe(0);
  });

  it("a peer that reads nothing is dropped, although it sends", async () => {
    const clock = new ManualClock();
    const ends = await connectInMemory({ clock, onStream: echoHandler });
    ends.pair.relay.stall();
    const recorder = new Recorder();
    openWith(ends.relay, recorder);
    for (let i = 0; i < 50; i += 1) {
      await pass(clock, 1_000);
      ends.pair.gateway.trickle();
      ends.pair.relay.trickle();
    }
    expect(await ends.relay.ended).toEqual({ reason: "LOST", detail: "a send was stuck for too long", by: "local" });
    expect(recorder.reset?.code).toBe("TUNNEL_LOST");
  });

  it("a drain has an end, also for a peer that never closes", async () => {
    const clock = new ManualClock();
    const ends = await connectInMemory({
      clock,
      onStream: (_, stream) => {
        stream.sendHead(okHead);
        return new Recorder();
      },
    });
    const recorder = new Recorder();
    openWith(ends.relay, recorder);
    await until(() => recorder.heads.length === 1, "the head");
    ends.gateway.goAway("SHUTDOWN", 10_000);
    ends.pair.gateway.vanish();
    await until(() => !ends.relay.isAccepting || ends.pair.gateway.sent.length > 0, "the go-away");
    await pass(clock, 10_000);
    expect(await ends.gateway.ended).toMatchObject({ reason: "SHUTDOWN", detail: "the drain time is over" });
    await pass(clock, 45_000);
    await ends.relay.ended;
    expect(recorder.reset?.code).toBe("TUNNEL_LOST");
  });

  it("an echo that nobody answers is over in time", async () => {
    const clock = new ManualClock();
    const ends = await connectInMemory({ clock, onStream: echoHandler });
    ends.pair.relay.vanish();
    const echo = ends.relay.echo(3_000);
    const failed = expect(echo).rejects.toThrow("no echo in time");
    await pass(clock, 3_000);
    await failed;
    ends.relay.terminate("LOST", "over");
  });
});

describe("the carrier is cut", () => {
  it("at no byte does a cut answer look complete", async () => {
    const answer = Buffer.alloc(40_000, "a");
    for (let bytes = 0; bytes < 41_000; bytes += 997) {
      const ends = await connectInMemory({
        onStream: (_, stream) => {
          stream.sendHead(okHead);
          for (let at = 0; at < answer.length; at += 5_000) stream.write(answer.subarray(at, at + 5_000));
          stream.end();
          return new Recorder();
        },
      });
      ends.pair.gateway.cutAfter(bytes);
      const recorder = new Recorder();
      openWith(ends.relay, recorder, { hasBody: false });
      await until(() => recorder.isOver, "an end");
      if (recorder.ends > 0) expect(recorder.body.length).toBe(answer.length);
      else expect(recorder.reset?.code).toBe("TUNNEL_LOST");
      expect(recorder.ends).toBe(bytes > 40_150 ? 1 : 0);
      ends.relay.terminate("LOST", "over");
      await Promise.all([ends.relay.ended, ends.gateway.ended]);
    }
  });
});

describe("hello", () => {
  it("a gateway that says nothing is dropped after 5 s", async () => {
    const clock = new ManualClock();
    const pair = createCarrierPair();
    const outcome = new Promise((resolve) => welcomeGateway(pair.relay, welcomeOptions({ clock }), resolve));
    clock.advance(4_999);
    expect(pair.relay.closeCode).toBeUndefined();
    clock.advance(1);
    expect(await outcome).toMatchObject({ kind: "refused", reason: "timeout" });
    expect(pair.relay.closeCode).toBe("terminated");
  });

  it("a relay that says nothing is dropped after 5 s", async () => {
    const clock = new ManualClock();
    const pair = createCarrierPair();
    const outcome = new Promise((resolve) => greetRelay(pair.gateway, greetOptions(echoHandler, { clock }), resolve));
    clock.advance(5_000);
    expect(await outcome).toEqual({ kind: "failed", code: "TIMEOUT", detail: "no welcome in time" });
    expect(pair.gateway.closeCode).toBe("terminated");
  });

  it("an error while judging a hello refuses it, and hurts nobody else", async () => {
    const pair = createCarrierPair();
    const onHello = (): never => {
      throw new Error("registry");
    };
    const accepted = new Promise((resolve) => welcomeGateway(pair.relay, welcomeOptions({ onHello }), resolve));
    const dialled = new Promise((resolve) => greetRelay(pair.gateway, greetOptions(echoHandler), resolve));
    expect(await accepted).toMatchObject({ kind: "refused", reason: "INTERNAL" });
    expect(await dialled).toMatchObject({ kind: "refused", reason: "INTERNAL" });
  });

  it("a refusal names its reason to the gateway", async () => {
    const pair = createCarrierPair();
    const refuse = { kind: "refuse", reason: "REBALANCE", detail: "full" } as const;
    const accepted = new Promise((resolve) =>
      welcomeGateway(pair.relay, welcomeOptions({ onHello: () => refuse }), resolve),
    );
    const dialled = new Promise((resolve) => greetRelay(pair.gateway, greetOptions(echoHandler), resolve));
    expect(await accepted).toEqual({ kind: "refused", reason: "REBALANCE", detail: "full" });
    expect(await dialled).toEqual({ kind: "refused", status: undefined, reason: "REBALANCE", retryAfterMs: undefined });
  });
});
