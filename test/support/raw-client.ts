import { connect, type Socket } from "node:net";
import { until } from "./until.ts";

/** A TCP client that sees every byte: for what no HTTP library would send or show. */
export class RawClient {
  readonly socket: Socket;
  text = "";
  isEnded = false;
  isClosed = false;
  error: NodeJS.ErrnoException | undefined;

  constructor(port: number) {
    this.socket = connect({ port, host: "127.0.0.1" });
    this.socket.on("data", (chunk) => {
      this.text += chunk.toString("latin1");
    });
    this.socket.on("end", () => {
      this.isEnded = true;
    });
    this.socket.on("error", (error) => {
      this.error = error;
    });
    this.socket.on("close", () => {
      this.isClosed = true;
    });
  }

  send(text: string | Buffer): void {
    this.socket.write(text);
  }

  async has(part: string, timeoutMs?: number): Promise<void> {
    await until(() => this.text.includes(part), part, timeoutMs).catch((error: Error) => {
      throw new Error(`${error.message} in ${JSON.stringify(this.text.slice(-600))}`);
    });
  }

  async closed(timeoutMs?: number): Promise<void> {
    await until(() => this.isClosed || this.isEnded, "the server closes", timeoutMs);
  }

  destroy(): void {
    this.socket.destroy();
  }
}
