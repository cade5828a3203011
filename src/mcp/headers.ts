import { ByName, type RawHeaders } from "../lib/index.ts";
import { refuse, rpcCodes } from "./codes.ts";
import { isObject } from "./json.ts";
import type { AgentMessage, Era, JsonObject, Refusal } from "./types.ts";

/**
 * Era of a request, and the headers that mirror its body (MCP 2026-07-28, basic/transports/streamable-http). The body is
 * what is judged: a header that says otherwise is refused, since somebody behind the gateway might believe it.
 */

/** Revisions whose header rules are known; the upstream refuses any other by its own rule. */
const modernRevision = "2026-07-28";
const versionKey = "io.modelcontextprotocol/protocolVersion";
const capabilitiesKey = "io.modelcontextprotocol/clientCapabilities";
const revisionPattern = /^\d{4}-\d{2}-\d{2}$/;

/** `protocolVersionHeader`: the value of MCP-Protocol-Version, if there is one. */
export function eraOf(message: AgentMessage | undefined, protocolVersionHeader: string | undefined): Era {
  const claim = metaOf(message)?.[versionKey];
  const isModernHeader = protocolVersionHeader !== undefined && isModern(trimBlanks(protocolVersionHeader));
  if (isModernHeader) return "modern";
  if (claim === undefined) return "legacy";
  // A legacy handshake stays one whatever stands in `_meta`, unless that is a whole modern envelope.
  return message?.method === "initialize" && !hasModernEnvelope(message) ? "legacy" : "modern";
}

function isModern(version: string): boolean {
  return version >= modernRevision;
}

function metaOf(message: AgentMessage | undefined): JsonObject | undefined {
  const meta = message?.params?.["_meta"];
  return isObject(meta) ? meta : undefined;
}

/** Whether `_meta` has the required members of the modern envelope, with values of the right type. */
function hasModernEnvelope(message: AgentMessage): boolean {
  const meta = metaOf(message);
  const claim = meta?.[versionKey];
  return typeof claim === "string" && isModern(claim) && isObject(meta?.[capabilitiesKey]);
}

/** Where the body holds what `Mcp-Name` mirrors (SEP-2243; SEP-2663 for tasks). */
const nameSources: ReadonlyMap<string, string> = new Map([
  ["tools/call", "name"],
  ["prompts/get", "name"],
  ["resources/read", "uri"],
  ["tasks/get", "taskId"],
  ["tasks/update", "taskId"],
  ["tasks/cancel", "taskId"],
]);

interface MirrorHeaders {
  version?: string;
  method?: string;
  name?: string;
}

const mirrorNames: ReadonlyMap<string, keyof MirrorHeaders> = new Map([
  ["mcp-protocol-version", "version"],
  ["mcp-method", "method"],
  ["mcp-name", "name"],
]);
const mirrors = new ByName<keyof MirrorHeaders | "none">((lower) => mirrorNames.get(lower) ?? "none");

/** Undefined when one of them stands there twice. */
function readMirrors(headers: RawHeaders): MirrorHeaders | undefined {
  const found: MirrorHeaders = {};
  for (let i = 0; i + 1 < headers.length; i += 2) {
    const mirror = mirrors.get(headers[i] ?? "");
    if (mirror === "none") continue;
    if (found[mirror] !== undefined) return undefined;
    found[mirror] = trimBlanks(headers[i + 1] ?? "");
  }
  return found;
}

/**
 * Compares MCP-Protocol-Version, Mcp-Method and Mcp-Name with the body; 400 with -32020 when they disagree, or when a
 * modern request that is otherwise whole lacks one. What else is wrong with a modern envelope is left for the upstream to
 * refuse. `message` undefined: an exchange without a body (GET, DELETE).
 */
export function compareHeaders(message: AgentMessage | undefined, headers: RawHeaders, era: Era): Refusal | undefined {
  const found = readMirrors(headers);
  if (found === undefined) return refuse(400, rpcCodes.invalidRequest, "Invalid Request: a header repeats");
  return (
    compareVersion(message, found.version) ??
    compareMethod(message, found.method) ??
    compareName(message, found.name) ??
    (era === "modern" ? findMissing(message, found) : undefined)
  );
}

function mismatch(detail: string): Refusal {
  return refuse(400, rpcCodes.headerMismatch, `Header mismatch: ${detail}`);
}

