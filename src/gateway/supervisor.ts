import { Backoff, type Clock, type Secret, type Timer } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import type { DialOptions, DialOutcome, GatewaySession, Leave, SessionEnd } from "../tunnel/index.ts";

/**
 * Keeps one connection to the relay alive. An attempt never throws: it yields an outcome, and the loop switches on it.
 *
 * 1. Until `stop`, some timer is armed at every moment that leads back to a connected tunnel.
 * 2. The wait before a dial is random from the first one on, and grows until a session has lasted for a minute.
 * 3. A session that says GOAWAY goes on serving its streams while its successor is dialled.
 * 4. An event of a session that is no longer the current one changes nothing but the list of leaving sessions.
 */

export interface SupervisorOptions {
  readonly dial: (options: DialOptions) => Promise<DialOutcome>;
  /** Everything about the dial but what changes from attempt to attempt. */
  readonly target: Omit<DialOptions, "token" | "signal" | "clock" | "random" | "logger">;
  /** Read anew for each attempt, so that a rotated token is taken up. */
  readonly readToken: () => Secret | Promise<Secret>;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
}

export interface SupervisorStatus {
  readonly state: "stopped" | "waiting" | "dialling" | "connected";
  readonly connId: string | undefined;
  readonly connectedForMs: number | undefined;
  /** Milliseconds since the relay last answered an echo. */
  readonly lastEchoAgoMs: number | undefined;
  /** Streams on all sessions, leaving ones included. */
  readonly openStreams: number;
  /** Sessions that finish their streams. */
  readonly leavingSessions: number;
  /** Why there is no session, if there is none. */
  readonly lastProblem: string | undefined;
  readonly counts: DialCounts;
}

/** Since the start. */
export interface DialCounts {
  readonly connected: number;
  readonly refused: number;
  readonly failed: number;
  /** Sessions that ended before a successor was asked for. */
  readonly lost: number;
}

type State =
  | { readonly kind: "stopped" }
  | { readonly kind: "waiting"; readonly timer: Timer }
  | { readonly kind: "dialling"; readonly abort: AbortController; readonly watchdog: Timer }
  | {
      readonly kind: "connected";
      readonly session: GatewaySession;
      readonly since: number;
      /** Until the next echo, which readiness rests on. */
      watch: Timer;
    };

const minimumUptimeMs = 60_000;
const refusedWaitMs = 60_000;
/** The most that a relay's Retry-After counts for. */
const maxRetryAfterMs = 600_000;
/** Above the sum of the dial's own deadlines: fires only if one of them is broken. */
const attemptMs = 60_000;
const echoEveryMs = 15_000;
const echoTimeoutMs = 10_000;
const echoFreshMs = 30_000;
/** Successors of sessions that a relay asked to leave spread over this time, or over what it asks for, if that is longer. */
const handOverMs = 1_000;
/** The most that a relay's `reconnectInMs` counts for. */
const maxReconnectMs = 60_000;

/** Ends that dialling at once would only repeat: two processes with one identity would throw each other out for ever. */
const endCures: Partial<Record<SessionEnd["reason"], string>> = {
  REPLACED: "another gateway took this one's place: give each replica its own gateway.id",
  REVOKED: "the relay no longer takes this token: check relay.token",
  AUTH_EXPIRED: "the token has expired: check relay.token",
};

export class Supervisor {
  readonly #options: SupervisorOptions;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #backoff: Backoff;
  readonly #leaving = new Set<GatewaySession>();
  #state: State = { kind: "stopped" };
  #lastProblem: string | undefined;
  readonly #counts = { connected: 0, refused: 0, failed: 0, lost: 0 };

  constructor(options: SupervisorOptions) {
    this.#options = options;
    this.#clock = options.clock;
    this.#logger = options.logger.with({ tunnel: options.target.tunnel });
    this.#backoff = new Backoff({ baseMs: 500, capMs: 30_000, random: options.random });
  }

