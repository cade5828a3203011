/**
 * The store's token for us: got once for all callers, kept alive, replaced when it cannot be.
 *
 * 1. One login runs at a time, and one life at a time: what belongs to an earlier epoch is discarded when it arrives.
 * 2. The rhythm follows the lease that was granted, not the one that was asked for.
 * 3. A 403 does not say whether the token or the policy is to blame; `judgeDenial` asks once, and nobody loops.
 */
import { Backoff, type Clock, type Secret } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { CredentialError } from "./errors.ts";
import { LongTimer } from "./long-timer.ts";
import { Failures, type StoreState } from "./states.ts";
import type { WatchedTransport } from "./store-health.ts";
import { explainFailure, VaultFailure } from "./vault-failure.ts";
import { type Grant, renewedGrant, type VaultLogin } from "./vault-login.ts";

export interface TokenManagerOptions {
  readonly login: VaultLogin;
  readonly transport: WatchedTransport;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
}

interface Valid {
  readonly kind: "valid";
  readonly grant: Grant;
  /** Monotonic and wall time: whichever passes first ends it, since one stands still in a suspended machine. */
  readonly expiresAt: number;
  readonly expiresAtWall: number;
  /** How to stay alive: a lease that was cut short is near its maximum and will not grow again. */
  readonly next: "renew" | "log-in";
  /** When to look whether another token has taken its place, `Clock.now()`. */
  lookAt: number;
  /** The check of this token after a 403. */
  check?: { readonly at: number; readonly isAlive: Promise<boolean> };
}

type State =
  | { readonly kind: "none" }
  | { readonly kind: "logging-in"; readonly done: Promise<Secret> }
  | Valid
  | { readonly kind: "failed"; readonly error: CredentialError; readonly retryAt: number }
  | { readonly kind: "closed" };

const checkEveryMs = 30_000;
const lookEveryMs = 1_000;
const minRefreshMs = 500;
const revokeDeadlineMs = 2_000;
/** While the store is known to be down nothing is sent: it is looked soon whether that has ended, and no failure is counted. */
const unsentPauseMs = 1_000;

/** What the token has been through; `StoreState` says what the names mean. */
export type TokenLife = Pick<
  StoreState,
  "condition" | "epoch" | "tokenExpiresInMs" | "logins" | "loginFailures" | "renewals" | "renewalFailures" | "lastError"
>;

export class TokenManager {
  readonly #options: TokenManagerOptions;
  readonly #timer: LongTimer;
  readonly #backoff: Backoff;
  #state: State = { kind: "none" };
  #epoch = 0;
  #login: Promise<Grant> | undefined;
  #logins = 0;
  #renewals = 0;
  #loginFailures = 0;
  #renewalFailures = 0;
  readonly #failures = new Failures();

  constructor(options: TokenManagerOptions) {
    this.#options = options;
    this.#timer = new LongTimer(options.clock);
    this.#backoff = new Backoff({ baseMs: 1_000, capMs: 60_000, random: options.random });
  }

