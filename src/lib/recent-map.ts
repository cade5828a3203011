import type { Clock } from "./clock.ts";

export interface RecentMapOptions<V> {
  /** The entry that was used least recently makes room. */
  readonly maxSize: number;
  /** An entry that was not used for so long goes, at the next use of another one. */
  readonly idleMs: number;
  /** Hears of what is forgotten. */
  readonly onDrop?: (value: V) => void;
  readonly clock: Clock;
}

interface Entry<V> {
  readonly value: V;
  /** `Clock.now()`. */
  usedAt: number;
}

/** A bounded memory of what was in use of late. */
export class RecentMap<V> {
  readonly #options: RecentMapOptions<V>;
  /** Least recently used first. */
  readonly #entries = new Map<string, Entry<V>>();

  constructor(options: RecentMapOptions<V>) {
    this.#options = options;
  }

  get size(): number {
    return this.#entries.size;
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

  /** Those that are remembered now; no use of them. */
  *values(): Generator<V> {
    for (const { value } of this.#entries.values()) yield value;
  }

  #dropIdle(now: number): void {
    for (const [key, entry] of this.#entries) {
      if (now - entry.usedAt < this.#options.idleMs) return;
      this.#drop(key, entry);
    }
  }

  #dropOldest(): void {
    for (const [key, entry] of this.#entries) {
      this.#drop(key, entry);
      return;
    }
  }

  #drop(key: string, { value }: Entry<V>): void {
    this.#entries.delete(key);
    this.#options.onDrop?.(value);
  }
}
