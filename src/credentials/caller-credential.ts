/**
 * The credential of a server to which each principal comes with a secret of his own.
 *
 * 1. One `ServerCredential` for each principal (and token, where the token is what it is made from), kept while he calls;
 *    so what holds for one credential holds for each: one load for however many calls, failures remembered for a moment.
 * 2. The number of them is bounded, and so are the log lines about them: a store that is away is away for thousands.
 */

import type { Clock } from "../lib/index.ts";
import { RecentMap } from "../lib/index.ts";
import type { LogFields, Logger } from "../telemetry/index.ts";
import { CredentialError } from "./errors.ts";
import type { Caller, ServerCredential } from "./server-credential.ts";
import type { Injection } from "./shapes.ts";
import { type ReaderState, refusedState, summariseCallers } from "./states.ts";

/** Principals of one server whose secrets are at hand at once. */
export const maxCallers = 16_384;
const maxLines = 30;
const linesPerMs = 60_000;

export interface CallerCredentialOptions {
  /** Lower-case names of the headers that it sets. */
  readonly headerNames: readonly string[];
  /** What tells callers apart. */
  readonly keyOf: (caller: Caller) => string;
  /** Throws `CredentialError` for a caller who can have none. */
  readonly open: (caller: Caller, logger: Logger) => ServerCredential;
  /** When a secret that nobody used is forgotten. */
  readonly idleMs: number;
  readonly clock: Clock;
  readonly logger: Logger;
}

export class CallerCredential implements ServerCredential {
  readonly isPerCaller = true;
  readonly #options: CallerCredentialOptions;
  readonly #known: RecentMap<ServerCredential | CredentialError>;
  readonly #lines: LineBudget;
  /** Of callers that were forgotten, so that what is counted never falls. */
  #droppedLoads = 0;
  #droppedFailures = 0;

  constructor(options: CallerCredentialOptions) {
    this.#options = options;
    this.#known = new RecentMap({
      maxSize: maxCallers,
      idleMs: options.idleMs,
      clock: options.clock,
      onDrop: (dropped) => this.#noteDropped(dropped),
    });
    this.#lines = new LineBudget(options.clock, options.logger);
  }

  headerNames(): readonly string[] {
    return this.#options.headerNames;
  }

  inject(caller: Caller): Injection | Promise<Injection> {
    return this.#of(caller).inject(caller);
  }

  refresh(failed: Injection, caller: Caller): Injection | Promise<Injection> {
    return this.#of(caller).refresh(failed, caller);
  }

  state(): ReaderState {
    const { loads, failures, ...rest } = summariseCallers(this.#states());
    return { ...rest, loads: loads + this.#droppedLoads, failures: failures + this.#droppedFailures };
  }

  *#states(): Generator<ReaderState> {
    const now = this.#options.clock.now();
    for (const known of this.#known.values()) {
      const state = known instanceof CredentialError ? refusedState(known, now) : known.state?.();
      if (state !== undefined) yield state;
    }
  }

  #noteDropped(dropped: ServerCredential | CredentialError): void {
    if (dropped instanceof CredentialError) return;
    const { loads = 0, failures = 0 } = dropped.state?.() ?? {};
    this.#droppedLoads += loads;
    this.#droppedFailures += failures;
  }

  #of(caller: Caller): ServerCredential {
    const key = this.#options.keyOf(caller);
    const known = this.#known.get(key) ?? this.#open(key, caller);
    if (known instanceof CredentialError) throw known;
    return known;
  }

  #open(key: string, caller: Caller): ServerCredential | CredentialError {
    const logger = new CallerLogger(this.#lines, caller.id);
    const opened = this.#tryOpen(caller, logger);
    this.#known.set(key, opened);
    return opened;
  }

  #tryOpen(caller: Caller, logger: Logger): ServerCredential | CredentialError {
    try {
      return this.#options.open(caller, logger);
    } catch (error) {
      if (!(error instanceof CredentialError)) throw error;
      const { code, cure, message: reason } = error;
      logger.error("credential failed", { code, cure, reason });
      return error;
    }
  }
}

/** Lets so many lines through in each minute, and tells once that there were more. */
class LineBudget {
  readonly logger: Logger;
  readonly #clock: Clock;
  #count = 0;
  #endsAt = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, logger: Logger) {
    this.#clock = clock;
    this.logger = logger;
  }

  take(): boolean {
    const now = this.#clock.now();
    if (now >= this.#endsAt) {
      this.#endsAt = now + linesPerMs;
      this.#count = 0;
    }
    this.#count += 1;
    if (this.#count === maxLines + 1) this.logger.warn("more principals have the like, told no more for a minute");
    return this.#count <= maxLines;
  }
}

/** Adds the principal to each line. Thousands of them are kept, so it holds nothing more. */
class CallerLogger implements Logger {
  readonly #lines: LineBudget;
  readonly #principal: string;
  readonly #more: LogFields | undefined;

  constructor(lines: LineBudget, principal: string, more?: LogFields) {
    this.#lines = lines;
    this.#principal = principal;
    this.#more = more;
  }

  debug(event: string, fields?: LogFields): void {
    this.#log("debug", event, fields);
  }

  info(event: string, fields?: LogFields): void {
    this.#log("info", event, fields);
  }

  warn(event: string, fields?: LogFields): void {
    this.#log("warn", event, fields);
  }

  error(event: string, fields?: LogFields): void {
    this.#log("error", event, fields);
  }

  with(fields: LogFields): Logger {
    return new CallerLogger(this.#lines, this.#principal, { ...this.#more, ...fields });
  }

  #log(level: "debug" | "info" | "warn" | "error", event: string, fields: LogFields | undefined): void {
    if (this.#lines.take()) this.#lines.logger[level](event, { ...this.#more, ...fields, principal: this.#principal });
  }
}
