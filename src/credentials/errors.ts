/** Why a secret could not be had. */
export type CredentialErrorCode =
  | "not-configured"
  | "source-missing"
  | "source-unsafe"
  | "source-unreadable"
  | "value-empty"
  | "value-invalid"
  | "store-unreachable"
  | "store-timeout"
  | "store-sealed"
  | "store-not-initialised"
  | "store-redirects"
  | "store-rate-limited"
  | "store-failing"
  | "store-bad-answer"
  | "login-denied"
  | "token-limited"
  | "wrapping-refused"
  | "denied"
  | "not-found"
  | "deleted"
  | "wrong-kv-version"
  | "lease-refused"
  | "field-missing"
  | "field-empty"
  | "field-not-string"
  | "endpoint-unreachable"
  | "endpoint-timeout"
  | "endpoint-redirects"
  | "endpoint-failing"
  | "endpoint-bad-answer"
  | "grant-denied"
  | "record-busy"
  /** Only a person can grant it anew. */
  | "needs-reauth"
  | "caller-unfit"
  | "closed";

/** The store or token endpoint could not answer, which says nothing about the secret: an older value may still serve. */
const awayCodes: ReadonlySet<CredentialErrorCode> = new Set([
  "store-unreachable",
  "store-timeout",
  "store-sealed",
  "store-not-initialised",
  "store-redirects",
  "store-rate-limited",
  "store-failing",
  "store-bad-answer",
  "endpoint-unreachable",
  "endpoint-timeout",
  "endpoint-redirects",
  "endpoint-failing",
  "endpoint-bad-answer",
  "record-busy",
]);

/**
 * A credential failure for the gateway's own log and audit; an agent is told nothing of it. Message and cure name
 * places (mount, path, field, file, variable), never a value, and there is no `cause`: causes carry headers and bodies.
 */
export class CredentialError extends Error {
  override readonly name = "CredentialError";
  readonly code: CredentialErrorCode;
  /** What a person can do about it. */
  readonly cure: string;
  /** The store's HTTP status, where it answered. */
  readonly status: number | undefined;
  /** What the store asked us to wait. */
  readonly retryAfterMs: number | undefined;
  /** The request surely never left: what it would have spent is unspent. */
  readonly isUnsent: boolean;

  constructor(
    code: CredentialErrorCode,
    message: string,
    cure: string,
    answer: {
      readonly status?: number | undefined;
      readonly retryAfterMs?: number | undefined;
      readonly isUnsent?: boolean;
    } = {},
  ) {
    super(message);
    this.code = code;
    this.cure = cure;
    this.status = answer.status;
    this.retryAfterMs = answer.retryAfterMs;
    this.isUnsent = answer.isUnsent === true;
  }

  /** Whether the store was away, rather than saying no. */
  get isAway(): boolean {
    return awayCodes.has(this.code);
  }
}
