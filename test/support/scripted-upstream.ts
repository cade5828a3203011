import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** An MCP server that answers byte for byte what a test tells it; no SDK stands between. */
export interface ScriptedUpstream {
  /** Where a server of this name lives; `answer` decides what it says. */
  url(name: string): string;
  /** Sets what the server of this name answers from now on. */
  answer(name: string, handler: UpstreamHandler): void;
  /** Requests so far to this name. */
  seen(name: string): readonly SeenRequest[];
  close(): Promise<void>;
}

export type UpstreamHandler = (res: ServerResponse, request: SeenRequest) => unknown;

export interface SeenRequest {
  readonly method: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
  /** False once the caller has left. */
  isOpen(): boolean;
}

export async function startScriptedUpstream(): Promise<ScriptedUpstream> {
  const handlers = new Map<string, UpstreamHandler>();
  const requests = new Map<string, SeenRequest[]>();
  const server = createServer((req, res) => {
    const name = (req.url ?? "").split("/")[1] ?? "";
    const chunks: Buffer[] = [];
    let isOpen = true;
    res.on("close", () => {
      isOpen = false;
    });
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const body = Buffer.concat(chunks).toString("utf8");
      const request = { method: req.method ?? "", headers: req.headers, body, isOpen: () => isOpen };
      requests.set(name, [...(requests.get(name) ?? []), request]);
      const handler = handlers.get(name);
      if (handler === undefined) res.writeHead(500).end();
      else Promise.resolve(handler(res, request)).catch(() => res.destroy());
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: (name) => `http://127.0.0.1:${port}/${name}/mcp`,
    answer: (name, handler) => void handlers.set(name, handler),
    seen: (name) => requests.get(name) ?? [],
    close: async () => {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

/** Answers `body` as JSON. */
export function json(res: ServerResponse, body: string | object, status = 200): void {
  res.writeHead(status, { "content-type": "application/json" });
  res.end(typeof body === "string" ? body : JSON.stringify(body));
}

/** Writes each byte in a turn of its own. */
export async function writeBytewise(res: ServerResponse, text: string): Promise<void> {
  for (const byte of Buffer.from(text, "utf8")) {
    res.write(Buffer.from([byte]));
    await new Promise((resolve) => setImmediate(resolve));
  }
  res.end();
}
