/**
 * The keys of an issuer that serves them over HTTP (RFC 8414, OpenID Connect Discovery, RFC 7517).
 *
 * 1. One fetch at a time: whoever needs keys meanwhile waits for the same one.
 * 2. After a success there is no other fetch for `cooldownMs`, after a failure none for a growing time: neither tokens with
 *    made-up key ids nor an issuer that is down can make us dial at the rate of the calls.
 * 3. Keys older than `maxAgeMs` are fetched anew beside the calls that still use them; while that fails, the last good ones
 *    serve for `staleMs`.
 * 4. What metadata name is dialled only where that is public, or the issuer's own host; what the operator wrote, anywhere.
 */
import type { Dispatcher } from "undici";
import { type Clock, isDistrust, type Reach, reachOf } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { FetchFault, fetchJson } from "./fetch-json.ts";
import { isSafeAddress } from "./issuer.ts";
import { type KeyRing, type KeySet, maxKeySetBytes, readKeySet } from "./key-set.ts";

export interface RemoteKeysTimes {
  readonly cooldownMs: number;
  readonly maxAgeMs: number;
  readonly staleMs: number;
  readonly deadlineMs: number;
}

export const defaultRemoteKeysTimes: RemoteKeysTimes = {
  cooldownMs: 30_000,
  maxAgeMs: 600_000,
  staleMs: 6 * 3_600_000,
  deadlineMs: 5_000,
};

export interface RemoteKeysOptions extends Partial<RemoteKeysTimes> {
  readonly issuer: string;
  /** Undefined: the issuer's metadata says it. */
  readonly jwksUrl: string | undefined;
  /** By how far the URL may reach. */
  readonly agents: Readonly<Record<Reach, Dispatcher>>;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
}

const backoffBaseMs = 1_000;
const backoffCapMs = 60_000;

export class RemoteKeys implements KeyRing {
  readonly #options: RemoteKeysOptions;
  readonly #times: RemoteKeysTimes;
  #keys: KeySet | undefined = undefined;
  #fetchedAt = Number.NEGATIVE_INFINITY;
  #restUntil = Number.NEGATIVE_INFINITY;
  #failures = 0;
  #running: Promise<void> | undefined = undefined;

  constructor(options: RemoteKeysOptions) {
    this.#options = options;
    this.#times = { ...defaultRemoteKeysTimes, ...options };
  }

  current(): KeySet | undefined | Promise<KeySet | undefined> {
    const ageMs = this.#options.clock.now() - this.#fetchedAt;
    if (this.#keys !== undefined && ageMs <= this.#times.maxAgeMs) return this.#keys;
    const running = this.#refresh();
    if (this.#keys !== undefined && ageMs <= this.#times.staleMs) return this.#keys;
    this.#keys = undefined;
    return running?.then(() => this.#keys);
  }

  newer(known: KeySet): KeySet | undefined | Promise<KeySet | undefined> {
    const unless = (): KeySet | undefined => (this.#keys === known ? undefined : this.#keys);
    return unless() ?? this.#refresh()?.then(unless);
  }

  /** Undefined: it is too early for another fetch. */
  #refresh(): Promise<void> | undefined {
    if (this.#running === undefined && this.#options.clock.now() < this.#restUntil) return undefined;
    this.#running ??= this.#fetch().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  async #fetch(): Promise<void> {
    const { clock, issuer, logger } = this.#options;
    try {
      const until = clock.now() + this.#times.deadlineMs;
      const url = this.#options.jwksUrl ?? (await this.#discover(until));
      const keys = readKeySet(await this.#get(url, until));
      if (keys === undefined) throw new FetchFault("no JWK set with public keys");
      this.#keys = keys;
      this.#fetchedAt = clock.now();
      this.#failures = 0;
      this.#restUntil = clock.now() + this.#times.cooldownMs;
      logger.debug("keys fetched", { url: issuer });
    } catch (error) {
      this.#noteFailure(error instanceof FetchFault ? error.message : "unexpected");
    }
  }

  #noteFailure(reason: string): void {
    const { clock, random, issuer, logger } = this.#options;
    const ceilingMs = Math.min(backoffCapMs, backoffBaseMs * 2 ** Math.min(this.#failures, 16));
    this.#failures += 1;
    const waitMs = Math.round(ceilingMs * (0.5 + random() / 2));
    this.#restUntil = clock.now() + waitMs;
    const meanwhile =
      this.#keys === undefined ? "tokens of this issuer are refused until then" : "the last keys still serve";
    const trust = caCure(reason);
    const cure = trust === undefined ? meanwhile : `${trust}; ${meanwhile}`;
    logger.warn("keys of an issuer not fetched", { url: issuer, reason, waitMs, cure });
  }

  /** The first of the well-known places that answers names the keys; one that speaks for another issuer ends the search. */
  async #discover(until: number): Promise<string> {
    const { issuer } = this.#options;
    let last = new FetchFault("no metadata");
    for (const url of metadataUrls(issuer)) {
      try {
        return readJwksUri(await this.#get(url, until), issuer);
      } catch (error) {
        if (!(error instanceof FetchFault) || error instanceof MetadataFault) throw error;
        last = error;
      }
    }
    throw last;
  }

  /** All documents of one look share one deadline, which ends at `until`. */
  #get(url: string, until: number): Promise<Readonly<Record<string, unknown>>> {
    const { agents, clock, issuer, jwksUrl } = this.#options;
    const deadlineMs = Math.max(0, until - clock.now());
    const dispatcher = agents[reachOf(url, jwksUrl === undefined ? issuer : undefined)];
    return fetchJson(url, { dispatcher, clock, deadlineMs, maxBytes: maxKeySetBytes });
  }
}

/** What to write where nobody who is trusted has signed the certificate of whoever has the keys; undefined for other reasons. */
export function caCure(reason: string): string | undefined {
  if (!isDistrust(reason)) return undefined;
  return reason.startsWith("CA_FILE_")
    ? "the file that `ca` of the issuer names must be there and hold PEM certificates"
    : "name a PEM file with the CA that signed the certificate there as `ca` beside `issuer`";
}

class MetadataFault extends FetchFault {}

/** RFC 8414 (section 3.1), then OpenID Connect Discovery (section 4). */
function metadataUrls(issuer: string): string[] {
  const { origin, pathname } = new URL(issuer);
  const path = pathname.replace(/\/$/, "");
  return [
    `${origin}/.well-known/oauth-authorization-server${path}`,
    `${origin}${path}/.well-known/openid-configuration`,
  ];
}

function readJwksUri(metadata: Readonly<Record<string, unknown>>, issuer: string): string {
  // RFC 8414, section 3.3: identical, or the document is not to be used.
  if (metadata["issuer"] !== issuer) throw new MetadataFault("metadata of another issuer");
  const uri = metadata["jwks_uri"];
  if (typeof uri !== "string" || !isSafeAddress(uri, issuer))
    throw new MetadataFault("no jwks_uri that may be dialled");
  return uri;
}
