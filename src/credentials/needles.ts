import { formsOf } from "../lib/index.ts";
import type { Injection } from "./shapes.ts";
import { cutNewline } from "./shapes.ts";

/** What to look for in a server's answers so that none of them shows the credential. */
export interface Needles {
  /** Distinct, each of at least `minNeedleBytes`. */
  readonly needles: readonly Buffer[];
  /** A secret was too short: looking for it would spoil ordinary answers. */
  readonly hasShort: boolean;
}

/** Below this length a text is found where nobody put a secret. */
export const minNeedleBytes = 8;

/**
 * The exact values of one injection and the forms that software gives them by itself: percent, form, base64, hex, JSON
 * and HTML encoding, the parts of a JWT, and what stands in `Authorization: Basic`. Exact values only: patterns of what
 * looks like a secret spoil code and texts. A user name is no secret, unless the password is too short to be one: APIs that
 * take a key as the user name want an "x" there.
 */
export function needlesOf(injection: Injection): Needles {
  const found = new Set<string>();
  let hasShort = false;
  for (const text of secretTextsOf(injection)) {
    if (Buffer.byteLength(text) < minNeedleBytes) hasShort = true;
    else for (const form of formsOf(text)) found.add(form);
  }
  const needles = [...found].map((form) => Buffer.from(form)).filter(({ length }) => length >= minNeedleBytes);
  return { needles, hasShort };
}

/** The exact values themselves. */
export function secretTextsOf({ headers, secrets, tls }: Injection): string[] {
  // A certificate is no secret, and its key never reaches the server.
  if (tls !== undefined) return [];
  const { blobs, userNames } = basicParts(headers);
  return [...secrets.map((secret) => cutNewline(secret.reveal())), ...blobs].filter((text) => !userNames.has(text));
}

function basicParts(headers: Injection["headers"]): { blobs: string[]; userNames: Set<string> } {
  const blobs: string[] = [];
  const userNames = new Set<string>();
  headers.forEach((value, i) => {
    const isBasic = i % 2 === 1 && headers[i - 1]?.toLowerCase() === "authorization" && value.startsWith("Basic ");
    if (!isBasic) return;
    const blob = value.slice("Basic ".length);
    const pair = Buffer.from(blob, "base64").toString("utf8");
    const [userName = ""] = pair.split(":", 1);
    const password = pair.slice(userName.length + 1);
    blobs.push(blob);
    if (Buffer.byteLength(password) >= minNeedleBytes && password !== userName) userNames.add(userName);
  });
  return { blobs, userNames };
}
