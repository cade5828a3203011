import { afterEach, describe, expect, it, vi } from "vitest";
import { welcomeGateway } from "../../src/tunnel/accept.ts";
import { decodeMessage } from "../../src/tunnel/decode.ts";
import { greetRelay } from "../../src/tunnel/dial.ts";
import { encodeHello, encodeOpen, encodeWelcome } from "../../src/tunnel/encode.ts";
import type { FaultName } from "../../src/tunnel/errors.ts";
import type { FrameHandler, GoAway } from "../../src/tunnel/frame.ts";
import { Session } from "../../src/tunnel/session.ts";
import { StreamTable } from "../../src/tunnel/stream-table.ts";
import type { StreamHandler } from "../../src/tunnel/types.ts";
import { createCarrierPair, type MemoryCarrier } from "../support/carrier-pair.ts";
import { until } from "../support/until.ts";
import { echoHandler, gatewayIdentity, greetOptions, node, open, openWith, Recorder, welcomeOptions } from "./ends.ts";

/** One real end, and a peer that says whatever the test writes: what breaks docs/protocol.md is named and ends that session only. */

const limits = { streamWindowBytes: 65_536, tunnelWindowBytes: 131_072, maxStreams: 4 };

const ignored = (): void => undefined;
const quiet: FrameHandler = {
  onHello: ignored,
  onWelcome: ignored,
  onPing: ignored,
  onPong: ignored,
  onGoAway: ignored,
  onAdvert: ignored,
  onOpen: ignored,
  onHead: ignored,
  onBadHead: ignored,
  onData: ignored,
  onEnd: ignored,
  onReset: ignored,
  onWindow: ignored,
};

interface Subject {
  readonly session: Session;
  /** The scripted peer's carrier. */
  readonly peer: MemoryCarrier;
  readonly goAways: GoAway[];
  readonly resets: [number, number, string][];
  readonly windows: [number, number][];
}

function listenAs(peer: MemoryCarrier): Pick<Subject, "goAways" | "resets" | "windows"> {
  const heard = {
    goAways: [] as GoAway[],
    resets: [] as [number, number, string][],
    windows: [] as [number, number][],
  };
  peer.listen({
    onMessage: (message) =>
      decodeMessage(message, {
        ...quiet,
        onGoAway: (goAway) => heard.goAways.push(goAway),
        onReset: (id, code, text) => heard.resets.push([id, code, text]),
        onWindow: (id, increment) => heard.windows.push([id, increment]),
      }),
    onText: ignored,
    onBytes: ignored,
    onSent: ignored,
    onClose: ignored,
  });
  return heard;
}

const subjects: Session[] = [];

async function asRelay(): Promise<Subject> {
  const pair = createCarrierPair();
  const session = new Promise<Session>((resolve) => {
    welcomeGateway(pair.relay, welcomeOptions({ limits }), (outcome) => {
      if (outcome.kind === "session" && outcome.session instanceof Session) resolve(outcome.session);
    });
  });
  const heard = listenAs(pair.gateway);
  const advert = { rev: 1, draining: false, servers: ["tickets"] };
  pair.gateway.send(
    encodeHello({ versions: [1], features: [], gateway: gatewayIdentity, limits, servers: advert.servers, advert }),
  );
  subjects.push(await session);
  return { session: await session, peer: pair.gateway, ...heard };
}

async function asGateway(onStream: StreamHandler = echoHandler): Promise<Subject> {
  const pair = createCarrierPair();
  const session = new Promise<Session>((resolve) => {
    greetRelay(pair.gateway, greetOptions(onStream, { limits }), (outcome) => {
      if (outcome.kind === "session" && outcome.session instanceof Session) resolve(outcome.session);
    });
  });
  const heard = listenAs(pair.relay);
  pair.relay.send(encodeWelcome({ version: 1, features: [], node, connId: "c-1", limits, heartbeatMs: 15_000 }));
  subjects.push(await session);
  return { session: await session, peer: pair.relay, ...heard };
}

