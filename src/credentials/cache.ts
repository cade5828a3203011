/**
 * One value that is loaded, kept fresh, and still served for a while when its store is away.
 *
 * 1. However many ask, one load runs; nobody who could be given an old value waits longer than a second for it.
 * 2. A store that says no ends the old value at once; only a store that is away lets it go on serving.
 * 3. A failure is remembered for a moment, so that callers cannot hammer a store through us.
 */
import type { Clock } from "../lib/index.ts";
import { CredentialError } from "./errors.ts";
import { conditionOf, Failures, type ReaderState } from "./states.ts";

export interface CachedOptions<T> {
  /** Must reject with `CredentialError` only, and within a deadline of its own. */
  readonly load: () => Promise<T>;
  readonly freshMs: number;
  readonly staleForMs: number;
  /** For values that say themselves how long they live; takes the place of the two above. */
  readonly spanOf?: (value: T) => { readonly freshMs: number; readonly staleForMs: number };
  readonly clock: Clock;
  readonly random: () => number;
  /** The first failure of a run of failures that an old value hides. */
  readonly onStale?: (error: CredentialError) => void;
  /** The load after such a run that worked again. */
  readonly onRecovered?: () => void;
}

interface Held<T> {
  readonly value: T;
  readonly loadedAt: number;
  readonly freshUntil: number;
  /** Until then an old value serves while a refresh runs; after it callers wait for the refresh, lest it ends on its way. */
  readonly lingerUntil: number;
  readonly staleUntil: number;
}

/** A store that hangs takes ten seconds to fail: too long for a call that the old value would serve. */
const patienceMs = 1_000;

export class Cached<T> {
  readonly #options: CachedOptions<T>;
  #held: Held<T> | undefined;
  #flight: Promise<T> | undefined;
  /** What those wait for who would rather have the new value. */
  #patience: Promise<T> | undefined;
  /** The load under way has taken longer than anybody waits. */
  #isSlow = false;
  #failure: CredentialError | undefined;
  #retryAt = Number.NEGATIVE_INFINITY;
  #loads = 0;
  readonly #failures = new Failures();

  constructor(options: CachedOptions<T>) {
    this.#options = options;
  }

  /** One function for each value: whoever reads several parts of it can tell that they are one. */
  readonly state = (): ReaderState => {
    const now = this.#options.clock.now();
    const held = this.#held;
    const endsByItself = this.#options.spanOf !== undefined;
    const isHeld = held !== undefined && now < held.staleUntil;
    return {
      condition: conditionOf(isHeld, this.#failure),
      ageMs: held === undefined ? undefined : now - held.loadedAt,
      expiresInMs: isHeld && endsByItself ? held.staleUntil - now : undefined,
      loads: this.#loads,
      failures: this.#failures.count,
      lastError: this.#failures.last(now),
    };
  };

  /** The value itself while it is at hand, else a promise of it. Throws or rejects with `CredentialError`. */
  get(): T | Promise<T> {
    const now = this.#options.clock.now();
    const held = this.#held;
    return held !== undefined && now < held.freshUntil ? held.value : this.#getLate(now, held);
  }

  /**
   * Loads anew, however fresh the value is: whoever asks has seen it refused. Joins a load that runs already; while a
   * failure is remembered there is no load, but the old value or that failure.
   */
  async reload(): Promise<T> {
    const now = this.#options.clock.now();
    if (this.#flight !== undefined || this.#failure === undefined || now >= this.#retryAt) return await this.#load();
    if (this.#held !== undefined && now < this.#held.staleUntil) return this.#held.value;
    throw this.#failure;
  }

  #getLate(now: number, held: Held<T> | undefined): T | Promise<T> {
    const waits = this.#failure !== undefined && now < this.#retryAt;
    if (held !== undefined && now < held.staleUntil) {
      if (waits) return held.value;
      const flight = this.#load();
      const isServed = this.#failure !== undefined || this.#isSlow || now < held.lingerUntil;
      return isServed ? held.value : this.#waitFor(flight, held.value);
    }
    this.#held = undefined;
    if (waits && this.#failure !== undefined) throw this.#failure;
    return this.#load();
  }

  #waitFor(flight: Promise<T>, old: T): Promise<T> {
    this.#patience ??= new Promise<T>((resolve, reject) => {
      const timer = this.#options.clock.after(patienceMs, () => {
        this.#isSlow = true;
        resolve(old);
      });
      void flight.then(resolve, reject).finally(() => timer.cancel());
    });
    return this.#patience;
  }

  #land(): void {
    this.#flight = undefined;
    this.#patience = undefined;
    this.#isSlow = false;
  }

  #load(): Promise<T> {
    if (this.#flight !== undefined) return this.#flight;
    const startedAt = this.#options.clock.now();
    const flight = this.#options.load().then(
      (value) => this.#keep(value, startedAt),
      (error: unknown) => this.#fail(error),
    );
    this.#flight = flight;
    // Nobody may be waiting for a background refresh; its failure is kept in #failure.
    flight.catch(() => undefined);
    return flight;
  }

  /** Ages count from before the request, so a slow answer is not believed for longer. */
  #keep(value: T, startedAt: number): T {
    const { spanOf, onRecovered } = this.#options;
    const { freshMs, staleForMs } = spanOf?.(value) ?? this.#options;
    const freshUntil = startedAt + freshMs;
    const staleUntil = freshUntil + staleForMs;
    const recovered = this.#failure !== undefined && this.#held !== undefined;
    this.#land();
    this.#failure = undefined;
    this.#loads += 1;
    const lingerUntil = freshUntil + Math.min(freshMs, staleForMs / 2);
    this.#held = { value, loadedAt: startedAt, freshUntil, staleUntil, lingerUntil };
    if (recovered) onRecovered?.();
    return value;
  }

  #fail(error: unknown): T {
    const failure = error instanceof CredentialError ? error : unexpected();
    const { clock, onStale } = this.#options;
    const now = clock.now();
    const isFirst = this.#failure === undefined;
    this.#land();
    this.#failure = failure;
    this.#failures.note(failure, now);
    this.#retryAt = now + this.#pauseMs(failure);
    const held = this.#held;
    if (held !== undefined && failure.isAway && now < held.staleUntil) {
      if (isFirst) onStale?.(failure);
      return held.value;
    }
    this.#held = undefined;
    throw failure;
  }

  /** A store that is away is tried again soon; a "no" stands for longer, and `Retry-After` is honoured up to a minute. */
  #pauseMs(failure: CredentialError): number {
    const { random } = this.#options;
    // Refused logins have a pause of their own, in which nothing is asked.
    const pause =
      failure.isAway || failure.code === "login-denied" ? 500 + random() * 1_500 : 5_000 + random() * 25_000;
    return Math.max(pause, Math.min(failure.retryAfterMs ?? 0, 60_000));
  }
}

/** A load broke its promise: whatever it threw may quote a secret, so none of it is kept. */
function unexpected(): CredentialError {
  return new CredentialError("store-failing", "reading the secret failed unexpectedly", "report this as a defect");
}
