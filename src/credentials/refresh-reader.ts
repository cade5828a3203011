/**
 * The access token of a rotating refresh token as a secret that is read.
 *
 * 1. However many calls want it, one refresh runs. While a younger token is on its way, the old one serves until it expires.
 * 2. A token that the server refused leads to a refresh only if the record still holds it, and soon again to none.
 * 3. What could not be written back is tried until it can, and once more at the end.
 */
import { hostname } from "node:os";
import { Backoff, type Clock, Secret, type Timer } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { Cached } from "./cache.ts";
import { CredentialError } from "./errors.ts";
import type { SharedRecord } from "./kv-write.ts";
import type { Source } from "./options.ts";
import type { RefreshGrant, SpendOutcome } from "./refresh-grant.ts";
import { RefreshRotation } from "./refresh-rotation.ts";
import type { SecretReader } from "./server-credential.ts";
import type { ReaderState } from "./states.ts";
import { startStopwatch } from "./stopwatch.ts";
import { spanOf } from "./token-reader.ts";

export interface RefreshReaderDeps {
  readonly record: SharedRecord;
  readonly claimMs: number | undefined;
  readonly openReader: (source: Source) => SecretReader;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
}

interface HeldToken {
  readonly secret: Secret;
  /** `Clock.now()`. */
  readonly freshUntil: number;
  readonly freshMs: number;
  readonly staleForMs: number;
}

const defaultClaimMs = 30_000;
const reloadPauseMs = 10_000;
/** A claim has time enough for a request that is under way and the write after it. */
const minCloseMs = 15_000;
/** Until it is written, the others take what was spent for unspent as soon as our claim is over. */
const [minSaveMs, maxSaveMs] = [500, 2_000];

export class RefreshReader implements SecretReader {
  readonly place: string;
  readonly #grant: RefreshGrant;
  readonly #clock: Clock;
  readonly #readers: readonly SecretReader[];
  readonly #claimMs: number;
  readonly #rotation: RefreshRotation;
  readonly #cached: Cached<HeldToken>;
  readonly #random: () => number;
  readonly #logger: Logger;
  readonly #backoff: Backoff;
  #held: HeldToken | undefined;
  #rejected: string | undefined;
  #reloadAt = Number.NEGATIVE_INFINITY;
  #clientSecret: Secret | undefined;
  /** The one that is good now and the one before. */
  #refreshTokens: readonly Secret[] = [];
  #flight: Promise<unknown> | undefined;
  #saver: Timer | undefined;
  #isClosed = false;

