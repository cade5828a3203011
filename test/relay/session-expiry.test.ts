import { describe, expect, it } from "vitest";
import type { VerifiedToken } from "../../src/identity/index.ts";
import { watchExpiry } from "../../src/relay/session-expiry.ts";
import type { GoAwayReason } from "../../src/tunnel/index.ts";
import { FakeSession } from "../support/fake-tunnel.ts";
import { ManualClock } from "../support/manual-clock.ts";

const day = 86_400_000;

class WatchedSession extends FakeSession {
  readonly said: [string, number][] = [];

  override goAway(reason: GoAwayReason, drainMs = -1): void {
    this.said.push([reason, drainMs]);
    super.goAway(reason);
  }
}

function watched(leftMs: number): { session: WatchedSession; clock: ManualClock } {
  const clock = new ManualClock();
  const session = new WatchedSession(["tickets"]);
  const expiresAt = clock.wall() + leftMs;
  watchExpiry(session, { expiresAt, validUntil: expiresAt + 60_000 } as VerifiedToken, clock);
  return { session, clock };
}

describe("a session whose token expires", () => {
  it("is asked to move at the end of the token, with time for what runs", () => {
    const { session, clock } = watched(300_000);
    clock.advance(299_999);
    expect(session.said).toEqual([]);
    clock.advance(1);
    expect(session.said).toEqual([["MAX_AGE", 90_000]]);
    clock.advance(day);
    expect(session.said).toHaveLength(1);
  });

  it("that came later than that is told when the leeway is over", () => {
    const { session, clock } = watched(-20_000);
    clock.advance(39_999);
    expect(session.said).toEqual([]);
    clock.advance(1);
    expect(session.said).toEqual([["AUTH_EXPIRED", 30_000]]);
  });

  it("may be months away: longer than a timer can hold", () => {
    const { session, clock } = watched(60 * day);
    clock.advance(59 * day);
    expect(session.said).toEqual([]);
    clock.advance(day);
    expect(session.said.map(([reason]) => reason)).toEqual(["MAX_AGE"]);
  });

  it("leaves no timer when it ends before", async () => {
    const { session, clock } = watched(300_000);
    session.terminate("LOST", "gone");
    await session.ended;
    await Promise.resolve();
    expect(clock.armed).toBe(0);
  });
});