  start(): void {
    if (this.#state.kind === "stopped") this.#wait(this.#backoff.nextMs());
  }

  /** Whether an echo through the relay came back within the last 30 s (DESIGN invariant 12). */
  isReady(): boolean {
    if (this.#state.kind !== "connected" || !this.#state.session.isAccepting) return false;
    const { lastEchoAt } = this.#state.session;
    return lastEchoAt !== undefined && this.#clock.now() - lastEchoAt <= echoFreshMs;
  }

  status(): SupervisorStatus {
    const state = this.#state;
    const session = state.kind === "connected" ? state.session : undefined;
    const now = this.#clock.now();
    let openStreams = session?.openStreamCount ?? 0;
    for (const leaving of this.#leaving) openStreams += leaving.openStreamCount;
    return {
      state: state.kind,
      connId: session?.connId,
      connectedForMs: state.kind === "connected" ? now - state.since : undefined,
      lastEchoAgoMs: session?.lastEchoAt === undefined ? undefined : now - session.lastEchoAt,
      openStreams,
      leavingSessions: this.#leaving.size,
      lastProblem: session === undefined ? this.#lastProblem : undefined,
      counts: { ...this.#counts },
    };
  }

  /** Says GOAWAY, lets open streams run for `drainMs`; resolves when every session has ended. Safe twice. */
  async stop(drainMs: number): Promise<void> {
    const state = this.#state;
    this.#state = { kind: "stopped" };
    if (state.kind === "waiting") state.timer.cancel();
    if (state.kind === "dialling") {
      state.watchdog.cancel();
      state.abort.abort();
    }
    if (state.kind === "connected") {
      state.watch.cancel();
      this.#leaving.add(state.session);
    }
    const sessions = [...this.#leaving];
    for (const session of sessions) session.goAway("SHUTDOWN", drainMs);
    await Promise.all(sessions.map((session) => session.ended));
  }

  #wait(ms: number): void {
    this.#state = { kind: "waiting", timer: this.#clock.after(ms, () => this.#dial()) };
  }

  #dial(): void {
    const abort = new AbortController();
    const watchdog = this.#clock.after(attemptMs, () => {
      if (this.#state.kind !== "dialling" || this.#state.abort !== abort) return;
      abort.abort();
      this.#onOutcome({ kind: "failed", code: "TIMEOUT", detail: "the attempt did not end" });
    });
    this.#state = { kind: "dialling", abort, watchdog };
    void this.#attempt(abort.signal).then((outcome) => {
      if (this.#state.kind === "dialling" && this.#state.abort === abort) {
        watchdog.cancel();
        this.#onOutcome(outcome);
      } else if (outcome.kind === "session") {
        // Stopped, or given up, while the relay was saying welcome.
        outcome.session.terminate("SHUTDOWN", "no longer wanted");
      }
    });
  }

