/**
 * The credential of one server: secrets in, headers out.
 *
 * 1. While nothing changed, `inject` gives the same object at once; whatever is read anew makes another.
 * 2. However many calls are refused together, one re-read runs; a call whose injection is older than the current one
 *    is given the current one.
 */
import type { Clock, Secret } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { CredentialError } from "./errors.ts";
import { type Injection, type Shape, sealInjection } from "./shapes.ts";
import { conditionOf, Failures, joinStates, type ReaderState } from "./states.ts";

/** For whom a call is made: the principal, and what it has shown. */
export interface Caller {
  /** `principal.id`: `key:<name>` or `oauth:<issuer>#<sub>`. */
  readonly id: string;
  /** The agent's own access token, verified by this gateway; never there for a key, nor where the relay is believed. */
  readonly token?: Secret | undefined;
  /** `exp` of that token: milliseconds since the Unix epoch. */
  readonly expiresAt?: number | undefined;
}

export interface ServerCredential {
  /** Secrets differ from caller to caller: an answer to one is searched for those of that one. */
  readonly isPerCaller: boolean;
  /**
   * What to add to one upstream call: at once while the secret is at hand, else a promise. Throws or rejects with
   * `CredentialError`; then the call must not be made. Read it for every call, it changes when the secret does.
   */
  inject(caller: Caller): Injection | Promise<Injection>;
  /**
   * What to try after the server refused `failed`: read anew, once for all who ask together. With the same headers as
   * `failed` another try is of no use. Throws or rejects with `CredentialError`.
   */
  refresh(failed: Injection, caller: Caller): Injection | Promise<Injection>;
  /** Lower-case names of the headers it sets, which agents must not send. */
  headerNames(): readonly string[];
  /** How it is, for status and metrics; absent where there is nothing to tell. */
  state?(): ReaderState;
}

/** A place that a secret is read from. */
export interface SecretReader {
  /** The same object until it was read anew. */
  read(): Secret | Promise<Secret>;
  /** Read now, whatever is at hand. */
  reload(): Promise<Secret>;
  state?(): ReaderState;
}

const noInjection: Injection = { headers: [], secrets: [] };

/** Of a server that is called without a credential. */
export const noCredential: ServerCredential = {
  isPerCaller: false,
  inject: () => noInjection,
  refresh: () => noInjection,
  headerNames: () => [],
};

/** Re-reads that brought nothing new: the first two are free, then a wrong secret must not turn calls into reads. */
const freeRereads = 2;
const rereadPauseMs = 250;
const maxRereadPauseMs = 10_000;

/** The same for every caller. */
export class ShapedCredential implements ServerCredential {
  readonly isPerCaller = false;
  readonly #shape: Shape;
  readonly #readers: readonly SecretReader[];
  readonly #clock: Clock;
  readonly #logger: Logger;
  #last: Injection | undefined;
  #failure: CredentialError | undefined;
  readonly #failures = new Failures();
  #reread: Promise<Injection> | undefined;
  #fruitless = 0;
  #rereadAt = Number.NEGATIVE_INFINITY;

  /** `readers`: one for each of the shape's sources. */
  constructor(
    shape: Shape,
    readers: readonly SecretReader[],
    deps: { readonly clock: Clock; readonly logger: Logger },
  ) {
    this.#shape = shape;
    this.#readers = readers;
    this.#clock = deps.clock;
    this.#logger = deps.logger;
  }

  headerNames(): readonly string[] {
    return this.#shape.names.map((name) => name.toLowerCase());
  }

