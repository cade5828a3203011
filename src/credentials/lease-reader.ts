/**
 * What the store issued for one server: got when it is first wanted, kept alive, replaced before it ends.
 *
 * 1. At about two thirds of its life it is renewed where it can be, else issued anew; the old one serves meanwhile.
 * 2. A lease dies with the token that it was asked with: after another login it counts as gone.
 * 3. While the store is away, what was issued serves to its end.
 * 4. A server that refuses it gets one that is new, not one that is renewed; and not too often.
 */
import { Backoff, type Clock, type Secret } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { Cached } from "./cache.ts";
import { CredentialError } from "./errors.ts";
import { type Issued, isPositive, type LeaseRequest } from "./lease.ts";
import { LongTimer } from "./long-timer.ts";
import type { SecretReader } from "./server-credential.ts";
import { type AskDeps, askStore } from "./vault-ask.ts";
import { explainFailure, VaultFailure } from "./vault-failure.ts";

export interface LeaseReaderDeps extends AskDeps {
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
  /** For what says nothing of its end, as for stored secrets. */
  readonly ttlMs: number;
  readonly staleForMs: number;
}

interface Held extends Issued {
  readonly token: Secret;
  /** `clock.now()` before it was asked for. */
  readonly startedAt: number;
  readonly freshMs: number;
  readonly staleForMs: number;
}

/**
 * A server that refuses what was issued because it refused the one before will refuse the next one too, and each lease lives
 * on in the store: the pause grows while refusals follow each other.
 */
const reloadPauseMs = 10_000;
const maxReloadPauseMs = 300_000;
const retryMs = 5_000;
const revokeDeadlineMs = 2_000;
/** The lease is unknown, not ours, or past its maximum. */
const endsRenewal: ReadonlySet<number | undefined> = new Set([400, 403, 404, 500]);

export class LeaseReader {
  readonly #request: LeaseRequest;
  readonly #deps: LeaseReaderDeps;
  readonly #cached: Cached<Held>;
  readonly #timer: LongTimer;
  readonly #backoff: Backoff;
  #held: Held | undefined;
  #flight: Promise<unknown> | undefined;
  #mustBeNew = false;
  #reloadAt = Number.NEGATIVE_INFINITY;
  #reloadPauseMs = reloadPauseMs;
  #reloading: Promise<Held> | undefined;
  #isClosed = false;

