import type { ClientRequest, IncomingMessage } from "node:http";
import { connect as connectTcp, isIP, type NetConnectOpts, type Socket } from "node:net";
import { type ConnectionOptions, connect as connectTls, rootCertificates } from "node:tls";
import { type ClientOptions, WebSocket } from "ws";
import { type Clock, guardedLookup, hostRefusal, type Secret, type Timer } from "../lib/index.ts";
import type { Carrier } from "./carrier.ts";
import { tunnelNameHeader, tunnelPath, tunnelSubprotocol } from "./options.ts";
import { WsCarrier, wsOptions } from "./ws-carrier.ts";

/** TCP, TLS and the WebSocket upgrade of a gateway, each under one overall deadline. */

export interface ConnectOptions {
  readonly url: URL;
  readonly tunnel: string;
  readonly token: Secret;
  readonly ca?: string;
  readonly clock: Clock;
  readonly timeouts: { readonly connectMs: number; readonly upgradeMs: number };
}

export type ConnectOutcome =
  | { readonly kind: "open"; readonly carrier: Carrier }
  | {
      readonly kind: "refused";
      readonly status: number;
      readonly reason: string;
      readonly retryAfterMs: number | undefined;
    }
  | {
      readonly kind: "failed";
      readonly code: "DNS" | "CONNECT" | "TLS" | "TIMEOUT" | "UPGRADE";
      readonly detail: string;
    };

/**
 * Masking (RFC 6455 10.3) keeps scripts in browsers from choosing the bytes that a plain-text proxy sees. Here TLS or loopback
 * carries them, and nobody but the gateway writes them; XOR in JavaScript at both ends was five sixths of the cost of a large answer.
 */
const useNoMask = (mask: Buffer): void => void mask.fill(0);

const maxRefusalBytes = 16_384;
const maxReasonLength = 200;

/** The URL to dial, or what is wrong with `text`. */
export function parseTunnelUrl(text: string): URL | string {
  if (!URL.canParse(text)) return "not a URL";
  const url = new URL(text);
  if (url.protocol !== "wss:" && url.protocol !== "ws:") return "the relay's URL starts with wss://";
  if (url.protocol === "ws:" && !isLoopback(url.hostname)) return "ws:// is for loopback addresses; use wss://";
  if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "") {
    return "the relay's URL has no user, query or fragment";
  }
  if (hostRefusal("pinned", url.hostname) !== undefined) return "the relay's URL leads to a cloud's metadata service";
  url.pathname = `${url.pathname.replace(/\/+$/, "")}${tunnelPath}`;
  return url;
}

function isLoopback(hostname: string): boolean {
  if (hostname === "localhost" || hostname === "[::1]") return true;
  return isIP(hostname) === 4 && hostname.startsWith("127.");
}

/** Calls `done` once: with the carrier in the tick in which it opened, or with why there is none. Not after `abort`. */
export function connectCarrier(options: ConnectOptions, done: (outcome: ConnectOutcome) => void): { abort(): void } {
  const attempt = new Attempt(options, done);
  return { abort: () => attempt.abort() };
}

/** One attempt. Its phase decides which deadline runs, and as what an error counts. */
class Attempt {
  readonly #options: ConnectOptions;
  readonly #done: (outcome: ConnectOutcome) => void;
  readonly #ws: WebSocket;
  #socket: Socket | undefined;
  #phase: "tcp" | "tls" | "upgrade" | "over" = "tcp";
  #timer: Timer;

