import { randomBytes } from "node:crypto";
import { type ClientRequest, type IncomingMessage, request } from "node:http";
import { dialRelay, type Upgraded, WebSocketClient, type WebSocketListener } from "./web-socket.ts";

/**
 * A second gateway, written from docs/protocol.md alone: it shares no line and no library with the product, not even the one for
 * WebSockets. It carries each exchange to an HTTP server of that name and judges nothing. What it needs and the document
 * does not say is a hole in the document.
 */
export interface MiniGatewayOptions {
  readonly port: number;
  readonly tunnel: string;
  readonly token: string;
  /** Server name → URL. */
  readonly servers: Readonly<Record<string, string>>;
  /** More headers for every upstream request, name and value in turns. */
  readonly inject?: readonly string[];
  /** What this side is willing to receive. */
  readonly streamWindow?: number;
  readonly tunnelWindow?: number;
}

export interface MiniGateway {
  readonly connId: string;
  openStreams(): number;
  /** The reason of the GOAWAY that came, or what else ended the session; undefined while it stands. */
  endReason(): string | undefined;
  /** Says GOAWAY and goes when the last stream is over. */
  drain(drainMs: number): void;
  terminate(): void;
}

const HELLO = 0x01;
const WELCOME = 0x02;
const PING = 0x03;
const PONG = 0x04;
const GOAWAY = 0x05;
const OPEN = 0x10;
const HEAD = 0x11;
const DATA = 0x12;
const END = 0x13;
const RESET = 0x14;
const WINDOW = 0x15;
const codes = {
  REFUSED: 1,
  DRAINING: 2,
  OVERLOADED: 3,
  NO_SERVER: 4,
  UPSTREAM_UNREACHABLE: 9,
  UPSTREAM_FAILED: 34,
  UPSTREAM_TIMEOUT: 35,
  INTEGRITY: 39,
} as const;
const maxDataBytes = 16_384;
const maxStreams = 64;

interface Open {
  readonly server: string;
  readonly method: string;
  readonly headers: readonly string[];
  readonly body: boolean;
  readonly deadlineMs: number;
}

interface Welcome {
  readonly connId: string;
  readonly limits: { readonly streamWindow: number; readonly tunnelWindow: number };
  readonly heartbeatMs: number;
}

/** One exchange: the request goes out as it comes in, the answer comes back as far as the credit lasts. */
interface Exchange {
  readonly id: number;
  upstream: ClientRequest | undefined;
  answer: IncomingMessage | undefined;
  deadline: NodeJS.Timeout | undefined;
  sendCredit: number;
  /** Taken by the upstream and not yet given back. */
  owed: number;
  received: number;
  sent: number;
  isRequestDone: boolean;
  isAnswerRead: boolean;
  readonly queue: Buffer[];
}

