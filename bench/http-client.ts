import { connect, type Socket } from "node:net";

/**
 * A keep-alive HTTP/1.1 client on a bare socket for one request at a time. It knows two framings, counts bytes and
 * keeps none: the load generator shares two cores with what it measures, so it must cost next to nothing.
 */
export interface Timing {
  readonly status: number;
  readonly bodyBytes: number;
  /** Milliseconds until `firstText` had arrived, or until the first body byte. */
  readonly firstByteMs: number;
  readonly totalMs: number;
}

const headEnd = Buffer.from("\r\n\r\n");
const lastChunk = Buffer.from("0\r\n\r\n");

interface Head {
  readonly status: number;
  /** Undefined: chunked. */
  readonly length: number | undefined;
}

function parseHead(text: string): Head {
  const length = /\r\ncontent-length: *(\d+)/i.exec(text)?.[1];
  return { status: Number(text.slice(9, 12)), length: length === undefined ? undefined : Number(length) };
}

export class HttpConnection {
  readonly #socket: Socket;
  #pending: ((chunk: Buffer | undefined) => void) | undefined;
  #isClosed = false;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.on("data", (chunk: Buffer) => this.#pending?.(chunk));
    const lost = (): void => {
      this.#isClosed = true;
      this.#pending?.(undefined);
    };
    socket.on("close", lost);
    socket.on("error", lost);
  }

  static open(port: number, host: string): Promise<HttpConnection> {
    return new Promise((resolve, reject) => {
      const socket = connect(port, host);
      socket.once("error", reject);
      socket.once("connect", () => resolve(new HttpConnection(socket)));
    });
  }

  /** Sends `request`, which must be whole, and calls back when the answer is. */
  exchange(request: Buffer, firstText: string | undefined, done: (timing: Timing | Error) => void): void {
    if (this.#isClosed) {
      done(new Error("the connection is closed"));
      return;
    }
    const startedAt = performance.now();
    let pieces: Buffer | undefined;
    let head: Head | undefined;
    let bodyBytes = 0;
    let firstByteMs = -1;
    // The end of a chunked body is looked for across chunk borders.
    let lastBytes: Buffer = Buffer.alloc(0);

    const finish = (result: Timing | Error): void => {
      this.#pending = undefined;
      done(result);
    };
    const takeBody = (chunk: Buffer): void => {
      if (chunk.length === 0 && head?.length !== 0) return;
      if (firstByteMs < 0 && (firstText === undefined || chunk.includes(firstText))) {
        firstByteMs = performance.now() - startedAt;
      }
      bodyBytes += chunk.length;
      const isWhole = head?.length === undefined ? this.#endsChunked(lastBytes, chunk) : bodyBytes >= head.length;
      if (!isWhole) {
        lastBytes =
          chunk.length >= lastChunk.length
            ? chunk.subarray(-lastChunk.length)
            : Buffer.concat([lastBytes, chunk]).subarray(-lastChunk.length);
        return;
      }
      finish({ status: head?.status ?? 0, bodyBytes, firstByteMs, totalMs: performance.now() - startedAt });
    };
    this.#pending = (chunk) => {
      if (chunk === undefined) return finish(new Error("the connection broke off"));
      if (head !== undefined) return takeBody(chunk);
      pieces = pieces === undefined ? chunk : Buffer.concat([pieces, chunk]);
      const end = pieces.indexOf(headEnd);
      if (end === -1) return;
      head = parseHead(pieces.toString("latin1", 0, end));
      takeBody(pieces.subarray(end + headEnd.length));
    };
    this.#socket.write(request);
  }

  #endsChunked(before: Buffer, chunk: Buffer): boolean {
    if (chunk.length >= lastChunk.length) return chunk.subarray(-lastChunk.length).equals(lastChunk);
    return Buffer.concat([before, chunk]).subarray(-lastChunk.length).equals(lastChunk);
  }

  close(): void {
    this.#socket.destroy();
  }
}

/** The bytes of a POST of `body` with `headers`. */
export function requestBytes(url: URL, headers: Readonly<Record<string, string>>, body: string): Buffer {
  const lines = [
    `POST ${url.pathname} HTTP/1.1`,
    `host: ${url.host}`,
    `content-length: ${Buffer.byteLength(body)}`,
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
  ];
  return Buffer.from(`${lines.join("\r\n")}\r\n\r\n${body}`);
}
