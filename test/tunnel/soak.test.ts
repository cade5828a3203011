import { describe, expect, it } from "vitest";
import type { StreamHandler, StreamSink, TunnelStream } from "../../src/tunnel/types.ts";
import { until } from "../support/until.ts";
import { connectInMemory, missingCredit, okHead, open, openWith, Recorder } from "./ends.ts";
import { Dice } from "./fuzz-input.ts";

const nothing: StreamSink = { onData: () => undefined, onEnd: () => undefined, onReset: () => undefined };

/** Answers as the name of the server says: nothing, little at once, little later, much, what was sent, or a reset. */
const behaviours: Readonly<Record<string, (stream: TunnelStream) => StreamSink>> = {
  empty: (stream) => {
    stream.sendHead(okHead);
    stream.end();
    return nothing;
  },
  little: (stream) => {
    stream.sendHead(okHead);
    stream.write(Buffer.from("little"));
    stream.end();
    return nothing;
  },
  later: (stream) => {
    stream.sendHead(okHead);
    setImmediate(() => {
      stream.write(Buffer.from("later"));
      setImmediate(() => stream.end());
    });
    return nothing;
  },
  much: (stream) => {
    stream.sendHead(okHead);
    stream.write(Buffer.alloc(50_000, "m"));
    stream.end();
    return nothing;
  },
  echo: (stream) => {
    stream.sendHead(okHead);
    return {
      onData: (chunk) => {
        stream.write(Buffer.from(chunk));
        stream.consumed(chunk.length);
      },
      onEnd: () => stream.end(),
      onReset: () => undefined,
    };
  },
  reset: (stream) => {
    stream.reset("UPSTREAM_FAILED", "as told");
    return nothing;
  },
};
const bodies: Readonly<Record<string, string>> = {
  empty: "",
  little: "little",
  later: "later",
  much: "m".repeat(50_000),
  echo: "sent",
};
const names = Object.keys(behaviours);

const answer: StreamHandler = ({ server }, stream) => behaviours[server]?.(stream) ?? nothing;

describe("a session that carries thousands of streams", () => {
  it("C32 answers each as it should be, whatever the others do and whoever leaves", async () => {
    const dice = new Dice(4_711);
    const ends = await connectInMemory({ onStream: answer });
    let endReason: string | undefined;
    void ends.relay.ended.then(({ detail }) => {
      endReason = detail;
    });
    for (let wave = 0; wave < 80; wave += 1) {
      const calls = Array.from({ length: 1 + dice.below(120) }, () => {
        const server = dice.pick(names);
        const hasBody = server === "echo" || dice.once(2);
        const recorder = new Recorder();
        const stream = openWith(ends.relay, recorder, { ...open(), server, hasBody });
        if (hasBody) {
          stream.write(Buffer.from("sent"));
          stream.end();
        }
        const isLeaver = dice.once(10);
        if (isLeaver && dice.once(2)) stream.reset("CANCEL");
        else if (isLeaver) setImmediate(() => stream.reset("CANCEL"));
        return { server, recorder, isLeaver };
      });
      const staying = calls.filter(({ isLeaver }) => !isLeaver);
      await until(
        () => endReason !== undefined || staying.every(({ recorder }) => recorder.isOver),
        `wave ${wave} is answered`,
      );
      expect(endReason).toBeUndefined();
      for (const { server, recorder } of staying) {
        expect(recorder.reset?.code).toBe(server === "reset" ? "UPSTREAM_FAILED" : undefined);
        expect(recorder.heads).toHaveLength(server === "reset" ? 0 : 1);
        expect(recorder.body.toString("latin1")).toBe(bodies[server] ?? "");
      }
    }
    await until(() => ends.relay.openStreamCount + ends.gateway.openStreamCount === 0, "no stream is left");
    await until(() => missingCredit(ends).every((bytes) => bytes === 0), "no credit is missing");
    await ends.close();
  });

  it("keeps the heads of those behind when its queues are swept of those that are over", async () => {
    // Every other answer ends while its head is packed; behind it waits the head of one that has data.
    const onStream: StreamHandler = (_, stream) =>
      (stream.id % 4 === 1 ? behaviours["little"] : behaviours["empty"])?.(stream) ?? nothing;
    const ends = await connectInMemory({ onStream });
    for (let wave = 0; wave < 40; wave += 1) {
      const recorders = Array.from({ length: 100 }, () => new Recorder());
      for (const recorder of recorders) openWith(ends.relay, recorder, { hasBody: false });
      await until(() => recorders.every(({ isOver }) => isOver), `wave ${wave}`);
      expect(recorders.filter(({ heads, ends: count }) => heads.length !== 1 || count !== 1)).toEqual([]);
    }
    expect(ends.relay.openStreamCount).toBe(0);
    await ends.close();
  });
});