  constructor(grant: RefreshGrant, { record, claimMs, openReader, clock, random, logger }: RefreshReaderDeps) {
    this.place = grant.place;
    this.#grant = grant;
    this.#clock = clock;
    this.#random = random;
    this.#logger = logger;
    this.#readers = grant.sources.map(openReader);
    this.#claimMs = claimMs ?? defaultClaimMs;
    this.#backoff = new Backoff({ baseMs: minSaveMs, capMs: maxSaveMs, random });
    this.#rotation = new RefreshRotation({
      record,
      prepare: async () => void (await this.#readSecrets()),
      spend: (refreshToken, deadlineMs) => this.#spend(refreshToken, deadlineMs),
      owner: hostname(),
      claimMs: this.#claimMs,
      clock,
      random,
      logger,
    });
    this.#cached = new Cached({
      load: () => this.#load(),
      freshMs: 0,
      staleForMs: 0,
      spanOf: (held) => held,
      clock,
      random,
      onStale: ({ code, cure, message }) =>
        logger.warn("access token not refreshed, the older one serves", { code, cure, reason: message }),
      onRecovered: () => logger.info("access token refreshed again"),
    });
  }

  /** Since the start: refreshes of our own and of others that we took over, refusals for good, and writes that came late. */
  get counts(): Readonly<RefreshRotation["counts"]> {
    return this.#rotation.counts;
  }

  /** What must not come back from a server any more than the access token itself. */
  get guarded(): readonly Secret[] {
    return this.#clientSecret === undefined ? this.#refreshTokens : [...this.#refreshTokens, this.#clientSecret];
  }

  state(): ReaderState {
    return { ...this.#cached.state(), rotation: this.counts };
  }

  read(): Secret | Promise<Secret> {
    const held = this.#cached.get();
    return held instanceof Promise ? held.then(({ secret }) => secret) : held.secret;
  }

  async reload(): Promise<Secret> {
    if (this.#clock.now() < this.#reloadAt) return await this.read();
    this.#rejected = this.#held?.secret.reveal();
    return (await this.#cached.reload()).secret;
  }

  /** Lets a refresh that is under way end, since half of it would cost the grant. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#saver?.cancel();
    this.#rotation.close();
    await new Promise<void>((resolve) => {
      const timer = this.#clock.after(Math.max(minCloseMs, this.#claimMs), resolve);
      const end = (): void => {
        timer.cancel();
        resolve();
      };
      Promise.resolve(this.#flight)
        .catch(() => undefined)
        .then(() => this.#rotation.saveUnsaved())
        .then(end, end);
    });
    if (this.#rotation.hasUnsaved) this.#logger.error("refresh token is lost", { cure: "authorise the client anew" });
  }

  #load(): Promise<HeldToken> {
    const flight = this.#obtain();
    this.#flight = flight;
    return flight;
  }

  async #obtain(): Promise<HeldToken> {
    if (this.#isClosed) throw new CredentialError("closed", "the credentials are closed", "none needed while stopping");
    const before = this.#rotation.counts.refreshed;
    const startedAt = this.#clock.now();
    try {
      const { accessToken, lifeMs, refreshToken } = await this.#rotation.obtain((text) => this.#isSpent(text));
      if (refreshToken !== undefined) this.#guard(refreshToken);
      const span = spanOf(lifeMs, this.#random());
      const freshUntil = startedAt + span.freshMs;
      this.#held = { secret: new Secret(accessToken), freshUntil, ...span };
      return this.#held;
    } finally {
      const isOurs = this.#rotation.counts.refreshed > before;
      if (isOurs && this.#rejected !== undefined) this.#reloadAt = this.#clock.now() + reloadPauseMs;
      if (isOurs) this.#rejected = undefined;
      this.#saveLater();
    }
  }

  #guard(refreshToken: string): void {
    const [latest] = this.#refreshTokens;
    if (latest?.reveal() === refreshToken) return;
    this.#refreshTokens = [new Secret(refreshToken), ...(latest === undefined ? [] : [latest])];
  }

  /** The server refused it, or it is ours and due. */
  #isSpent(accessToken: string): boolean {
    if (accessToken === this.#rejected) return true;
    const held = this.#held;
    return held !== undefined && accessToken === held.secret.reveal() && this.#clock.now() >= held.freshUntil;
  }

  /** One request; a second one only with a client secret that was changed, and only after a refusal of the first. */
  async #spend(refreshToken: string, deadlineMs: number): Promise<SpendOutcome> {
    const ageMs = startStopwatch(this.#clock);
    const leftMs = (): number => deadlineMs - ageMs();
    try {
      const secrets = await this.#readSecrets();
      const outcome = await this.#send(secrets, refreshToken, leftMs());
      if (outcome.kind !== "unspent" || outcome.error.code !== "grant-denied") return outcome;
      const younger = await Promise.all(this.#readers.map(async (reader) => reader.reload()));
      if (younger.every((secret, i) => secret.reveal() === secrets[i]?.reveal())) return outcome;
      return await this.#send(younger, refreshToken, leftMs());
    } catch (error) {
      if (error instanceof CredentialError) return { kind: "unspent", error };
      throw error;
    }
  }

  async #readSecrets(): Promise<readonly Secret[]> {
    return await Promise.all(this.#readers.map(async (reader) => reader.read()));
  }

  async #send(secrets: readonly Secret[], refreshToken: string, leftMs: number): Promise<SpendOutcome> {
    if (leftMs <= 0) {
      const message = `there was no time left to ask ${this.place}`;
      const error = new CredentialError(
        "endpoint-timeout",
        message,
        "check how long the client's secret takes to read",
      );
      return { kind: "unspent", error };
    }
    if (this.#grant.hasSecret) this.#clientSecret = secrets[0];
    this.#guard(refreshToken);
    return await this.#grant.spend(secrets, refreshToken, leftMs);
  }

  #saveLater(): void {
    if (this.#isClosed || this.#saver !== undefined || !this.#rotation.hasUnsaved) return;
    this.#saver = this.#clock.after(minSaveMs + this.#backoff.nextMs(), () => {
      const again = (): void => {
        this.#saver = undefined;
        if (!this.#rotation.hasUnsaved) this.#backoff.reset();
        this.#saveLater();
      };
      this.#rotation.saveUnsaved().then(again, again);
    });
  }
}
