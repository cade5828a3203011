/** What an access token says, once its signature holds (RFC 7519, RFC 9068). */
import type { JWTPayload } from "jose";

/** Who an agent is by its token. The relay puts it into OPEN as it is. */
export interface OAuthPrincipal {
  /** `oauth:<issuer>#<sub>`. */
  readonly id: string;
  readonly kind: "oauth";
  /** Every claim of the token. */
  readonly claims: Readonly<Record<string, unknown>>;
}

/** A token whose signature, issuer and times hold. */
export interface VerifiedToken {
  readonly principal: OAuthPrincipal;
  readonly subject: string;
  readonly audiences: readonly string[];
  readonly scopes: ReadonlySet<string>;
  /** `client_id`, or `azp`. */
  readonly clientId: string | undefined;
  /** `exp` as milliseconds since the Unix epoch. */
  readonly expiresAt: number;
  /** `expiresAt` and the leeway for clocks that differ: nothing may go on after it. */
  readonly validUntil: number;
}

export type ClaimsFault = "audience" | "subject" | "claims";

/** Both clocks may be this much off (wire.md: issuers backdate `nbf`, and some tokens come from a clock that is ahead). */
export const leewayMs = 60_000;
const maxClaimsBytes = 8 * 1024;
/** The tunnel takes ids up to 1,024 characters. */
const maxIdLength = 1_024;
const controlPattern = /\p{Cc}/u;

/** `payload` as jose verified it: `iss` and `exp` are there and of their types, `aud` and `sub` are there. */
export function readClaims(payload: JWTPayload, issuer: string): VerifiedToken | ClaimsFault {
  const { sub, exp = 0 } = payload;
  if (typeof sub !== "string" || sub === "" || controlPattern.test(sub)) return "subject";
  const audiences = readAudiences(payload.aud);
  if (audiences === undefined) return "audience";
  const id = `oauth:${issuer}#${sub}`;
  if (id.length > maxIdLength) return "subject";
  // Leaving some out could turn a rule about what is absent into one that matches: all of them, or none.
  if (Buffer.byteLength(JSON.stringify(payload)) > maxClaimsBytes) return "claims";
  return {
    principal: Object.freeze({ id, kind: "oauth", claims: payload }),
    subject: sub,
    audiences,
    scopes: readScopes(payload),
    clientId: firstText(payload["client_id"], payload["azp"]),
    expiresAt: exp * 1000,
    validUntil: exp * 1000 + leewayMs,
  };
}

/** Text, or a list of texts (RFC 7519, section 4.1.3); undefined for anything else. */
function readAudiences(aud: unknown): readonly string[] | undefined {
  const audiences: readonly unknown[] = Array.isArray(aud) ? aud : [aud];
  return audiences.every((one) => typeof one === "string") ? audiences : undefined;
}

/** `scope` is text with spaces (RFC 8693, section 4.2); some issuers write `scp`, or lists. */
function readScopes(payload: JWTPayload): ReadonlySet<string> {
  const scopes = new Set<string>();
  for (const value of [payload["scope"], payload["scp"]]) {
    const words: readonly unknown[] = typeof value === "string" ? value.split(" ") : Array.isArray(value) ? value : [];
    for (const word of words) if (typeof word === "string" && word !== "") scopes.add(word);
  }
  return scopes;
}

function firstText(...values: readonly unknown[]): string | undefined {
  return values.find((value) => typeof value === "string");
}
