import { createPrivateKey, type KeyObject, webcrypto } from "node:crypto";
import { type CryptoKey, type JWTPayload, SignJWT } from "jose";
import type { Clock, Secret } from "../lib/index.ts";
import { CredentialError } from "./errors.ts";

export interface SigningKey {
  readonly key: CryptoKey;
  /** RFC 7518 and 8037: what it signs with. */
  readonly alg: string;
}

const ecAlgorithms: Readonly<Record<string, { readonly alg: string; readonly namedCurve: string }>> = {
  prime256v1: { alg: "ES256", namedCurve: "P-256" },
  secp384r1: { alg: "ES384", namedCurve: "P-384" },
  secp521r1: { alg: "ES512", namedCurve: "P-521" },
};

/** Reads private keys and keeps the last one made, without its text. */
export class KeyReader {
  readonly #place: string;
  #last: { readonly secret: Secret; readonly key: SigningKey } | undefined;

  constructor(place: string) {
    this.#place = place;
  }

  /** A PEM (PKCS 8, PKCS 1 or SEC 1, not encrypted) or a JWK. Rejects with `value-invalid`. */
  async read(secret: Secret): Promise<SigningKey> {
    if (this.#last?.secret === secret) return this.#last.key;
    const key = await importKey(parseKey(secret.reveal(), this.#place), this.#place);
    this.#last = { secret, key };
    return key;
  }
}

/** The parsers' own errors may quote what they read, so they end here. */
function parseKey(text: string, place: string): KeyObject {
  try {
    if (!text.trimStart().startsWith("{")) return createPrivateKey(text);
    return createPrivateKey({ key: JSON.parse(text), format: "jwk" });
  } catch {
    throw invalid(place, "holds no private key");
  }
}

async function importKey(object: KeyObject, place: string): Promise<SigningKey> {
  const { alg, params } = algorithmOf(object, place);
  try {
    const der = object.export({ type: "pkcs8", format: "der" });
    return { alg, key: await webcrypto.subtle.importKey("pkcs8", der, params, false, ["sign"]) };
  } catch {
    throw invalid(place, "holds a private key that cannot sign");
  }
}

function algorithmOf(object: KeyObject, place: string) {
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = object;
  if (type === "rsa") {
    if ((details?.modulusLength ?? 0) < 2048) throw invalid(place, "holds an RSA key of less than 2048 bits");
    return { alg: "RS256", params: { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" } };
  }
  if (type === "ed25519") return { alg: "EdDSA", params: { name: "Ed25519" } };
  const curve = type === "ec" ? ecAlgorithms[details?.namedCurve ?? ""] : undefined;
  if (curve === undefined) throw invalid(place, "holds a key of a kind that is not used for signing");
  return { alg: curve.alg, params: { name: "ECDSA", namedCurve: curve.namedCurve } };
}

interface AssertionParts {
  readonly claims: JWTPayload;
  readonly keyId?: string | undefined;
  /** How long ago it claims to be made, for servers whose clock is behind. */
  readonly agoS: number;
  /** From now. */
  readonly lifeS: number;
}

/** A JWT that says `claims` for a short while. */
export async function signAssertion(
  { key, alg }: SigningKey,
  clock: Clock,
  { claims, keyId, agoS, lifeS }: AssertionParts,
): Promise<string> {
  const nowS = Math.floor(clock.wall() / 1_000);
  return await new SignJWT({ ...claims, iat: nowS - agoS, exp: nowS + lifeS })
    .setProtectedHeader({ alg, typ: "JWT", ...(keyId === undefined ? {} : { kid: keyId }) })
    .sign(key);
}

function invalid(place: string, what: string): CredentialError {
  return new CredentialError("value-invalid", `${place} ${what}`, "store an RSA, EC or Ed25519 key as PEM or JWK");
}