function compareVersion(message: AgentMessage | undefined, header: string | undefined): Refusal | undefined {
  if (header === undefined) return undefined;
  const claim = metaOf(message)?.[versionKey];
  if (typeof claim === "string" && claim !== header) return mismatch("MCP-Protocol-Version differs from the body");
  if (message?.method === "initialize" && isModern(header) && !hasModernEnvelope(message)) {
    return mismatch("initialize belongs to an older revision than MCP-Protocol-Version");
  }
  if (typeof claim === "string" || revisionPattern.test(header)) return undefined;
  return refuse(400, rpcCodes.invalidRequest, "Invalid Request: malformed MCP-Protocol-Version");
}

function compareMethod(message: AgentMessage | undefined, header: string | undefined): Refusal | undefined {
  if (header === undefined || message === undefined || header === message.method) return undefined;
  return mismatch("Mcp-Method differs from the body");
}

function compareName(message: AgentMessage | undefined, header: string | undefined): Refusal | undefined {
  const source = nameSources.get(message?.method ?? "");
  if (header === undefined || source === undefined) return undefined;
  const decoded = decodeMirrored(header);
  if (decoded === undefined) return mismatch("Mcp-Name is wrongly encoded");
  const value = message?.params?.[source];
  return typeof value === "string" && value !== decoded ? mismatch("Mcp-Name differs from the body") : undefined;
}

function findMissing(message: AgentMessage | undefined, found: MirrorHeaders): Refusal | undefined {
  if (message?.kind !== "request" || !hasModernEnvelope(message)) return undefined;
  if (metaOf(message)?.[versionKey] !== modernRevision) return undefined;
  if (found.version === undefined) return mismatch("MCP-Protocol-Version is missing");
  if (found.method === undefined) return mismatch("Mcp-Method is missing");
  const source = nameSources.get(message.method ?? "");
  const isNamed = source !== undefined && typeof message.params?.[source] === "string";
  return isNamed && found.name === undefined ? mismatch("Mcp-Name is missing") : undefined;
}

const sentinelStart = "=?base64?";
const sentinelEnd = "?=";
const base64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/** The text of a mirrored header value, unwrapped from `=?base64?…?=`; undefined when the wrapping holds no base64 of UTF-8. */
export function decodeMirrored(value: string): string | undefined {
  if (!value.startsWith(sentinelStart) || !value.endsWith(sentinelEnd)) return value;
  const encoded = value.slice(sentinelStart.length, -sentinelEnd.length);
  if (!base64.test(encoded)) return undefined;
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  try {
    return decoder.decode(Buffer.from(encoded, "base64"));
  } catch {
    return undefined;
  }
}

/** Strips the optional blanks of RFC 9110 section 5.6.3. */
function trimBlanks(value: string): string {
  let start = 0;
  let end = value.length;
  while (start < end && isBlank(value.charCodeAt(start))) start += 1;
  while (end > start && isBlank(value.charCodeAt(end - 1))) end -= 1;
  return value.slice(start, end);
}

function isBlank(code: number): boolean {
  return code === 0x20 || code === 0x09;
}

/** Headers that hold one value; everything named `mcp-param-*` does too. */
const singleHeaders: readonly string[] = [
  "authorization",
  "content-encoding",
  "content-length",
  "content-type",
  "host",
  "last-event-id",
  "location",
  "mcp-method",
  "mcp-name",
  "mcp-protocol-version",
  "mcp-session-id",
  "origin",
  "retry-after",
  "traceparent",
  "transfer-encoding",
  "x-accel-buffering",
];
const paramPrefix = "mcp-param-";
const repeatable = 0;
const param = -1;
/** A bit for each of `singleHeaders`, or one of the two above. */
const singles = new ByName<number>((lower) => {
  const index = singleHeaders.indexOf(lower);
  if (index >= 0) return 1 << index;
  return lower.startsWith(paramPrefix) ? param : repeatable;
});

/** The name, in lower case, of a single-value header that stands there twice (DESIGN invariant 2), or undefined. */
export function findRepeatedHeader(headers: RawHeaders): string | undefined {
  let seen = 0;
  let params: Set<string> | undefined;
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] ?? "";
    const single = singles.get(name);
    if (single === repeatable) continue;
    if (single === param) {
      const lower = name.toLowerCase();
      params ??= new Set();
      if (params.has(lower)) return lower;
      params.add(lower);
    } else {
      if ((seen & single) !== 0) return name.toLowerCase();
      seen |= single;
    }
  }
  return undefined;
}
