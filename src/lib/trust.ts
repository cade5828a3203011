/**
 * Whom a TLS connection trusts beside the roots that Node brings: the certificates of a PEM file that the operator names. The
 * file is read for each new connection, so that a rotated one counts without a restart; connections that stand are left alone.
 */
import { X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createSecureContext, rootCertificates, type SecureContext } from "node:tls";

/** The code of an error that says: the file cannot be read now. */
const caUnreadable = "CA_FILE_UNREADABLE";
/** The code of an error that says: the file holds no certificate now. */
const caInvalid = "CA_FILE_INVALID";

const pemBlock = /-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----/g;

/** The certificates of a PEM text, in their order; undefined where it holds none, or one that is none. */
export function readCertificates(text: string): readonly X509Certificate[] | undefined {
  try {
    const found = (text.match(pemBlock) ?? []).map((block) => new X509Certificate(block));
    return found.length > 0 ? found : undefined;
  } catch {
    // Parsers may quote what they read.
    return undefined;
  }
}

type Connect<T, R> = (target: T, callback: R & ((error: Error, socket: null) => void)) => void;

/**
 * A connector that trusts what `file` holds besides. `build` makes one out of a TLS context, and does so again once the file says
 * something else: nothing of the sessions before is resumed then. `contextFor`: another context than one with these roots alone.
 */
export function connectTrusting<T, R>(
  file: string,
  build: (context: SecureContext) => Connect<T, R>,
  contextFor = (ca: readonly string[]): SecureContext => createSecureContext({ ca: [...ca] }),
): Connect<T, R> {
  let last: { readonly text: string; readonly connect: Connect<T, R> } | undefined;
  const take = (text: string): Connect<T, R> => {
    // Parsing the roots costs milliseconds.
    if (last?.text !== text) last = { text, connect: build(contextFor(rootsWith(text))) };
    return last.connect;
  };
  return (target, callback) => {
    readFile(file, "utf8")
      .catch(() => {
        throw Object.assign(new Error("a CA file cannot be read"), { code: caUnreadable });
      })
      .then((text) => take(text)(target, callback))
      .catch((error: unknown) => callback(error as Error, null));
  };
}

function rootsWith(text: string): string[] {
  const own = readCertificates(text);
  if (own !== undefined) return [...rootCertificates, ...own.map(String)];
  throw Object.assign(new Error("a CA file holds no certificate"), { code: caInvalid });
}

const distrust =
  /^(?:UNABLE_TO_(?:GET_ISSUER_CERT(?:_LOCALLY)?|VERIFY_LEAF_SIGNATURE)|DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|CERT_SIGNATURE_FAILURE|CERT_UNTRUSTED|INVALID_CA|CA_FILE_\w+)$/;

/** Whether a code of Node or OpenSSL says that nobody who is trusted here has signed a certificate, or that the file for it fails. */
export function isDistrust(code: string): boolean {
  return distrust.test(code);
}
