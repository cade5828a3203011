import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { LeakGuard } from "../../src/gateway/leak-guard.ts";
import { Secret } from "../../src/lib/index.ts";
import { createLogger, silentLogger } from "../../src/telemetry/index.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { Recorder } from "./answer-recorder.ts";

const marker = "[REDACTED:credential]";
const injection = (token: string) => ({ headers: ["X-Key", token], secrets: [new Secret(token)] });
const minute = 60_000;

function guardWith(clock = new ManualClock(), isPerCaller = false): LeakGuard {
  return new LeakGuard({ server: "tickets", onReflect: "redact", isPerCaller, clock, logger: silentLogger });
}

/** A guard, and the events in its log. */
function loggedGuard(isPerCaller = false) {
  const lines: string[] = [];
  const logger = createLogger({ level: "warn", destination: { write: (line) => void lines.push(line) } });
  const clock = new ManualClock();
  const guard = new LeakGuard({ server: "tickets", onReflect: "redact", isPerCaller, clock, logger });
  return { guard, clock, logged: (event: string) => lines.filter((line) => line.includes(event)).length };
}

/** What a guard leaves of a text, in the answer to a call with `token`. */
function shown(guard: LeakGuard, token: string, text: string, callerId = "key:claude"): string | undefined {
  return guard
    .watch(injection(token), callerId, "req-1")
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

  it("C24 is the secret behind its credential too, when that changes and what is sent does not", () => {
    const guard = guardWith();
    const bought = (secret: string) => ({
      headers: ["Authorization", "Bearer the-same-token"],
      secrets: [new Secret("the-same-token"), new Secret(secret)],
    });
    const seen = (secret: string): string | undefined =>
      guard
        .watch(bought(secret), "key:claude", "req-1")
        ?.whole(Buffer.from("client-one client-two"), (bytes) => bytes)
        ?.toString();
    expect(seen("client-one")).toBe(`${marker} client-two`);
    expect(seen("client-two")).toBe(`${marker} ${marker}`);
  });

  it.each([true, false])(
    "C24 is what a call was made with, however many others came since: per caller %s",
    (isPerCaller) => {
      const guard = guardWith(new ManualClock(), isPerCaller);
      const stream = guard.watch(injection("value-of-the-stream"), "oauth:https://i#svc", "req-1");
      const later = (text: string): string | undefined =>
        stream?.whole(Buffer.from(text), (bytes) => bytes)?.toString();
      for (let i = 0; i < 9; i += 1) shown(guard, `value-of-another-${i}`, "x", "oauth:https://i#svc");
      expect(later("value-of-the-stream value-of-another-8")).toBe(`${marker} ${marker}`);
      shown(guard, "value-of-the-last", "x", "oauth:https://i#svc");
      expect(later("value-of-the-stream value-of-the-last")).toBe(`${marker} ${marker}`);
    },
  );

  it("C24 L43 is each value of the last ten minutes, however many there were, and none that is older", () => {
    const { guard, clock, logged } = loggedGuard();
    const tokenAt = (i: number): string => `a-value-that-lives-for-three-seconds-${i}`;
    for (let i = 0; i < 300; i += 1) {
      shown(guard, tokenAt(i), "");
      clock.advance(3_000);
    }
    // Number 299 is current; number i was replaced at (i + 1) times three seconds.
    const kept = (i: number): boolean => shown(guard, tokenAt(299), tokenAt(i)) === marker;
    expect([98, 99, 100, 200, 298, 299].map(kept)).toEqual([false, true, true, true, true, true]);
    // Number 99 was replaced ten minutes ago to the millisecond; but by a change, nothing is forgotten.
    expect(kept(99)).toBe(true);
    shown(guard, tokenAt(300), "");
    const stillKept = (i: number): boolean => shown(guard, tokenAt(300), tokenAt(i)) === marker;
    expect([99, 100, 101].map(stillKept)).toEqual([false, true, true]);
    expect(logged("no longer looked for")).toBe(0);
  });

  it("C24 L43 is as many old values as there is room for, four at least; that some were forgotten is logged once", () => {
    const { guard, logged } = loggedGuard();
    // 20 * 1,000 + 2,048 bytes each, of 1 MiB.
    const tokenAt = (i: number): string => `${i}-`.padEnd(1_000, "abcdefgh");
    for (let i = 0; i <= 47; i += 1) shown(guard, tokenAt(i), "");
    expect(logged("no longer looked for")).toBe(0);
    expect(shown(guard, tokenAt(47), tokenAt(0))).toBe(marker);
    for (let i = 48; i <= 60; i += 1) shown(guard, tokenAt(i), "");
    expect(logged("no longer looked for")).toBe(1);
    const kept = (i: number): boolean => shown(guard, tokenAt(60), tokenAt(i)) === marker;
    expect([0, 12, 13, 59, 60].map(kept)).toEqual([false, false, true, true, true]);
    const huge = (i: number): string => `${i}-`.padEnd(200_000, "abcdefgh");
    for (let i = 0; i <= 5; i += 1) shown(guard, huge(i), "");
    expect([0, 1, 2, 5].map((i) => shown(guard, huge(5), huge(i)) === marker)).toEqual([false, true, true, true]);
  });

  it("C24 L43 is a value that became current again, with no room for it twice", () => {
    const { guard, logged } = loggedGuard();
    const tokenAt = (i: number): string => `${i}-`.padEnd(1_000, "abcdefgh");
    for (let i = 0; i <= 47; i += 1) shown(guard, tokenAt(i), "");
    for (let round = 0; round < 100; round += 1) shown(guard, tokenAt(round % 48), "");
    expect(logged("no longer looked for")).toBe(0);
    for (let i = 0; i <= 47; i += 1) expect(shown(guard, tokenAt(3), tokenAt(i))).toBe(marker);
  });

  it("is nothing where there is no credential", () => {
    expect(guardWith().watch({ headers: [], secrets: [] }, "key:claude", "req-1")).toBeUndefined();
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
      const scrubber = guardWith().watch(injection(token), "key:claude", "req-1");
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

describe("a server's headers", () => {
  const token = "value-of-the-server";
  const scrubberOf = (guard: LeakGuard, secret = token) => {
    const scrubber = guard.watch(injection(secret), "key:claude", "req-1");
    if (scrubber === undefined) throw new Error("nothing to look for");
    return scrubber;
  };

  it("C24 L25 pass unless one of them holds the credential, whichever that is", () => {
    const guard = guardWith();
    expect(scrubberOf(guard).admitsHeaders(["one", "two", "three"])).toBe(true);
    expect(scrubberOf(guard).admitsHeaders([])).toBe(true);
    for (const at of [0, 1, 2]) {
      const values = ["one", "two", "three"].map((value, i) => (i === at ? `a ${token} b` : value));
      expect(scrubberOf(guard).admitsHeaders(values)).toBe(false);
    }
    expect(guard.hitCount).toBe(3);
  });

  it("C24 L25 count each value that holds it once, however often it does", () => {
    const scrubber = scrubberOf(guardWith());
    expect(scrubber.admitsHeaders([`${token} ${token}`, "two", token])).toBe(false);
    expect(scrubber.hitCount).toBe(2);
  });

  it("C24 L25 do not hold together what none of them holds, not even a secret of two lines", () => {
    const scrubber = scrubberOf(guardWith());
    expect(scrubber.admitsHeaders([token.slice(0, 9), token.slice(9)])).toBe(true);
    const ofTwoLines = scrubberOf(guardWith(), "first-line-of-it\nsecond-line-of-it");
    expect(ofTwoLines.admitsHeaders(["x first-line-of-it", "second-line-of-it"])).toBe(true);
    expect([scrubber.hitCount, ofTwoLines.hitCount]).toEqual([0, 0]);
  });
});

describe("where each caller has a secret of his own", () => {
  const inStream = (guard: LeakGuard, token: string, callerId: string) => {
    const scrubber = guard.watch(injection(token), callerId, "req-1");
    if (scrubber === undefined) throw new Error("nothing to look for");
    return (text: string): string | undefined => scrubber.whole(Buffer.from(text), (bytes) => bytes)?.toString();
  };

  it("C24 an answer to one is searched for his, old values included", () => {
    const clock = new ManualClock();
    const guard = guardWith(clock, true);
    expect(shown(guard, "value-of-alice", "value-of-alice value-of-bob", "alice")).toBe(`${marker} value-of-bob`);
    expect(shown(guard, "value-of-bob", "value-of-alice value-of-bob", "bob")).toBe(`value-of-alice ${marker}`);
    clock.advance(minute);
    expect(shown(guard, "next-of-alice", "value-of-alice next-of-alice", "alice")).toBe(`${marker} ${marker}`);
    expect(shown(guard, "value-of-bob", "next-of-alice value-of-bob", "bob")).toBe(`next-of-alice ${marker}`);
    clock.advance(11 * minute);
    expect(shown(guard, "third-of-alice", "value-of-alice", "alice")).toBe("value-of-alice");
    expect(guard.hitCount).toBe(5);
  });

  it("C24 a stream that began before a change is searched for both values", () => {
    const guard = guardWith(new ManualClock(), true);
    const stream = inStream(guard, "value-of-alice", "alice");
    expect(stream("value-of-alice next-of-alice")).toBe(`${marker} next-of-alice`);
    shown(guard, "next-of-alice", "", "alice");
    expect(stream("value-of-alice next-of-alice")).toBe(`${marker} ${marker}`);
    shown(guard, "value-of-alice", "", "alice");
    expect(stream("value-of-alice next-of-alice")).toBe(`${marker} ${marker}`);
  });

  it("C24 a stream is searched for its own value even when very many callers came since", () => {
    const clock = new ManualClock();
    const guard = guardWith(clock, true);
    const stream = inStream(guard, "value-of-alice", "alice");
    for (let i = 0; i < 17_000; i += 1) shown(guard, `value-of-number-${i}`, "", `key:${i}`);
    shown(guard, "next-of-alice", "", "alice");
    expect(stream("value-of-alice next-of-alice")).toBe(`${marker} ${marker}`);
    clock.advance(60 * minute);
    expect(stream("value-of-alice")).toBe(marker);
  });

  it("C24 a caller whose search was let go is searched for like any other", () => {
    const guard = guardWith(new ManualClock(), true);
    // Long values, so that their searches outgrow what may be kept of them.
    const tokenOf = (i: number): string => `${i}-${"abcdefgh".repeat(500)}`;
    for (let round = 0; round < 2; round += 1) {
      for (let i = 0; i < 200; i += 1) {
        // What escapes mean is searched for the caller's own values alone.
        const escaped = (of: number): string => tokenOf(of).replace("a", "\\u0061");
        expect(shown(guard, tokenOf(i), `${escaped(i)} ${escaped(i + 1)}`, `key:${i}`)).toBe(
          `${marker} ${escaped(i + 1)}`,
        );
      }
    }
  });

  const ofAlice = "token-of-alice-5f3a/7c";
  const ofBob = "token-of-bob-91d0/2e";
  /** What Bob is shown once Alice has called too. */
  const shownToBob = (guard: LeakGuard, text: string): string | undefined => {
    shown(guard, ofAlice, "", "alice");
    return shown(guard, ofBob, text, "bob");
  };

  it.each([
    ["as it is", ofAlice],
    ...[0, 1, 2].map(
      (n) => [`base64, ${n} bytes on`, Buffer.from(`${"ab".slice(0, n)}${ofAlice}`).toString("base64")] as const,
    ),
    ["base64url", Buffer.from(ofAlice).toString("base64url")],
    ["hexadecimal digits", Buffer.from(ofAlice).toString("hex")],
    ["hexadecimal digits in capitals", Buffer.from(ofAlice).toString("hex").toUpperCase()],
  ] as const)("C24 the secret of one is taken out of an answer to another: %s", (_, said) => {
    const { guard, logged } = loggedGuard(true);
    const left = shownToBob(guard, `{"a":"${said} ${said}","b":"${ofBob}"}`);
    expect(left).not.toContain(said.slice(4, -4));
    expect(left?.split(marker)).toHaveLength(4);
    expect(guard.hitCount).toBe(3);
    expect([logged("credential of another caller in an answer"), logged("credential in an answer")]).toEqual([1, 1]);
  });

  it("C24 a text that is not the whole secret of another stays, and so does one of less than 16 characters", () => {
    const guard = guardWith(new ManualClock(), true);
    for (const text of [ofAlice.slice(1), ofAlice.slice(0, -1), ofAlice.slice(-8), `x${ofAlice.slice(1)}`]) {
      expect(shownToBob(guard, text)).toBe(text);
    }
    shown(guard, "fifteen-letters", "", "carol");
    shown(guard, "sixteen-letters-", "", "carol");
    expect(shownToBob(guard, "fifteen-letters sixteen-letters-")).toBe(`fifteen-letters ${marker}`);
    expect(guard.hitCount).toBe(1);
  });

  it("C24 the secret that two share is none of another", () => {
    const { guard, logged } = loggedGuard(true);
    shown(guard, ofAlice, "", "alice");
    expect(shown(guard, ofAlice, ofAlice, "bob")).toBe(marker);
    expect([guard.hitCount, logged("another caller")]).toEqual([1, 0]);
  });

  it("C24 the secret of another goes whole, also where a part of it is the caller's own", () => {
    const { guard, logged } = loggedGuard(true);
    shown(guard, "acme-corp-9f8e7d6c5b4a3210", "", "alice");
    const text = "a acme-corp-9f8e7d6c5b4a3210 b acme-corp-3 acme-corp";
    expect(shown(guard, "acme-corp", text, "bob")).toBe(`a ${marker} b ${marker}-3 ${marker}`);
    expect([guard.hitCount, logged("another caller")]).toEqual([3, 0]);
  });

  it("C24 the secret of another is found where the caller's own is too short to be", () => {
    const guard = guardWith(new ManualClock(), true);
    shown(guard, ofAlice, "", "alice");
    expect(shown(guard, "short", `short ${ofAlice}`, "bob")).toBe(`short ${marker}`);
  });

  it("C24 an answer full of secrets is read in a time that grows with its length alone", () => {
    const guard = guardWith(new ManualClock(), true);
    shown(guard, ofAlice, "", "alice");
    const times = 100_000;
    const startedAt = performance.now();
    const left = shown(guard, ofBob, ofBob.repeat(times) + ofAlice.repeat(times), "bob");
    // One comparison of each with each took half a minute.
    expect(performance.now() - startedAt).toBeLessThan(5_000);
    expect(left?.length).toBe(2 * times * marker.length);
    expect(guard.hitCount).toBe(2 * times);
  });

  it("C24 a header with the secret of another is refused", () => {
    const { guard, logged } = loggedGuard(true);
    shown(guard, ofAlice, "", "alice");
    const scrubber = guard.watch(injection(ofBob), "bob", "req-1");
    expect(scrubber?.admitsHeaders(["one", `t=${ofAlice}`, "three"])).toBe(false);
    expect(scrubber?.admitsHeaders([ofAlice.slice(0, 9), ofAlice.slice(9)])).toBe(true);
    expect([scrubber?.hitCount, logged("another caller")]).toEqual([1, 1]);
  });

  it("C24 onReflect: block refuses an answer with the secret of another", () => {
    const options = { server: "tickets", isPerCaller: true, clock: new ManualClock(), logger: silentLogger };
    const guard = new LeakGuard({ ...options, onReflect: "block" });
    expect([shownToBob(guard, "fine"), shownToBob(guard, ofAlice)]).toEqual(["fine", undefined]);
  });

  it("C24 a secret of another is looked for from its first use to ten minutes after its last at least, not for ever", () => {
    const clock = new ManualClock();
    const guard = guardWith(clock, true);
    const stream = inStream(guard, ofBob, "bob");
    expect(stream(ofAlice)).toBe(ofAlice);
    shown(guard, ofAlice, "", "alice");
    // Streams that are open already see it too.
    expect(stream(ofAlice)).toBe(marker);
    clock.advance(9 * minute);
    shown(guard, ofAlice, "", "alice");
    clock.advance(2 * minute);
    shown(guard, ofAlice, "", "alice");
    shown(guard, "another-token-of-alice", "", "alice");
    clock.advance(10 * minute - 1);
    expect(shown(guard, ofBob, `${ofAlice} another-token-of-alice`, "bob")).toBe(`${marker} ${marker}`);
    clock.advance(1);
    expect(shown(guard, ofBob, ofAlice, "bob")).toBe(marker);
    clock.advance(10 * minute);
    expect(shown(guard, ofBob, ofAlice, "bob")).toBe(ofAlice);
  });
});
