import { createHash, randomBytes } from "node:crypto";
import { type IncomingMessage, request } from "node:http";
import type { Duplex } from "node:stream";

/** What the mini gateway needs of RFC 6455 as a client, and docs/protocol.md section 1. */
export interface WebSocketListener {
  /** Some bytes came, perhaps no whole message. */
  onBytes(): void;
  onMessage(message: Buffer): void;
  onText(): void;
  /** The other side closed, or the connection broke. */
  onClose(): void;
}

export class WebSocketClient {
  readonly #socket: Duplex;
  readonly #listener: WebSocketListener;
  #bytes: Buffer = Buffer.alloc(0);
  #message: Buffer[] = [];

  constructor(socket: Duplex, head: Buffer, listener: WebSocketListener) {
    this.#socket = socket;
    this.#listener = listener;
    socket.on("data", (bytes: Buffer) => this.#take(bytes));
    socket.on("error", () => listener.onClose());
    socket.on("close", () => listener.onClose());
    if (head.length > 0) socket.unshift(head);
  }

  send(message: Buffer): void {
    this.#write(2, message);
  }

  close(code: number): void {
    const payload = Buffer.alloc(2);
    payload.writeUInt16BE(code);
    this.#write(8, payload);
    this.#socket.end();
    setTimeout(() => this.#socket.destroy(), 1_000).unref();
  }

  #take(bytes: Buffer): void {
    this.#listener.onBytes();
    this.#bytes = Buffer.concat([this.#bytes, bytes]);
    for (;;) {
      const [first, second] = this.#bytes;
      if (first === undefined || second === undefined) return;
      const short = second & 0x7f;
      const at = short === 126 ? 4 : short === 127 ? 10 : 2;
      if (this.#bytes.length < at) return;
      const length =
        short === 126 ? this.#bytes.readUInt16BE(2) : short === 127 ? Number(this.#bytes.readBigUInt64BE(2)) : short;
      if (this.#bytes.length < at + length) return;
      const payload = this.#bytes.subarray(at, at + length);
      this.#bytes = this.#bytes.subarray(at + length);
      this.#takeFrame(first & 0x0f, (first & 0x80) !== 0, payload);
    }
  }

  #takeFrame(opcode: number, isLast: boolean, payload: Buffer): void {
    if (opcode === 8) this.#listener.onClose();
    else if (opcode === 9) this.#write(10, payload);
    else if (opcode === 1) this.#listener.onText();
    else if (opcode === 0 || opcode === 2) {
      this.#message.push(payload);
      if (!isLast) return;
      const message = Buffer.concat(this.#message);
      this.#message = [];
      this.#listener.onMessage(message);
    }
  }

  /** Masked with a key of 0, which is no change at all. */
  #write(opcode: number, payload: Buffer): void {
    if (!this.#socket.writable) return;
    const { length } = payload;
    const head = Buffer.alloc(length < 126 ? 6 : length < 65_536 ? 8 : 14);
    head[0] = 0x80 | opcode;
    head[1] = 0x80 | (length < 126 ? length : length < 65_536 ? 126 : 127);
    if (length >= 65_536) head.writeBigUInt64BE(BigInt(length), 2);
    else if (length >= 126) head.writeUInt16BE(length, 2);
    this.#socket.write(Buffer.concat([head, payload]));
  }
}

export interface Upgraded {
  readonly socket: Duplex;
  readonly head: Buffer;
}

/** Rejects with the status when the relay refuses. */
export function dialRelay(options: {
  readonly port: number;
  readonly tunnel: string;
  readonly token: string;
}): Promise<Upgraded> {
  const key = randomBytes(16).toString("base64");
  return new Promise((resolve, reject) => {
    const dial = request({
      host: "127.0.0.1",
      port: options.port,
      path: "/_postern/v1/tunnel",
      headers: {
        connection: "Upgrade",
        upgrade: "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": key,
        "sec-websocket-protocol": "postern.v1",
        authorization: `Bearer ${options.token}`,
        "postern-tunnel": options.tunnel,
      },
    });
    dial.once("error", reject);
    dial.once("response", (res) => reject(new Error(`refused with ${res.statusCode}`)));
    dial.once("upgrade", (res, socket, head) => {
      if (isUpgrade(res, key)) resolve({ socket, head });
      else reject(new Error("no upgrade that this side understands"));
    });
    dial.end();
  });
}

function isUpgrade(res: IncomingMessage, key: string): boolean {
  const wanted = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  return res.headers["sec-websocket-accept"] === wanted && res.headers["sec-websocket-protocol"] === "postern.v1";
}