  constructor(request: LeaseRequest, deps: LeaseReaderDeps) {
    const { clock, random } = deps;
    const logger = deps.logger.with({ store: deps.transport.address, path: request.policyPath });
    this.#request = request;
    this.#deps = { ...deps, logger };
    this.#timer = new LongTimer(clock);
    this.#backoff = new Backoff({ baseMs: 1_000, capMs: 60_000, random });
    this.#cached = new Cached({
      load: () => {
        const flight = this.#load();
        this.#flight = flight;
        return flight;
      },
      freshMs: 0,
      staleForMs: 0,
      spanOf: ({ freshMs, staleForMs }) => ({ freshMs, staleForMs }),
      clock,
      random,
      onStale: ({ code, cure, message }) =>
        logger.warn("store away, older lease serves", { code, cure, reason: message }),
      onRecovered: () => logger.info("store back"),
    });
  }

  /** What a policy must grant. */
  get need(): { readonly policyPath: string; readonly stanza: string; readonly capabilities: readonly string[] } {
    const { policyPath, body } = this.#request;
    const capabilities = body === undefined ? ["read"] : ["update"];
    return { policyPath, stanza: this.#stanza(), capabilities };
  }

  /** One field; readers of several fields are given them of one and the same lease. */
  field(name: string): SecretReader {
    return {
      read: () => {
        const held = this.#read();
        return held instanceof Promise ? held.then(({ fields }) => fields.field(name)) : held.fields.field(name);
      },
      reload: async () => (await this.#reload()).fields.field(name),
      state: this.#cached.state,
    };
  }

  /** Stops renewing. A lease that does not end with our token is given back, also one on its way, if the store answers soon. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#timer.cancel();
    const { tokens, clock } = this.#deps;
    if (tokens.revokesLeases) return;
    await new Promise<void>((resolve) => {
      const timer = clock.after(revokeDeadlineMs, resolve);
      const end = (): void => {
        timer.cancel();
        resolve();
      };
      Promise.resolve(this.#flight)
        .catch(() => undefined)
        .then(() => this.#giveBack())
        .then(end, end);
    });
  }

  async #giveBack(): Promise<void> {
    const { leaseId, token } = this.#held ?? {};
    if (leaseId === undefined || token === undefined) return;
    await this.#deps.transport.write("sys/leases/revoke", { lease_id: leaseId }, token);
  }

  #read(): Held | Promise<Held> {
    const held = this.#cached.get();
    return held instanceof Promise || this.#isAlive(held) ? held : this.#cached.reload();
  }

  #reload(): Promise<Held> {
    const now = this.#deps.clock.now();
    if (this.#reloading !== undefined) return this.#reloading;
    if (now < this.#reloadAt) return Promise.resolve(this.#read());
    const isRepeated = now < this.#reloadAt + this.#reloadPauseMs;
    this.#reloadPauseMs = isRepeated ? Math.min(2 * this.#reloadPauseMs, maxReloadPauseMs) : reloadPauseMs;
    this.#reloadAt = now + this.#reloadPauseMs;
    this.#mustBeNew = true;
    const reloading = this.#cached.reload().finally(() => {
      this.#reloading = undefined;
    });
    this.#reloading = reloading;
    return reloading;
  }

  #isAlive({ leaseId, token }: Held): boolean {
    return leaseId === undefined || this.#deps.tokens.holds(token);
  }

  async #load(): Promise<Held> {
    const before = this.#held;
    try {
      const renewed = before === undefined || !this.#canRenew(before) ? undefined : await this.#renew(before);
      const held = renewed ?? (await this.#issue());
      this.#held = held;
      this.#backoff.reset();
      if (held.lifeMs !== undefined) this.#arm(held.freshMs - (this.#deps.clock.now() - held.startedAt));
      return held;
    } catch (error) {
      const failure = this.#explain(error);
      if (!failure.isAway) this.#held = undefined;
      const held = this.#held;
      const isOver = held === undefined || this.#deps.clock.now() >= held.startedAt + held.freshMs + held.staleForMs;
      // What was not sent was no failure of this lease.
      const waitMs = failure.isUnsent ? retryMs : Math.max(retryMs, this.#backoff.nextMs());
      if (!isOver && held.lifeMs !== undefined) this.#arm(waitMs);
      throw failure;
    }
  }

  #canRenew(held: Held): boolean {
    const hasTime = this.#deps.clock.now() < held.startedAt + (held.lifeMs ?? 0);
    return held.renewable && hasTime && !this.#mustBeNew && this.#isAlive(held);
  }

  /** Undefined: it will not live on, so another is due. Rejects while the store is away. */
  async #renew(held: Held): Promise<Held | undefined> {
    const { transport, clock } = this.#deps;
    const startedAt = clock.now();
    const wantedMs = held.lifeMs ?? 0;
    const body = { lease_id: held.leaseId, increment: Math.ceil(wantedMs / 1_000) };
    try {
      const answer = await transport.write("sys/leases/renew", body, held.token);
      const seconds = answer?.["lease_duration"];
      // Near its maximum a lease grows no more.
      if (!isPositive(seconds) || seconds * 1_000 < wantedMs * 0.9) return undefined;
      this.#deps.logger.debug("store lease renewed", { durationMs: seconds * 1_000 });
      return this.#hold({ ...held, lifeMs: seconds * 1_000 }, held.token, startedAt);
    } catch (error) {
      // What was not sent has the status of another request.
      if (error instanceof VaultFailure && !error.isUnsent && endsRenewal.has(error.status)) return undefined;
      throw error;
    }
  }

  async #issue(): Promise<Held> {
    const { clock, logger } = this.#deps;
    const { apiPath, body } = this.#request;
    const startedAt = clock.now();
    const wallMs = clock.wall();
    const { answer, token } = await askStore(this.#deps, (transport, current) =>
      body === undefined ? transport.read(apiPath, current) : transport.write(apiPath, body, current),
    );
    const issued = this.#request.parse(answer, wallMs);
    this.#mustBeNew = false;
    const { lifeMs } = issued;
    logger.debug("store lease granted", lifeMs === undefined ? {} : { durationMs: lifeMs });
    return this.#hold(issued, token, startedAt);
  }

  /** Replicas spread themselves over a tenth of the life. */
  #hold(issued: Issued, token: Secret, startedAt: number): Held {
    const { random, ttlMs, staleForMs } = this.#deps;
    const { lifeMs } = issued;
    if (lifeMs === undefined) return { ...issued, token, startedAt, freshMs: ttlMs, staleForMs };
    const freshMs = lifeMs * (2 / 3 - 0.1 * random());
    return { ...issued, token, startedAt, freshMs, staleForMs: lifeMs - freshMs };
  }

  #arm(ms: number): void {
    if (!this.#isClosed) this.#timer.set(Math.max(0, ms) + 1, () => this.#touch());
  }

  /** Asking for what is no longer fresh is what renews it. Whatever comes of that arms the timer again. */
  #touch(): void {
    this.#arm(retryMs);
    try {
      const held = this.#cached.get();
      if (held instanceof Promise) held.catch(() => this.#timer.cancel());
    } catch {
      this.#timer.cancel();
    }
  }

  #stanza(): string {
    const { policyPath, body } = this.#request;
    return `path "${policyPath}" { capabilities = ["${body === undefined ? "read" : "update"}"] }`;
  }

  #explain(error: unknown): CredentialError {
    const { policyPath, body, cure } = this.#request;
    const status = error instanceof VaultFailure ? error.status : undefined;
    const say = (code: "denied" | "not-found" | "lease-refused", what: string, how: string): CredentialError =>
      new CredentialError(code, `${what} ${policyPath}`, how, { status });
    if (status === 400) return say("lease-refused", "the store refused what was asked of", cure);
    if (status === 403) return say("denied", "the store denies", `grant ${this.#stanza()}`);
    if (status === 404) return say("not-found", "there is nothing at", cure);
    if (status !== 405) return explainFailure(error, this.#deps.transport.address);
    const other = body === undefined ? "write" : "read";
    return say("not-found", "the store takes no such request at", `method: ${other}, or another path`);
  }
}
