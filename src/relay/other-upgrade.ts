/**
 * Requests that offer another protocol, such as the `Upgrade: h2c` of Java's HTTP client on plain HTTP. A server may ignore
 * the offer (RFC 9110, section 7.8), but Node 20 hands every one of them to 'upgrade' and parses no further.
 */
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";

const dropped: ReadonlySet<string> = new Set(["upgrade", "connection", "http2-settings"]);

/** The http server that the connection came from. */
export interface ConnectionTaker {
  emit(event: "connection", socket: Duplex): boolean;
}

/** Gives the connection back to `server` as if the offer had never been made: head first, then what followed it. */
export function withoutUpgrade(req: IncomingMessage, socket: Duplex, head: Buffer, server: ConnectionTaker): void {
  const { rawHeaders } = req;
  let text = `${req.method} ${req.url} HTTP/${req.httpVersion}\r\n`;
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    if (!dropped.has((rawHeaders[i] ?? "").toLowerCase())) text += `${rawHeaders[i]}: ${rawHeaders[i + 1]}\r\n`;
  }
  socket.unshift(Buffer.concat([Buffer.from(`${text}\r\n`, "latin1"), head]));
  server.emit("connection", socket);
}
