/**
 * How the credentials are, for status and metrics: ages, counts and failures in our own words, never a value. Everything here
 * is read from plain fields when somebody asks; a call counts nothing.
 */
import type { CredentialError, CredentialErrorCode } from "./errors.ts";
import type { VaultAuthOptions } from "./options.ts";

/**
 * `none`: nothing was read yet. `stale`: an older value serves, because its store or endpoint is away. `failed`: calls would be
 * made without it, so none are. `needs-reauth`: a person has to grant it anew.
 */
export type Condition = "none" | "valid" | "stale" | "failed" | "needs-reauth";

/** A condition as metrics and `/status` spell it (docs/operations.md). */
export type StateLabel = Exclude<Condition, "needs-reauth"> | "needs_reauth";

export interface LastError {
  readonly code: CredentialErrorCode;
  readonly reason: string;
  readonly cure: string;
  readonly ageMs: number;
}

/** Of one thing that is read: an entry of a store, a file, an access token. */
export interface ReaderState {
  readonly condition: Condition;
  /** Since what serves was read or bought. */
  readonly ageMs?: number | undefined;
  /** Until what serves ends by itself; undefined: it does not. */
  readonly expiresInMs?: number | undefined;
  readonly loads: number;
  readonly failures: number;
  /** Of the last failure, also after a success. */
  readonly lastError?: LastError | undefined;
  /** Of a refresh token that is rotated: what became of it, by our own words, since the start. */
  readonly rotation?: Readonly<Record<string, number>> | undefined;
  /** Where each principal has his own: how many are in which condition. The rest tells of all of them together. */
  readonly callers?: Readonly<Record<Condition, number>> | undefined;
}

export interface CredentialState extends ReaderState {
  readonly server: string;
  /** `credential.type`; undefined: calls go out without one. */
  readonly type: string | undefined;
}

/** Whether the store is asked, or known to be down from what earlier requests met. */
export interface CircuitState {
  /** Since when nothing but a probe now and then is asked of the store; undefined: it is asked. */
  readonly openForMs: number | undefined;
  /** Leases, and folders of mounts, of which the same is true by themselves. */
  readonly openParts: readonly string[];
  /** How often it came to that, of the whole and of parts. */
  readonly opened: number;
  /** Requests that were not made because of it. */
  readonly refused: number;
  /** What it was the last time, with what a person can do about it. */
  readonly lastDown: LastError | undefined;
}

export interface StoreState {
  readonly address: string;
  readonly namespace: string | undefined;
  readonly circuit: CircuitState;
  readonly method: VaultAuthOptions["method"];
  readonly condition: "none" | "logging-in" | "valid" | "failed" | "closed";
  /** Counts the lives of our token: each login, failure and ending begins another. */
  readonly epoch: number;
  /** Undefined: it does not expire, or there is none. */
  readonly tokenExpiresInMs: number | undefined;
  readonly logins: number;
  readonly loginFailures: number;
  readonly renewals: number;
  readonly renewalFailures: number;
  readonly lastError: LastError | undefined;
  /** Of entries, by whatever server. */
  readonly reads: number;
  readonly readFailures: number;
}

export interface CredentialStates {
  readonly servers: readonly CredentialState[];
  readonly store: StoreState | undefined;
}

/** The last failure of something, with the time it happened. */
export class Failures {
  count = 0;
  #last: { readonly error: CredentialError; readonly at: number } | undefined;

  note(error: CredentialError, now: number): void {
    this.count += 1;
    this.#last = { error, at: now };
  }

  /** Message and cure name places, as `CredentialError` promises. */
  last(now: number): LastError | undefined {
    if (this.#last === undefined) return undefined;
    const { error, at } = this.#last;
    return { code: error.code, reason: error.message, cure: error.cure, ageMs: now - at };
  }
}

/** `failure`: of the last attempt, if nothing has worked since. */
export function conditionOf(isHeld: boolean, failure: CredentialError | undefined): Condition {
  if (failure === undefined) return isHeld ? "valid" : "none";
  if (isHeld) return "stale";
  return failure.code === "needs-reauth" ? "needs-reauth" : "failed";
}

export function labelOf(condition: Condition): StateLabel {
  return condition === "needs-reauth" ? "needs_reauth" : condition;
}

/** `ReaderState.callers` by label. */
export function labelCallers(callers: Readonly<Record<Condition, number>>): Readonly<Record<StateLabel, number>> {
  const { "needs-reauth": waiting, ...rest } = callers;
  return { ...rest, needs_reauth: waiting };
}

const noReads: ReaderState = { condition: "none", loads: 0, failures: 0 };
const byGravity: readonly Condition[] = ["valid", "none", "stale", "failed", "needs-reauth"];

/** Of a credential that is put together of several: the gravest condition, the greatest age, the nearest end. */
export function joinStates(states: readonly ReaderState[]): ReaderState {
  const [first = noReads] = states;
  if (states.length < 2) return first;
  const errors = states.flatMap(({ lastError }) => lastError ?? []);
  return {
    condition: byGravity[Math.max(...states.map(({ condition }) => byGravity.indexOf(condition)))] ?? "none",
    ageMs: pick(
      Math.max,
      states.map(({ ageMs }) => ageMs),
    ),
    expiresInMs: pick(
      Math.min,
      states.map(({ expiresInMs }) => expiresInMs),
    ),
    loads: sum(states.map(({ loads }) => loads)),
    failures: sum(states.map(({ failures }) => failures)),
    lastError: errors.toSorted((a, b) => a.ageMs - b.ageMs)[0],
    rotation: states.find(({ rotation }) => rotation !== undefined)?.rotation,
  };
}

/** Of a principal who can have none. */
export function refusedState(error: CredentialError, now: number): ReaderState {
  const failures = new Failures();
  failures.note(error, now);
  return { condition: conditionOf(false, error), loads: 0, failures: 1, lastError: failures.last(now) };
}

/**
 * One principal without a secret is no failure of the server's credential: it is as well as the best of them. In one pass,
 * since there may be very many, and calls wait meanwhile.
 */
export function summariseCallers(states: Iterable<ReaderState>): ReaderState {
  const callers: Record<Condition, number> = { none: 0, valid: 0, stale: 0, failed: 0, "needs-reauth": 0 };
  let [loads, failures] = [0, 0];
  let last: LastError | undefined;
  for (const state of states) {
    callers[state.condition] += 1;
    loads += state.loads;
    failures += state.failures;
    const { lastError } = state;
    if (lastError !== undefined && (last === undefined || lastError.ageMs < last.ageMs)) last = lastError;
  }
  const best = (["valid", "stale", "failed", "needs-reauth"] as const).find((condition) => callers[condition] > 0);
  return { condition: best ?? "none", loads, failures, lastError: last, callers };
}

function pick(choose: (...of: number[]) => number, values: readonly (number | undefined)[]): number | undefined {
  const known = values.flatMap((value) => value ?? []);
  return known.length === 0 ? undefined : choose(...known);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
