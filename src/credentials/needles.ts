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
/** What no encoding of text changes: most tokens are made of nothing else. */
const plainPattern = /^[A-Za-z0-9._-]*$/;
const jwtPattern = /^[\w-]+\.[\w-]+\.[\w-]+$/;

/**
 * The exact values of one injection and the forms that software gives them by itself: percent, form, base64, hex, JSON
 * and HTML encoding, the parts of a JWT, and what stands in `Authorization: Basic`. Exact values only: patterns of what
 * looks like a secret spoil code and texts. A user name is no secret.
 */
export function needlesOf({ headers, secrets }: Injection): Needles {
  const { blobs, userNames } = basicParts(headers);
  const found = new Set<string>();
  let hasShort = false;
  for (const text of [...secrets.map((secret) => cutNewline(secret.reveal())), ...blobs]) {
    if (userNames.has(text)) continue;
    if (Buffer.byteLength(text) < minNeedleBytes) hasShort = true;
    else for (const form of formsOf(text)) found.add(form);
  }
  const needles = [...found].map((form) => Buffer.from(form)).filter(({ length }) => length >= minNeedleBytes);
  return { needles, hasShort };
}

function basicParts(headers: Injection["headers"]): { blobs: string[]; userNames: Set<string> } {
  const blobs: string[] = [];
  const userNames = new Set<string>();
  headers.forEach((value, i) => {
    const isBasic = i % 2 === 1 && headers[i - 1]?.toLowerCase() === "authorization" && value.startsWith("Basic ");
    if (!isBasic) return;
    const blob = value.slice("Basic ".length);
    const [userName = ""] = Buffer.from(blob, "base64").toString("utf8").split(":", 1);
    blobs.push(blob);
    userNames.add(userName);
  });
  return { blobs, userNames };
}

function formsOf(text: string): string[] {
  const bytes = Buffer.from(text);
  const hex = bytes.toString("hex");
  const alike = [text, ...base64Cores(bytes), hex, hex.toUpperCase(), ...(jwtPattern.test(text) ? jwtParts(text) : [])];
  return plainPattern.test(text) ? alike : [...alike, ...escapedForms(text)];
}

function escapedForms(text: string): string[] {
  const json = jsonInner(text);
  const percent = encodeURIComponent(text);
  const form = new URLSearchParams([["", text]]).toString().slice(1);
  return [
    ...bothHexCases(percent),
    ...bothHexCases(percent.replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`)),
    ...bothHexCases(form),
    json,
    // A tool's text is often JSON itself.
    jsonInner(json),
    ...htmlForms(text),
  ];
}

function bothHexCases(encoded: string): [string, string] {
  return [encoded, encoded.replace(/%[0-9A-F]{2}/g, (code) => code.toLowerCase())];
}

/** The characters that depend on `bytes` alone when 0, 1 or 2 bytes (modulo 3) stand in front of them, in both alphabets. */
function base64Cores(bytes: Buffer): string[] {
  const shifted = Buffer.concat([Buffer.alloc(2), bytes]);
  return [0, 1, 2].flatMap((before) => {
    const text = shifted.subarray(2 - before).toString("base64");
    const core = text.slice(Math.ceil((8 * before) / 6), Math.floor((8 * (before + bytes.length)) / 6));
    return [core, core.replaceAll("+", "-").replaceAll("/", "_")];
  });
}

function jsonInner(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

function htmlForms(text: string): string[] {
  const escaped = (apostrophe: string): string =>
    text
      .replaceAll("&", "&amp;")
      .replaceAll("<", "&lt;")
      .replaceAll(">", "&gt;")
      .replaceAll('"', "&quot;")
      .replaceAll("'", apostrophe);
  return [escaped("'"), escaped("&#39;"), escaped("&#x27;")];
}

/** Whoever has all but one part of a token needs less to forge or to guess it. */
function jwtParts(text: string): string[] {
  const end = text.lastIndexOf(".");
  return [text.slice(0, end), text.slice(end + 1)];
}
