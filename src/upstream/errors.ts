/**
 * What can go wrong with an upstream, in our own words. Foreign codes (Node, OpenSSL, undici) are mapped here, once; the
 * detail is one of those codes and never text of the peer.
 */
import { addressRefused } from "../lib/index.ts";

export type UpstreamErrorCode =
  /** No TCP connection was made. */
  | "refused"
  /** The name did not resolve. */
  | "dns"
  /** It leads to a cloud's metadata service. */
  | "address"
  /** TLS failed or the certificate was not trusted. */
  | "tls"
  /** TLS ended with an alert against our certificate, or for want of one: no byte of the request was read. */
  | "client-certificate"
  /** The connection died before the answer was whole. */
  | "reset"
  /** No response head within `firstByteMs`. */
  | "first-byte"
  /** A body that is no event stream said nothing for `idleMs`. */
  | "idle"
  /** The reader of the answer took nothing for `stalledMs`. */
  | "stalled"
  /** Not HTTP/1.1, a response head over the limit, or a body that contradicts its length. */
  | "bad-answer"
  /** The request could not be written as HTTP. */
  | "bad-request"
  /** The upstream was closed by us. */
  | "closed";

export interface UpstreamError {
  readonly code: UpstreamErrorCode;
  /** True: the upstream may have seen the request, so it must not be sent twice. */
  readonly sent: boolean;
  /** A code of Node, OpenSSL or undici, for the log. */
  readonly detail: string;
}

const codes: Readonly<Record<string, UpstreamErrorCode>> = {
  [addressRefused]: "address",
  ECONNREFUSED: "refused",
  EHOSTUNREACH: "refused",
  EHOSTDOWN: "refused",
  ENETUNREACH: "refused",
  EADDRNOTAVAIL: "refused",
  ETIMEDOUT: "refused",
  UND_ERR_CONNECT_TIMEOUT: "refused",
  ENOTFOUND: "dns",
  EAI_AGAIN: "dns",
  EAI_FAIL: "dns",
  EAI_NODATA: "dns",
  EPROTO: "tls",
  CERT_HAS_EXPIRED: "tls",
  CERT_NOT_YET_VALID: "tls",
  CERT_REVOKED: "tls",
  CERT_UNTRUSTED: "tls",
  CERT_REJECTED: "tls",
  CERT_SIGNATURE_FAILURE: "tls",
  CERT_CHAIN_TOO_LONG: "tls",
  DEPTH_ZERO_SELF_SIGNED_CERT: "tls",
  SELF_SIGNED_CERT_IN_CHAIN: "tls",
  UNABLE_TO_GET_ISSUER_CERT: "tls",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "tls",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: "tls",
  INVALID_CA: "tls",
  CA_FILE_UNREADABLE: "tls",
  CA_FILE_INVALID: "tls",
  INVALID_PURPOSE: "tls",
  HOSTNAME_MISMATCH: "tls",
  /** undici's parser error has no code of its own in every case. */
  HTTPParserError: "bad-answer",
  UND_ERR_HEADERS_OVERFLOW: "bad-answer",
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: "bad-answer",
  UND_ERR_INVALID_ARG: "bad-request",
  UND_ERR_NOT_SUPPORTED: "bad-request",
  UND_ERR_DESTROYED: "closed",
  UND_ERR_CLOSED: "closed",
};

/** The code of a foreign error: its own, or that of the first of several connection attempts. */
function foreignCode(error: unknown): string {
  if (typeof error !== "object" || error === null) return "unknown";
  if ("code" in error && typeof error.code === "string") return error.code;
  if ("errors" in error && Array.isArray(error.errors)) return foreignCode(error.errors[0]);
  return error instanceof Error ? error.name : "unknown";
}

/** RFC 8446, 6.2. With TLS 1.3 it comes after the request was written, but a server reads that after our certificate only. */
const certificateAlert =
  /^ERR_SSL_\w*ALERT_(?:(?:BAD|UNSUPPORTED|NO)_CERTIFICATE|CERTIFICATE_\w+|UNKNOWN_CA|ACCESS_DENIED|HANDSHAKE_FAILURE)$/;

/** `sent`: whether the request had reached a connection when the error came. */
export function mapUpstreamError(error: unknown, sent: boolean): UpstreamError {
  const detail = foreignCode(error);
  const known = codes[detail];
  if (known !== undefined) return { code: known, sent, detail };
  if (certificateAlert.test(detail)) return { code: "client-certificate", sent, detail };
  if (detail.startsWith("ERR_TLS_") || detail.startsWith("ERR_SSL_")) return { code: "tls", sent, detail };
  if (detail.startsWith("HPE_")) return { code: "bad-answer", sent, detail };
  return { code: "reset", sent, detail };
}
