import { hash, randomBytes } from "node:crypto";
import { Secret } from "../lib/index.ts";

/** `tunnel`: what a gateway shows a relay (`ptk_`). `agent`: what an agent shows a relay (`pak_`). */
export type TokenKind = "tunnel" | "agent";

const patterns: Readonly<Record<TokenKind, RegExp>> = {
  tunnel: /^ptk_[A-Za-z0-9_-]{43}$/,
  agent: /^pak_[A-Za-z0-9_-]{43}$/,
};
const prefixes: Readonly<Record<TokenKind, string>> = { tunnel: "ptk_", agent: "pak_" };
const bearerPattern = /^bearer +([^ ]+) *$/i;

/** The token of an `Authorization: Bearer` value (RFC 6750, section 2.1), or undefined when it is anything else. */
export function readBearer(header: string | undefined): string | undefined {
  return header === undefined ? undefined : bearerPattern.exec(header)?.[1];
}

/** Undefined when `text` has not exactly the form of a token of this kind (DESIGN 4.1): it is then never hashed. */
export function parseToken(text: string | undefined, kind: TokenKind): Secret | undefined {
  return text !== undefined && patterns[kind].test(text) ? new Secret(text, "passing") : undefined;
}

/** Lower-case hex SHA-256 of the whole text, as it stands in relay.yaml. */
export function hashToken(token: Secret): string {
  return hash("sha256", token.reveal(), "hex");
}

/** A new token from 32 random bytes. */
export function createToken(kind: TokenKind): { readonly token: Secret; readonly sha256: string } {
  const token = new Secret(prefixes[kind] + randomBytes(32).toString("base64url"));
  return { token, sha256: hashToken(token) };
}
