import { createServer, type Server } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import type { SecureContextOptions, TLSSocket } from "node:tls";

/** An MCP server that lets in whoever shows a certificate of its CA, and tells which one each request came with. */
export class TlsUpstream {
  /** Serial numbers of the certificates of requests, in the order in which they came. */
  readonly serials: string[] = [];
  readonly sockets = new Set<Socket>();
  /** Connections that failed before a request. */
  refusedCount = 0;
  readonly #server: Server;
  readonly #streamEveryMs = 50;

  private constructor(tls: SecureContextOptions) {
    this.#server = createServer({ ...tls, requestCert: true, rejectUnauthorized: true }, (req, res) => {
      this.serials.push((req.socket as TLSSocket).getPeerCertificate().serialNumber);
      let body = "";
      req.on("data", (chunk: Buffer) => {
        body += chunk.toString();
      });
      req.on("end", () => {
        if (req.method === "GET") {
          let n = 0;
          res.writeHead(200, { "content-type": "text/event-stream" });
          const timer = setInterval(() => {
            n += 1;
            const params = { level: "info", data: n };
            res.write(`data: ${JSON.stringify({ jsonrpc: "2.0", method: "notifications/message", params })}\n\n`);
          }, this.#streamEveryMs);
          res.on("close", () => clearInterval(timer));
          return;
        }
        const { id } = JSON.parse(body) as { id: number };
        res.writeHead(200, { "content-type": "application/json" });
        res.end(JSON.stringify({ jsonrpc: "2.0", id, result: { content: [] } }));
      });
    });
    this.#server.on("tlsClientError", () => {
      this.refusedCount += 1;
    });
    this.#server.on("secureConnection", (socket: TLSSocket) => {
      this.sockets.add(socket);
      socket.on("close", () => this.sockets.delete(socket));
    });
  }

  static async start(tls: SecureContextOptions): Promise<TlsUpstream> {
    const upstream = new TlsUpstream(tls);
    await new Promise<void>((resolve) => upstream.#server.listen(0, "127.0.0.1", resolve));
    return upstream;
  }

  get url(): string {
    return `https://127.0.0.1:${(this.#server.address() as AddressInfo).port}/mcp`;
  }

  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }
}
