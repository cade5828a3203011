import { resolve } from "node:path";
import { z } from "zod";
import { address } from "./addresses.ts";
import { filePath, section, textField } from "./fields.ts";

/** What the documents say of somebody's tokens: who issues them, for whom, and with which keys. */

/** Where keys are, if not where the issuer's metadata says. Paths of files are absolute. */
export type JwksSource = { readonly url: string } | { readonly file: string };

/** Agents with access tokens of an issuer. */
export interface OAuthSettings {
  readonly issuer: string;
  readonly audience?: string | undefined;
  readonly algorithms?: readonly string[] | undefined;
  readonly requiredScopes?: readonly string[] | undefined;
  readonly clientIds?: readonly string[] | undefined;
  readonly jwks?: JwksSource | undefined;
  /** Path of a PEM file, trusted beside the system's roots where keys are fetched. */
  readonly ca?: string | undefined;
  readonly requireTyp?: boolean | undefined;
}

/** A gateway with tokens of an issuer, a platform's service account for instance. */
export interface JwtSettings {
  readonly issuer: string;
  readonly audience: string;
  readonly subject: string;
  readonly algorithms?: readonly string[] | undefined;
  readonly jwks?: JwksSource | undefined;
  readonly ca?: string | undefined;
}

export function oauthSection(base: string): z.ZodType<OAuthSettings, unknown> {
  return section({
    issuer: issuer(),
    audience: plainText("https://relay.example.com/acme/tickets/mcp").optional(),
    algorithms: algorithms().optional(),
    requiredScopes: z.array(scope()).min(1).optional(),
    clientIds: z.array(plainText("claude-prod")).min(1).optional(),
    jwks: jwks(base).optional(),
    ca: filePath(base).optional(),
    requireTyp: z.boolean().optional(),
  });
}

export function jwtSection(base: string): z.ZodType<JwtSettings, unknown> {
  return section({
    issuer: issuer(),
    audience: plainText("https://relay.example.com"),
    subject: plainText("system:serviceaccount:postern:gateway"),
    algorithms: algorithms().optional(),
    jwks: jwks(base).optional(),
    ca: filePath(base).optional(),
  });
}

/** Stays as it was written: it is compared with `iss` byte for byte. */
export function issuer(): z.ZodType<string, unknown> {
  const rules = address({ schemes: ["https", "http"], isPlainLocal: true, hasPath: true });
  return textField({ pattern: "^https?://" }, (raw, fail) => {
    const fault = firstFault(rules, raw);
    if (fault !== undefined) return fail(fault.message, fault.cure.replace(/\/mcp$/, ""));
    if (/\/\.well-known\//.test(raw)) {
      return fail("{} is where the issuer's metadata lie, not the issuer", raw.replace(/\/\.well-known\/[^/?]+/, ""));
    }
    return raw.includes("?") ? fail("{} must have no query", raw.slice(0, raw.indexOf("?"))) : raw;
  });
}

function jwks(base: string): z.ZodType<JwksSource, unknown> {
  const url = address({ schemes: ["https", "http"], isPlainLocal: true, hasPath: true });
  const path = filePath(base);
  return textField({ minLength: 1 }, (raw, fail): JwksSource => {
    const isUrl = /^[A-Za-z][A-Za-z0-9+.-]*:\/\//.test(raw);
    const fault = firstFault(isUrl ? url : path, raw);
    if (fault !== undefined) return fail(fault.message, fault.cure);
    return isUrl ? { url: raw } : { file: resolve(base, raw) };
  });
}

interface OwnFault {
  readonly message: string;
  readonly cure: string;
}

function firstFault(type: z.ZodType, raw: string): OwnFault | undefined {
  const result = type.safeParse(raw);
  const issue = result.error?.issues[0];
  if (issue === undefined) return undefined;
  const cure = issue.code === "custom" ? issue.params?.["cure"] : undefined;
  return { message: issue.message, cure: typeof cure === "string" ? cure : "https://idp.example.com" };
}

/** Signatures whose verifying half can be published. */
export const signatureAlgorithms: readonly string[] = [
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

function algorithms() {
  const one = textField({ enum: signatureAlgorithms }, (raw, fail) => {
    if (signatureAlgorithms.includes(raw)) return raw;
    const cure = signatureAlgorithms.find((name) => name === raw.toUpperCase()) ?? "RS256";
    if (/^hs\d/i.test(raw)) return fail("{}: with a symmetric algorithm, whoever verifies can also sign", cure);
    if (/^none$/i.test(raw)) return fail("{}: an unsigned token proves nothing", cure);
    return fail("{} is no signature algorithm that is known here", cure);
  });
  return z.array(one).min(1);
}

/** RFC 6749, section 3.3; it stands between quotes in a header. */
function scope() {
  return textField({ pattern: "^[\\x21\\x23-\\x5b\\x5d-\\x7e]+$" }, (raw, fail) => {
    if (/\s/.test(raw)) return fail("{} holds several scopes", `[${raw.trim().split(/\s+/).join(", ")}]`);
    return /^[\x21\x23-\x5b\x5d-\x7e]+$/.test(raw) ? raw : fail("{} is no scope", "mcp:tools");
  });
}

export function plainText(example: string) {
  return textField({ minLength: 1 }, (raw, fail) => {
    return /^[^\p{Cc}]*[^\p{Cc}\s][^\p{Cc}]*$/u.test(raw)
      ? raw
      : fail("{} is empty, or holds control characters", example);
  });
}
