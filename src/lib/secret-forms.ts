/** The ways in which software writes a text by itself: what to look for so that it is found in any of them. */

/** What no encoding of text changes: most tokens are made of nothing else. */
const plainPattern = /^[A-Za-z0-9._-]*$/;
const jwtPattern = /^[\w-]+\.[\w-]+\.[\w-]+$/;

/** `text` itself, percent, form, base64, hex, JSON and HTML encoded, and the parts of a JWT. Forms may repeat. */
export function formsOf(text: string): string[] {
  const bytes = Buffer.from(text);
  const parts = jwtPattern.test(text) ? jwtParts(text) : [];
  const alike = [text, ...base64Forms(bytes), ...hexForms(bytes), ...parts];
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

/** The forms that a log line may hold: it is JSON, and what it quotes is plain, base64 or hex. */
export function logFormsOf(text: string): string[] {
  const bytes = Buffer.from(text);
  const json = jsonInner(text);
  // A key is a secret in each of its lines.
  const lines = text.includes("\n") ? text.split(/\r?\n/).filter((line) => !line.startsWith("-----")) : [];
  return [text, json, jsonInner(json), ...base64Forms(bytes), ...hexForms(bytes), ...lines];
}

function bothHexCases(encoded: string): [string, string] {
  return [encoded, encoded.replace(/%[0-9A-F]{2}/g, (code) => code.toLowerCase())];
}

function hexForms(bytes: Buffer): [string, string] {
  const hex = bytes.toString("hex");
  return [hex, hex.toUpperCase()];
}

/** The characters that depend on `bytes` alone when 0, 1 or 2 bytes (modulo 3) stand in front of them, in both alphabets. */
function base64Forms(bytes: Buffer): string[] {
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
