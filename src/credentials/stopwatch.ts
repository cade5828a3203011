import type { Clock } from "../lib/index.ts";

/**
 * Tells how many milliseconds have passed since now, by whichever clock moved further: the monotonic one stands still in a
 * suspended machine.
 */
export function startStopwatch(clock: Clock): () => number {
  const [now, wall] = [clock.now(), clock.wall()];
  return () => Math.max(clock.now() - now, clock.wall() - wall);
}
