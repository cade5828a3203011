import { type IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import { type Clock, headerValue } from "../lib/index.ts";
import type { Answer } from "../mcp/index.ts";
import type { AgentConnection } from "./connection.ts";
import { pushCorsHeaders } from "./hosts.ts";

/** Hears the body of the request that it belongs to. */
export interface BodyOwner {
  onBody(chunk: Buffer): void;
  onBodyEnd(): void;
}

/** A request with room for its exchange, so that body listeners need no closure each. */
export class AgentRequest extends IncomingMessage {
  bodyOwner: BodyOwner | undefined = undefined;
}

const allHeaders = Object.getOwnPropertyDescriptor(IncomingMessage.prototype, "headers");
const noHeaders: IncomingHttpHeaders = Object.freeze({});

/**
 * Node asks every request for its `expect`, and builds an object of all its headers to tell. Nobody else asks: what we
 * judge by is read from `rawHeaders`. Only `ws`, for an upgrade, gets them all. A server whose `requireHostHeader` is on
 * would find no Host.
 */
function headersForNode(this: AgentRequest): IncomingHttpHeaders {
  if ("upgrade" in this && this.upgrade === true) return allHeaders?.get?.call(this) as IncomingHttpHeaders;
  const expect = headerValue(this.rawHeaders, "expect");
  return expect === undefined ? noHeaders : { expect };
}

if (allHeaders !== undefined) {
  Object.defineProperty(AgentRequest.prototype, "headers", { ...allHeaders, get: headersForNode });
}

/** A response that knows what every answer on it carries. */
export class AgentResponse extends ServerResponse<AgentRequest> {
  requestId = "";
  /** The request's Origin, when it is an allowed one. */
  allowedOrigin: string | undefined = undefined;
  /** The agent waits for `100 Continue` and got none: whether a body follows is then anybody's guess. */
  owesContinue = false;

  constructor(req: AgentRequest) {
    super(req);
    // A write that loses the race against the agent's leaving must not become an uncaught error.
    this.on("error", ignore);
  }
}

function ignore(): void {}

/** Adds what every answer carries. */
export function pushCommonHeaders(into: string[], res: AgentResponse): void {
  into.push("X-Request-Id", res.requestId);
  if (res.allowedOrigin !== undefined) pushCorsHeaders(into, res.allowedOrigin);
  if (res.owesContinue) {
    res.shouldKeepAlive = false;
    into.push("Connection", "close");
  }
}

/** Writes an answer of our own, whole. The head must not have gone out. */
export function sendAnswer(res: AgentResponse, answer: Answer): void {
  const headers = [...answer.headers];
  pushCommonHeaders(headers, res);
  if (answer.status !== 204) headers.push("Content-Length", String(answer.body.length));
  res.writeHead(answer.status, headers);
  if (answer.body.length === 0) res.end();
  else res.end(answer.body);
}

/** What remains of a refused body is read and thrown away, up to this: a reset could overtake the answer. */
const discardBytes = 16 * 1024 * 1024;
const discardMs = 5_000;

/**
 * Call after the answer was ended. Frees the connection for its next request once the rest of the body has come;
 * `hasBody` false: there is none, even if Node has not noticed yet.
 */
export function finishRequest(req: AgentRequest, hasBody: boolean, connection: AgentConnection, clock: Clock): void {
  if (!hasBody || req.complete || req.destroyed) {
    connection.busyCount -= 1;
    if (!req.readableEnded) req.resume();
    return;
  }
  let left = discardBytes;
  const timer = clock.after(discardMs, () => req.socket.destroy());
  req.bodyOwner = {
    onBody: (chunk) => {
      left -= chunk.length;
      if (left < 0) req.socket.destroy();
    },
    onBodyEnd: () => undefined,
  };
  if (req.listenerCount("data") === 0) listenToBody(req);
  req.once("close", () => {
    timer.cancel();
    connection.busyCount -= 1;
  });
  req.resume();
}

/** Sends the body of `req` to its `bodyOwner`. */
export function listenToBody(req: AgentRequest): void {
  req.on("data", onRequestData);
  req.on("end", onRequestEnd);
}

function onRequestData(this: AgentRequest, chunk: Buffer): void {
  this.bodyOwner?.onBody(chunk);
}

function onRequestEnd(this: AgentRequest): void {
  this.bodyOwner?.onBodyEnd();
}
