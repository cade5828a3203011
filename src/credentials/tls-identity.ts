/**
 * A TLS client certificate with its key, ready for use. Only OpenSSL's own object comes out of here: nobody else sees the
 * key, and no error or log line can quote it.
 */
import { createPrivateKey, type KeyObject, type X509Certificate } from "node:crypto";
import { createSecureContext, type SecureContext } from "node:tls";
import { type Clock, readCertificates, type Secret } from "../lib/index.ts";
import { CredentialError } from "./errors.ts";
import { type AnySource, describeSource, type MtlsOptions } from "./options.ts";
import { type Injection, type Shape, secretAt } from "./shapes.ts";

export interface TlsIdentity {
  readonly context: SecureContext;
  /** The same with these PEM certificates trusted besides. */
  contextTrusting(ca: readonly string[]): SecureContext;
}

interface Pair {
  /** What it was made of. */
  readonly texts: readonly string[];
  readonly injectable: TlsIdentity;
  readonly certificate: X509Certificate;
}

/** Two files are not exchanged in one moment: for so long a pair that does not fit leaves the one before in use. */
const tornMs = 10_000;

/** The certificate as a shape without headers. It stays the same object while the texts that are read do. */
export function mtlsShape(options: MtlsOptions, clock: Clock): Shape {
  const { certificate, privateKey } =
    "pki" in options ? { certificate: { lease: "certificate" }, privateKey: { lease: "private_key" } } : options;
  const sources: readonly AnySource[] = [certificate, privateKey, ...(options.ca === undefined ? [] : [options.ca])];
  const places = sources.map(describeSource);
  const mayTear = "file" in certificate && "file" in privateKey;
  let last: Pair | undefined;
  let tornAt: number | undefined;
  const take = (secrets: readonly Secret[]): Pair => {
    const texts = secrets.map((secret) => secret.reveal());
    const isSame = last?.texts.every((text, i) => text === texts[i]) === true;
    const pair = isSame && last !== undefined ? last : makePair(texts, places);
    checkTime(pair.certificate, places[0] ?? "", clock);
    return pair;
  };
  return {
    names: [],
    sources,
    build(secrets): Injection {
      secretAt(secrets, sources.length - 1);
      try {
        last = take(secrets);
        tornAt = undefined;
      } catch (error) {
        tornAt ??= clock.now();
        if (!mayTear || last === undefined || clock.now() - tornAt >= tornMs) throw error;
      }
      return { headers: [], secrets, tls: last.injectable };
    },
  };
}

/** Parsers and OpenSSL may quote what they read, so their errors end here. */
function makePair(texts: readonly string[], places: readonly string[]): Pair {
  const [certText = "", keyText = "", caText] = texts;
  const [certPlace = "", keyPlace = "", caPlace = ""] = places;
  const [certificate] = certificatesIn(certText, certPlace);
  const key = readKey(keyText, keyPlace);
  if (certificate === undefined || !certificate.checkPrivateKey(key)) {
    throw invalid(keyPlace, `holds another key than that of the certificate in ${certPlace}`, "store both of one pair");
  }
  const ca = caText === undefined ? undefined : certificatesIn(caText, caPlace).map(String);
  try {
    const options = { cert: certText, key: keyText, minVersion: "TLSv1.2" } as const;
    const context = createSecureContext(ca === undefined ? options : { ...options, ca });
    const contextTrusting: TlsIdentity["contextTrusting"] = (more) =>
      createSecureContext({ ...options, ca: [...(ca ?? []), ...more] });
    return { texts, injectable: { context, contextTrusting }, certificate };
  } catch {
    throw invalid(certPlace, "cannot be used by TLS", "issue a certificate with an RSA key of 2048 bits, or an EC key");
  }
}

function certificatesIn(text: string, place: string): readonly X509Certificate[] {
  const found = readCertificates(text);
  if (found !== undefined) return found;
  throw invalid(place, "holds no certificate", "store it as PEM, its chain after it");
}

function readKey(text: string, place: string): KeyObject {
  const cure = "store the key as PEM (PKCS 8, PKCS 1 or SEC 1)";
  if (/ENCRYPTED/.test(text)) throw invalid(place, "holds an encrypted private key", `${cure} without a passphrase`);
  try {
    return createPrivateKey(text);
  } catch {
    throw invalid(place, "holds no private key", cure);
  }
}

function checkTime({ validFrom, validTo }: X509Certificate, place: string, clock: Clock): void {
  const now = clock.wall();
  if (now >= Date.parse(validTo)) throw invalid(place, "holds a certificate that has expired", "store a new one");
  if (now >= Date.parse(validFrom)) return;
  throw invalid(place, "holds a certificate that is not valid yet", "check the clock of this machine");
}

function invalid(place: string, what: string, cure: string): CredentialError {
  return new CredentialError("value-invalid", `${place} ${what}`, cure);
}
