import { ByName, type RawHeaders } from "../lib/index.ts";
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

type Role = "contentType" | "contentEncoding" | "protocolVersion" | "sessionId" | "other" | "dropped";

const read: ReadonlyMap<string, Role> = new Map([
  ["content-type", "contentType"],
  ["content-encoding", "contentEncoding"],
  ["mcp-protocol-version", "protocolVersion"],
  ["mcp-session-id", "sessionId"],
]);
const forwarded: ReadonlySet<string> = new Set([
  "accept",
  "last-event-id",
  "mcp-method",
  "mcp-name",
  "traceparent",
  "tracestate",
]);
const paramPrefix = "mcp-param-";
const roles = new ByName<Role>((lower) => {
  const isForwarded = forwarded.has(lower) || lower.startsWith(paramPrefix);
  return read.get(lower) ?? (isForwarded ? "other" : "dropped");
});

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
    const role = roles.get(name);
    if (role === "dropped") continue;
    if (role === "sessionId") sessionId = value;
    else if (role === "contentEncoding") contentEncoding = value;
    else forward.push(name, value);
    if (role === "contentType") contentType = value;
    else if (role === "protocolVersion") protocolVersion = value;
  }
  return { contentType, contentEncoding, protocolVersion, sessionId, forward };
}
