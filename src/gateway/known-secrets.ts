import { type Needles, needlesOf } from "../credentials/index.ts";
import type { Injected } from "./context.ts";
import { NeedleMatcher } from "./needle-matcher.ts";

/** A server may still say an old value: it is looked for so long after it was replaced. */
export const pastMs = 10 * 60_000;
/** So many old values are kept whatever they take; beyond them, the oldest is forgotten first. */
const minPast = 4;
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

export interface KnownSecretsOptions {
  /** What looking for old values may take beyond the four newest of them, as `weightOf` says. */
  readonly pastBytes: number;
  /** A value was forgotten before its ten minutes were over, to make room. */
  onForgotten(): void;
}

interface Past {
  readonly injected: Injected;
  /** `Clock.now()`. */
  readonly until: number;
}

/** What was sent to one server for one caller, or for all of them: the current injection and those before it. */
export class KnownSecrets {
  readonly #options: KnownSecretsOptions;
  #current: Injected | undefined;
  /** Latest first. */
  #past: readonly Past[] = [];
  /** Where many values may be kept: a change makes those of one value anew, not those of all. */
  readonly #needles: WeakMap<Injected, Needles> | undefined;
  #search: Search | undefined;
  /** Another number for each set of them. */
  version = 0;
  /** The generation of `CallerSecrets` that has the current injection. */
  generation: object | undefined;

  /** The same `options` for many of them cost nothing more. */
  constructor(options: KnownSecretsOptions) {
    this.#options = options;
    if (options.pastBytes > 0) this.#needles = new WeakMap();
  }

  /** `now`: `Clock.now()`. An older call may come back after a change: what it was made with is current again. */
  learn(injected: Injected, now: number): void {
    const before = this.#current;
    if (injected === before) return;
    this.#current = injected;
    if (before !== undefined && isSame(before, injected)) return;
    this.generation = undefined;
    const kept = this.#past.filter(({ until }) => until > now);
    const others = kept.filter((past) => !isSame(past.injected, injected));
    const isKnown = kept.length === this.#past.length && others.length < kept.length;
    if (before !== undefined) others.unshift({ injected: before, until: now + pastMs });
    this.#past = others.slice(0, this.#countOf(others));
    const isCut = this.#past.length < others.length;
    if (isCut) this.#options.onForgotten();
    if (isKnown && !isCut) return;
    this.#search = undefined;
    this.version += 1;
  }

  /** How many of them there is room for. */
  #countOf(past: readonly Past[]): number {
    let bytes = 0;
    const end = past.findIndex(({ injected }, i) => {
      bytes += weightOf(injected);
      return i >= minPast && bytes > this.#options.pastBytes;
    });
    return end < 0 ? past.length : end;
  }

  #needlesFor(injected: Injected): Needles {
    const found = this.#needles?.get(injected) ?? needlesOf(injected);
    this.#needles?.set(injected, found);
    return found;
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
    const current = this.#current === undefined ? [] : [this.#needlesFor(this.#current)];
    const others = [...this.#past.map(({ injected }) => injected), ...(more === undefined ? [] : [more])];
    const all: readonly Needles[] = [...current, ...others.map((injected) => this.#needlesFor(injected))];
    const needles = all.flatMap((found) => found.needles);
    return {
      matcher: needles.length === 0 ? undefined : new NeedleMatcher(needles),
      hasShort: current.some(({ hasShort }) => hasShort),
      bytes: needles.reduce((sum, { length }) => sum + length + needleBytes, matcherBytes),
    };
  }
}

/** About what the needles of one injection take at most; cheap, since it is asked at each change. */
function weightOf({ secrets }: Injected): number {
  return secrets.reduce((sum, secret) => sum + 20 * secret.reveal().length + 2048, 0);
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