  constructor(options: ConnectOptions, done: (outcome: ConnectOutcome) => void) {
    this.#options = options;
    this.#done = done;
    this.#timer = options.clock.after(options.timeouts.connectMs, () => this.#expire("no connection in time"));
    const connect = (to: NetConnectOpts): Socket => this.#connect(to);
    this.#ws = new WebSocket(options.url, [tunnelSubprotocol], {
      ...wsOptions,
      followRedirects: false,
      generateMask: useNoMask,
      headers: { Authorization: `Bearer ${options.token.reveal()}`, [tunnelNameHeader]: options.tunnel },
      // Declared with all overloads of net.createConnection; ws calls it with options alone.
      createConnection: connect as unknown as NonNullable<ClientOptions["createConnection"]>,
    });
    this.#ws.on("error", (error: NodeJS.ErrnoException) => this.#fail(error));
    this.#ws.on("unexpected-response", (req, res) => this.#refused(req, res));
    this.#ws.on("open", () => this.#open());
  }

  abort(): void {
    this.#conclude(undefined);
    this.#ws.terminate();
  }

  #connect(to: NetConnectOpts): Socket {
    const isSecure = this.#options.url.protocol === "wss:";
    // Nothing else of `to`: it holds the token's header, and Node prints what it is given here under NODE_DEBUG.
    const { host, port } = to as { readonly host: string; readonly port: number };
    const address = { host, port, lookup: guardedLookup("pinned") };
    const socket = isSecure ? connectTls({ ...address, ...this.#tlsOptions(host) }) : connectTcp(address);
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.once("connect", () => {
      if (isSecure) this.#enter("tls");
      else this.#startUpgrade();
    });
    if (isSecure) socket.once("secureConnect", () => this.#startUpgrade());
    return socket;
  }

  #tlsOptions(host: string): ConnectionOptions {
    const { ca } = this.#options;
    return {
      servername: isIP(host) === 0 ? host : "",
      ALPNProtocols: ["http/1.1"],
      // `ca` replaces the bundled roots, so they are given as well.
      ...(ca === undefined ? {} : { ca: [...rootCertificates, ca] }),
    };
  }

  #enter(phase: "tls" | "upgrade"): void {
    if (this.#phase !== "over") this.#phase = phase;
  }

  #startUpgrade(): void {
    if (this.#phase === "over") return;
    this.#enter("upgrade");
    this.#timer.cancel();
    const { clock, timeouts } = this.#options;
    this.#timer = clock.after(timeouts.upgradeMs, () => this.#expire("no answer to the upgrade in time"));
  }

  #open(): void {
    const socket = this.#socket;
    if (this.#phase === "over" || socket === undefined) {
      this.#ws.terminate();
      return;
    }
    this.#conclude({ kind: "open", carrier: new WsCarrier(this.#ws, socket) });
  }

  #expire(detail: string): void {
    this.#conclude({ kind: "failed", code: "TIMEOUT", detail });
    this.#ws.terminate();
  }

  #fail(error: NodeJS.ErrnoException): void {
    const phase = this.#phase;
    if (phase === "over") return;
    this.#conclude({ kind: "failed", code: codeOf(error, phase), detail: detailOf(error) });
  }

  /** The relay answered with plain HTTP. Its body is read to a small limit, under the deadline that is running already. */
  #refused(req: ClientRequest, res: IncomingMessage): void {
    const parts: Buffer[] = [];
    let bytes = 0;
    const finish = (): void => {
      req.destroy();
      this.#conclude({
        kind: "refused",
        status: res.statusCode ?? 0,
        reason: reasonOf(Buffer.concat(parts), res),
        retryAfterMs: retryAfterMs(res),
      });
      this.#ws.terminate();
    };
    res.on("data", (part: Buffer) => {
      bytes += part.length;
      if (bytes <= maxRefusalBytes) parts.push(part);
      else finish();
    });
    res.on("end", finish);
    res.on("error", finish);
    res.on("close", finish);
  }

  #conclude(outcome: ConnectOutcome | undefined): void {
    if (this.#phase === "over") return;
    this.#phase = "over";
    this.#timer.cancel();
    if (outcome !== undefined) this.#done(outcome);
  }
}

function codeOf(error: NodeJS.ErrnoException, phase: "tcp" | "tls" | "upgrade"): "DNS" | "CONNECT" | "TLS" | "UPGRADE" {
  if (error.syscall === "getaddrinfo") return "DNS";
  if (phase === "tcp") return "CONNECT";
  return phase === "tls" ? "TLS" : "UPGRADE";
}

/** Node's code where there is one; its messages may quote what the other side sent. */
function detailOf(error: NodeJS.ErrnoException): string {
  return error.code ?? "no WebSocket upgrade";
}

function retryAfterMs(res: IncomingMessage): number | undefined {
  const seconds = res.headers["retry-after"];
  if (seconds === undefined || !/^\d{1,6}$/.test(seconds)) return undefined;
  return Number(seconds) * 1_000;
}

/** The problem's title, cleaned of everything that could not stand in a log line. */
function reasonOf(body: Buffer, res: IncomingMessage): string {
  const fallback = `HTTP ${res.statusCode ?? 0}`;
  try {
    const problem: unknown = JSON.parse(body.toString("utf8"));
    if (typeof problem !== "object" || problem === null || !("title" in problem)) return fallback;
    if (typeof problem.title !== "string") return fallback;
    return problem.title.replace(/[^\x20-\x7e]/g, "?").slice(0, maxReasonLength) || fallback;
  } catch {
    return fallback;
  }
}
