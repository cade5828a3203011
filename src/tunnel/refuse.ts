import { STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";

/** RFC 9457 members; `status` is added. */
export interface Problem {
  readonly title: string;
  readonly detail?: string;
  /** The relay node that already has this gateway and slot (409). */
  readonly node?: string;
}

/**
 * Answers an upgrade in the HTTP phase with problem+json and closes the socket. `status` is one of 400, 401, 403, 404,
 * 409, 426, 429, 503; `retryAfterS` whole seconds.
 */
export function refuseUpgrade(socket: Duplex, status: number, problem: Problem, retryAfterS?: number): void {
  if (socket.destroyed || !socket.writable) {
    socket.destroy();
    return;
  }
  // The peer may be gone: a reset while the answer goes out must not become an uncaught error.
  socket.on("error", () => socket.destroy());
  const body = JSON.stringify({ title: problem.title, status, detail: problem.detail, node: problem.node });
  const lines = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "Refused"}`,
    "Content-Type: application/problem+json",
    `Content-Length: ${Buffer.byteLength(body)}`,
    "Connection: close",
  ];
  if (status === 401) lines.push("WWW-Authenticate: Bearer");
  if (status === 426) lines.push("Upgrade: websocket", "Sec-WebSocket-Protocol: postern.v1");
  if (retryAfterS !== undefined) lines.push(`Retry-After: ${Math.max(0, Math.ceil(retryAfterS))}`);
  socket.end(`${lines.join("\r\n")}\r\n\r\n${body}`, () => socket.destroy());
}