const hex = (...parts: readonly string[]): Buffer => Buffer.from(parts.join(""), "hex");
const openFrame = (id: number, overrides = {}): string => encodeOpen(id, open(overrides)).toString("hex");
const u32 = (n: number): string => n.toString(16).padStart(8, "0");
const dataFrame = (id: number, bytes = 1): string => `1200${u32(id)}${u32(bytes)}${"78".repeat(bytes)}`;
const endFrame = (id: number, total: number): string => `1300${u32(id)}${u32(8)}${u32(0)}${u32(total)}`;
const resetFrame = (id: number, code = 32): string => `1400${u32(id)}${u32(2)}${code.toString(16).padStart(4, "0")}`;
const windowFrame = (id: number, increment: number): string => `1500${u32(id)}${u32(4)}${u32(increment)}`;
const jsonFrame = (type: string, id: number, value: unknown): string => {
  const payload = Buffer.from(JSON.stringify(value)).toString("hex");
  return `${type}00${u32(id)}${u32(payload.length / 2)}${payload}`;
};
const headFrame = (id: number): string => jsonFrame("11", id, { status: 200, headers: [], by: "upstream" });

afterEach(() => {
  for (const session of subjects.splice(0)) session.terminate("SHUTDOWN", "the test is over");
});

async function expectFault(subject: Subject, message: Buffer, fault: FaultName): Promise<void> {
  const reason = fault.includes("credit") ? "FLOW_CONTROL_ERROR" : "PROTOCOL_ERROR";
  subject.peer.send(message);
  expect(await subject.session.ended).toEqual({ reason, detail: fault, by: "local" });
  await until(() => subject.goAways.length > 0, "the go-away");
  expect(subject.goAways).toEqual([expect.objectContaining({ reason, fault, drainMs: 0 })]);
}

