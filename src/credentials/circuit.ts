import { Backoff, type Clock } from "../lib/index.ts";
import type { VaultFailure } from "./vault-failure.ts";

/** What a request says of whatever it went to. `unknown`: nothing. */
export type Outcome = "alive" | "down" | "unknown";

interface Open {
  readonly since: number;
  failure: VaultFailure;
  retryAt: number;
  isProbed: boolean;
}

/** A request from its start on. */
export interface Attempt {
  readonly run: number;
  /** It is the one that finds out. */
  readonly probes: Open | undefined;
}

export interface CircuitOptions {
  readonly clock: Clock;
  readonly random: () => number;
  readonly onOpen: (failure: VaultFailure, waitMs: number) => void;
  readonly onClose: (openForMs: number) => void;
}

/** How many failures in a row, each of a request that began after the one before had failed. */
const maxRun = 3;
const minWaitMs = 1_000;
const maxWaitMs = 60_000;

/**
 * Remembers that something is down, so that not everybody finds it out anew: open, it lets one request through after each pause,
 * and closes with the first sign of life. No timer: without requests nothing is asked.
 */
export class Circuit {
  readonly #options: CircuitOptions;
  readonly #backoff: Backoff;
  /** Failures in a row. Those that ran side by side are one: a connection lost takes all of them along. */
  #run = 0;
  /** What failed in this run and may have failed alone: it counts once. */
  readonly #subjects = new Set<string>();
  #open: Open | undefined;

  constructor(options: CircuitOptions) {
    this.#options = options;
    this.#backoff = new Backoff({ baseMs: minWaitMs, capMs: maxWaitMs, random: options.random });
  }

  /** The failure that stands for an answer; undefined: ask. */
  get blocked(): VaultFailure | undefined {
    const open = this.#open;
    if (open === undefined) return undefined;
    return open.isProbed || this.#options.clock.now() < open.retryAt ? open.failure : undefined;
  }

  /** How long it has been open. */
  get openForMs(): number | undefined {
    return this.#open === undefined ? undefined : this.#options.clock.now() - this.#open.since;
  }

  /** Every attempt has to come to its `end`. What does not wait, although `blocked`, is no probe. */
  begin(): Attempt {
    const probes = this.blocked === undefined ? this.#open : undefined;
    if (probes !== undefined) probes.isProbed = true;
    return { run: this.#run, probes };
  }

  /** `subject`: what was asked for, where a failure may be of that alone. */
  end({ run, probes }: Attempt, outcome: Outcome, failure?: VaultFailure, subject?: string): void {
    if (outcome === "alive") this.#close();
    else if (outcome === "down" && failure !== undefined) this.#fail(run, probes, failure, subject);
    // Another may try in its place, and need not wait.
    else if (probes !== undefined) probes.isProbed = false;
  }

  #fail(run: number, probes: Open | undefined, failure: VaultFailure, subject: string | undefined): void {
    if (probes !== undefined) {
      Object.assign(probes, { isProbed: false, failure, retryAt: this.#options.clock.now() + this.#waitMs() });
    } else if (this.#open === undefined && run === this.#run) {
      if (subject !== undefined && this.#subjects.has(subject)) return;
      if (subject !== undefined) this.#subjects.add(subject);
      this.#run += 1;
      if (this.#run >= maxRun) this.#trip(failure);
    }
  }

  #trip(failure: VaultFailure): void {
    const now = this.#options.clock.now();
    const waitMs = this.#waitMs();
    this.#open = { since: now, failure, retryAt: now + waitMs, isProbed: false };
    this.#options.onOpen(failure, waitMs);
  }

  #close(): void {
    const { openForMs } = this;
    this.#run = 0;
    this.#subjects.clear();
    if (openForMs === undefined) return;
    this.#open = undefined;
    this.#backoff.reset();
    this.#options.onClose(openForMs);
  }

  #waitMs(): number {
    return Math.max(minWaitMs, this.#backoff.nextMs());
  }
}
