/** A content type, read as RFC 9110 section 8.3.1 has it. */
export interface MediaType {
  /** `type/subtype` in lower case. */
  readonly essence: string;
  /** Lower case, or undefined when there is none. */
  readonly charset: string | undefined;
}

const token = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";
const essencePattern = new RegExp(`^[ \\t]*(${token}/${token})[ \\t]*(?:;|$)`);
const parameterPattern = new RegExp(`;[ \\t]*(${token})=(?:(${token})|"((?:[^"\\\\]|\\\\.)*)")[ \\t]*(?=;|$)`, "gy");

/** Undefined when the header is absent or is no media type, which nothing may take for JSON. */
export function parseMediaType(header: string | undefined): MediaType | undefined {
  if (header === undefined || header.length > 1024) return undefined;
  const essence = essencePattern.exec(header)?.[1];
  if (essence === undefined) return undefined;
  const start = header.indexOf(";");
  const charset = start < 0 ? undefined : charsetOf(header.slice(start));
  return charset === null ? undefined : { essence: essence.toLowerCase(), charset };
}

/** Null: the parameters are malformed, or name two charsets. */
function charsetOf(parameters: string): string | undefined | null {
  let charset: string | undefined;
  let end = 0;
  for (const match of parameters.matchAll(parameterPattern)) {
    end = match.index + match[0].length;
    if (match[1]?.toLowerCase() !== "charset") continue;
    if (charset !== undefined) return null;
    charset = (match[2] ?? match[3] ?? "").replace(/\\(.)/g, "$1").toLowerCase();
  }
  return /^[; \t]*$/.test(parameters.slice(end)) ? charset : null;
}

function isUtf8(charset: string | undefined): boolean {
  return charset === undefined || charset === "utf-8" || charset === "utf8";
}

/** `application/json` in UTF-8, however it is written. */
export function isJson(header: string | undefined): boolean {
  if (header === "application/json") return true;
  const type = parseMediaType(header);
  return type?.essence === "application/json" && isUtf8(type.charset);
}

/** `text/event-stream`, always UTF-8 (HTML standard, server-sent events). */
export function isEventStream(header: string | undefined): boolean {
  if (header === "text/event-stream") return true;
  const type = parseMediaType(header);
  return type?.essence === "text/event-stream" && isUtf8(type.charset);
}
