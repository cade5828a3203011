/** What Node's HTTP parser refuses before there is a request: answered as the contract says, not with a bare status. */
import { randomUUID } from "node:crypto";
import { STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import type { Clock } from "../lib/index.ts";
import { type AgentError, agentErrors, errorAnswer, rpcCodes } from "../mcp/index.ts";
import type { AgentConnection } from "./connection.ts";

export const requestTimeout: AgentError = {
  status: 408,
  code: rpcCodes.invalidRequest,
  message: "Request not received in time",
};
const malformed: AgentError = { status: 400, code: rpcCodes.invalidRequest, message: "Malformed HTTP request" };
/** How long the peer may take to read the answer: closing at once would let a reset overtake it. */
const lingerMs = 1_000;

function errorFor(code: string | undefined): AgentError | undefined {
  if (code === "HPE_HEADER_OVERFLOW") return agentErrors.headersTooLarge;
  if (code === "ERR_HTTP_REQUEST_TIMEOUT") return requestTimeout;
  return code?.startsWith("HPE_") && code !== "HPE_INVALID_EOF_STATE" ? malformed : undefined;
}

/** For 'clientError'. Called again for every further byte of a connection that was answered already. */
export function answerClientError(
  error: NodeJS.ErrnoException,
  socket: Duplex,
  connection: AgentConnection | undefined,
  clock: Clock,
): void {
  if (connection?.isClosing === true && !socket.destroyed && error.code !== "ECONNRESET") return;
  const wanted = errorFor(error.code);
  if (wanted === undefined || connection === undefined || !socket.writable) {
    socket.destroy();
    return;
  }
  connection.isClosing = true;
  if (connection.busyCount > 0) {
    endBusy(wanted, socket, connection, clock);
    return;
  }
  socket.end(rawAnswer(wanted));
  linger(socket, clock);
}

/** A request is under way: only its own exchange may write, and only if it has not begun to. */
function endBusy(wanted: AgentError, socket: Duplex, connection: AgentConnection, clock: Clock): void {
  const [only, ...others] = connection.exchanges;
  if (wanted === requestTimeout && others.length === 0 && only?.requestTimedOut() === true) linger(socket, clock);
  else socket.destroy();
}

function linger(socket: Duplex, clock: Clock): void {
  const timer = clock.after(lingerMs, () => socket.destroy());
  socket.once("close", () => timer.cancel());
}

function rawAnswer(error: AgentError): string {
  const requestId = randomUUID();
  const answer = errorAnswer({ ...error, requestId });
  const lines = [`HTTP/1.1 ${answer.status} ${STATUS_CODES[answer.status] ?? "Error"}`];
  for (let i = 0; i + 1 < answer.headers.length; i += 2) lines.push(`${answer.headers[i]}: ${answer.headers[i + 1]}`);
  lines.push(`X-Request-Id: ${requestId}`, `Content-Length: ${answer.body.length}`, "Connection: close");
  return `${lines.join("\r\n")}\r\n\r\n${answer.body.toString("latin1")}`;
}
