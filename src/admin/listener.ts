/**
 * The one port that a gateway listens on, and the relay's private one: `/livez` says that the event loop turns, `/readyz`
 * whether traffic may come. The Host header is checked so that a web page cannot reach it by DNS rebinding.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { isIP } from "node:net";

export interface StatusSource {
  /** `detail` is shown to whoever can reach the port: names and states only. */
  readiness(): { readonly isReady: boolean; readonly detail: Readonly<Record<string, unknown>> };
}

export interface AdminOptions {
  readonly host: string;
  readonly port: number;
  /** Host names beside loopback and IP literals. */
  readonly allowedHosts: readonly string[];
}

export interface AdminListener {
  /** The port that was given by the system when `port` was 0. */
  readonly port: number;
  close(): Promise<void>;
}

/** Rejects with the system's error (EADDRINUSE, EACCES) when it cannot listen. */
export async function listenAdmin(options: AdminOptions, source: StatusSource): Promise<AdminListener> {
  const server = createServer({ maxHeaderSize: 16 * 1024, requestTimeout: 10_000 }, (request, response) => {
    answer(options, source, request, response);
  });
  server.maxConnections = 64;
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port, options.host, () => resolve());
  });
  const address = server.address();
  return {
    port: typeof address === "object" && address !== null ? address.port : options.port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function answer(options: AdminOptions, source: StatusSource, request: IncomingMessage, response: ServerResponse): void {
  request.resume();
  if (!isAllowedHost(request.headers.host, options.allowedHosts)) {
    reply(response, 403, {
      error: "this Host is not allowed; use a loopback name, an IP address or a configured name",
    });
    return;
  }
  if (request.method !== "GET" && request.method !== "HEAD") {
    response.setHeader("Allow", "GET, HEAD");
    reply(response, 405, { error: "only GET" });
    return;
  }
  if (request.url === "/livez") {
    reply(response, 200, { alive: true });
    return;
  }
  if (request.url === "/readyz") {
    const { isReady, detail } = source.readiness();
    reply(response, isReady ? 200 : 503, { ready: isReady, ...detail });
    return;
  }
  reply(response, 404, { error: "there are /livez and /readyz" });
}

/** Whether a Host header names this machine's loopback, an IP literal (which no DNS answer can forge) or a listed name. */
export function isAllowedHost(host: string | undefined, allowed: readonly string[]): boolean {
  if (host === undefined) return false;
  const bracketed = /^\[([^\]]+)\](?::\d{1,5})?$/.exec(host);
  const name = (bracketed?.[1] ?? host.replace(/:\d{1,5}$/, "")).toLowerCase();
  return name === "localhost" || isIP(name) !== 0 || allowed.includes(name);
}

function reply(response: ServerResponse, status: number, body: Readonly<Record<string, unknown>>): void {
  const text = `${JSON.stringify(body)}\n`;
  response.writeHead(status, {
    "Content-Type": "application/json",
    "Content-Length": Buffer.byteLength(text),
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
  });
  response.end(text);
}
