import type { VerifiedToken } from "../identity/index.ts";
import type { Clock, Timer } from "../lib/index.ts";
import type { TunnelSession } from "../tunnel/index.ts";

/** How long streams may run on after the token of their session has ceased to hold. */
const graceMs = 30_000;
const maxTimerMs = 2 ** 31 - 1;

/**
 * Ends a session in order when the token that it came with expires. At `exp` the gateway is asked to move, as on any planned
 * move: it reads its token anew, dials, and nothing is lost. One that came later than that, with the leeway for clocks, is told
 * AUTH_EXPIRED when that is over. Either way what runs may go on until `graceMs` after the leeway.
 */
export function watchExpiry(session: TunnelSession, token: VerifiedToken, clock: Clock): void {
  const isLate = clock.wall() >= token.expiresAt;
  let timer: Timer | undefined;
  const arm = (): void => {
    const waitMs = (isLate ? token.validUntil : token.expiresAt) - clock.wall();
    if (waitMs > 0) timer = clock.after(Math.min(waitMs, maxTimerMs), arm);
    else session.goAway(isLate ? "AUTH_EXPIRED" : "MAX_AGE", Math.max(0, token.validUntil - clock.wall()) + graceMs);
  };
  arm();
  void session.ended.then(() => timer?.cancel());
}
