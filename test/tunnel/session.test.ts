import { afterEach, describe, expect, it } from "vitest";
import type { StreamHandler, TunnelStream } from "../../src/tunnel/types.ts";
import { until } from "../support/until.ts";
import {
  connectInMemory,
  connectOverLoopback,
  type Ends,
  type EndsOptions,
  echoHandler,
  missingCredit,
  okHead,
  open,
  openWith,
  pour,
  Recorder,
} from "./ends.ts";

/** The behaviour of a session, the same over carriers in memory and over a real WebSocket. */

const carriers: readonly [string, (options: EndsOptions) => Promise<Ends>][] = [
  ["in memory", connectInMemory],
  ["over loopback", connectOverLoopback],
];

for (const [name, connect] of carriers) {
  describe(`session ${name}`, () => {
    let ends: Ends;
    const start = async (options: EndsOptions): Promise<Ends> => {
      ends = await connect(options);
      return ends;
    };

    afterEach(async () => {
      await ends.close();
      expect(ends.relay.openStreamCount + ends.gateway.openStreamCount).toBe(0);
    });

    const settled = async (): Promise<void> => {
      await until(
        () =>
          ends.relay.openStreamCount === 0 &&
          ends.gateway.openStreamCount === 0 &&
          missingCredit(ends).every((n) => n === 0),
        `streams gone and credit back: ${ends.relay.openStreamCount} ${ends.gateway.openStreamCount} ${missingCredit(ends)}`,
      );
    };

    it("both ends know each other", async () => {
      const { relay, gateway } = await start({ onStream: echoHandler });
      expect(relay.connId).toBe(gateway.connId);
      expect(relay.peer.id).toBe("edge-1");
      expect(gateway.peer.id).toBe("relay-a");
      expect(relay.servers).toEqual(["tickets"]);
      expect(relay.isAccepting && gateway.isAccepting).toBe(true);
      expect(relay.drainReason ?? gateway.drainReason).toBeUndefined();
    });

    it("carries one exchange with every field of its heads", async () => {
      const seen: unknown[] = [];
      await start({
        onStream: (request, stream) => {
          seen.push(request);
          stream.sendHead({ status: 207, headers: ["x-a", "1", "X-A", "ü\t2"], by: "gateway", rpcId: '"é"' });
          stream.write(Buffer.from("answer"));
          stream.end({ closeDelimited: true });
          return new Recorder();
        },
      });
      const asked = open({
        method: "DELETE",
        headers: ["a", "1", "a", "2", "b", ""],
        hasBody: false,
        principal: { id: "oauth:https://idp#s", kind: "oauth", claims: { team: "ops", n: [1, { x: null }] } },
      });
      const recorder = new Recorder();
      openWith(ends.relay, recorder, asked);
      await until(() => recorder.isOver, "the answer");
      expect(seen).toEqual([asked]);
      expect(recorder.heads).toEqual([
        { status: 207, headers: ["x-a", "1", "X-A", "ü\t2"], by: "gateway", rpcId: '"é"' },
      ]);
      expect(recorder.body.toString()).toBe("answer");
      expect(recorder.closeDelimited).toBe(true);
      await settled();
    });

    it("C13 a body split at every byte arrives as it was", async () => {
      await start({ onStream: echoHandler });
      const text = Buffer.from("é€😀e\u0301\\ud83d\\ude00");
      for (let at = 0; at <= text.length; at += 1) {
        const recorder = new Recorder();
        const stream = openWith(ends.relay, recorder);
        stream.write(text.subarray(0, at));
        stream.write(text.subarray(at));
        stream.end();
        await until(() => recorder.isOver, "the echo");
        expect(recorder.body).toEqual(text);
      }
      const recorder = new Recorder();
      const stream = openWith(ends.relay, recorder);
      for (const byte of text) {
        stream.write(Buffer.from([byte]));
        await new Promise((resolve) => setImmediate(resolve));
      }
      stream.end();
      await until(() => recorder.isOver, "the echo");
      expect(recorder.body).toEqual(text);
      await settled();
    });

    it("carries bodies of every awkward size both ways", async () => {
      await start({ onStream: echoHandler });
      const sizes = [0, 1, 16_383, 16_384, 16_385, 32_767, 32_768, 262_143, 262_144, 262_145, 1_048_577, 3_000_000];
      const recorders = sizes.map((size) => {
        const recorder = new Recorder();
        const stream = openWith(ends.relay, recorder);
        const poured = pour(stream, size, Buffer.alloc(7_001, String(size)));
        Object.assign(recorder, { onDrain: poured.pump });
        poured.pump();
        return recorder;
      });
      await until(() => recorders.every((recorder) => recorder.isOver), "all bodies");
      expect(recorders.map((recorder) => recorder.body.length)).toEqual(sizes);
      await settled();
    });

    it("a slow reader stops its own producer and nobody else", async () => {
      const written = new Map<number, number>();
      await start({
        onStream: (_, stream) => {
          stream.sendHead(okHead);
          const chunk = Buffer.alloc(16_384);
          const pump = (): void => {
            do written.set(stream.id, (written.get(stream.id) ?? 0) + chunk.length);
            while (stream.write(chunk) && (written.get(stream.id) ?? 0) < 4_000_000);
          };
          pump();
          return { onData: () => undefined, onEnd: () => undefined, onReset: () => undefined, onDrain: pump };
        },
      });
      // Eight windows of streams are twice the window of the tunnel: credit that waited for the readers would stop everybody.
      const stalled = Array.from({ length: 8 }, () => {
        const recorder = new Recorder();
        recorder.isHungry = false;
        openWith(ends.relay, recorder, { method: "GET", hasBody: false });
        return recorder;
      });
      await until(() => stalled.every((recorder) => recorder.body.length === 262_144), "full windows");
      const fast = new Recorder();
      openWith(ends.relay, fast, { method: "GET", hasBody: false });
      await until(() => fast.body.length >= 4_000_000, "the fast one");
      expect(stalled.map((recorder) => recorder.body.length)).toEqual(stalled.map(() => 262_144));
      for (const id of written.keys()) if (id < 17) expect(written.get(id)).toBeLessThan(500_000);
      for (const recorder of [...stalled, fast]) recorder.stream?.reset("CANCEL");
      await settled();
    });

    it("credit that comes late is used", async () => {
      await start({ onStream: echoHandler });
      const recorder = new Recorder();
      recorder.isHungry = false;
      const stream = openWith(ends.relay, recorder);
      const poured = pour(stream, 600_000);
      Object.assign(recorder, { onDrain: poured.pump });
      poured.pump();
      await until(() => recorder.body.length === 262_144, "a full window");
      recorder.isHungry = true;
      stream.consumed(262_144);
      await until(() => recorder.isOver, "the rest");
      expect(recorder.body.length).toBe(600_000);
      await settled();
    });

    it("C32 five thousand streams are opened and cancelled beside a long one", async () => {
      const sources: TunnelStream[] = [];
      let gatewayResets = 0;
      const countReset = (): void => {
        gatewayResets += 1;
      };
      await start({
        onStream: (request, stream) => {
          if (request.server === "long") {
            stream.sendHead(okHead);
            sources.push(stream);
          } else if (stream.id % 3 !== 0) {
            stream.sendHead(okHead);
            stream.write(Buffer.alloc(2_000));
            if (stream.id % 5 === 0) stream.end();
          }
          return { onData: () => undefined, onEnd: () => undefined, onReset: countReset };
        },
      });
      const long = new Recorder();
      openWith(ends.relay, long, { server: "long", method: "GET", hasBody: false });
      await until(() => sources.length === 1, "the long stream");
      let events = 0;
      for (let batch = 0; batch < 50; batch += 1) {
        const cancels = Array.from({ length: 100 }, () => {
          const recorder = new Recorder();
          return { recorder, stream: openWith(ends.relay, recorder, { hasBody: batch % 2 === 0 }) };
        });
        sources[0]?.write(Buffer.from(`event ${events++}\n`));
        // A third before anything went out, a third amid head and body, the rest whenever that is.
        if (batch % 3 !== 0) await until(() => cancels.some(({ recorder }) => recorder.heads.length > 0), "a head");
        for (const { stream } of cancels) stream.reset("CANCEL");
        const small = new Recorder();
        const call = openWith(ends.relay, small, { server: "small" });
        await until(() => small.heads.length > 0 || call.id % 3 === 0, "a small call");
        call.reset("CANCEL");
      }
      await until(() => long.body.toString().endsWith(`event ${events - 1}\n`), "the last event");
      expect(long.body.toString().split("\n").length - 1).toBe(50);
      expect(gatewayResets).toBeGreaterThan(1_000);
      expect(ends.relay.isAccepting).toBe(true);
      sources[0]?.end();
      await until(() => long.isOver, "the end of the long stream");
      expect(long.reset).toBeUndefined();
      await settled();
    });

    it("a reset before the open has left sends neither", async () => {
      let opened = 0;
      await start({
        onStream: (request, stream) => {
          opened += 1;
          return echoHandler(request, stream);
        },
      });
      openWith(ends.relay, new Recorder()).reset("CANCEL");
      const next = new Recorder();
      openWith(ends.relay, next).end();
      await until(() => next.isOver, "the next exchange");
      expect(opened).toBe(1);
      expect(next.reset).toBeUndefined();
    });

    it("a reset reaches the other side with its code, its text, and no more", async () => {
      const gateway = new Recorder();
      await start({
        onStream: (_, stream) => {
          gateway.stream = stream;
          return gateway;
        },
      });
      const relay = new Recorder();
      const stream = openWith(ends.relay, relay);
      stream.write(Buffer.from("x"));
      await until(() => gateway.chunks.length > 0, "the body");
      stream.reset("CANCEL", "ü".repeat(600));
      await until(() => gateway.reset !== undefined, "the reset");
      expect(gateway.reset).toEqual({ code: "CANCEL", message: "ü".repeat(512) });
      expect(relay.reset).toBeUndefined();
      gateway.stream?.sendHead(okHead);
      gateway.stream?.end();
      stream.write(Buffer.from("y"));
      await settled();
    });

    it("a callback that throws costs its own stream", async () => {
      await start({
        onStream: (request, stream) => {
          if (request.server === "throws") throw new Error("handler");
          const echo = echoHandler(request, stream);
          if (request.server !== "data") return echo;
          return {
            ...echo,
            onData: () => {
              throw new Error("sink");
            },
          };
        },
      });
      const bystander = new Recorder();
      const through = openWith(ends.relay, bystander);
      const results = ["throws", "data"].map((server) => {
        const recorder = new Recorder();
        openWith(ends.relay, recorder, { server }).write(Buffer.from("x"));
        return recorder;
      });
      const badHead = Object.assign(new Recorder(), {
        onHead: () => {
          throw new Error("head");
        },
      });
      openWith(ends.relay, badHead);
      await until(() => badHead.isOver && results.every((recorder) => recorder.isOver), "the resets");
      expect([badHead, ...results].map((recorder) => recorder.reset?.code)).toEqual([
        "INTERNAL",
        "INTERNAL",
        "INTERNAL",
      ]);
      through.write(Buffer.from("still here"));
      through.end();
      await until(() => bystander.isOver, "the bystander");
      expect(bystander.body.toString()).toBe("still here");
      await settled();
    });

    it("heads that HTTP forbids cost their stream, with a reason that quotes nothing", async () => {
      await start({
        onStream: (request, stream) => {
          const bad = request.requestId;
          if (bad === "line") stream.sendHead({ ...okHead, headers: ["x", "a\r\nset-cookie: b"] });
          if (bad === "status") stream.sendHead({ ...okHead, status: 101 });
          if (bad === "large") stream.sendHead({ ...okHead, headers: ["x", "a".repeat(98_304)] });
          if (bad === "name") stream.sendHead({ ...okHead, headers: ["x y", "a"] });
          return new Recorder();
        },
      });
      for (const requestId of ["line", "status", "large", "name"]) {
        const recorder = new Recorder();
        openWith(ends.relay, recorder, { requestId });
        await until(() => recorder.isOver, requestId);
        expect(recorder.reset?.code).toBe("INTERNAL");
        expect(recorder.reset?.message).not.toContain("set-cookie");
      }
      const refusals = [
        open({ method: "PUT" as "POST" }),
        open({ server: "http://x/" }),
        open({ headers: ["x", "a\nb"] }),
        open({ headers: ["x"] }),
      ].map((bad) => ends.relay.openStream(bad, new Recorder()));
      expect(refusals.map((refusal) => "code" in refusal && refusal.code)).toEqual([
        "REFUSED",
        "REFUSED",
        "REFUSED",
        "REFUSED",
      ]);
      const large = ends.relay.openStream(open({ headers: ["x", "a".repeat(98_304)] }), new Recorder());
      expect(large).toMatchObject({ code: "TOO_LARGE" });
      await settled();
    });

    it("a head near its limit travels beside other streams", async () => {
      await start({ onStream: echoHandler });
      const recorders = [0, 1, 2, 3].map((n) => {
        const recorder = new Recorder();
        const stream = openWith(ends.relay, recorder, { headers: ["x", "a".repeat(n % 2 === 0 ? 97_000 : 10)] });
        stream.write(Buffer.from("x"));
        stream.end();
        return recorder;
      });
      await until(() => recorders.every((recorder) => recorder.isOver), "all");
      expect(recorders.map((recorder) => recorder.body.toString())).toEqual(["x", "x", "x", "x"]);
    });

    it("streams beyond the limit are refused, and there is room again afterwards", async () => {
      await start({ onStream: () => new Recorder(), gatewayLimits: { maxStreams: 3 } });
      const streams = [1, 2, 3].map(() => openWith(ends.relay, new Recorder()));
      expect(ends.relay.openStream(open(), new Recorder())).toMatchObject({ code: "OVERLOADED" });
      streams[0]?.reset("CANCEL");
      openWith(ends.relay, new Recorder());
      await until(() => ends.gateway.openStreamCount === 3, "three again");
    });

    it("an end without a word of credit lets the answer outlive the request", async () => {
      const held: TunnelStream[] = [];
      await start({
        onStream: (_, stream) => {
          held.push(stream);
          return new Recorder();
        },
      });
      const recorder = new Recorder();
      openWith(ends.relay, recorder).end();
      await until(() => held.length === 1, "the stream");
      held[0]?.sendHead(okHead);
      held[0]?.write(Buffer.from("late"));
      await until(() => recorder.body.toString() === "late", "the body");
      expect(ends.relay.openStreamCount).toBe(1);
      held[0]?.end();
      await until(() => recorder.isOver, "the end");
      await settled();
    });

    it("a drain lets open streams finish and takes no new ones", async () => {
      const held: TunnelStream[] = [];
      const hold: StreamHandler = (_, stream) => {
        held.push(stream);
        stream.sendHead(okHead);
        return { onData: () => undefined, onEnd: () => undefined, onReset: () => undefined };
      };
      await start({ onStream: hold });
      const recorder = new Recorder();
      openWith(ends.relay, recorder).end();
      await until(() => recorder.heads.length === 1, "the head");
      ends.gateway.goAway("SHUTDOWN", 20_000);
      // Crosses the GOAWAY on the way: the gateway never sees it as its own.
      const late = new Recorder();
      openWith(ends.relay, late);
      await until(() => late.reset !== undefined, "the late one");
      expect(late.reset?.code).toBe("DRAINING");
      expect(ends.relay.isAccepting || ends.gateway.isAccepting).toBe(false);
      expect([ends.relay.drainReason, ends.gateway.drainReason]).toEqual(["SHUTDOWN", "SHUTDOWN"]);
      expect(ends.relay.openStream(open(), new Recorder())).toMatchObject({ code: "DRAINING" });
      held[0]?.write(Buffer.from("whole"));
      held[0]?.end();
      const [relayEnd, gatewayEnd] = await Promise.all([ends.relay.ended, ends.gateway.ended]);
      expect(recorder.body.toString()).toBe("whole");
      expect(recorder.ends).toBe(1);
      expect(gatewayEnd).toEqual({ reason: "SHUTDOWN", detail: "drained", by: "local" });
      expect(relayEnd).toMatchObject({ reason: "SHUTDOWN", by: "peer" });
    });

    it("a relay that drains ends when the last answer has come in", async () => {
      const held: TunnelStream[] = [];
      await start({
        onStream: (_, stream) => {
          held.push(stream);
          stream.sendHead(okHead);
          return { onData: () => undefined, onEnd: () => undefined, onReset: () => undefined };
        },
      });
      const recorder = new Recorder();
      openWith(ends.relay, recorder).end();
      await until(() => recorder.heads.length === 1, "the head");
      ends.relay.goAway("SHUTDOWN", 20_000);
      await ends.gateway.echo(5_000);
      held[0]?.end();
      expect(await ends.relay.ended).toEqual({ reason: "SHUTDOWN", detail: "drained", by: "local" });
      expect(recorder.ends).toBe(1);
    });

    it("when both sides drain, the session still ends with its last stream", async () => {
      const held: TunnelStream[] = [];
      await start({
        onStream: (_, stream) => {
          held.push(stream);
          stream.sendHead(okHead);
          return { onData: () => undefined, onEnd: () => undefined, onReset: () => undefined };
        },
      });
      const recorder = new Recorder();
      openWith(ends.relay, recorder).end();
      await until(() => recorder.heads.length === 1, "the head");
      ends.gateway.goAway("SHUTDOWN", 20_000);
      ends.relay.goAway("REBALANCE", 20_000);
      // Each has heard the other before the stream ends.
      await Promise.all([ends.relay.echo(5_000), ends.gateway.echo(5_000)]);
      held[0]?.end();
      await Promise.all([ends.relay.ended, ends.gateway.ended]);
      expect(recorder.ends).toBe(1);
    });

    it("a replaced session ends at once and its streams with it", async () => {
      const gateway = new Recorder();
      await start({ onStream: () => gateway });
      const relay = new Recorder();
      openWith(ends.relay, relay);
      await until(() => ends.gateway.openStreamCount === 1, "the stream");
      ends.relay.terminate("REPLACED", "a newcomer has the place");
      expect(relay.reset).toEqual({ code: "TUNNEL_LOST", message: "the tunnel was lost" });
      expect(await ends.relay.ended).toEqual({ reason: "REPLACED", detail: "a newcomer has the place", by: "local" });
      expect(await ends.gateway.ended).toMatchObject({ reason: "REPLACED", by: "peer" });
      expect(gateway.reset?.code).toBe("TUNNEL_LOST");
      ends.relay.terminate("INTERNAL", "again");
      expect(await ends.relay.ended).toMatchObject({ reason: "REPLACED" });
      await expect(ends.relay.echo(1_000)).rejects.toThrow("ended");
    });

    it("an open that never left counts as not processed when the tunnel dies", async () => {
      await start({ onStream: echoHandler });
      const recorder = new Recorder();
      openWith(ends.relay, recorder);
      ends.relay.terminate("LOST", "cut");
      expect(recorder.reset).toEqual({ code: "TUNNEL_LOST", message: "the tunnel was lost", isUnsent: true });
    });

    it("an echo measures the way there and back", async () => {
      await start({ onStream: echoHandler });
      expect(ends.relay.lastEchoAt).toBeUndefined();
      const [there, back] = await Promise.all([ends.relay.echo(5_000), ends.gateway.echo(5_000)]);
      expect(there).toBeGreaterThanOrEqual(0);
      expect(back).toBeGreaterThanOrEqual(0);
      expect(ends.relay.lastEchoAt).toBeDefined();
      const waiting = ends.gateway.echo(5_000);
      ends.gateway.terminate("LOST", "cut");
      await expect(waiting).rejects.toThrow("ended");
    });

    it("a new advert replaces the old one", async () => {
      await start({ onStream: echoHandler });
      ends.gateway.advertise(["a", "b"]);
      ends.gateway.advertise(["c"]);
      await until(() => ends.relay.servers[0] === "c", "the advert");
      expect(ends.relay.servers).toEqual(["c"]);
    });
  });
}
