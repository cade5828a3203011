import { type Needles, needlesOf } from "../credentials/index.ts";
import type { Injected } from "./context.ts";
import { NeedleMatcher } from "./needle-matcher.ts";

/** A server may still say an old value: it is looked for so long after it was replaced. */
export const pastMs = 10 * 60_000;
/** The oldest is forgotten first. */
const maxPast = 4;
/** Of a matcher's own tables, beside its needles. */
const matcherBytes = 8 * 1024;

/** Of one needle, beside its text. */
const needleBytes = 128;

/** A matcher and what it is made for; `bytes` is about what it takes of memory. */
export interface Search {
  /** Undefined: no secret is long enough to be looked for. */
  readonly matcher: NeedleMatcher | undefined;
  readonly hasShort: boolean;
  readonly bytes: number;
}

/** What was sent to one server for one caller, or for all of them: the current injection and those before it. */
export class KnownSecrets {
  #current: Injected | undefined;
  #past: { readonly injected: Injected; readonly until: number }[] = [];
  #search: Search | undefined;
  /** Another number for each set of them. */
  version = 0;

  /** `now`: `Clock.now()`. An older call may come back after a change: what it was made with is current again. */
  learn(injected: Injected, now: number): void {
    const before = this.#current;
    if (injected === before) return;
    this.#current = injected;
    if (before !== undefined && isSame(before, injected)) return;
    const kept = this.#past.filter(({ until }) => until > now);
    const others = kept.filter((past) => !isSame(past.injected, injected));
    const isSameSet = kept.length === this.#past.length && others.length < kept.length;
    if (before !== undefined) others.unshift({ injected: before, until: now + pastMs });
    this.#past = others.slice(0, maxPast);
    if (isSameSet) return;
    this.#search = undefined;
    this.version += 1;
  }

  /** Made when it is asked for. */
  search(): Search {
    this.#search ??= this.#makeSearch();
    return this.#search;
  }

  /** For an answer to `injected` that goes on while later ones have crowded that out; undefined: they have not. */
  searchBeside(injected: Injected): Search | undefined {
    return this.#has(injected) ? undefined : this.#makeSearch(injected);
  }

  #has(injected: Injected): boolean {
    const current = this.#current;
    if (current === injected || (current !== undefined && isSame(current, injected))) return true;
    return this.#past.some((past) => isSame(past.injected, injected));
  }

  /** Lets go of what can be made again. */
  forgetSearch(): void {
    this.#search = undefined;
  }

  #makeSearch(more?: Injected): Search {
    const current = this.#current === undefined ? [] : [needlesOf(this.#current)];
    const others = [...this.#past.map(({ injected }) => injected), ...(more === undefined ? [] : [more])];
    const all: readonly Needles[] = [...current, ...others.map(needlesOf)];
    const needles = all.flatMap((found) => found.needles);
    return {
      matcher: needles.length === 0 ? undefined : new NeedleMatcher(needles),
      hasShort: current.some(({ hasShort }) => hasShort),
      bytes: needles.reduce((sum, { length }) => sum + length + needleBytes, matcherBytes),
    };
  }
}

/** What was read anew without a change. */
function isSame(one: Injected, other: Injected): boolean {
  return (
    isEqual(one.headers, other.headers, (text) => text) &&
    isEqual(one.secrets, other.secrets, (secret) => secret.reveal())
  );
}

function isEqual<T>(one: readonly T[], other: readonly T[], textOf: (part: T) => string): boolean {
  return one.length === other.length && one.every((part, i) => textOf(part) === textOf(other[i] ?? part));
}