  /** What was read may still be unfit to be sent, which only the last call has seen. */
  state(): ReaderState {
    const joined = this.#joinReaders();
    if (this.#failure === undefined) return joined;
    const lastError = this.#failures.last(this.#clock.now());
    return { ...joined, condition: conditionOf(false, this.#failure), lastError };
  }

  #joinReaders(): ReaderState {
    const [only] = this.#readers;
    if (only?.state !== undefined && this.#readers.length === 1) return only.state();
    // Two fields of one entry are one read.
    const distinct = new Map(this.#readers.map((reader) => [reader.state, reader]));
    return joinStates([...distinct.values()].flatMap((reader) => reader.state?.() ?? []));
  }

  inject(): Injection | Promise<Injection> {
    try {
      return this.#take();
    } catch (error) {
      throw this.#report(error);
    }
  }

  refresh(failed: Injection): Injection | Promise<Injection> {
    if (this.#reread !== undefined) return this.#reread;
    const current = this.#atHand();
    if (current !== undefined && current !== failed) return current;
    if (this.#readers.length === 0 || this.#clock.now() < this.#rereadAt) return failed;
    this.#reread = this.#readAnew(failed);
    return this.#reread;
  }

  /** What a call would be given now, if it need not wait: that may be younger than what the last call was given. */
  #atHand(): Injection | undefined {
    try {
      const found = this.#take();
      if (!(found instanceof Promise)) return found;
      found.catch(() => undefined);
      return undefined;
    } catch (error) {
      this.#report(error);
      return undefined;
    }
  }

  async #readAnew(failed: Injection): Promise<Injection> {
    try {
      const secrets = await Promise.all(this.#readers.map((reader) => reader.reload()));
      const injection = this.#build(secrets);
      this.#count(isSame(failed, injection));
      return injection;
    } catch (error) {
      this.#count(true);
      throw this.#report(error);
    } finally {
      this.#reread = undefined;
    }
  }

  #count(isFruitless: boolean): void {
    this.#fruitless = isFruitless ? this.#fruitless + 1 : 0;
    this.#rereadAt = Number.NEGATIVE_INFINITY;
    if (this.#fruitless < freeRereads) return;
    const pause = Math.min(maxRereadPauseMs, rereadPauseMs * 2 ** (this.#fruitless - freeRereads));
    this.#rereadAt = this.#clock.now() + pause;
  }

  /** Reads every part; while none of them is another object than last time, nothing is made. */
  #take(): Injection | Promise<Injection> {
    const last = this.#last;
    const [reader] = this.#readers;
    if (reader === undefined || this.#readers.length > 1) return this.#takeAll();
    const secret = reader.read();
    if (secret instanceof Promise) return this.#takeLater([secret]);
    return last !== undefined && last.secrets[0] === secret ? last : this.#build([secret]);
  }

  #takeAll(): Injection | Promise<Injection> {
    const secrets = this.#readers.map(readSafely);
    return secrets.some((secret) => secret instanceof Promise)
      ? this.#takeLater(secrets)
      : this.#build(secrets as Secret[]);
  }

  async #takeLater(secrets: readonly (Secret | Promise<Secret>)[]): Promise<Injection> {
    try {
      return this.#build(await Promise.all(secrets));
    } catch (error) {
      throw this.#report(error);
    }
  }

  #build(secrets: readonly Secret[]): Injection {
    const last = this.#last;
    if (last !== undefined && secrets.every((secret, i) => last.secrets[i] === secret)) return last;
    const injection = sealInjection(this.#shape.build(secrets));
    // However the new value came here: a refusal of it is the first of its kind.
    if (last !== undefined && !isSame(last, injection)) this.#count(false);
    this.#last = injection;
    this.#failure = undefined;
    return injection;
  }

  /** One log line per run of one failure; each call still gets the error. */
  #report(thrown: unknown): CredentialError {
    const error = thrown instanceof CredentialError ? thrown : unexpected();
    this.#last = undefined;
    const isNew = this.#failure?.message !== error.message;
    this.#failure = error;
    this.#failures.note(error, this.#clock.now());
    if (isNew) {
      const { code, cure, message, status } = error;
      this.#logger.error("credential failed", {
        code,
        cure,
        reason: message,
        ...(status === undefined ? {} : { status }),
      });
    }
    return error;
  }
}

/** Whatever was thrown may quote a secret, so none of it is kept. */
function unexpected(): CredentialError {
  return new CredentialError("store-failing", "making the credential failed unexpectedly", "report this as a defect");
}

/** A throw amid several reads would leave the promises of the others without an owner. */
function readSafely(reader: SecretReader): Secret | Promise<Secret> {
  try {
    return reader.read();
  } catch (error) {
    return Promise.reject(error);
  }
}

function isSame(one: Injection, other: Injection): boolean {
  return (
    one.tls === other.tls &&
    one.headers.length === other.headers.length &&
    one.headers.every((text, i) => text === other.headers[i])
  );
}
