/**
 * Whether an MCP server answers with its credential: the first request of either era, its answer judged by the status alone and its
 * body never read. A session that it opens is closed again. No tool, no list, nothing that the policy would have to judge.
 */

import { upstreamCure } from "../../gateway/index.ts";
import type { Clock, RawHeaders } from "../../lib/index.ts";
import { headerValue } from "../../lib/index.ts";
import { silentLogger } from "../../telemetry/index.ts";
import { createUpstream, type Upstream, type UpstreamError, type UpstreamRequest } from "../../upstream/index.ts";
import { Trouble } from "./stages.ts";

export interface McpTarget {
  readonly server: string;
  readonly url: string;
  readonly caFile: string | undefined;
  /** Of the credential; empty without one. */
  readonly headers: RawHeaders;
  /** The client certificate, where that is the credential. */
  readonly tls: UpstreamRequest["tls"];
  readonly hasCredential: boolean;
  readonly software: string;
  readonly clock: Clock;
}

interface Head {
  readonly status: number;
  readonly sessionId: string | undefined;
}

const legacyRevision = "2025-06-18";
const modernRevision = "2026-07-28";
const firstByteMs = 10_000;

export async function probeMcp(target: McpTarget): Promise<string> {
  const { url, caFile, clock } = target;
  const upstream = createUpstream({ url, caFile, clock, logger: silentLogger });
  try {
    const first = await askHead(upstream, target, initialize(target.software), []);
    if (isGood(first.status)) {
      if (first.sessionId !== undefined) await endSession(upstream, target, first.sessionId);
      return `initialize: ${first.status}${first.sessionId === undefined ? "" : ", session closed again"}`;
    }
    if (first.status !== 400 && first.status !== 404) throw judge(target, first.status);
    // A server of the modern era alone knows no initialize.
    const second = await askHead(upstream, target, discover(target.software), [
      "mcp-protocol-version",
      modernRevision,
      "mcp-method",
      "server/discover",
    ]);
    if (isGood(second.status)) return `server/discover: ${second.status}`;
    throw judge(target, second.status === 400 ? first.status : second.status);
  } finally {
    await upstream.close();
  }
}

function isGood(status: number): boolean {
  return status >= 200 && status < 300;
}

function initialize(software: string): string {
  const params = { protocolVersion: legacyRevision, capabilities: {}, clientInfo: clientInfo(software) };
  return JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params });
}

function discover(software: string): string {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": modernRevision,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": clientInfo(software),
  };
  return JSON.stringify({ jsonrpc: "2.0", id: 1, method: "server/discover", params: { _meta: meta } });
}

function clientInfo(software: string): { readonly name: string; readonly version: string } {
  return { name: "postern-doctor", version: software };
}

async function askHead(upstream: Upstream, target: McpTarget, body: string, more: RawHeaders): Promise<Head> {
  const headers = ["content-type", "application/json", "accept", "application/json, text/event-stream"];
  const request: UpstreamRequest = {
    method: "POST",
    headers: [...headers, ...more, ...target.headers],
    body: Buffer.from(body),
    tls: target.tls,
  };
  const found = await sendForHead(upstream, request);
  if ("status" in found) return found;
  throw unreached(target, found);
}

/** Best effort: a server may refuse to have its sessions ended. */
async function endSession(upstream: Upstream, { headers, tls }: McpTarget, sessionId: string): Promise<void> {
  const own = ["mcp-session-id", sessionId, "mcp-protocol-version", legacyRevision];
  await sendForHead(upstream, { method: "DELETE", headers: [...own, ...headers], tls });
}

function sendForHead(upstream: Upstream, request: UpstreamRequest): Promise<Head | UpstreamError> {
  return new Promise((resolve) => {
    const call = upstream.request(
      { ...request, firstByteMs },
      {
        onHead(status, headers) {
          resolve({ status, sessionId: headerValue(headers, "mcp-session-id") });
          call.abort();
        },
        onData: () => undefined,
        onEnd: () => undefined,
        onError: resolve,
      },
    );
  });
}

function judge({ server, hasCredential }: McpTarget, status: number): Trouble {
  const key = `servers.${server}`;
  if (status === 401 || status === 403) {
    return hasCredential
      ? new Trouble(
          `the server refuses the credential: ${status}`,
          `the secret that ${key}.credential names, and its rights`,
        )
      : new Trouble(`the server wants a credential: ${status}`, `write ${key}.credential`);
  }
  if (status >= 300 && status < 400) {
    return new Trouble(
      `the server redirects: ${status}, which is not followed`,
      `the URL that it points to, as ${key}.url`,
    );
  }
  if (status >= 500) return new Trouble(`the server answers ${status}`, "the server's own log");
  return new Trouble(`no MCP server answers there: ${status}`, `the path in ${key}.url`);
}

function unreached({ server, tls }: McpTarget, error: UpstreamError): Trouble {
  const { code, detail } = error;
  if (code === "first-byte") return new Trouble("the server did not answer in time", "the server's own log");
  const cure = code === "tls" ? upstreamCure(error, server, tls !== undefined) : undefined;
  return new Trouble(
    `the server gave no answer: ${code} (${detail})`,
    cure ?? `whether servers.${server}.url is that of an MCP server`,
  );
}
