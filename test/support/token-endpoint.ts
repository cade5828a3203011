import {
  createServer,
  type IncomingHttpHeaders,
  type RequestListener,
  type Server,
  type ServerResponse,
} from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";

/** One request as it came in. */
export interface Asked {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  readonly form: URLSearchParams;
}

type Answer = (res: ServerResponse, asked: Asked) => void;

/** A token endpoint on loopback that answers as told; by default it grants `token-1`, `token-2`, … for an hour. */
export class TokenEndpoint {
  readonly asked: Asked[] = [];
  answer: Answer = (res) => this.grant(res);
  #granted = 0;
  readonly #server: Server;

  readonly #scheme: "http" | "https";

  private constructor(server: Server, scheme: "http" | "https") {
    this.#server = server;
    this.#scheme = scheme;
  }

  /** `tls`: it speaks https, with this pair. */
  static async start(port = 0, tls?: { readonly cert: string; readonly key: string }): Promise<TokenEndpoint> {
    const answer: RequestListener = (req, res) => {
      void (async () => {
        let body = "";
        for await (const chunk of req) body += String(chunk);
        const { method = "", url: path = "", headers } = req;
        const asked = { method, path, headers, body, form: new URLSearchParams(body) };
        endpoint.asked.push(asked);
        endpoint.answer(res, asked);
      })();
    };
    const server = tls === undefined ? createServer(answer) : createTlsServer(tls, answer);
    const endpoint = new TokenEndpoint(server, tls === undefined ? "http" : "https");
    await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
    return endpoint;
  }

  get base(): string {
    return `${this.#scheme}://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get url(): string {
    return `${this.base}/token`;
  }

  /** The one request that there was. */
  get only(): Asked {
    const [first, second] = this.asked;
    if (first === undefined || second !== undefined) throw new Error(`${this.asked.length} requests`);
    return first;
  }

  /** Grants the next token; `more` adds members to the answer or, with undefined, takes them out. */
  grant(res: ServerResponse, more: Readonly<Record<string, unknown>> = {}): void {
    this.#granted += 1;
    json(res, 200, { access_token: `token-${this.#granted}`, token_type: "Bearer", expires_in: 3600, ...more });
  }

  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }
}

export function json(
  res: ServerResponse,
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): void {
  res.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}