  async #attempt(signal: AbortSignal): Promise<DialOutcome> {
    const { dial, target, readToken, clock, random, logger } = this.#options;
    try {
      const token = await readToken();
      if (signal.aborted) return { kind: "failed", code: "ABORTED", detail: "stopped" };
      return await dial({ ...target, token, signal, clock, random, logger });
    } catch (error) {
      // An error may quote what it was given: its name is all that is kept.
      const detail = error instanceof Error ? error.name : "unknown";
      return { kind: "failed", code: "CONNECT", detail: `token or dial: ${detail}` };
    }
  }

  #onOutcome(outcome: DialOutcome): void {
    switch (outcome.kind) {
      case "session":
        this.#counts.connected += 1;
        this.#connect(outcome.session);
        break;
      case "refused":
        this.#counts.refused += 1;
        this.#wait(this.#afterRefusal(outcome));
        break;
      case "failed":
        this.#counts.failed += 1;
        this.#wait(this.#afterFailure(outcome));
        break;
    }
  }

  #afterRefusal(outcome: DialOutcome & { readonly kind: "refused" }): number {
    const { status, reason, retryAfterMs } = outcome;
    this.#lastProblem = `refused: ${status ?? reason}`;
    if (status === 401 || status === 403 || status === 426) {
      const waitMs = this.#slowMs();
      const cure =
        status === 426
          ? "this gateway and the relay are of different versions"
          : status === 403
            ? "check relay.url: its host must be that of the relay's publicUrl, or among its allowedHosts; then relay.tunnel and relay.token"
            : "check relay.tunnel and relay.token";
      this.#logger.error("relay refused the gateway", { status, reason, waitMs, cure });
      return waitMs;
    }
    // A GOAWAY in place of WELCOME asks for a random time up to its number, an HTTP answer for all of it.
    const askedMs =
      status === undefined ? this.#spread(retryAfterMs ?? 0) : Math.min(retryAfterMs ?? 0, maxRetryAfterMs);
    const waitMs = Math.max(askedMs, this.#backoff.nextMs());
    this.#logger.warn("relay refused the gateway", { reason, waitMs, ...(status === undefined ? {} : { status }) });
    return waitMs;
  }

  #afterFailure(outcome: DialOutcome & { readonly kind: "failed" }): number {
    this.#lastProblem = `${outcome.code}: ${outcome.detail}`;
    if (outcome.code === "FEATURE") {
      const waitMs = this.#slowMs();
      const cure = "update the relay, or write agents: { verify: relay }";
      this.#logger.error("relay cannot be served", { code: outcome.code, reason: outcome.detail, waitMs, cure });
      return waitMs;
    }
    const waitMs = outcome.code === "URL" ? this.#slowMs() : this.#backoff.nextMs();
    this.#logger.warn("relay not reached", { code: outcome.code, reason: outcome.detail, waitMs });
    return waitMs;
  }

  #connect(session: GatewaySession): void {
    this.#lastProblem = undefined;
    const watch = this.#clock.after(echoEveryMs, () => this.#watch(session));
    this.#state = { kind: "connected", session, since: this.#clock.now(), watch };
    this.#logger.info("tunnel connected", { connection: session.connId });
    this.#echo(session);
    void session.leaving.then((leave) => this.#onLeaving(session, leave));
    void session.ended.then((end) => this.#onEnded(session, end));
  }

  #watch(session: GatewaySession): void {
    const state = this.#state;
    if (state.kind !== "connected" || state.session !== session) return;
    this.#echo(session);
    state.watch = this.#clock.after(echoEveryMs, () => this.#watch(session));
  }

  #echo(session: GatewaySession): void {
    session.echo(echoTimeoutMs).catch(() => {
      // The session's own keepalive ends it if the relay stays silent.
      this.#logger.warn("relay did not answer an echo", { connection: session.connId, waitMs: echoTimeoutMs });
    });
  }

  #onLeaving(session: GatewaySession, { reconnectInMs }: Leave): void {
    const state = this.#state;
    if (state.kind !== "connected" || state.session !== session) return;
    state.watch.cancel();
    this.#leaving.add(session);
    const waitMs = Math.max(this.#spread(Math.max(reconnectInMs, handOverMs)), this.#afterUptime(state.since));
    this.#logger.info("tunnel is to be replaced", { connection: session.connId, waitMs });
    this.#wait(waitMs);
  }

  /** A random time up to what the relay asked for. */
  #spread(ms: number): number {
    return this.#options.random() * Math.min(ms, maxReconnectMs);
  }

  /** Nothing after a session that has lasted; a relay that sends away all who have just come is not dialled at full speed. */
  #afterUptime(since: number): number {
    if (this.#clock.now() - since < minimumUptimeMs) return this.#backoff.nextMs();
    this.#backoff.reset();
    return 0;
  }

  #onEnded(session: GatewaySession, end: SessionEnd): void {
    const logger = this.#logger.with({ connection: session.connId, code: end.reason, reason: end.detail });
    if (this.#leaving.delete(session)) logger.info("tunnel drained");
    const state = this.#state;
    if (state.kind !== "connected" || state.session !== session) return;
    state.watch.cancel();
    this.#counts.lost += 1;
    this.#lastProblem = `${end.reason}: ${end.detail}`;
    if (this.#clock.now() - state.since >= minimumUptimeMs) this.#backoff.reset();
    const cure = endCures[end.reason];
    const askedMs = this.#spread(end.reconnectInMs ?? 0);
    const waitMs = Math.max(askedMs, cure === undefined ? this.#backoff.nextMs() : this.#slowMs());
    if (cure === undefined) logger.warn("tunnel lost", { waitMs });
    else logger.error("the relay ended the tunnel", { waitMs, cure });
    this.#wait(waitMs);
  }

  /** A minute, 20 % more or less. */
  #slowMs(): number {
    return Math.round(refusedWaitMs * (0.8 + 0.4 * this.#options.random()));
  }
}