describe("faults of a gateway", () => {
  const cases: readonly [string, string, FaultName][] = [
    ["OPEN from a gateway", openFrame(1), "wrong-direction"],
    ["WELCOME from a gateway", jsonFrame("02", 0, {}), "bad-payload"],
    ["a HEAD for a stream that never was", headFrame(9), "stream-never-opened"],
    ["DATA for a stream that never was", dataFrame(9), "stream-never-opened"],
    ["END for a stream that never was", endFrame(9, 0), "stream-never-opened"],
    ["RESET for a stream that never was", resetFrame(9), "stream-never-opened"],
    ["WINDOW for a stream that never was", windowFrame(9, 1), "stream-never-opened"],
    ["a second HEAD", headFrame(1) + headFrame(1), "second-head"],
    ["DATA before HEAD", dataFrame(1), "data-before-head"],
    ["END before HEAD", endFrame(1, 0), "data-before-head"],
    ["DATA after END", headFrame(1) + endFrame(1, 0) + dataFrame(1), "data-after-end"],
    ["a second END", headFrame(1) + endFrame(1, 0) + endFrame(1, 0), "data-after-end"],
    [
      "more than the stream's credit",
      headFrame(1) + dataFrame(1, 16_384).repeat(4) + dataFrame(1),
      "stream-credit-exceeded",
    ],
    ["stream credit without end", windowFrame(1, 0x7fff_ffff), "credit-overflow"],
    ["tunnel credit without end", windowFrame(0, 0x7fff_ffff), "credit-overflow"],
    [
      "HELLO once more",
      jsonFrame("01", 0, {
        versions: [1],
        features: [],
        gateway: gatewayIdentity,
        limits: { streamWindow: 65_536, tunnelWindow: 65_536, maxStreams: 1 },
        advert: { rev: 2, draining: false, servers: [] },
      }),
      "unexpected-hello",
    ],
    ["garbage", "ffffffffffffffffffffffff", "bad-length"],
    ["nothing at all", "", "empty-message"],
  ];
  for (const [what, message, fault] of cases) {
    it(`${what}: ${fault}`, async () => {
      const subject = await asRelay();
      const recorder = new Recorder();
      // The request goes on, so that the stream outlives the answer.
      openWith(subject.session, recorder);
      await until(() => subject.peer !== undefined && subject.session.openStreamCount === 1, "the stream");
      await expectFault(subject, hex(message), fault);
      expect(recorder.reset?.code).toBe("TUNNEL_LOST");
      expect(subject.session.openStreamCount).toBe(0);
    });
  }

  it("more than the tunnel's credit: tunnel-credit-exceeded", async () => {
    // In one message, so that no WINDOW has come yet: 128 KiB are allowed, and then one byte.
    const heads = [1, 3, 5].map(headFrame).join("");
    const full = [1, 3].map((id) => dataFrame(id, 16_384).repeat(4)).join("");
    const subject = await asRelay();
    for (const recorder of [new Recorder(), new Recorder(), new Recorder()]) openWith(subject.session, recorder);
    await expectFault(subject, hex(heads, full, dataFrame(5)), "tunnel-credit-exceeded");
  });

  it("a text message: text-message", async () => {
    const subject = await asRelay();
    subject.peer.sendText();
    expect(await subject.session.ended).toEqual({ reason: "PROTOCOL_ERROR", detail: "text-message", by: "local" });
    await until(() => subject.goAways.length > 0, "the go-away");
    expect(subject.goAways[0]?.fault).toBe("text-message");
  });

  it("what came before the fault in its message counts, what comes after does not", async () => {
    const subject = await asRelay();
    const recorder = new Recorder();
    openWith(subject.session, recorder);
    subject.peer.send(hex(headFrame(1), dataFrame(1), "00000000000000000000", dataFrame(1)));
    await subject.session.ended;
    expect(recorder.body.toString()).toBe("x");
    subject.peer.send(hex(dataFrame(1)));
    expect(recorder.body.toString()).toBe("x");
  });

  it("an END that counts other bytes never looks complete", async () => {
    const subject = await asRelay();
    for (const total of [0, 1, 3, 0xffff_ffff]) {
      const recorder = new Recorder();
      const { id } = openWith(subject.session, recorder);
      subject.peer.send(hex(headFrame(id), dataFrame(id, 2), endFrame(id, total)));
      await until(() => recorder.isOver, "the end");
      expect(recorder.ends).toBe(0);
      expect(recorder.reset?.code).toBe("INTEGRITY");
      await until(() => subject.resets.some(([stream, code]) => stream === id && code === 39), "the reset");
    }
    expect(subject.session.isAccepting).toBe(true);
  });

  it("a total beyond 2^53 is no match either", async () => {
    const subject = await asRelay();
    const recorder = new Recorder();
    openWith(subject.session, recorder);
    subject.peer.send(hex(headFrame(1), dataFrame(1), "13000000000100000008", "ffffffff00000001"));
    await until(() => recorder.isOver, "the end");
    expect(recorder.reset?.code).toBe("INTEGRITY");
  });

  it("frames for a stream that is over are skipped, and their tunnel credit comes back", async () => {
    const subject = await asRelay();
    const recorder = new Recorder();
    const stream = openWith(subject.session, recorder);
    subject.peer.send(hex(headFrame(1)));
    await until(() => recorder.heads.length === 1, "the head");
    stream.reset("CANCEL");
    // Four times the whole tunnel window: without grants the third round would be a fault.
    for (let round = 1; round <= 16; round += 1) {
      subject.peer.send(hex(dataFrame(1, 16_384), dataFrame(1, 16_384)));
      await until(() => subject.windows.filter(([id]) => id === 0).length >= round, "the grant");
    }
    subject.peer.send(hex(headFrame(1), endFrame(1, 5), windowFrame(1, 5), resetFrame(1)));
    await expect(subject.session.echo(50)).rejects.toThrow("no echo");
    expect(recorder.body.length).toBe(0);
    expect(subject.session.isAccepting).toBe(true);
    expect(subject.windows.filter(([id]) => id === 1)).toEqual([]);
  });

  it("codes that this version does not know keep their meaning", async () => {
    const subject = await asRelay();
    const codes = await Promise.all(
      [31, 63, 0, 3].map(async (code) => {
        const recorder = new Recorder();
        const { id } = openWith(subject.session, recorder);
        await until(() => subject.session.openStreamCount > 0, "the stream");
        subject.peer.send(hex(resetFrame(id, code)));
        await until(() => recorder.isOver, "the reset");
        return recorder.reset?.code;
      }),
    );
    expect(codes).toEqual(["REFUSED", "INTERNAL", "INTERNAL", "OVERLOADED"]);
  });

  it("a go-away takes the streams above its mark as not processed, and leaves the others", async () => {
    const subject = await asRelay();
    const [taken, above] = [new Recorder(), new Recorder()];
    openWith(subject.session, taken);
    openWith(subject.session, above);
    subject.peer.send(hex(jsonFrame("05", 0, { reason: "SHUTDOWN", lastStream: 1, drainMs: 5_000 })));
    await until(() => above.isOver, "the second stream");
    expect(above.reset?.code).toBe("DRAINING");
    expect(taken.isOver).toBe(false);
    subject.peer.send(hex(headFrame(1), endFrame(1, 0)));
    await until(() => taken.isOver, "the first stream");
    expect(taken.ends).toBe(1);
  });

  it("a go-away that ends the session at once still says which streams nobody processed", async () => {
    const subject = await asRelay();
    const [taken, above] = [new Recorder(), new Recorder()];
    openWith(subject.session, taken);
    openWith(subject.session, above);
    await until(() => subject.session.openStreamCount === 2, "the streams");
    subject.peer.send(hex(jsonFrame("05", 0, { reason: "SHUTDOWN", lastStream: 1, drainMs: 0 })));
    await subject.session.ended;
    expect([taken.reset?.code, above.reset?.code]).toEqual(["TUNNEL_LOST", "DRAINING"]);
  });

  it("a gateway hears from the go-away that it is to leave, and when to come back", async () => {
    const goAway = { reason: "REBALANCE", lastStream: 0, drainMs: 60_000, reconnectInMs: 7_000 };
    const leaving = await asGateway();
    leaving.peer.send(hex(jsonFrame("05", 0, goAway)));
    expect(await leaving.session.leaving).toEqual({ reconnectInMs: 7_000 });
    expect(leaving.session.isAccepting).toBe(false);
    const ended = await asGateway();
    ended.peer.send(hex(jsonFrame("05", 0, { ...goAway, drainMs: 0 })));
    expect(await ended.session.ended).toMatchObject({ reason: "REBALANCE", by: "peer", reconnectInMs: 7_000 });
  });

  it("a relay that has used all stream ids drains the session, so that the gateway dials anew", async () => {
    const subject = await asRelay();
    const recorder = new Recorder();
    openWith(subject.session, recorder);
    vi.spyOn(StreamTable.prototype, "nextId").mockReturnValueOnce(undefined);
    expect(subject.session.openStream(open(), new Recorder())).toMatchObject({ code: "DRAINING" });
    expect(subject.session.isAccepting).toBe(false);
    await until(() => subject.goAways.length > 0, "the go-away");
    expect(subject.goAways).toEqual([expect.objectContaining({ reason: "MAX_AGE", lastStream: 1, drainMs: 600_000 })]);
    expect(recorder.isOver).toBe(false);
  });

  it("an advert behind the go-away that ended the session changes nothing", async () => {
    const subject = await asRelay();
    const goAway = jsonFrame("05", 0, { reason: "SHUTDOWN", lastStream: 0, drainMs: 0 });
    const advert = jsonFrame("08", 0, { rev: 9, draining: false, servers: [{ name: "late" }] });
    subject.peer.send(hex(goAway, advert));
    await subject.session.ended;
    expect(subject.session.servers).toEqual(["tickets"]);
  });

  it("a PONG that answers nothing is no echo", async () => {
    const subject = await asRelay();
    subject.peer.send(hex("04000000000000000008", "0000000000000001"));
    const recorder = new Recorder();
    openWith(subject.session, recorder);
    subject.peer.send(hex(headFrame(1)));
    await until(() => recorder.heads.length === 1, "the head");
    expect(subject.session.lastEchoAt).toBeUndefined();
  });

  it("an older advert does not replace a newer one", async () => {
    const subject = await asRelay();
    const advert = (rev: number, name: string): string =>
      jsonFrame("08", 0, { rev, draining: false, servers: [{ name }] });
    subject.peer.send(hex(advert(5, "new"), advert(4, "old"), advert(5, "again")));
    await until(() => subject.session.servers[0] !== "tickets", "the advert");
    expect(subject.session.servers).toEqual(["new"]);
  });

  it("pings whose answers nobody reads: too-many-replies", async () => {
    const pair = createCarrierPair();
    const session = new Promise<Session>((resolve) => {
      welcomeGateway(pair.relay, welcomeOptions({ limits }), (outcome) => {
        if (outcome.kind === "session" && outcome.session instanceof Session) resolve(outcome.session);
      });
    });
    listenAs(pair.gateway);
    const advert = { rev: 1, draining: false, servers: [] };
    pair.gateway.send(
      encodeHello({ versions: [1], features: [], gateway: gatewayIdentity, limits, servers: [], advert }),
    );
    const relay = await session;
    pair.relay.stall();
    const pings = hex("030000000000000000080000000000000001".repeat(5_000));
    for (let i = 0; i < 20; i += 1) pair.gateway.send(pings);
    expect(await relay.ended).toMatchObject({ reason: "PROTOCOL_ERROR", detail: "too-many-replies" });
  });
});

