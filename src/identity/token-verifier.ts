/**
 * Access tokens of one issuer, verified.
 *
 * 1. A token that was verified costs a hash and a look-up for a minute: `verify` then answers without a promise.
 * 2. Nothing is fetched, parsed or verified for a text that has not the form and the size of a token, or that names another
 *    issuer or algorithm.
 * 3. The audience belongs to the question, not to the memory: it is compared on every call.
 */
import { hash } from "node:crypto";
import { decodeJwt, decodeProtectedHeader, errors, type JWTPayload, type JWTVerifyOptions, jwtVerify } from "jose";
import type { Clock } from "../lib/index.ts";
import { type JwksSource, KeyRings, type KeyRingsDeps } from "./key-rings.ts";
import type { KeyRing, KeySet } from "./key-set.ts";
import { type ClaimsFault, leewayMs, readClaims, type VerifiedToken } from "./token-claims.ts";

export interface TokenVerifierOptions {
  /** Exactly as it stands in `iss`. */
  readonly issuer: string;
  /** One of these must be in `aud`. Undefined: `verify` is told for each token. */
  readonly audience?: string | readonly string[] | undefined;
  /** Default: every asymmetric algorithm that is sound. */
  readonly algorithms?: readonly string[] | undefined;
  readonly requiredScopes?: readonly string[] | undefined;
  /** `client_id` or `azp` must be one of these. */
  readonly clientIds?: readonly string[] | undefined;
  /** Exactly this `sub`. */
  readonly subject?: string | undefined;
  readonly jwks?: JwksSource | undefined;
  /** A PEM file whose certificates are trusted where the keys are fetched; read for each new connection. */
  readonly ca?: string | undefined;
  /** Take only tokens whose header says `typ: at+jwt` (RFC 9068), so that no other kind of token serves as one. */
  readonly requireTyp?: boolean | undefined;
}

export interface TokenVerifierDeps extends KeyRingsDeps {
  /** Shared with other verifiers; without it this one has its own, which `close` ends. */
  readonly keyRings?: KeyRings;
}

/** Why a token does not hold. Safe to log; never told to whoever sent it. */
export type TokenFault =
  | ClaimsFault
  | "form"
  | "size"
  | "issuer"
  | "audience"
  | "expired"
  | "not-yet-valid"
  | "algorithm"
  | "type"
  | "key"
  | "signature"
  | "client";

export type TokenVerdict =
  | { readonly kind: "valid"; readonly token: VerifiedToken }
  /** Valid, but some of `requiredScopes` are missing. */
  | { readonly kind: "insufficientScope"; readonly token: VerifiedToken }
  | { readonly kind: "refused"; readonly reason: TokenFault }
  /** The issuer's keys are not to be had at the moment, or too many tokens wait for them. */
  | { readonly kind: "unavailable" };

export interface TokenVerifier {
  readonly issuer: string;
  readonly requiredScopes: readonly string[];
  /**
   * `audience` is what `aud` must name when the options name none; without either nothing is valid. A slash at the end makes no
   * difference. Never rejects.
   */
  verify(token: string, audience?: string): TokenVerdict | Promise<TokenVerdict>;
  /** Which keys it believes in, for `KeyRings.keepOnly`. */
  readonly keyRing: KeyRing;
  /** Fetches the keys, so that the first token need not wait. */
  warm(): void;
  /** Safe twice. */
  close(): Promise<void>;
}

/** Every algorithm whose public half can be published: with a symmetric one, whoever verifies can also sign. */
export const asymmetricAlgorithms: readonly string[] = [
  "RS256",
  "RS384",
  "RS512",
  "PS256",
  "PS384",
  "PS512",
  "ES256",
  "ES384",
  "ES512",
  "EdDSA",
  "Ed25519",
];

