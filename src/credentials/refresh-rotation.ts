/**
 * One refresh token that several gateways share, spent by one of them at a time.
 *
 * 1. Nothing is spent before a claim stands in the record: a write that only one can win, and that shows the store to be
 *    writable. The claim outlives the request that it is for.
 * 2. A claim is sent one request. When nobody knows whether that arrived, the claim is left to run out.
 * 3. What the endpoint gives is written in one piece over what was spent, and over nothing else. While it cannot be
 *    written it is kept, and nothing more is spent.
 * 4. Nothing is ever deleted. A refresh token that the endpoint refuses is not sent again.
 */
import { randomUUID } from "node:crypto";
import type { Clock } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { CredentialError } from "./errors.ts";
import type { SharedRecord } from "./kv-write.ts";
import type { SpendOutcome } from "./refresh-grant.ts";
import {
  type Claim,
  type FreshTokens,
  type RefreshRecord,
  readRefreshRecord,
  withClaim,
  withoutClaim,
  withTokens,
} from "./refresh-record.ts";
import { startStopwatch } from "./stopwatch.ts";
import type { KvVersioned } from "./vault-kv.ts";

export interface RotationDeps {
  readonly record: SharedRecord;
  /** Reads what a request needs besides the refresh token. Rejects with `CredentialError`. */
  readonly prepare: () => Promise<void>;
  /** Sends a refresh token once, within `deadlineMs`. Never rejects. */
  readonly spend: (refreshToken: string, deadlineMs: number) => Promise<SpendOutcome>;
  /** Who we are, for people who look at the record. */
  readonly owner: string;
  readonly claimMs: number;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
}

/** An access token, whoever bought it. */
export interface RotatedToken {
  readonly accessToken: string;
  /** From now. */
  readonly lifeMs: number;
  readonly refreshToken: string | undefined;
}

interface Unsaved {
  readonly spent: string;
  readonly fresh: FreshTokens;
}

type Saved = "saved" | "superseded" | CredentialError;

/** An access token of the record that ends sooner is not worth a start. */
const minLeftMs = 5_000;
const saveTries = 5;
const [minSaveWaitMs, maxSaveWaitMs] = [50, 800];
const maxPollMs = 500;
/** A clock may run in the wrong time zone; one that is a day off cannot even check a certificate. */
const maxSkewMs = 24 * 3_600_000;

export class RefreshRotation {
  readonly #deps: RotationDeps;
  /** Refresh tokens that were bought here, and how many were refused for good. */
  readonly counts = { refreshed: 0, adopted: 0, needsReauth: 0, unsaved: 0 };
  #refused: string | undefined;
  #watched: { readonly nonce: string; readonly since: number } | undefined;
  #unsaved: Unsaved | undefined;
  #isClosing = false;

  constructor(deps: RotationDeps) {
    this.#deps = deps;
  }

  /** Bought but not yet written to the store. */
  get hasUnsaved(): boolean {
    return this.#unsaved !== undefined;
  }

  /** What is not sent yet stays unsent. */
  close(): void {
    this.#isClosing = true;
  }

  /**
   * An access token: the record's own unless `isSpent` says that it will not do, else a new one. Rejects with
   * `CredentialError`. One at a time.
   */
  async obtain(isSpent: (accessToken: string) => boolean): Promise<RotatedToken> {
    await this.#saveFirst();
    const { clock, claimMs } = this.#deps;
    const giveUpAt = clock.now() + 3 * claimMs;
    let refusals = 0;
    for (;;) {
      const record = readRefreshRecord(await this.#deps.record.read());
      const found = this.#adopt(record, isSpent);
      if (found !== undefined) return found;
      const claimed = this.#isTaken(record.claim) ? "conflict" : await this.#begin(record, refusals);
      if (claimed === "conflict") {
        if (clock.now() >= giveUpAt) throw this.#busy();
        await this.#pause(Math.min(maxPollMs, claimMs / 8));
        continue;
      }
      const { refreshToken } = claimed;
      const askedAt = clock.wall();
      const outcome = await this.#spend(claimed);
      if (outcome.kind === "granted") return await this.#settle(claimed, outcome, askedAt);
      if (outcome.kind !== "refused") {
        if (outcome.kind === "unspent") await this.#release(claimed);
        throw outcome.error;
      }
      this.#refused = refreshToken;
      refusals += 1;
      await this.#release(claimed);
      // Twice refused: whatever stands there now is for the next to try.
      if (refusals > 1) throw this.#needsReauth(true);
    }
  }

  /** Tries once to write what is kept in memory. */
  async saveUnsaved(): Promise<Saved> {
    const kept = this.#unsaved;
    if (kept === undefined) return "saved";
    const result = await this.#saveOnce(kept);
    if (result instanceof CredentialError) return result;
    if (this.#unsaved !== kept) return result;
    this.#unsaved = undefined;
    const { logger, record } = this.#deps;
    if (result === "saved") logger.info("refresh token written back late", { path: record.place });
    else this.#warnOfNewer();
    return result;
  }

  async #saveFirst(): Promise<void> {
    const result = await this.saveUnsaved();
    if (result instanceof CredentialError) throw result;
  }

  #adopt(record: RefreshRecord, isSpent: (accessToken: string) => boolean): RotatedToken | undefined {
    const { accessToken, expiresAt, refreshToken } = record;
    if (accessToken === undefined || expiresAt === undefined || isSpent(accessToken)) return undefined;
    const lifeMs = expiresAt - this.#deps.clock.wall();
    if (lifeMs < minLeftMs) return undefined;
    this.counts.adopted += 1;
    return { accessToken, lifeMs, refreshToken };
  }