describe("faults of a relay", () => {
  const cases: readonly [string, string, FaultName][] = [
    ["HEAD from a relay", openFrame(1) + headFrame(1), "wrong-direction"],
    ["ADVERT from a relay", jsonFrame("08", 0, { rev: 9, draining: false, servers: [] }), "wrong-direction"],
    ["the same id twice", openFrame(1) + openFrame(1), "stream-id-not-rising"],
    ["an id below the last", openFrame(5) + openFrame(3), "stream-id-not-rising"],
    ["the id of a stream that is over", openFrame(1) + resetFrame(1) + openFrame(1), "stream-id-not-rising"],
    ["an even id", openFrame(2), "bad-stream-id"],
    ["DATA on a stream to come", openFrame(1) + dataFrame(3), "stream-never-opened"],
    ["DATA after END", openFrame(1) + endFrame(1, 0) + dataFrame(1), "data-after-end"],
    ["DATA after an OPEN without a body", openFrame(1, { hasBody: false }) + dataFrame(1), "data-after-end"],
    ["END after an OPEN without a body", openFrame(1, { hasBody: false }) + endFrame(1, 0), "data-after-end"],
    ["a bad id even of a bad OPEN", openFrame(3) + openFrame(3, { method: "PUT" }), "stream-id-not-rising"],
  ];
  for (const [what, message, fault] of cases) {
    it(`${what}: ${fault}`, async () => {
      await expectFault(await asGateway(() => new Recorder()), hex(message), fault);
    });
  }

  it("an OPEN that HTTP forbids is refused, and the next one is served", async () => {
    const subject = await asGateway();
    subject.peer.send(hex(openFrame(1, { method: "PUT" }), openFrame(3, { headers: ["a", "b\nc"] }), openFrame(5)));
    await until(() => subject.session.openStreamCount === 1, "the good one");
    await until(() => subject.resets.length === 2, "the resets");
    expect(subject.resets.map(([id, code]) => [id, code])).toEqual([
      [1, 1],
      [3, 1],
    ]);
  });

  it("streams above the announced limit are reset, not fatal", async () => {
    const subject = await asGateway(() => new Recorder());
    subject.peer.send(hex(...[1, 3, 5, 7, 9].map((id) => openFrame(id))));
    await until(() => subject.resets.length === 1, "the reset");
    expect(subject.resets[0]?.slice(0, 2)).toEqual([9, 3]);
    expect(subject.session.openStreamCount).toBe(4);
  });

  it("after the end of the session nothing in its message is acted upon", async () => {
    const opened: string[] = [];
    const subject = await asGateway((request) => {
      opened.push(request.requestId);
      return new Recorder();
    });
    const goAway = jsonFrame("05", 0, { reason: "REPLACED", lastStream: 1, drainMs: 0 });
    subject.peer.send(hex(openFrame(1), goAway, openFrame(3)));
    expect(await subject.session.ended).toMatchObject({ reason: "REPLACED", detail: "the peer said so", by: "peer" });
    expect(opened).toEqual(["r-1"]);
  });

  it("a reset that crosses data in one message ends the stream once", async () => {
    const recorder = new Recorder();
    const subject = await asGateway(() => recorder);
    subject.peer.send(hex(openFrame(1), dataFrame(1), resetFrame(1), dataFrame(1), endFrame(1, 2)));
    await until(() => recorder.isOver, "the reset");
    expect(recorder.body.toString()).toBe("x");
    expect(recorder.reset?.code).toBe("CANCEL");
    expect(recorder.ends).toBe(0);
  });
});
