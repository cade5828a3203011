import { createLocalJWKSet, type JSONWebKeySet, type JWTVerifyGetKey } from "jose";

/** The public keys of an issuer at one moment. */
export interface KeySet {
  /** Finds the key for a token's header; rejects with jose's errors when there is none, or more than one. */
  readonly find: JWTVerifyGetKey;
}

/** Where a verifier gets an issuer's keys from. */
export interface KeyRing {
  /** The keys as they stand; undefined, after at most one look, when there are none to be had. */
  current(): KeySet | undefined | Promise<KeySet | undefined>;
  /** For a key that is not in `known`: other keys, or undefined when there are none, or it is too early to ask again. */
  newer(known: KeySet): KeySet | undefined | Promise<KeySet | undefined>;
}

export const maxKeySetBytes = 512 * 1024;
const maxKeys = 256;

/** Undefined when `document` is no JWK set (RFC 7517, section 5) with a usable public key in it. */
export function readKeySet(document: Readonly<Record<string, unknown>>): KeySet | undefined {
  const { keys } = document as { readonly keys?: unknown };
  if (!Array.isArray(keys) || keys.length > maxKeys) return undefined;
  // A symmetric key verifies whatever its reader signs; it has no place in a published set.
  const usable = keys.filter((key: unknown) => isPublicKey(key));
  if (usable.length === 0) return undefined;
  try {
    return { find: createLocalJWKSet({ keys: usable } as JSONWebKeySet) };
  } catch {
    return undefined;
  }
}

/** In which no key is ever found. */
export const noKeys: KeySet = { find: createLocalJWKSet({ keys: [] }) };

/** A JWK set that says, validly, that there are no keys. */
export function saysNoKeys(document: Readonly<Record<string, unknown>>): boolean {
  const { keys } = document as { readonly keys?: unknown };
  return Array.isArray(keys) && keys.length === 0;
}

const publicTypes: ReadonlySet<unknown> = new Set(["RSA", "EC", "OKP", "AKP"]);

function isPublicKey(key: unknown): boolean {
  if (typeof key !== "object" || key === null) return false;
  const { kty, d, priv } = key as Record<string, unknown>;
  return publicTypes.has(kty) && d === undefined && priv === undefined;
}
