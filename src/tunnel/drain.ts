import type { Clock, Timer } from "../lib/index.ts";
import type { GoAwayReason } from "./types.ts";

/** A session between the first GOAWAY and its end. */
export interface Drain {
  readonly reason: GoAwayReason;
  /** Who is to end the session when its last stream is over. */
  readonly by: "local" | "peer";
  /** Clock time at which the session ends in any case. */
  readonly until: number;
  readonly timer: Timer;
}

/**
 * The drain after one more GOAWAY. The earlier end counts. When both sides have said GOAWAY, each goes by its own: else both
 * would wait for the other to close. `onOver` is given the reason.
 */
export function beginDrain(
  clock: Clock,
  before: Drain | undefined,
  goAway: { readonly reason: GoAwayReason; readonly by: "local" | "peer"; readonly drainMs: number },
  onOver: (reason: GoAwayReason) => void,
): Drain {
  before?.timer.cancel();
  const now = clock.now();
  const until = Math.min(before?.until ?? Number.POSITIVE_INFINITY, now + goAway.drainMs);
  const isOwnKept = before?.by === "local" && goAway.by === "peer";
  const { reason, by } = isOwnKept ? before : goAway;
  return { reason, by, until, timer: clock.after(Math.max(0, until - now), () => onOver(reason)) };
}
