/**
 * A principal as part of a path in a store: `mcp/tickets/{principal.id}`.
 *
 * 1. No two ids give the same text, and no id gives a text that leaves its segment: whoever chooses his own `sub` reaches
 *    his own entry and nobody else's.
 * 2. The text is plain ASCII, in which no URL, store or policy sees anything special: `A-Z a-z 0-9 - _`, `~`, and a dot
 *    between two letters or digits. Case is kept.
 */
import { hash } from "node:crypto";
import { CredentialError } from "./errors.ts";

const placeholder = "{principal.id}";
/** Stores limit the length of their keys, some to 255 bytes for a segment. */
const maxSegmentLength = 200;
const halfPair = /\p{Surrogate}/u;

/** Whether `path` depends on who calls. */
export function isPerCaller(path: string): boolean {
  return path.includes(placeholder);
}

/** `path` for one principal. Throws `caller-unfit` for an id that has no path. */
export function fillPath(path: string, id: string): string {
  return path.replaceAll(placeholder, encodeCaller(id));
}

/** `path` as a policy grants it for every principal: `+` is any one segment. */
export function globOf(path: string): string {
  return path
    .split("/")
    .map((segment) => (segment.includes(placeholder) ? "+" : segment))
    .join("/");
}

/**
 * The whole id as one path segment. Each byte of its UTF-8 form that may not stand there is `~` and two lower-case
 * hexadecimal digits; what would be longer than 200 characters is `~sha256-` and the hash of those bytes, which cannot be
 * mistaken for an id, since `~sh` is no escape.
 */
export function encodeCaller(id: string): string {
  // Halves of surrogate pairs would all become the same three bytes.
  if (id === "" || halfPair.test(id)) {
    throw new CredentialError("caller-unfit", "the principal's id is no text", "correct the subject at its issuer");
  }
  const text = id.replace(/[^A-Za-z0-9_-]/gu, (char, at: number) => {
    return char === "." && isBetween(id, at) ? char : escapeOf(char);
  });
  return text.length <= maxSegmentLength ? text : `~sha256-${hash("sha256", id, "hex")}`;
}

function isBetween(id: string, at: number): boolean {
  return /^[A-Za-z0-9]\.[A-Za-z0-9]$/.test(id.slice(Math.max(0, at - 1), at + 2));
}

function escapeOf(char: string): string {
  return Buffer.from(char, "utf8").toString("hex").replace(/../g, "~$&");
}
