import { type AddressInfo, createServer, type Server, type Socket } from "node:net";

/** One request as the upstream got it, byte for byte. */
export interface RawRequest {
  /** Request line, headers and body. */
  readonly text: string;
  readonly line: string;
  /** Names in lower case; of a repeated one all values. */
  readonly headers: Readonly<Record<string, readonly string[]>>;
  readonly body: string;
}

export type RawAnswer = (socket: Socket, request: RawRequest) => void;

/** A TCP peer that answers each request with exactly the bytes of the test, for what no HTTP library would say. */
export class RawUpstream {
  readonly seen: RawRequest[] = [];
  answer: RawAnswer;
  /** Everything that it has said. */
  said = "";
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(answer: RawAnswer) {
    this.answer = answer;
    this.#server = createServer((socket) => this.#serve(socket));
  }

  static async start(answer: RawAnswer): Promise<RawUpstream> {
    const upstream = new RawUpstream(answer);
    await new Promise<void>((resolve) => upstream.#server.listen(0, "127.0.0.1", resolve));
    return upstream;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    socket.setNoDelay(true);
    socket.on("close", () => this.#sockets.delete(socket));
    socket.on("error", () => undefined);
    const write = socket.write.bind(socket) as (chunk: string | Buffer, done?: () => void) => boolean;
    socket.write = ((chunk: string | Buffer, done?: () => void) => {
      this.said += chunk.toString("latin1");
      return write(chunk, done);
    }) as Socket["write"];
    let buffered = "";
    socket.on("data", (chunk) => {
      buffered += chunk.toString("latin1");
      for (let request = takeRequest(buffered); request !== undefined; request = takeRequest(buffered)) {
        buffered = buffered.slice(request.text.length);
        this.seen.push(request);
        this.answer(socket, request);
      }
    });
  }
}

function takeRequest(text: string): RawRequest | undefined {
  const end = text.indexOf("\r\n\r\n");
  if (end < 0) return undefined;
  const [line = "", ...lines] = text.slice(0, end).split("\r\n");
  const headers: Record<string, string[]> = {};
  for (const header of lines) {
    const at = header.indexOf(":");
    const name = header.slice(0, at).toLowerCase();
    headers[name] = [...(headers[name] ?? []), header.slice(at + 1).trim()];
  }
  const whole = end + 4 + Number(headers["content-length"]?.[0] ?? 0);
  if (text.length < whole) return undefined;
  return { text: text.slice(0, whole), line, headers, body: text.slice(end + 4, whole) };
}

/** A whole answer: `head` is the status line's end and the headers, each on a line; the length is added. */
export function answerText(head: string, body = ""): string {
  const lines = head
    .trim()
    .split("\n")
    .map((line) => line.trim());
  return `HTTP/1.1 ${lines.join("\r\n")}\r\nContent-Length: ${Buffer.byteLength(body, "latin1")}\r\n\r\n${body}`;
}