function frame(type: number, stream: number, payload: Buffer | object, flags = 0): Buffer {
  const body = Buffer.isBuffer(payload) ? payload : Buffer.from(JSON.stringify(payload), "utf8");
  const header = Buffer.alloc(10);
  header.writeUInt8(type, 0);
  header.writeUInt8(flags, 1);
  header.writeUInt32BE(stream, 2);
  header.writeUInt32BE(body.length, 6);
  return Buffer.concat([header, body]);
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

class Session implements WebSocketListener {
  readonly #socket: WebSocketClient;
  readonly #options: MiniGatewayOptions;
  readonly #streamWindow: number;
  readonly #tunnelWindow: number;
  readonly #exchanges = new Map<number, Exchange>();
  #welcome: Welcome | undefined;
  #sendCredit = 0;
  #owedTunnel = 0;
  #lastStream = 0;
  #isDraining = false;
  #heardAt = Date.now();
  #heartbeat: NodeJS.Timeout | undefined;
  endReason: string | undefined;
  onWelcome: (welcome: Welcome) => void = () => undefined;
  onEnd: (reason: string) => void = () => undefined;

  constructor({ socket, head }: Upgraded, options: MiniGatewayOptions) {
    this.#options = options;
    this.#streamWindow = options.streamWindow ?? 65_536;
    this.#tunnelWindow = options.tunnelWindow ?? 262_144;
    this.#socket = new WebSocketClient(socket, head, this);
  }

  get openStreams(): number {
    return this.#exchanges.size;
  }

  hello(): void {
    const names = Object.keys(this.#options.servers);
    const limits = { streamWindow: this.#streamWindow, tunnelWindow: this.#tunnelWindow, maxStreams };
    this.#send(
      frame(HELLO, 0, {
        versions: [1],
        features: [],
        gateway: { id: "mini-1", instance: randomBytes(8).toString("hex"), slot: 0, software: "mini/1" },
        limits,
        advert: { rev: 1, draining: false, servers: names.map((name) => ({ name })) },
      }),
    );
  }

  drain(drainMs: number): void {
    this.#isDraining = true;
    this.#send(frame(GOAWAY, 0, { reason: "SHUTDOWN", lastStream: this.#lastStream, drainMs }));
    setTimeout(() => this.#end("SHUTDOWN"), drainMs).unref();
    this.#endIfDrained();
  }

  terminate(): void {
    this.#end("TERMINATED");
  }

  #send(...frames: Buffer[]): void {
    this.#socket.send(Buffer.concat(frames));
  }

  // WebSocketListener

  onBytes(): void {
    this.#heardAt = Date.now();
  }

  onMessage(message: Buffer): void {
    this.#takeMessage(message);
  }

  onText(): void {
    this.#fault("text-message");
  }

  onClose(): void {
    this.#end("LOST");
  }

  // Frames

  #takeMessage(message: Buffer): void {
    if (message.length === 0) this.#fault("empty-message");
    for (let at = 0; at < message.length && this.endReason === undefined; ) {
      const end = at + 10 + message.readUInt32BE(at + 6);
      if (end > message.length) {
        this.#fault("frame-overruns-message");
        return;
      }
      this.#takeFrame(message.readUInt8(at), message.readUInt32BE(at + 2), message.subarray(at + 10, end));
      at = end;
    }
  }

  #takeFrame(type: number, stream: number, payload: Buffer): void {
    if (this.#welcome === undefined && type !== WELCOME && type !== GOAWAY) {
      this.#fault("hello-expected");
      return;
    }
    switch (type) {
      case WELCOME:
        this.#takeWelcome(JSON.parse(payload.toString("utf8")) as Welcome);
        return;
      case PING:
        this.#send(frame(PONG, 0, payload));
        return;
      case PONG:
        return;
      case GOAWAY:
        this.#takeGoAway(JSON.parse(payload.toString("utf8")) as { reason: string; drainMs: number });
        return;
      case OPEN:
        this.#takeOpen(stream, JSON.parse(payload.toString("utf8")) as Open);
        return;
      case DATA:
        this.#takeData(stream, payload);
        return;
      case END:
        this.#takeEnd(this.#exchanges.get(stream), Number(payload.readBigUInt64BE(0)));
        return;
      case RESET:
        this.#forget(this.#exchanges.get(stream));
        return;
      case WINDOW:
        this.#takeWindow(stream, payload.readUInt32BE(0));
        return;
      default:
        if ((type & 0x80) === 0) this.#fault("unknown-type");
    }
  }

  #takeWelcome(welcome: Welcome): void {
    if (this.#welcome !== undefined) {
      this.#fault("unexpected-hello");
      return;
    }
    this.#welcome = welcome;
    this.#sendCredit = welcome.limits.tunnelWindow;
    const intervalMs = Math.min(15_000, welcome.heartbeatMs);
    this.#heartbeat = setInterval(() => {
      const quietMs = Date.now() - this.#heardAt;
      if (quietMs >= 45_000) this.#end("LOST");
      else if (quietMs >= intervalMs) this.#send(frame(PING, 0, randomBytes(8)));
    }, intervalMs / 4);
    this.onWelcome(welcome);
  }

  #takeGoAway({ reason, drainMs }: { readonly reason: string; readonly drainMs: number }): void {
    if (drainMs === 0) {
      this.#end(reason);
      return;
    }
    // The sender closes when its last stream is over; this is for one that does not.
    setTimeout(() => this.#end(reason), drainMs + 5_000).unref();
  }

  #takeOpen(id: number, open: Open): void {
    if (id <= this.#lastStream) {
      this.#fault("stream-id-not-rising");
      return;
    }
    this.#lastStream = id;
    const url = this.#options.servers[open.server];
    if (this.#isDraining) {
      this.#reset(id, codes.DRAINING);
      return;
    }
    if (this.#exchanges.size >= maxStreams) {
      this.#reset(id, codes.OVERLOADED);
      return;
    }
    if (!["POST", "GET", "DELETE"].includes(open.method)) {
      this.#reset(id, codes.REFUSED);
      return;
    }
    if (url === undefined) {
      this.#reset(id, codes.NO_SERVER);
      return;
    }
    const exchange: Exchange = {
      id,
      upstream: undefined,
      answer: undefined,
      deadline: undefined,
      sendCredit: this.#welcome?.limits.streamWindow ?? 0,
      owed: 0,
      received: 0,
      sent: 0,
      isRequestDone: !open.body,
      isAnswerRead: false,
      queue: [],
    };
    this.#exchanges.set(id, exchange);
    this.#call(exchange, new URL(url), open);
  }

  #call(exchange: Exchange, url: URL, open: Open): void {
    // Framing is each hop's own matter: Node chunks a body whose length it is not told.
    const headers = ["host", url.host, ...open.headers, ...(this.#options.inject ?? [])];
    let isConnected = false;
    const upstream = request(url, { method: open.method, headers: headers as never, agent: false }, (answer) =>
      this.#answer(exchange, answer),
    );
    exchange.upstream = upstream;
    exchange.deadline = setTimeout(() => this.#fail(exchange, codes.UPSTREAM_TIMEOUT), open.deadlineMs);
    upstream.once("socket", (socket) => socket.once("connect", () => (isConnected = true)));
    upstream.on("error", () => {
      this.#fail(exchange, isConnected ? codes.UPSTREAM_FAILED : codes.UPSTREAM_UNREACHABLE);
    });
    if (open.body) upstream.flushHeaders();
    else upstream.end();
  }

  #takeData(id: number, bytes: Buffer): void {
    // Tunnel credit comes back on receipt, for a stream that is over too.
    this.#owedTunnel += bytes.length;
    if (this.#owedTunnel >= this.#tunnelWindow / 4) {
      this.#send(frame(WINDOW, 0, u32(this.#owedTunnel)));
      this.#owedTunnel = 0;
    }
    const exchange = this.#exchanges.get(id);
    if (exchange === undefined) return;
    exchange.received += bytes.length;
    exchange.upstream?.write(Buffer.from(bytes), () => this.#giveBack(exchange, bytes.length));
  }

  #giveBack(exchange: Exchange, bytes: number): void {
    exchange.owed += bytes;
    if (exchange.isRequestDone || exchange.owed < this.#streamWindow / 4 || !this.#exchanges.has(exchange.id)) return;
    this.#send(frame(WINDOW, exchange.id, u32(exchange.owed)));
    exchange.owed = 0;
  }

  #takeEnd(exchange: Exchange | undefined, total: number): void {
    if (exchange === undefined) return;
    if (exchange.received !== total) {
      this.#fail(exchange, codes.INTEGRITY);
      return;
    }
    exchange.isRequestDone = true;
    exchange.upstream?.end();
    this.#endIfOver(exchange);
  }

  #takeWindow(id: number, increment: number): void {
    if (id === 0) this.#sendCredit += increment;
    const one = this.#exchanges.get(id);
    if (one !== undefined) one.sendCredit += increment;
    for (const exchange of id === 0 ? [...this.#exchanges.values()] : []) this.#pump(exchange);
    if (one !== undefined) this.#pump(one);
  }

  // Answers

  #answer(exchange: Exchange, answer: IncomingMessage): void {
    if (!this.#exchanges.has(exchange.id)) {
      answer.destroy();
      return;
    }
    clearTimeout(exchange.deadline);
    exchange.answer = answer;
    const hop = ["connection", "keep-alive", "transfer-encoding", "content-length", "upgrade", "trailer", "te"];
    const headers: string[] = [];
    for (let i = 0; i + 1 < answer.rawHeaders.length; i += 2) {
      const name = answer.rawHeaders[i] ?? "";
      if (!hop.includes(name.toLowerCase())) headers.push(name, answer.rawHeaders[i + 1] ?? "");
    }
    this.#send(frame(HEAD, exchange.id, { status: answer.statusCode, headers, by: "upstream" }));
    answer.on("data", (chunk: Buffer) => {
      exchange.queue.push(chunk);
      answer.pause();
      this.#pump(exchange);
    });
    answer.on("end", () => {
      exchange.isAnswerRead = true;
      this.#pump(exchange);
    });
    answer.on("error", () => this.#fail(exchange, codes.UPSTREAM_FAILED));
  }

  #pump(exchange: Exchange): void {
    for (;;) {
      const chunk = exchange.queue[0];
      if (chunk === undefined) break;
      const bytes = Math.min(chunk.length, maxDataBytes, exchange.sendCredit, this.#sendCredit);
      if (bytes === 0) return;
      this.#send(frame(DATA, exchange.id, chunk.subarray(0, bytes)));
      exchange.sendCredit -= bytes;
      this.#sendCredit -= bytes;
      exchange.sent += bytes;
      if (bytes === chunk.length) exchange.queue.shift();
      else exchange.queue[0] = chunk.subarray(bytes);
    }
    if (exchange.isAnswerRead) this.#endAnswer(exchange);
    else exchange.answer?.resume();
  }

  #endAnswer(exchange: Exchange): void {
    if (!this.#exchanges.has(exchange.id) || exchange.answer === undefined) return;
    exchange.answer = undefined;
    const total = Buffer.alloc(8);
    total.writeBigUInt64BE(BigInt(exchange.sent));
    this.#send(frame(END, exchange.id, total));
    this.#endIfOver(exchange);
  }

  #endIfOver(exchange: Exchange): void {
    if (exchange.isRequestDone && exchange.isAnswerRead && exchange.answer === undefined) this.#forget(exchange);
  }

  #reset(id: number, code: number): void {
    const payload = Buffer.alloc(2);
    payload.writeUInt16BE(code);
    this.#send(frame(RESET, id, payload));
  }

  #fail(exchange: Exchange, code: number): void {
    if (!this.#exchanges.has(exchange.id)) return;
    this.#reset(exchange.id, code);
    this.#forget(exchange);
  }

  #forget(exchange: Exchange | undefined): void {
    if (exchange === undefined) return;
    clearTimeout(exchange.deadline);
    this.#exchanges.delete(exchange.id);
    if (!exchange.isAnswerRead) exchange.upstream?.destroy();
    this.#endIfDrained();
  }

  #endIfDrained(): void {
    if (this.#isDraining && this.#exchanges.size === 0) this.#end("SHUTDOWN");
  }

  #fault(name: string): void {
    this.#send(frame(GOAWAY, 0, { reason: "PROTOCOL_ERROR", lastStream: this.#lastStream, drainMs: 0, fault: name }));
    this.#end(name, 1002);
  }

  #end(reason: string, closeCode = 1001): void {
    if (this.endReason !== undefined) return;
    this.endReason = reason;
    clearInterval(this.#heartbeat);
    for (const exchange of this.#exchanges.values()) this.#forget(exchange);
    this.#socket.close(closeCode);
    this.onEnd(reason);
  }
}

/** Dials the relay; rejects with the status, or the reason of the GOAWAY, when it is refused. */
export async function startMiniGateway(options: MiniGatewayOptions): Promise<MiniGateway> {
  const session = new Session(await dialRelay(options), options);
  const connId = await new Promise<string>((resolve, reject) => {
    session.onEnd = (reason) => reject(new Error(`ended before WELCOME: ${reason}`));
    session.onWelcome = (welcome) => resolve(welcome.connId);
    session.hello();
  });
  return {
    connId,
    openStreams: () => session.openStreams,
    endReason: () => session.endReason,
    drain: (drainMs) => session.drain(drainMs),
    terminate: () => session.terminate(),
  };
}
