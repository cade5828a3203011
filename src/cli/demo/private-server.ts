/**
 * The demo's private MCP server: a small ticket tracker that answers nobody without its bearer token. It stands for
 * whatever a company keeps inside its network, and speaks both eras of the protocol.
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type NodeIncomingMessageLike, toNodeHandler } from "@modelcontextprotocol/node";
import { createMcpHandler, McpServer } from "@modelcontextprotocol/server";
import { z } from "zod";
import type { Secret } from "../../lib/index.ts";

interface Issue {
  readonly key: string;
  readonly title: string;
  readonly state: "open" | "closed";
}

/** Everything that `buildTracker` registers. */
export const offeredTools: readonly string[] = ["search_issues", "get_issue", "delete_issue", "admin_export"];

export interface PrivateServer {
  /** `http://127.0.0.1:<port>/mcp` */
  readonly url: string;
  /** How many requests came without the right token. */
  refusedCount(): number;
  close(): Promise<void>;
}

function text(value: string): { content: { type: "text"; text: string }[] } {
  return { content: [{ type: "text", text: value }] };
}

function buildTracker(issues: Map<string, Issue>): McpServer {
  const server = new McpServer({ name: "tickets", version: "1.0.0" });
  server.registerTool(
    "search_issues",
    {
      description: "Find issues whose title holds a word",
      inputSchema: z.object({ query: z.string() }),
      annotations: { readOnlyHint: true },
    },
    ({ query }) => {
      const found = [...issues.values()].filter((issue) => issue.title.toLowerCase().includes(query.toLowerCase()));
      return text(found.map((issue) => `${issue.key} ${issue.title} (${issue.state})`).join("\n") || "nothing found");
    },
  );
  server.registerTool(
    "get_issue",
    { description: "Read one issue", inputSchema: z.object({ key: z.string() }) },
    ({ key }) => text(JSON.stringify(issues.get(key) ?? { error: `no issue ${key}` })),
  );
  server.registerTool(
    "delete_issue",
    { description: "Remove an issue for good", inputSchema: z.object({ key: z.string() }) },
    ({ key }) => text(issues.delete(key) ? `${key} is gone` : `no issue ${key}`),
  );
  server.registerTool(
    "admin_export",
    { description: "Export everything, people included", inputSchema: z.object({}) },
    () => text(JSON.stringify([...issues.values()])),
  );
  return server;
}

/** Listens on a free loopback port. */
export async function startPrivateServer(token: Secret): Promise<PrivateServer> {
  const issues = new Map<string, Issue>([
    ["OPS-1", { key: "OPS-1", title: "Rotate the backup tapes", state: "open" }],
    ["OPS-2", { key: "OPS-2", title: "Printer on floor 3 prints only Mondays", state: "open" }],
    ["WEB-7", { key: "WEB-7", title: "Login page forgets the locale", state: "closed" }],
  ]);
  const handle = toNodeHandler(createMcpHandler(() => buildTracker(issues), { legacy: "stateless" }));
  const expected = `Bearer ${token.reveal()}`;
  let refused = 0;
  const server = createServer((request, response) => {
    if (request.headers.authorization !== expected) {
      refused += 1;
      response.writeHead(401, { "WWW-Authenticate": 'Bearer realm="tickets"' }).end();
      return;
    }
    void handle(request as NodeIncomingMessageLike, response);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => resolve());
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    refusedCount: () => refused,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
