import { type Needles, needlesOf } from "../credentials/index.ts";
import type { Clock } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { AnswerScrubber, type OnReflect } from "./answer-scrubber.ts";
import type { Injected } from "./context.ts";
import { NeedleMatcher } from "./needle-matcher.ts";

/** A server may still say an old value: it stays a needle for so long after it was replaced. */
const pastMs = 10 * 60_000;
/** The oldest is forgotten first. */
const maxPast = 4;

interface Known {
  readonly headers: Injected["headers"];
  readonly needles: Needles;
  /** `Clock.now()`. */
  until: number;
}

/** What must not come back from one server: its credential, and those it had a while ago. */
export class LeakGuard {
  readonly #onReflect: OnReflect;
  readonly #server: string;
  readonly #clock: Clock;
  readonly #logger: Logger;
  #last: Injected | undefined;
  #known: Known[] = [];
  #matcher: NeedleMatcher | undefined;
  /** Places where a credential was found, since the start. */
  hitCount = 0;

  constructor(server: string, onReflect: OnReflect, deps: { readonly clock: Clock; readonly logger: Logger }) {
    this.#server = server;
    this.#onReflect = onReflect;
    this.#clock = deps.clock;
    this.#logger = deps.logger;
  }

  /** For the answer to a call that was made with `injected`; undefined: there is nothing to look for. */
  watch(injected: Injected, requestId: string): AnswerScrubber | undefined {
    if (injected !== this.#last) this.#learn(injected);
    if (this.#matcher === undefined) return undefined;
    let isFirst = true;
    return new AnswerScrubber({
      matcher: () => this.#matcher,
      onReflect: this.#onReflect,
      onHits: (count) => {
        this.hitCount += count;
        if (isFirst) this.#warnOfHit(requestId);
        isFirst = false;
      },
    });
  }

  #learn(injected: Injected): void {
    this.#last = injected;
    const now = this.#clock.now();
    const text = injected.headers.join("\n");
    const others = this.#known.filter(({ headers, until }) => headers.join("\n") !== text && until > now);
    // An older call may come back after the change: whatever is still in use is not let go.
    const known: Known = { headers: injected.headers, needles: needlesOf(injected), until: Number.POSITIVE_INFINITY };
    for (const other of others) other.until = Math.min(other.until, now + pastMs);
    this.#known = [known, ...others].slice(0, 1 + maxPast);
    const needles = this.#known.flatMap(({ needles: found }) => found.needles);
    this.#matcher = needles.length === 0 ? undefined : new NeedleMatcher(needles);
    if (known.needles.hasShort) this.#warnOfShort();
  }

  /** Once for each answer; the audit record has the number. */
  #warnOfHit(requestId: string): void {
    this.#logger.warn("credential in an answer", {
      server: this.#server,
      requestId,
      code: this.#onReflect,
      cure: "the server sends its credential back: mend it, and replace the credential if anybody may have seen it",
    });
  }

  #warnOfShort(): void {
    this.#logger.warn("credential is too short to be found in answers", {
      server: this.#server,
      cure: "a secret of 8 characters or more",
    });
  }
}
