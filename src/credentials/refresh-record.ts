/**
 * The fields of a shared refresh token, and how each write changes them. Pure: who may write when is refresh-rotation.ts.
 *
 * 1. Every write starts from all fields of the version that it replaces; those that are not ours go through untouched.
 * 2. Refresh token, access token and expiry change together.
 */
import { CredentialError } from "./errors.ts";
import { cutNewline } from "./shapes.ts";
import type { KvVersioned } from "./vault-kv.ts";

export interface RefreshRecord {
  readonly entry: KvVersioned;
  readonly refreshToken: string | undefined;
  /** Undefined unless it can be sent. */
  readonly accessToken: string | undefined;
  /** Wall time in milliseconds; undefined where it cannot be understood. */
  readonly expiresAt: number | undefined;
  readonly claim: Claim | undefined;
}

/** Says to the others that the refresh token is about to be spent. */
export interface Claim {
  /** For people who look at the record. */
  readonly owner: string;
  /** Tells this claim from every other. */
  readonly nonce: string;
  /** Wall time of its owner, in milliseconds; undefined where it cannot be understood. */
  readonly until: number | undefined;
}

/** What the endpoint gave. */
export interface FreshTokens {
  readonly refreshToken: string;
  /** Undefined: it gave one that cannot be sent. */
  readonly accessToken: string | undefined;
  /** Wall time in milliseconds. */
  readonly expiresAt: number;
}

type Fields = Readonly<Record<string, unknown>>;

/** Throws `field-not-string` for a refresh token that is none. */
export function readRefreshRecord(entry: KvVersioned): RefreshRecord {
  const { fields, place } = entry;
  const refreshToken = fieldOf(fields, "refresh_token");
  if (refreshToken !== undefined && typeof refreshToken !== "string") {
    const message = `field refresh_token of ${place} is not a string`;
    throw new CredentialError("field-not-string", message, "write refresh_token as a string");
  }
  const accessToken = fieldOf(fields, "access_token");
  return {
    entry,
    refreshToken: textOf(refreshToken),
    accessToken: typeof accessToken === "string" ? sendable(cutNewline(accessToken)) : undefined,
    expiresAt: parseTime(fieldOf(fields, "expires_at")),
    claim: parseClaim(fieldOf(fields, "refresh_claim")),
  };
}

export function withClaim(fields: Fields, { owner, nonce, until }: Claim): Fields {
  return { ...fields, refresh_claim: { owner, nonce, until: new Date(until ?? 0).toISOString() } };
}

export function withoutClaim(fields: Fields): Fields {
  const { refresh_claim: _, ...rest } = fields;
  return rest;
}

export function withTokens(fields: Fields, { refreshToken, accessToken, expiresAt }: FreshTokens): Fields {
  const rest = { ...withoutClaim(fields), refresh_token: refreshToken };
  if (accessToken === undefined) return rest;
  return { ...rest, access_token: accessToken, expires_at: formatTime(expiresAt, fieldOf(fields, "expires_at")) };
}

function fieldOf(fields: Fields, name: string): unknown {
  return Object.hasOwn(fields, name) ? fields[name] : undefined;
}

function textOf(text: string | undefined): string | undefined {
  const cut = text === undefined ? "" : cutNewline(text);
  return cut === "" ? undefined : cut;
}

function sendable(text: string): string | undefined {
  return /^[\x21-\x7e]+$/.test(text) ? text : undefined;
}

/** ISO 8601, or seconds since the epoch as a number or as text. */
function parseTime(value: unknown): number | undefined {
  const seconds =
    typeof value === "number" || (typeof value === "string" && isNumeric(value)) ? Number(value) : undefined;
  // In milliseconds it would be a date in the far future, and the token would never be renewed.
  if (seconds !== undefined) return seconds >= 0 && seconds < 1e11 ? seconds * 1_000 : undefined;
  if (typeof value !== "string" || !/^\d{4}-\d\d-\d\dT\d\d:\d\d.*(?:Z|[+-]\d\d:?\d\d)\s*$/.test(value))
    return undefined;
  const ms = Date.parse(value.trim());
  return Number.isNaN(ms) ? undefined : ms;
}

/** In the form in which the record had it. */
function formatTime(ms: number, before: unknown): string | number {
  const seconds = Math.floor(ms / 1_000);
  if (typeof before === "number") return seconds;
  return typeof before === "string" && isNumeric(before) ? String(seconds) : new Date(ms).toISOString();
}

function isNumeric(text: string): boolean {
  return /^\s*\d{1,12}(?:\.\d+)?\s*$/.test(text);
}

/** Anything but an object is no claim; of an object that somebody mangled only the watch tells when it is over. */
function parseClaim(value: unknown): Claim | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { owner, nonce, until } = value as Record<string, unknown>;
  return {
    owner: typeof owner === "string" ? owner : "unknown",
    nonce: typeof nonce === "string" ? nonce : JSON.stringify(value),
    until: parseTime(until),
  };
}
