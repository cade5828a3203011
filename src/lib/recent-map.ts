import type { Clock } from "./clock.ts";

export interface RecentMapOptions {
  /** The entry that was used least recently makes room. */
  readonly maxSize: number;
  /** An entry that was not used for so long goes, at the next use of another one. */
  readonly idleMs: number;
  readonly clock: Clock;
}

interface Entry<V> {
  readonly value: V;
  /** `Clock.now()`. */
  usedAt: number;
}

/** A bounded memory of what was in use of late. */
export class RecentMap<V> {
  readonly #options: RecentMapOptions;
  /** Least recently used first. */
  readonly #entries = new Map<string, Entry<V>>();

  constructor(options: RecentMapOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Those that are remembered now; no use of them. */
  *values(): Iterable<V> {
    for (const { value } of this.#entries.values()) yield value;
  }

  /** Counts as a use. */
  get(key: string): V | undefined {
    const now = this.#options.clock.now();
    this.#dropIdle(now);
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    entry.usedAt = now;
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    return entry.value;
  }

  set(key: string, value: V): void {
    this.#entries.delete(key);
    this.#entries.set(key, { value, usedAt: this.#options.clock.now() });
    if (this.#entries.size > this.#options.maxSize) this.#dropOldest();
  }

  #dropIdle(now: number): void {
    for (const [key, { usedAt }] of this.#entries) {
      if (now - usedAt < this.#options.idleMs) return;
      this.#entries.delete(key);
    }
  }

  #dropOldest(): void {
    for (const key of this.#entries.keys()) {
      this.#entries.delete(key);
      return;
    }
  }
}
