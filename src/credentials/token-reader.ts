/**
 * The access token of one server as a secret that is read: bought when it is wanted, and again before it expires.
 *
 * 1. However many calls want it, one grant runs. While a younger token is on its way, the old one serves until it expires.
 * 2. An endpoint that is away leaves the old token in use until it expires; one that says no ends it.
 * 3. A refused grant reads the secrets behind it anew and, if they have changed, tries once more.
 */
import { type Clock, Secret } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { Cached } from "./cache.ts";
import { CredentialError } from "./errors.ts";
import type { GrantHttp, SendRequest } from "./grant-http.ts";
import type { AnySource } from "./options.ts";
import type { SecretReader } from "./server-credential.ts";
import type { ReaderState } from "./states.ts";

export interface IssuedToken {
  readonly text: string;
  /** From the moment when it was asked for. */
  readonly lifeMs: number;
  /** No younger one would live longer: asking ahead of its end is of no use. */
  readonly isLast?: boolean;
}

/** How secrets become an access token. */
export interface Grant {
  /** Names the endpoint in messages. */
  readonly place: string;
  /** A PEM file whose certificates are trusted there besides. */
  readonly ca?: string | undefined;
  /** What is to be read, in the order in which `obtain` takes it. */
  readonly sources: readonly AnySource[];
  /** The first source is a secret that is sent as it stands. */
  readonly sendsSecret?: boolean;
  /** Told within the very call that wants a token, before anything is waited for; what it gives then obtains that one. */
  begin?(): Grant;
  /** Throws `CredentialError`, or whatever the answer led to, which `GrantHttp` explains. */
  obtain(secrets: readonly Secret[], send: SendRequest): Promise<IssuedToken>;
}

export interface TokenReaderDeps {
  readonly openReader: (source: AnySource) => SecretReader;
  readonly http: GrantHttp;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
}

interface HeldToken {
  readonly secret: Secret;
  readonly lifeMs: number;
  readonly isLast: boolean;
}

const maxAheadMs = 60_000;
/** A server that refuses a token which was bought because it refused the last one will refuse the next one too. */
const reloadPauseMs = 10_000;

export class TokenReader implements SecretReader {
  readonly place: string;
  readonly #grant: Grant;
  readonly #http: GrantHttp;
  readonly #clock: Clock;
  readonly #readers: readonly SecretReader[];
  readonly #cached: Cached<HeldToken>;
  #reloadAt = Number.NEGATIVE_INFINITY;
  #sent: Secret | undefined;

  constructor(grant: Grant, { openReader, http, clock, random, logger }: TokenReaderDeps) {
    this.place = grant.place;
    this.#grant = grant;
    this.#http = http;
    this.#clock = clock;
    this.#readers = grant.sources.map(openReader);
    this.#cached = new Cached({
      load: () => this.#obtain(),
      freshMs: 0,
      staleForMs: 0,
      spanOf: ({ lifeMs, isLast }) => (isLast ? { freshMs: lifeMs, staleForMs: 0 } : spanOf(lifeMs, random())),
      clock,
      random,
      onStale: ({ code, cure, message }) =>
        logger.warn("token endpoint away, older token serves", { code, cure, reason: message }),
      onRecovered: () => logger.info("token endpoint back"),
    });
  }

  /** What must not come back from a server any more than the access token itself. */
  get guarded(): readonly Secret[] {
    return this.#sent === undefined ? [] : [this.#sent];
  }

  read(): Secret | Promise<Secret> {
    const held = this.#cached.get();
    return held instanceof Promise ? held.then(({ secret }) => secret) : held.secret;
  }

  async reload(): Promise<Secret> {
    const now = this.#clock.now();
    if (now < this.#reloadAt) return await this.read();
    this.#reloadAt = now + reloadPauseMs;
    return (await this.#cached.reload()).secret;
  }

  state(): ReaderState {
    return this.#cached.state();
  }

  async #obtain(): Promise<HeldToken> {
    const grant = this.#grant.begin?.() ?? this.#grant;
    const secrets = await Promise.all(this.#readers.map(async (reader) => reader.read()));
    try {
      return await this.#exchange(grant, secrets);
    } catch (error) {
      if (!(error instanceof CredentialError) || error.code !== "grant-denied") throw error;
      const younger = await Promise.all(this.#readers.map(async (reader) => reader.reload()));
      if (younger.every((secret, i) => secret.reveal() === secrets[i]?.reveal())) throw error;
      return await this.#exchange(grant, younger);
    }
  }

  async #exchange(grant: Grant, secrets: readonly Secret[]): Promise<HeldToken> {
    if (grant.sendsSecret === true) this.#sent = secrets[0];
    const {
      text,
      lifeMs,
      isLast = false,
    } = await this.#http.exchange(this.place, (send) => grant.obtain(secrets, send), { ca: grant.ca });
    return { secret: new Secret(text), lifeMs, isLast };
  }
}

/** Fresh until a third of its life, but at most a minute, is left; replicas spread themselves over a fifth of that. */
export function spanOf(lifeMs: number, random: number): { readonly freshMs: number; readonly staleForMs: number } {
  const aheadMs = Math.min(lifeMs / 3, maxAheadMs) * (1 + random / 5);
  return { freshMs: lifeMs - aheadMs, staleForMs: aheadMs };
}
