import { describe, expect, it } from "vitest";
import { defaultRelayTimeouts } from "../../src/relay/options.ts";
import { isWorthAnother, Search } from "../../src/relay/search.ts";
import { type Reset, type ResetCode, resetCodes } from "../../src/tunnel/types.ts";
import { FakeSession } from "../support/fake-tunnel.ts";

const begin = () => new Search({ ...defaultRelayTimeouts, retryMs: 100, holdMs: 1_000 });
const session = () => new FakeSession(["tickets"]);

describe("the search for a gateway", () => {
  it("ends after three, and some time after the first that failed, however long it waited before", () => {
    const search = begin();
    expect(search.mayTry(1_000_000)).toBe(true);
    const asked = [session(), session(), session()] as const;
    search.note(asked[0], "DRAINING", 5_000);
    expect([search.mayTry(5_099), search.mayTry(5_100)]).toEqual([true, false]);
    search.note(asked[1], "REFUSED", 5_050);
    expect([search.mayTry(5_099), search.mayTry(5_100)]).toEqual([true, false]);
    search.note(asked[2], "OVERLOADED", 5_060);
    expect([search.mayTry(5_061), search.lastCode]).toEqual([false, "OVERLOADED"]);
    expect(search.tried).toEqual(asked);
  });

  it("waits for a gateway that is away, once for as long as is allowed, and for no other", () => {
    const waits = (code: ResetCode | undefined) => {
      const search = begin();
      if (code !== undefined) search.note(session(), code, 0);
      return [search.holdMs(10), search.holdMs(1_009), search.holdMs(1_010), search.holdMs(9_999)];
    };
    for (const code of [undefined, "REFUSED", "DRAINING", "TUNNEL_LOST"] as const) {
      expect([code, waits(code)]).toEqual([code, [1_000, 1, 0, 0]]);
    }
    for (const code of ["OVERLOADED", "NO_SERVER", "FORBIDDEN", "UPSTREAM_UNREACHABLE"] as const) {
      expect([code, waits(code)]).toEqual([code, [0, 0, 0, 0]]);
    }
  });

  it("goes on only where nobody saw the request, and another answer is possible", () => {
    const codes = Object.keys(resetCodes) as ResetCode[];
    const worth = (more: Partial<Reset>) => codes.filter((code) => isWorthAnother({ code, message: "", ...more }));
    const unseen = ["REFUSED", "DRAINING", "OVERLOADED", "NO_SERVER", "NOT_OWNER", "UPSTREAM_UNREACHABLE"];
    expect(worth({})).toEqual(unseen);
    expect(worth({ isUnsent: true })).toContain("TUNNEL_LOST");
    expect(worth({ isUnsent: true })).not.toContain("FORBIDDEN");
  });
});