export const maxTokenBytes = 16 * 1024;
const cachedMs = 60_000;
const maxCached = 2_048;
const maxPending = 1_024;
const tokenPattern = /^eyJ[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/;

/** Whether `text` could be a signed JWT at all. Costs one pass over at most 16 KiB. */
export function looksLikeJwt(text: string): boolean {
  return text.length <= maxTokenBytes && tokenPattern.test(text);
}

/** Throws when an algorithm is symmetric, `none` or unknown. */
export function createTokenVerifier(options: TokenVerifierOptions, deps: TokenVerifierDeps): TokenVerifier {
  return new JwtVerifier(options, deps);
}

interface Cached {
  readonly token: VerifiedToken;
  /** It was verified with these: once they are others, it is looked at again. */
  readonly keys: KeySet;
  /** Clock time. */
  readonly until: number;
}

type Signed = { readonly kind: "signed"; readonly token: VerifiedToken; readonly keys: KeySet };
type Outcome = Signed | Exclude<TokenVerdict, { readonly kind: "valid" | "insufficientScope" }>;

class JwtVerifier implements TokenVerifier {
  readonly issuer: string;
  readonly requiredScopes: readonly string[];
  readonly keyRing: KeyRing;
  readonly #options: TokenVerifierOptions;
  readonly #clock: Clock;
  readonly #ownRings: KeyRings | undefined;
  readonly #algorithms: readonly string[];
  readonly #audiences: readonly string[] | undefined;
  readonly #cache = new Map<string, Cached>();
  readonly #pending = new Map<string, Promise<Outcome>>();

  constructor(options: TokenVerifierOptions, deps: TokenVerifierDeps) {
    const { issuer, audience, algorithms = asymmetricAlgorithms, jwks, ca } = options;
    const unsound = algorithms.find((name) => !asymmetricAlgorithms.includes(name));
    if (unsound !== undefined || algorithms.length === 0) throw new Error("a signature algorithm is not to be trusted");
    this.issuer = issuer;
    this.requiredScopes = options.requiredScopes ?? [];
    this.#options = options;
    this.#clock = deps.clock;
    this.#algorithms = algorithms;
    this.#audiences = typeof audience === "string" ? [audience] : audience;
    const rings = deps.keyRings ?? new KeyRings(deps);
    this.#ownRings = rings === deps.keyRings ? undefined : rings;
    this.keyRing = rings.ring(issuer, jwks, ca);
  }

  warm(): void {
    void this.keyRing.current();
  }

  async close(): Promise<void> {
    await this.#ownRings?.close();
  }

  verify(token: string, audience?: string): TokenVerdict | Promise<TokenVerdict> {
    if (token.length > maxTokenBytes) return refused("size");
    if (!token.startsWith("eyJ")) return refused("form");
    const key = hash("sha256", token, "hex");
    const cached = this.#cache.get(key);
    if (cached !== undefined && this.#clock.now() < cached.until && this.keyRing.current() === cached.keys) {
      return this.#judge(cached.token, audience);
    }
    this.#cache.delete(key);
    if (!tokenPattern.test(token)) return refused("form");
    const fault = this.#look(token);
    if (fault !== undefined) return refused(fault);
    return this.#once(key, token).then((outcome) =>
      outcome.kind === "signed" ? this.#judge(outcome.token, audience) : outcome,
    );
  }

  /** What is wrong with a token that nobody has verified yet: saves keys and signatures, and grants nothing. */
  #look(token: string): TokenFault | undefined {
    try {
      const { alg } = decodeProtectedHeader(token);
      if (decodeJwt(token).iss !== this.issuer) return "issuer";
      return this.#algorithms.includes(String(alg)) ? undefined : "algorithm";
    } catch {
      return "form";
    }
  }

  /** Calls that come with one token at once share its verification. */
  #once(key: string, token: string): Promise<Outcome> {
    const running = this.#pending.get(key);
    if (running !== undefined) return running;
    if (this.#pending.size >= maxPending) return Promise.resolve({ kind: "unavailable" });
    const outcome = this.#verify(token).then((result) => {
      this.#pending.delete(key);
      if (result.kind === "signed") this.#remember(key, result);
      return result;
    });
    this.#pending.set(key, outcome);
    return outcome;
  }

  async #verify(token: string): Promise<Outcome> {
    try {
      const verified = await this.#verifySignature(token);
      if (verified === undefined) return { kind: "unavailable" };
      const { payload, keys } = verified;
      const { iat } = payload;
      if (iat !== undefined && iat * 1000 > this.#clock.wall() + leewayMs) return refused("not-yet-valid");
      const claims = readClaims(payload, this.issuer);
      return typeof claims === "string" ? refused(claims) : { kind: "signed", token: claims, keys };
    } catch (error) {
      return refused(faultOf(error));
    }
  }

  /** Undefined: there are no keys. Rejects with jose's errors. */
  async #verifySignature(token: string): Promise<{ readonly payload: JWTPayload; readonly keys: KeySet } | undefined> {
    const keys = await this.keyRing.current();
    if (keys === undefined) return undefined;
    const options = this.#joseOptions();
    try {
      return { payload: await verifyWith(keys, token, options), keys };
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
      const newer = await this.keyRing.newer(keys);
      if (newer === undefined) throw error;
      return { payload: await verifyWith(newer, token, options), keys: newer };
    }
  }

  #joseOptions(): JWTVerifyOptions {
    return {
      issuer: this.issuer,
      algorithms: [...this.#algorithms],
      requiredClaims: ["exp", "aud", "sub"],
      clockTolerance: leewayMs / 1000,
      currentDate: new Date(this.#clock.wall()),
      ...(this.#options.requireTyp === true ? { typ: "at+jwt" } : {}),
    };
  }

  #remember(key: string, { token, keys }: Signed): void {
    if (this.#cache.size >= maxCached) {
      for (const oldest of this.#cache.keys()) {
        this.#cache.delete(oldest);
        break;
      }
    }
    const leftMs = token.validUntil - this.#clock.wall();
    this.#cache.set(key, { token, keys, until: this.#clock.now() + Math.min(cachedMs, leftMs) });
  }

  #judge(token: VerifiedToken, audience: string | undefined): TokenVerdict {
    const { clientIds, subject } = this.#options;
    const wanted = this.#audiences ?? (audience === undefined ? [] : [audience]);
    if (!wanted.some((one) => hasAudience(token, one))) return refused("audience");
    if (subject !== undefined && token.subject !== subject) return refused("subject");
    if (clientIds !== undefined && (token.clientId === undefined || !clientIds.includes(token.clientId))) {
      return refused("client");
    }
    const hasScopes = this.requiredScopes.every((scope) => token.scopes.has(scope));
    return { kind: hasScopes ? "valid" : "insufficientScope", token };
  }
}