  /** The token to send now. Rejects with `CredentialError`. */
  async current(): Promise<Secret> {
    const state = this.#state;
    switch (state.kind) {
      case "closed":
        throw closedError();
      case "valid":
        if (this.#hasExpired(state)) return await this.#begin();
        this.#look(state);
        return state.grant.token;
      case "logging-in":
        return await state.done;
      case "failed":
        if (this.#options.clock.now() < state.retryAt && !(await this.#hasAnother())) throw state.error;
        // Somebody else may have begun while a file was read.
        return this.#state === state ? await this.#begin() : await this.current();
      case "none":
        return await this.#begin();
    }
  }

  /** Whether a read that `token` was refused should be tried once more, with the token that is current then. */
  async judgeDenial(token: Secret): Promise<"retry" | "denied"> {
    const state = this.#state;
    if (state.kind !== "valid" || state.grant.token !== token) return "retry";
    if (await this.#isAlive(state)) return "denied";
    if (this.#state === state) this.#enter({ kind: "none" });
    return "retry";
  }

  /** Whether `token` is the one in use and alive, and with it what the store leased for it. One that was read again is the same. */
  holds(token: Secret): boolean {
    const state = this.#state;
    if (state.kind !== "valid" || this.#hasExpired(state)) return false;
    return state.grant.token === token || state.grant.token.reveal() === token.reveal();
  }

  /** Whether `close` takes every lease of the token along. A batch token, which is not renewable, cannot be revoked. */
  get revokesLeases(): boolean {
    const state = this.#state;
    return this.#options.login.ownsToken && state.kind === "valid" && state.grant.renewable;
  }

  life(): TokenLife {
    const { clock } = this.#options;
    const state = this.#state;
    const now = clock.now();
    // An expired token is noticed by the next read.
    const isOver = state.kind === "valid" && this.#hasExpired(state);
    const left = state.kind === "valid" && !isOver ? state.expiresAt - now : Number.POSITIVE_INFINITY;
    return {
      condition: isOver ? "none" : state.kind,
      epoch: this.#epoch,
      tokenExpiresInMs: Number.isFinite(left) ? left : undefined,
      logins: this.#logins,
      loginFailures: this.#loginFailures,
      renewals: this.#renewals,
      renewalFailures: this.#renewalFailures,
      lastError: this.#failures.last(now),
    };
  }

  /** Stops every timer. What we were granted is revoked, also by a login that is under way, if the store answers soon. */
  async close(): Promise<void> {
    const state = this.#state;
    if (state.kind === "closed") return;
    this.#enter({ kind: "closed" });
    const { transport, clock, login } = this.#options;
    const grants = [state.kind === "valid" ? Promise.resolve(state.grant) : undefined, this.#login];
    const due = grants.filter((grant) => grant !== undefined);
    if (due.length === 0 || !login.ownsToken) return;
    const revoke = async (grant: Promise<Grant>): Promise<unknown> =>
      await transport.write("auth/token/revoke-self", {}, (await grant).token);
    await new Promise<void>((resolve) => {
      const timer = clock.after(revokeDeadlineMs, resolve);
      const end = (): void => {
        timer.cancel();
        resolve();
      };
      Promise.allSettled(due.map(revoke)).then(end, end);
    });
  }

  /** Whether what was refused has been replaced; what cannot be read just now has not. */
  async #hasAnother(): Promise<boolean> {
    return (await this.#options.login.isReplaced?.().catch(() => false)) ?? false;
  }

  /** The token in hand goes on serving until the one that replaces it has proved good. */
  #look(state: Valid): void {
    const { login, clock } = this.#options;
    const now = clock.now();
    if (login.isReplaced === undefined || now < state.lookAt) return;
    state.lookAt = now + lookEveryMs;
    login.isReplaced().then(
      (isReplaced) => {
        if (!isReplaced || this.#state !== state) return;
        this.#enter({ ...state, next: "log-in" });
        this.#refresh();
      },
      // A file that cannot be read just now is read at the next login, which reports it.
      () => undefined,
    );
  }

  /** Every change of life passes here: it disarms the timer and outdates whatever is still on its way. */
  #enter(state: State): void {
    this.#epoch += 1;
    this.#timer.cancel();
    this.#state = state;
  }

  #begin(): Promise<Secret> {
    const { blocked, address } = this.#options.transport;
    if (blocked !== undefined) return Promise.reject(explainFailure(blocked, address));
    const epoch = this.#epoch + 1;
    const startedAt = this.#options.clock.now();
    const done = this.#logIn().then(
      (grant) => {
        if (epoch !== this.#epoch) return this.current();
        this.#adopt(grant, startedAt, undefined);
        return grant.token;
      },
      (error: unknown) => {
        if (epoch === this.#epoch) this.#failLogin(error);
        throw explainFailure(error, this.#options.transport.address);
      },
    );
    this.#enter({ kind: "logging-in", done });
    done.catch(() => undefined);
    return done;
  }

  #logIn(): Promise<Grant> {
    this.#login ??= this.#options.login
      .logIn()
      .then((grant) => {
        this.#logins += 1;
        return grant;
      })
      .finally(() => {
        this.#login = undefined;
      });
    return this.#login;
  }

  #failLogin(error: unknown): void {
    const { transport, clock, logger } = this.#options;
    const failure = explainFailure(error, transport.address);
    if (failure.isUnsent) {
      this.#enter({ kind: "failed", error: failure, retryAt: clock.now() + unsentPauseMs });
      return;
    }
    this.#loginFailures += 1;
    this.#failures.note(failure, clock.now());
    const waitMs = Math.max(1_000, failure.retryAfterMs ?? 0, this.#backoff.nextMs());
    this.#enter({ kind: "failed", error: failure, retryAt: clock.now() + waitMs });
    logger.warn("store login failed", {
      store: transport.address,
      code: failure.code,
      reason: failure.message,
      cure: failure.cure,
      waitMs,
    });
  }

  #adopt(grant: Grant, startedAt: number, before: Grant | undefined): void {
    const { clock, transport, logger } = this.#options;
    const life = grant.leaseMs === 0 ? Number.POSITIVE_INFINITY : grant.leaseMs;
    const isCut = before !== undefined && grant.leaseMs < before.leaseMs * 0.9;
    const left = life - (clock.now() - startedAt);
    this.#backoff.reset();
    this.#enter({
      kind: "valid",
      grant,
      expiresAt: startedAt + life,
      expiresAtWall: clock.wall() + left,
      next: grant.renewable && !isCut ? "renew" : "log-in",
      lookAt: clock.now() + lookEveryMs,
    });
    this.#arm(grant);
    logger.debug("store token granted", { store: transport.address, durationMs: grant.leaseMs });
  }

  /**
   * At about two thirds of the lease, a little earlier at random so that replicas do not come together. Who shares a token
   * with us renews it by four fifths (OpenBao's `LifetimeWatcher`), so we come later.
   */
  #arm(grant: Grant): void {
    if (grant.leaseMs === 0) return;
    const share = (grant.isShared === true ? 0.9 : 2 / 3) - 0.1 * this.#options.random();
    this.#timer.set(Math.max(minRefreshMs, grant.leaseMs * share), () => this.#refresh());
  }

  #refresh(): void {
    const state = this.#state;
    if (state.kind !== "valid") return;
    const { clock } = this.#options;
    const epoch = this.#epoch;
    const startedAt = clock.now();
    const { grant } = state;
    const work =
      state.next === "log-in" ? this.#logIn() : grant.isShared === true ? this.#share(state) : this.#renew(grant);
    work.then(
      (next) => {
        // What was found by looking is another life, whose lease says nothing about the one before.
        const before = state.next === "renew" && next.token === grant.token ? grant : undefined;
        if (epoch === this.#epoch) this.#adopt(next, startedAt, before);
      },
      (error: unknown) => {
        if (epoch === this.#epoch) this.#failRefresh(error, state);
      },
    );
  }

  async #renew(grant: Grant): Promise<Grant> {
    const { transport } = this.#options;
    const answer = await transport.write("auth/token/renew-self", {}, grant.token);
    this.#renewals += 1;
    const isShared = grant.isShared === true ? { isShared: true } : {};
    return { ...renewedGrant(grant.token, answer, transport.address), ...isShared };
  }

  /** Renews only what nobody else has renewed or replaced by now. */
  async #share(state: Valid): Promise<Grant> {
    const found = await this.#logIn();
    const leftMs = state.expiresAt - this.#options.clock.now();
    const isCaredFor = found.token.reveal() !== state.grant.token.reveal() || found.leaseMs > 2 * leftMs + 1_000;
    return isCaredFor || !found.renewable ? found : await this.#renew(state.grant);
  }

