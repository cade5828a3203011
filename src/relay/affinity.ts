import { headerValue, type RawHeaders } from "../lib/index.ts";

/**
 * Which gateway an MCP session belongs to: a gateway puts its instance, and a dot, in front of every session id that it
 * shows to agents (DESIGN 5). An agent that makes one up steers its own exchange, within its own tunnel, and nothing else.
 */
export function instanceOf(headers: RawHeaders): string | undefined {
  const sessionId = headerValue(headers, "mcp-session-id");
  const end = sessionId?.indexOf(".") ?? -1;
  return end > 0 ? sessionId?.slice(0, end) : undefined;
}
