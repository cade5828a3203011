import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { LeakGuard } from "../../src/gateway/leak-guard.ts";
import { Secret } from "../../src/lib/index.ts";
import { silentLogger } from "../../src/telemetry/index.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { Recorder } from "./answer-recorder.ts";

const marker = "[REDACTED:credential]";
const injection = (token: string) => ({ headers: ["X-Key", token], secrets: [new Secret(token)] });
const minute = 60_000;

function guardWith(clock = new ManualClock()): LeakGuard {
  return new LeakGuard("tickets", "redact", { clock, logger: silentLogger });
}

/** What a guard leaves of a text, in the answer to a call with `token`. */
function shown(guard: LeakGuard, token: string, text: string): string | undefined {
  return guard
    .watch(injection(token), "req-1")
    ?.whole(Buffer.from(text), (bytes) => bytes)
    ?.toString();
}

describe("what a server must not say", () => {
  it("C24 is its credential, and the one before for ten minutes after the change", () => {
    const clock = new ManualClock();
    const guard = guardWith(clock);
    expect(shown(guard, "value-one", "value-one value-two")).toBe(`${marker} value-two`);
    clock.advance(60 * minute);
    expect(shown(guard, "value-two", "value-one value-two")).toBe(`${marker} ${marker}`);
    clock.advance(9 * minute);
    expect(shown(guard, "value-three", "value-one value-two")).toBe(`${marker} ${marker}`);
    clock.advance(2 * minute);
    expect(shown(guard, "value-four", "value-one value-two value-three")).toBe(`value-one ${marker} ${marker}`);
    expect(guard.hitCount).toBe(7);
  });

  it("is nothing where there is no credential", () => {
    expect(guardWith().watch({ headers: [], secrets: [] }, "req-1")).toBeUndefined();
  });

  it("C24 is taken out of an event stream the same way, wherever it was cut, and no event waits", () => {
    const token = "tok-5f3a/secret";
    const events = [
      ": comment\n\n",
      `id: 1\ndata: {"jsonrpc":"2.0","method":"notifications/message","params":{"a":"${token}"}}\n\n`,
      `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"a":"tok-5f3a\\/secre\\u0074"}}\r\n\r\n`,
      `event: x\ndata: ${Buffer.from(`ab${token}`).toString("base64")}\n\n: tok-5f3a/secre\n\n`,
      `data: {"jsonrpc":"2.0","id":1,"result":{"large":"${"y".repeat(300)}${token}${"y".repeat(300)}"}}\n\n`,
    ];
    const text = events.join("");
    const run = (cuts: readonly number[]): string => {
      const scrubber = guardWith().watch(injection(token), "req-1");
      if (scrubber === undefined) throw new Error("nothing to look for");
      const limits = { holdBytes: 256, listBytes: 4096 };
      const recorder = new Recorder({ isEventStream: true, limits, scrubber });
      let at = 0;
      for (const cut of [...cuts, text.length].sort((a, b) => a - b)) {
        recorder.filter.push(Buffer.from(text.slice(at, cut)));
        at = cut;
        const whole = events.filter((_, i) => events.slice(0, i + 1).join("").length <= at).length;
        const emitted = Buffer.concat(recorder.emitted).toString();
        expect(emitted.split(/(?:\r\n\r\n|\n\n)/).length).toBeGreaterThan(whole);
      }
      recorder.filter.end();
      expect(recorder.calls.at(-1)).toBe("finish");
      return Buffer.concat(recorder.emitted).toString();
    };
    const expected = run([]);
    expect(expected.split(marker)).toHaveLength(5);
    expect(expected).not.toContain(token);
    fc.assert(
      fc.property(fc.array(fc.nat(text.length), { maxLength: 40 }), (cuts) => {
        expect(run(cuts)).toBe(expected);
      }),
      { numRuns: 500 },
    );
  });
});