  /** The refresh token, unless it is known to be of no use. */
  #spendable({ refreshToken, entry }: RefreshRecord, isFirst: boolean): string {
    if (refreshToken === undefined) {
      const message = `field refresh_token of ${entry.place} is missing`;
      throw new CredentialError("field-missing", message, "authorise the client and write its refresh token there");
    }
    if (refreshToken === this.#refused) throw this.#needsReauth(isFirst);
    return refreshToken;
  }

  /**
   * Whether another's claim still holds. Clocks of gateways differ, so its end is not believed: a claim is over when we
   * ourselves have seen it stand for as long as a claim lasts, or when its end is so long past that no clock is that wrong.
   */
  #isTaken(claim: Claim | undefined): boolean {
    if (claim === undefined) return false;
    const { clock, claimMs } = this.#deps;
    if (this.#watched?.nonce !== claim.nonce) this.#watched = { nonce: claim.nonce, since: clock.now() };
    const isLongPast = claim.until !== undefined && clock.wall() > claim.until + maxSkewMs;
    return !isLongPast && clock.now() - this.#watched.since < claimMs;
  }

  async #begin(record: RefreshRecord, refusals: number): Promise<Claimed | "conflict"> {
    const refreshToken = this.#spendable(record, refusals > 0);
    await this.#deps.prepare();
    return await this.#claim(record.entry, refreshToken);
  }

  async #claim(entry: KvVersioned, refreshToken: string): Promise<Claimed | "conflict"> {
    const { record, clock, claimMs, owner } = this.#deps;
    const since = clock.now();
    const ageMs = startStopwatch(clock);
    const claim: Claim = { owner, nonce: randomUUID(), until: clock.wall() + claimMs };
    const written = await this.#writeClaim(withClaim(entry.fields, claim), entry, claim.nonce);
    if (written === "conflict") return written;
    const claimed: Claimed = { entry: written, refreshToken, ageMs };
    this.#watched = { nonce: claim.nonce, since };
    // A store so slow that the claim might end before the answer: better not to begin.
    if (!this.#isClosing && ageMs() <= claimMs / 3) return claimed;
    await this.#release(claimed);
    if (this.#isClosing) throw new CredentialError("closed", "the request was given up", "none needed while stopping");
    throw slowError(record.place);
  }

  /** A write whose answer was lost may have come through. */
  async #writeClaim(
    fields: KvVersioned["fields"],
    seen: KvVersioned,
    nonce: string,
  ): Promise<KvVersioned | "conflict"> {
    const { record } = this.#deps;
    try {
      return await record.write(fields, seen);
    } catch (error) {
      if (!(error instanceof CredentialError) || !error.isAway) throw error;
      const now = await record.read(true);
      if (readRefreshRecord(now).claim?.nonce === nonce) return now;
      throw error;
    }
  }

  /**
   * At most a third of a claim is for its own write, and the last third to write what the request brings. An answer that
   * comes after we gave up may be the only one that there ever was: the request has all the time between.
   */
  async #spend({ refreshToken, ageMs }: Claimed): Promise<SpendOutcome> {
    const { claimMs, spend } = this.#deps;
    return await spend(refreshToken, (2 * claimMs) / 3 - ageMs());
  }

  /** Lets the others go on; if that fails they wait until the claim is over. */
  async #release({ entry }: Claimed): Promise<void> {
    try {
      await this.#deps.record.write(withoutClaim(entry.fields), entry);
    } catch (error) {
      if (!(error instanceof CredentialError)) throw error;
    }
  }

  async #settle(
    { entry, refreshToken: spent }: Claimed,
    granted: Extract<SpendOutcome, { kind: "granted" }>,
    askedAt: number,
  ): Promise<RotatedToken> {
    const { accessToken, refreshToken = spent, lifeMs, error } = granted;
    const expiresAt = askedAt + lifeMs;
    this.counts.refreshed += 1;
    await this.#save({ spent, fresh: { refreshToken, accessToken, expiresAt } }, entry);
    if (accessToken !== undefined) return { accessToken, lifeMs, refreshToken };
    throw error ?? new CredentialError("endpoint-bad-answer", "the endpoint gave no token", "look into its own log");
  }

  async #save(bought: Unsaved, claimed: KvVersioned): Promise<void> {
    const { random, record, logger } = this.#deps;
    let result = await this.#saveOnce(bought, claimed);
    for (let tries = 1; result instanceof CredentialError && tries < saveTries; tries += 1) {
      const waitMs = Math.min(maxSaveWaitMs, minSaveWaitMs * 2 ** tries);
      await this.#wait(waitMs / 2 + (random() * waitMs) / 2);
      result = await this.#saveOnce(bought);
    }
    if (result === "superseded") this.#warnOfNewer();
    if (!(result instanceof CredentialError)) return;
    this.#unsaved = bought;
    this.counts.unsaved += 1;
    logger.error("refresh token is in memory only", {
      path: record.place,
      code: result.code,
      reason: result.message,
      cure: `${result.cure}; do not stop this gateway before it logs "refresh token written back late"`,
    });
  }

  #warnOfNewer(): void {
    const { logger, record } = this.#deps;
    logger.warn("refresh token not written back, a newer one stands there", { path: record.place });
  }

  /** Over the version that is known to hold what was spent, else over whatever stands there, if that is what was spent. */
  async #saveOnce({ spent, fresh }: Unsaved, seen?: KvVersioned): Promise<Saved> {
    const { record } = this.#deps;
    try {
      const entry = seen ?? (await record.read(true));
      const stored = readRefreshRecord(entry);
      if (
        seen === undefined &&
        stored.refreshToken === fresh.refreshToken &&
        stored.accessToken === fresh.accessToken
      ) {
        return "saved";
      }
      if (stored.refreshToken !== spent) return "superseded";
      const written = await record.write(withTokens(entry.fields, fresh), entry);
      return written === "conflict" ? conflictError(record.place) : "saved";
    } catch (error) {
      if (error instanceof CredentialError) return error;
      throw error;
    }
  }

  #needsReauth(isFirst: boolean): CredentialError {
    const { record, logger } = this.#deps;
    const message = `the endpoint refuses the refresh token of ${record.place}: invalid_grant`;
    const cure = "authorise the client anew and write its refresh token there; nothing was deleted";
    const error = new CredentialError("needs-reauth", message, cure);
    if (isFirst) {
      this.counts.needsReauth += 1;
      const { code } = error;
      logger.error("refresh token needs a new authorisation", {
        code,
        reason: message,
        cure,
        count: this.counts.needsReauth,
      });
    }
    return error;
  }

  #busy(): CredentialError {
    const message = `other gateways keep ${this.#deps.record.place} claimed`;
    return new CredentialError("record-busy", message, "look for gateways that end while they refresh");
  }

  /** Spread, so that those who wait do not come together. */
  async #pause(ms: number): Promise<void> {
    if (!this.#isClosing) await this.#wait(ms * (0.5 + this.#deps.random()));
    if (this.#isClosing) throw new CredentialError("closed", "the request was given up", "none needed while stopping");
  }

  async #wait(ms: number): Promise<void> {
    await new Promise<void>((resolve) => this.#deps.clock.after(ms, resolve));
  }
}

interface Claimed {
  readonly entry: KvVersioned;
  readonly refreshToken: string;
  /** Since before it was written. */
  readonly ageMs: () => number;
}

function slowError(place: string): CredentialError {
  const message = `the store took too long to take a claim on ${place}`;
  return new CredentialError("store-timeout", message, "check the store's load and the path to it");
}

function conflictError(place: string): CredentialError {
  const message = `others keep writing to ${place}`;
  return new CredentialError("record-busy", message, "look for what writes there besides gateways");
}
