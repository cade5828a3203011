import type { Clock, Timer } from "../lib/index.ts";
import { rpcCodes } from "../mcp/index.ts";

/** How long an event may still take once its stream is to end. */
const lastEventMs = 10_000;
const maxTimerMs = 2 ** 31 - 1;

export interface Ending {
  /** In the audit record. */
  readonly end: string;
  readonly code: number;
  readonly message: string;
}

const expired: Ending = { end: "TOKEN_EXPIRED", code: rpcCodes.forbidden, message: "Token expired" };
const draining: Ending = {
  end: "DRAINING",
  code: rpcCodes.overloaded,
  message: "The gateway is shutting down, open the stream again",
};

export interface EndedStream {
  /** Between two events. */
  readonly isAtBoundary: boolean;
  endNow(ending: Ending): void;
}

/** Ends an event stream that goes on by itself: between two events, or with a cut where one takes too long. */
export class StreamEnd {
  readonly #clock: Clock;
  readonly #stream: EndedStream;
  /** Counts to the end of the agent's token, then to that of the last event. */
  #timer: Timer | undefined;
  #ending: Ending | undefined;

  constructor(clock: Clock, stream: EndedStream) {
    this.#clock = clock;
    this.#stream = stream;
  }

  /** Why the stream ends; undefined: it goes on. */
  get ending(): Ending | undefined {
    return this.#ending;
  }

  /** No stream outlives the token that it was opened with (DESIGN 5, agent identity). `validUntil`: wall time. */
  expireAt(validUntil: number): void {
    const leftMs = Math.max(0, validUntil - this.#clock.wall());
    this.#timer = this.#clock.after(Math.min(leftMs, maxTimerMs), () => {
      if (leftMs > maxTimerMs) this.expireAt(validUntil);
      else this.#endSoon(expired);
    });
  }

  /** The gateway stops. */
  drain(): void {
    this.#endSoon(draining);
  }

  /** More of the stream has passed. */
  onData(): void {
    if (this.#ending !== undefined && this.#stream.isAtBoundary) this.#stream.endNow(this.#ending);
  }

  /** The stream is over. */
  cancel(): void {
    this.#timer?.cancel();
  }

  #endSoon(ending: Ending): void {
    if (this.#ending !== undefined) return;
    this.#ending = ending;
    this.#timer?.cancel();
    if (this.#stream.isAtBoundary) this.#stream.endNow(ending);
    else this.#timer = this.#clock.after(lastEventMs, () => this.#stream.endNow(ending));
  }
}
