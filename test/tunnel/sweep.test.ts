import { describe, expect, it } from "vitest";
import { until } from "../support/until.ts";
import { connectInMemory, okHead, openWith, Recorder } from "./ends.ts";

describe("a session that has carried thousands of streams", () => {
  it("keeps the heads of those behind when queues are swept of those that are over", async () => {
    // Every other answer ends while its head is packed; behind it waits the head of one that has data.
    const ends = await connectInMemory({
      onStream: (_, stream) => {
        stream.sendHead(okHead);
        if (stream.id % 4 === 1) stream.write(Buffer.from("{}"));
        stream.end();
        return { onData: () => undefined, onEnd: () => undefined, onReset: () => undefined };
      },
    });
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
