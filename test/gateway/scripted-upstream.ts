import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";

/** What reached the upstream, byte for byte. */
export interface SeenRequest {
  readonly method: string;
  readonly url: string;
  readonly rawHeaders: readonly string[];
  readonly headers: IncomingMessage["headers"];
  readonly body: Buffer;
  /** True once the client has closed the exchange before it was answered whole. */
  readonly isAborted: () => boolean;
}

export type Behaviour = (request: SeenRequest, response: ServerResponse) => void;

/** A real HTTP server on loopback whose every answer the test scripts. */
export class ScriptedUpstream {
  readonly seen: SeenRequest[] = [];
  readonly sockets = new Set<Socket>();
  behave: Behaviour;
  readonly #server: Server;

  private constructor(behave: Behaviour) {
    this.behave = behave;
    this.#server = createServer((request, response) => this.#take(request, response));
    this.#server.on("connection", (socket) => {
      this.sockets.add(socket);
      socket.on("close", () => this.sockets.delete(socket));
    });
  }

  static async start(behave: Behaviour): Promise<ScriptedUpstream> {
    const upstream = new ScriptedUpstream(behave);
    await new Promise<void>((resolve) => upstream.#server.listen(0, "127.0.0.1", resolve));
    return upstream;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/mcp`;
  }

  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    for (const socket of this.sockets) socket.destroy();
    await closed;
  }

  #take(request: IncomingMessage, response: ServerResponse): void {
    const chunks: Buffer[] = [];
    let aborted = false;
    response.on("close", () => {
      if (!response.writableFinished) aborted = true;
    });
    request.on("error", () => undefined);
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const seen: SeenRequest = {
        method: request.method ?? "",
        url: request.url ?? "",
        rawHeaders: request.rawHeaders,
        headers: request.headers,
        body: Buffer.concat(chunks),
        isAborted: () => aborted,
      };
      this.seen.push(seen);
      this.behave(seen, response);
    });
  }
}

/** Answers JSON. */
export function json(response: ServerResponse, body: string, status = 200, headers: Record<string, string> = {}): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(body);
}

/** The id of the request in `body`, as raw JSON. */
export function idOf(body: Buffer): string {
  return JSON.stringify((JSON.parse(body.toString()) as { id: unknown }).id);
}

/** Answers every request with an empty result. */
export const echoResult: Behaviour = (request, response) => {
  json(response, `{"jsonrpc":"2.0","id":${idOf(request.body)},"result":{"content":[]}}`);
};