  /** The token in hand is used to its end; only then does a failure reach callers. */
  #failRefresh(error: unknown, state: Valid): void {
    const { transport, clock, logger } = this.#options;
    const failure = explainFailure(error, transport.address);
    if (failure.isUnsent) {
      this.#await(state, unsentPauseMs);
      return;
    }
    if (state.next === "renew") this.#renewalFailures += 1;
    else this.#loginFailures += 1;
    if (state.next === "renew" && endsRenewal(error)) {
      // At its maximum a token is refused renewal for ever: only a login helps.
      this.#enter({ ...state, next: "log-in" });
      this.#refresh();
      return;
    }
    this.#failures.note(failure, clock.now());
    const waitMs = Math.max(1_000, failure.retryAfterMs ?? 0, this.#backoff.nextMs());
    logger.warn("store token not renewed", {
      store: transport.address,
      code: failure.code,
      reason: failure.message,
      cure: failure.cure,
      waitMs,
    });
    this.#await(state, waitMs);
  }

  #await(state: Valid, waitMs: number): void {
    if (this.#hasExpired(state)) this.#enter({ kind: "none" });
    else this.#timer.set(waitMs, () => this.#refresh());
  }

  #hasExpired(state: Valid): boolean {
    const { clock } = this.#options;
    return clock.now() >= state.expiresAt || clock.wall() >= state.expiresAtWall;
  }

  #isAlive(state: Valid): Promise<boolean> {
    const { clock, transport } = this.#options;
    const now = clock.now();
    if (state.check !== undefined && now - state.check.at < checkEveryMs) return state.check.isAlive;
    const isAlive = transport.read("auth/token/lookup-self", state.grant.token).then(
      () => true,
      (error: unknown) => {
        if (isNo(error)) return false;
        throw explainFailure(error, transport.address);
      },
    );
    state.check = { at: now, isAlive };
    // A check that came to nothing is not remembered.
    isAlive.catch(() => delete state.check);
    return isAlive;
  }
}

function isNo(error: unknown): boolean {
  return error instanceof VaultFailure && (error.status === 403 || error.status === 400);
}

/** Past its maximum OpenBao answers a renewal with 500, once the token is gone with 403. */
function endsRenewal(error: unknown): boolean {
  return isNo(error) || (error instanceof VaultFailure && error.status === 500);
}

function closedError(): CredentialError {
  return new CredentialError("closed", "the credentials are closed", "none needed while stopping");
}
