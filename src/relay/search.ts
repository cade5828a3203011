import { isNotProcessed, type Reset, type ResetCode, type TunnelSession } from "../tunnel/index.ts";
import type { RelayTimeouts } from "./options.ts";

const maxTries = 3;
/** The gateway is going, or gone: another may be on its way. The other codes would be the same in a moment. */
const awayCodes: ReadonlySet<ResetCode> = new Set<ResetCode>(["REFUSED", "DRAINING", "TUNNEL_LOST"]);

/** The search for a gateway that takes one request, after the first that was asked did not, or when there was none to ask. */
export class Search {
  readonly #timeouts: RelayTimeouts;
  readonly #tried: TunnelSession[] = [];
  #lastCode: ResetCode | undefined = undefined;
  #retryUntil = Number.POSITIVE_INFINITY;
  #holdUntil: number | undefined = undefined;

  constructor(timeouts: RelayTimeouts) {
    this.#timeouts = timeouts;
  }

  /** Those that did not take it: they are not asked again. */
  get tried(): readonly TunnelSession[] {
    return this.#tried;
  }

  /** Why the last one did not; undefined: there was none to ask. */
  get lastCode(): ResetCode | undefined {
    return this.#lastCode;
  }

  /** `now` here and below: clock time. */
  note(session: TunnelSession, code: ResetCode, now: number): void {
    if (this.#lastCode === undefined) this.#retryUntil = now + this.#timeouts.retryMs;
    this.#lastCode = code;
    this.#tried.push(session);
  }

  mayTry(now: number): boolean {
    return this.#tried.length < maxTries && now < this.#retryUntil;
  }

  /** How much longer to wait for a gateway that is likely to be back in a moment; 0: not at all. */
  holdMs(now: number): number {
    this.#holdUntil ??= now + this.#timeouts.holdMs;
    const isAway = this.#lastCode === undefined || awayCodes.has(this.#lastCode);
    return isAway ? Math.max(0, this.#holdUntil - now) : 0;
  }
}

/** Whether another gateway may be given the request: nobody saw any of it, and the answer could be another one. */
export function isWorthAnother(reset: Reset): boolean {
  const { code } = reset;
  return isNotProcessed(reset) && code !== "FORBIDDEN" && code !== "TOO_LARGE" && code !== "EXPIRED";
}
