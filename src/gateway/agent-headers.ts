import type { RawHeaders } from "../lib/index.ts";
import { findRepeatedHeader } from "../mcp/index.ts";

/** What an agent's headers come down to (reference: Streamable HTTP; DESIGN invariants 2 and 5). */
export interface AgentHeaders {
  readonly contentType: string | undefined;
  readonly contentEncoding: string | undefined;
  readonly protocolVersion: string | undefined;
  readonly sessionId: string | undefined;
  /** Name, value, …: what the upstream may see, in the agent's order and spelling; the session id is not among it. */
  readonly forward: readonly string[];
}

/** Header names may be spelt as the agent likes; these are nearly all that is ever seen, so they need no lower-casing. */
const spellings = new Map<string, string>();
const maxSpellings = 512;

function lowerCase(name: string): string {
  const known = spellings.get(name);
  if (known !== undefined) return known;
  const lower = name.toLowerCase();
  if (spellings.size < maxSpellings) spellings.set(name, lower);
  return lower;
}

const forwarded: ReadonlySet<string> = new Set([
  "accept",
  "content-type",
  "last-event-id",
  "mcp-method",
  "mcp-name",
  "mcp-protocol-version",
  "traceparent",
  "tracestate",
]);
const paramPrefix = "mcp-param-";

/** Undefined when a header that has one value stands there twice. What is not on the allow-list is dropped. */
export function readAgentHeaders(headers: RawHeaders): AgentHeaders | undefined {
  if (findRepeatedHeader(headers) !== undefined) return undefined;
  let contentType: string | undefined;
  let contentEncoding: string | undefined;
  let protocolVersion: string | undefined;
  let sessionId: string | undefined;
  const forward: string[] = [];
  for (let i = 0; i + 1 < headers.length; i += 2) {
    const name = headers[i] ?? "";
    const value = headers[i + 1] ?? "";
    const lower = lowerCase(name);
    if (lower === "mcp-session-id") sessionId = value;
    else if (lower === "content-encoding") contentEncoding = value;
    else if (lower === "content-type") contentType = value;
    else if (lower === "mcp-protocol-version") protocolVersion = value;
    if (forwarded.has(lower) || lower.startsWith(paramPrefix)) forward.push(name, value);
  }
  return { contentType, contentEncoding, protocolVersion, sessionId, forward };
}
