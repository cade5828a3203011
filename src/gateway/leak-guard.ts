import { secretTextsOf } from "../credentials/index.ts";
import { type Clock, RecentMap } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { AnswerScrubber, type OnReflect } from "./answer-scrubber.ts";
import { CallerSecrets } from "./caller-secrets.ts";
import type { Injected } from "./context.ts";
import { KnownSecrets, pastMs, type Search } from "./known-secrets.ts";
import type { Match, NeedleMatcher } from "./needle-matcher.ts";

/** Of the callers of one server. Beyond it, and after ten idle minutes, a caller's old values are forgotten. */
const maxCallers = 16_384;
/** What all searches of one server may take together; others are made anew for each answer. */
const searchBytes = 4 * 1024 * 1024;

/**
 * For the old values of a secret that all callers share: about 45 tokens of 1,000 characters, or 350 of 40. Looking for more of them
 * would hold up the call after a change for longer than 10 ms.
 */
const sharedPastBytes = 1024 * 1024;

export interface LeakGuardOptions {
  readonly server: string;
  readonly onReflect: OnReflect;
  /** Each caller has secrets of his own: an answer to one is searched for his, and less thoroughly for everybody's. */
  readonly isPerCaller: boolean;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** What must not come back from one server: its credential, and those it had a while ago. */
export class LeakGuard {
  readonly #options: LeakGuardOptions;
  readonly #shared: KnownSecrets;
  /** By principal id. */
  readonly #byCaller: RecentMap<KnownSecrets>;
  /** Whose searches are at hand, least recently used first. */
  readonly #searches = new Map<KnownSecrets, number>();
  #searchBytes = 0;
  readonly #anybodys: CallerSecrets | undefined;
  readonly #findAnybodys: ((bytes: Buffer) => readonly Match[]) | undefined;
  #isShortTold = false;
  #isForgettingTold = false;
  /** Of a caller the four latest old values are kept, as there may be very many callers. */
  readonly #ofCaller = { pastBytes: 0, onForgotten: () => this.#warnOfForgetting() };
  /** Places where a credential was found, since the start. */
  hitCount = 0;

  constructor(options: LeakGuardOptions) {
    this.#options = options;
    this.#shared = new KnownSecrets({ ...this.#ofCaller, pastBytes: sharedPastBytes });
    if (options.isPerCaller) {
      const anybodys = new CallerSecrets(pastMs);
      this.#anybodys = anybodys;
      this.#findAnybodys = (bytes) => anybodys.find(bytes);
    }
    this.#byCaller = new RecentMap({ maxSize: maxCallers, idleMs: pastMs, clock: options.clock });
  }

  /** For the answer to a call that was made with `injected` for `callerId`; undefined: there is nothing to look for. */
  watch(injected: Injected, callerId: string, requestId: string): AnswerScrubber | undefined {
    const { clock, onReflect, isPerCaller } = this.#options;
    let known = this.#knownOf(callerId);
    const now = clock.now();
    known.learn(injected, now);
    if (this.#anybodys !== undefined) addTo(this.#anybodys, known, injected, now);
    const { matcher } = this.#searchOf(known);
    // Whose own secret is too short to be found may be shown another's all the same.
    if (matcher === undefined && !isPerCaller) return undefined;
    let { version } = known;
    let own: NeedleMatcher | undefined;
    /** Each kind of hit is told once. */
    let told = 0;
    return new AnswerScrubber({
      matcher: () => {
        const latest = isPerCaller ? this.#knownOf(callerId) : known;
        // Forgotten since, as among very many callers: this stream's own value counts all the same.
        if (latest !== known) latest.learn(injected, clock.now());
        if (latest !== known || latest.version !== version) own = latest.searchBeside(injected)?.matcher;
        known = latest;
        version = latest.version;
        return own ?? this.#searchOf(known).matcher;
      },
      onReflect,
      findAnybodys: this.#findAnybodys,
      onHits: (count, isOwn) => {
        this.hitCount += count;
        const kind = isOwn ? 1 : 2;
        if ((told & kind) === 0) this.#warnOfHit(requestId, isOwn);
        told |= kind;
      },
    });
  }

  #knownOf(callerId: string): KnownSecrets {
    if (!this.#options.isPerCaller) return this.#shared;
    const found = this.#byCaller.get(callerId);
    if (found !== undefined) return found;
    const known = new KnownSecrets(this.#ofCaller);
    this.#byCaller.set(callerId, known);
    return known;
  }

  #searchOf(known: KnownSecrets): Search {
    const search = known.search();
    if (this.#options.isPerCaller) this.#count(known, search);
    if (search.hasShort && !this.#isShortTold) this.#warnOfShort();
    return search;
  }

  /** The searches least recently used make room. */
  #count(known: KnownSecrets, { bytes }: Search): void {
    this.#searchBytes += bytes - (this.#searches.get(known) ?? 0);
    this.#searches.delete(known);
    this.#searches.set(known, bytes);
    for (const [oldest, size] of this.#searches) {
      if (this.#searchBytes <= searchBytes || oldest === known) return;
      oldest.forgetSearch();
      this.#searches.delete(oldest);
      this.#searchBytes -= size;
    }
  }

  /** Once for each answer; the audit record has the number. */
  #warnOfHit(requestId: string, isOwn: boolean): void {
    const { logger, server, onReflect } = this.#options;
    logger.warn(isOwn ? "credential in an answer" : "credential of another caller in an answer", {
      server,
      requestId,
      code: onReflect,
      cure: isOwn
        ? "the server sends its credential back: mend it, and replace the credential if anybody may have seen it"
        : "the server mixes its callers up: mend it, and replace the credentials that it may have shown",
    });
  }

  /** Once: whoever replaces a secret so often does it all day. */
  #warnOfForgetting(): void {
    if (this.#isForgettingTold) return;
    this.#isForgettingTold = true;
    const { logger, server } = this.#options;
    logger.warn("old credential no longer looked for in answers", {
      server,
      cure: "it is replaced too often for all values of ten minutes to be kept: let them live longer",
    });
  }

  #warnOfShort(): void {
    this.#isShortTold = true;
    const { logger, server } = this.#options;
    logger.warn("credential is too short to be found in answers", { server, cure: "a secret of 8 characters or more" });
  }
}

/** What is there already costs two comparisons. */
function addTo(anybodys: CallerSecrets, known: KnownSecrets, injected: Injected, now: number): void {
  const generation = anybodys.generationAt(now);
  if (known.generation === generation) return;
  known.generation = generation;
  anybodys.add(secretTextsOf(injected));
}
