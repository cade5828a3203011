/**
 * The one port that a gateway listens on, and the relay's private one: `/livez` says that the event loop turns, `/readyz`
 * whether traffic may come, `/metrics` how much of it there was. `/status` says more, and asks for a token. The Host header is
 * checked so that a web page cannot reach it by DNS rebinding.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { isIP } from "node:net";
import type { Secret } from "../lib/index.ts";

export interface StatusSource {
  /** `detail` is shown to whoever can reach the port: names and states only. */
  readiness(): { readonly isReady: boolean; readonly detail: Readonly<Record<string, unknown>> };
  /** The page for a scraper. */
  metrics?(): Promise<{ readonly contentType: string; readonly text: string }>;
  /** For whoever has the token. */
  status?(): object;
}

export interface AdminOptions {
  readonly host: string;
  readonly port: number;
  /** Host names beside loopback and IP literals. */
  readonly allowedHosts: readonly string[];
  /** What opens `/status`; read for each request, so that it can be changed. Absent: nothing opens it. */
  readonly readToken?: (() => Promise<Secret>) | undefined;
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
  switch (request.url ?? "") {
    case "/livez":
      reply(response, 200, { alive: true });
      return;
    case "/readyz": {
      const { isReady, detail } = source.readiness();
      reply(response, isReady ? 200 : 503, { ready: isReady, ...detail });
      return;
    }
    case "/metrics":
      void answerMetrics(source, response);
      return;
    case "/status":
      void answerStatus(options, source, request, response);
      return;
    default:
      reply(response, 404, { error: "there are /livez, /readyz, /metrics and /status" });
  }
}

async function answerMetrics(source: StatusSource, response: ServerResponse): Promise<void> {
  try {
    const page = await source.metrics?.();
    if (page === undefined) reply(response, 404, { error: "there are no metrics here" });
    else write(response, 200, page.contentType, page.text);
  } catch {
    reply(response, 500, { error: "the metrics could not be written" });
  }
}

/** Shorter ones could be tried out. */
const minTokenLength = 16;

async function answerStatus(
  { readToken }: AdminOptions,
  { status }: StatusSource,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  if (readToken === undefined || status === undefined) {
    reply(response, 403, { error: "nothing opens /status: write `admin.token`, and restart" });
    return;
  }
  try {
    const token = (await readToken()).reveal();
    if (token.length < minTokenLength) {
      reply(response, 503, { error: `admin.token is shorter than ${minTokenLength} characters` });
    } else if (isSame(bearerOf(request), token)) {
      reply(response, 200, status());
    } else {
      response.setHeader("WWW-Authenticate", "Bearer");
      reply(response, 401, { error: "/status needs the token of `admin.token` as a bearer" });
    }
  } catch {
    reply(response, 503, { error: "admin.token could not be read; the log says why" });
  }
}

function bearerOf(request: IncomingMessage): string {
  return /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? "")?.[1] ?? "";
}

/** Over digests: their length is one, and their comparison takes as long for every guess. */
function isSame(given: string, wanted: string): boolean {
  const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(given), digest(wanted));
}

/** Whether a Host header names this machine's loopback, an IP literal (which no DNS answer can forge) or a listed name. */
export function isAllowedHost(host: string | undefined, allowed: readonly string[]): boolean {
  if (host === undefined) return false;
  const bracketed = /^\[([^\]]+)\](?::\d{1,5})?$/.exec(host);
  const name = (bracketed?.[1] ?? host.replace(/:\d{1,5}$/, "")).toLowerCase();
  return name === "localhost" || isIP(name) !== 0 || allowed.some((one) => one.toLowerCase() === name);
}

function reply(response: ServerResponse, status: number, body: object): void {
  write(response, status, "application/json", `${JSON.stringify(body)}\n`);
}

function write(response: ServerResponse, status: number, contentType: string, text: string): void {
  response.writeHead(status, {
    "Content-Type": contentType,
    "Content-Length": Buffer.byteLength(text),
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
  });
  response.end(text);
}