function refused(reason: TokenFault): { readonly kind: "refused"; readonly reason: TokenFault } {
  return { kind: "refused", reason };
}

function hasAudience({ audiences }: VerifiedToken, wanted: string): boolean {
  for (const one of audiences) if (one === wanted || withoutSlash(one) === withoutSlash(wanted)) return true;
  return false;
}

function withoutSlash(text: string): string {
  return text.endsWith("/") ? text.slice(0, -1) : text;
}

/** Tries each key when the token names none and several could be meant (RFC 7515, section 4.1.4: `kid` is optional). */
async function verifyWith(keys: KeySet, token: string, options: JWTVerifyOptions): Promise<JWTPayload> {
  try {
    return (await jwtVerify(token, keys.find, options)).payload;
  } catch (error) {
    if (!(error instanceof errors.JWKSMultipleMatchingKeys)) throw error;
    for await (const key of error) {
      try {
        return (await jwtVerify(token, key, options)).payload;
      } catch (inner) {
        if (!(inner instanceof errors.JWSSignatureVerificationFailed)) throw inner;
      }
    }
    throw new errors.JWSSignatureVerificationFailed();
  }
}

function faultOf(error: unknown): TokenFault {
  if (error instanceof errors.JWTExpired) return "expired";
  if (error instanceof errors.JWTClaimValidationFailed) return claimFaults[error.claim] ?? "claims";
  if (error instanceof errors.JOSEAlgNotAllowed) return "algorithm";
  if (error instanceof errors.JWSSignatureVerificationFailed) return "signature";
  if (error instanceof errors.JWSInvalid || error instanceof errors.JWTInvalid) return "form";
  return "key";
}

const claimFaults: Readonly<Record<string, TokenFault>> = {
  iss: "issuer",
  aud: "audience",
  exp: "expired",
  nbf: "not-yet-valid",
  typ: "type",
  sub: "subject",
};
