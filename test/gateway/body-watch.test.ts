import { afterEach, describe, expect, it } from "vitest";
import { ManualClock } from "../support/manual-clock.ts";
import { until } from "../support/until.ts";
import { Harness, toolCall } from "./harness.ts";
import { echoResult } from "./scripted-upstream.ts";

let harness: Harness | undefined;
afterEach(async () => {
  await harness?.stop();
  harness = undefined;
});

async function start(clock: ManualClock, limits = {}): Promise<Harness> {
  harness = await Harness.start(echoResult, { clock, gateway: { limits } });
  return harness;
}

describe("a request that never ends", () => {
  it("is given up in time, however much the relay allows, and holds nothing any more", async () => {
    const clock = new ManualClock();
    const h = await start(clock);
    const stream = h.begin({ body: toolCall("get_x"), isEndless: true, deadlineMs: 2 ** 31 - 1 });
    clock.advance(149_000);
    expect([stream.isOver, h.gateway.status().openExchanges]).toEqual([false, 1]);
    stream.push(Buffer.from(" "));
    clock.advance(2_000);
    expect(stream.resetBy).toEqual({ code: "EXPIRED", message: "the request did not come in time" });
    expect([h.gateway.status().openExchanges, h.gateway.status().bodyBytes]).toEqual([0, 0]);
    await until(() => h.audit.length === 2, "the records");
    expect(h.audit).toMatchObject([
      { event: "decision", decision: "deny", reason: "the request did not come in time" },
      { event: "outcome", end: "EXPIRED" },
    ]);
    expect(h.upstream.seen).toHaveLength(0);
    await until(() => clock.armed === 0, "no timer is left");
  });

  it("is given up when the relay's own deadline has passed", async () => {
    const clock = new ManualClock();
    const h = await start(clock);
    const stream = h.begin({ body: "{", isEndless: true, deadlineMs: 5_000 });
    clock.advance(6_000);
    expect(stream.resetBy?.code).toBe("EXPIRED");
  });

  it("does not keep its stream after the answer either", async () => {
    const clock = new ManualClock();
    const h = await start(clock, { requestBytes: 10 });
    const stream = h.begin({ body: "12345678901", isEndless: true });
    await until(() => stream.ended !== undefined, "the answer");
    expect(stream.head?.status).toBe(413);
    clock.advance(149_000);
    stream.push(Buffer.from("more"));
    expect(stream.resetBy).toBeUndefined();
    clock.advance(2_000);
    expect(stream.resetBy).toEqual({ code: "EXPIRED", message: "the request did not end in time" });
  });

  it("whose stream is over is forgotten with it", async () => {
    const clock = new ManualClock();
    const h = await start(clock);
    const cancelled = h.begin({ body: "{", isEndless: true });
    cancelled.cancel();
    const foreign = h.begin({ body: "{", isEndless: true, server: "unknown" });
    expect(foreign.resetBy?.code).toBe("NO_SERVER");
    await h.call({ body: toolCall("get_x") });
    clock.advance(1_000);
    await until(() => clock.armed === 0, "no timer is left");
  });
});
