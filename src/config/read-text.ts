import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import type { Position } from "../lib/index.ts";
import type { Problem } from "./problem.ts";

/** A configuration is read whole and its parser is not written for hostile megabytes. */
const maxFileBytes = 1024 * 1024;

/** The text of a configuration file, or the one reason why it has none. */
export function readText(file: string): { readonly text: string } | { readonly problem: Problem } {
  const bytes = readBytes(file);
  if (!Buffer.isBuffer(bytes)) return { problem: bytes };
  return decode(file, bytes);
}

function readBytes(file: string): Buffer | Problem {
  try {
    const descriptor = openSync(file, "r");
    try {
      // Judged on the open file: a name can change its meaning between two looks.
      if (!fstatSync(descriptor).isFile()) return atStart(file, "is no regular file", "the path of a YAML file");
      return readUpTo(descriptor, maxFileBytes + 1) ?? tooLarge(file);
    } finally {
      closeSync(descriptor);
    }
  } catch (error) {
    return unreadable(file, error);
  }
}

/** Undefined: there were `limit` bytes or more. The size that a file claims is not asked: in /proc it is 0. */
function readUpTo(descriptor: number, limit: number): Buffer | undefined {
  const bytes = Buffer.alloc(limit);
  let length = 0;
  while (length < limit) {
    const count = readSync(descriptor, bytes, length, limit - length, null);
    if (count === 0) return bytes.subarray(0, length);
    length += count;
  }
  return undefined;
}

function tooLarge(file: string): Problem {
  return atStart(file, "is larger than 1 MiB", "a smaller file; split tenants over several relays or gateways");
}

function unreadable(file: string, error: unknown): Problem {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  if (code === "ENOENT" || code === "ENOTDIR") return atStart(file, "does not exist", "the path of an existing file");
  if (code === "EACCES" || code === "EPERM") {
    return atStart(file, "may not be read by this user", "the path of a file that this user may read (see its mode)");
  }
  return atStart(file, `cannot be read (${String(code ?? "unknown error")})`, "the path of a readable file");
}

function decode(file: string, bytes: Buffer): { readonly text: string } | { readonly problem: Problem } {
  const isUtf16 = (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff);
  if (isUtf16) return { problem: atStart(file, "is saved as UTF-16", "the same text saved as UTF-8") };
  let text: string;
  try {
    // The decoder drops a byte order mark, which would otherwise shift every column of the first line.
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    const lenient = new TextDecoder("utf-8").decode(bytes);
    const at = positionOfOffset(file, lenient, lenient.indexOf("\ufffd"));
    return { problem: { at, message: "these bytes are not UTF-8", cure: "the same text saved as UTF-8" } };
  }
  const at = text.search(control);
  if (at < 0) return { text };
  const code = text.charCodeAt(at).toString(16).padStart(4, "0");
  const place = positionOfOffset(file, text, at);
  return { problem: { at: place, message: `control character U+${code}`, cure: "the same line without it" } };
}

// A lone carriage return would be a line break to some readers and none to others.
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
const control = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]|\r(?!\n)/;

function positionOfOffset(file: string, text: string, offset: number): Position {
  const before = text.slice(0, Math.max(0, offset));
  const lastBreak = before.lastIndexOf("\n");
  return { file, line: before.split("\n").length, column: before.length - lastBreak };
}

function atStart(file: string, message: string, cure: string): Problem {
  return { at: { file, line: 1, column: 1 }, message: `this file ${message}`, cure };
}
