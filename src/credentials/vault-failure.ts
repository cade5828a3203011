import { CredentialError } from "./errors.ts";

/** What the store's words told us, where only they tell; the words themselves are not kept. */
export type VaultHint =
  | "kv-v2-path"
  | "no-mount"
  | "version-deleted"
  | "version-destroyed"
  | "cas-mismatch"
  | "namespace-sealed";

export type VaultFailureKind = "unreachable" | "timeout" | "aborted" | "bad-answer" | "status";

/** How one request to the store failed, before anyone has said what that means for a secret. */
export class VaultFailure extends Error {
  override readonly name = "VaultFailure";
  readonly kind: VaultFailureKind;
  readonly status: number | undefined;
  readonly retryAfterMs: number | undefined;
  readonly hint: VaultHint | undefined;
  /** What an earlier request met: this one was not made. */
  readonly isUnsent: boolean;

  constructor(
    kind: VaultFailureKind,
    /** Lower case and ours: an error number of the system at most, nothing that came over the wire. */
    message: string,
    answer: {
      readonly status?: number;
      readonly retryAfterMs?: number | undefined;
      readonly hint?: VaultHint | undefined;
      readonly isUnsent?: boolean;
    } = {},
  ) {
    super(message);
    this.kind = kind;
    this.status = answer.status;
    this.retryAfterMs = answer.retryAfterMs;
    this.hint = answer.hint;
    this.isUnsent = answer.isUnsent === true;
  }

  /** For a request that was not made because of this one. What it was told to wait is over or not, but not begun anew. */
  asUnsent(): VaultFailure {
    const { kind, message, status, hint } = this;
    return new VaultFailure(kind, message, { ...(status === undefined ? {} : { status }), hint, isUnsent: true });
  }
}

/** The meaning of a failure that does not depend on what was asked: everything but 400, 403 and 404. */
export function explainFailure(failure: unknown, address: string): CredentialError {
  if (failure instanceof CredentialError) return failure;
  if (!(failure instanceof VaultFailure)) {
    return new CredentialError("store-failing", "asking the store failed unexpectedly", "report this as a defect");
  }
  const error = explain(failure, address);
  if (!failure.isUnsent) return error;
  const { code, message, cure, status } = error;
  return new CredentialError(code, `${message}; not asked again yet`, cure, { status, isUnsent: true });
}

function explain(failure: VaultFailure, address: string): CredentialError {
  switch (failure.kind) {
    case "unreachable":
      return new CredentialError(
        "store-unreachable",
        `store ${address} cannot be reached: ${failure.message}`,
        "check vault.address, DNS, the firewall and, for certificate errors, vault.ca",
      );
    case "timeout":
      return new CredentialError(
        "store-timeout",
        `store ${address} did not answer in time`,
        "check the store's load and the path to it",
      );
    case "aborted":
      return new CredentialError("closed", "the request was given up", "none needed while stopping");
    case "bad-answer":
      return new CredentialError(
        "store-bad-answer",
        `store ${address} gave no usable answer: ${failure.message}`,
        "check that vault.address names Vault or OpenBao itself and no login page or proxy",
        { status: failure.status },
      );
    case "status":
      return explainStatus(failure, address);
  }
}

function explainStatus(failure: VaultFailure, address: string): CredentialError {
  const status = failure.status ?? 0;
  const answer = { status, retryAfterMs: failure.retryAfterMs };
  const at = `store ${address}`;
  if (status >= 300 && status < 400) {
    return new CredentialError(
      "store-redirects",
      `${at} redirects, which is not followed`,
      "point vault.address at the active node or at a load balancer",
      answer,
    );
  }
  switch (status) {
    case 429:
      return new CredentialError(
        "store-rate-limited",
        `${at} limits our rate`,
        "raise the store's rate quota or vault.ttl",
        answer,
      );
    case 472:
      return new CredentialError(
        "store-failing",
        `${at} is a disaster recovery secondary`,
        "point vault.address at the primary cluster",
        answer,
      );
    case 501:
      return new CredentialError(
        "store-not-initialised",
        `${at} is not initialised`,
        "initialise and unseal the store",
        answer,
      );
    case 503:
      if (failure.hint === "namespace-sealed") {
        return new CredentialError(
          "store-sealed",
          `${at} answers, but the namespace is sealed`,
          "unseal that namespace (`bao namespace unseal`): vault.namespace, or the one that the mount begins with",
          answer,
        );
      }
      return new CredentialError(
        "store-sealed",
        `${at} is sealed or in maintenance`,
        "unseal the store, or wait for the end of maintenance",
        answer,
      );
    default:
      return new CredentialError("store-failing", `${at} answered ${status}`, "look into the store's own log", answer);
  }
}
