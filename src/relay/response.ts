/**
 * The answer to one agent request, from the head that came through the tunnel to the last byte.
 *
 * 1. Head, body and end that come in one tick leave in one write, with a length.
 * 2. Everything else leaves at once, as it comes; nothing is ever sniffed or gathered.
 * 3. Only `end()` makes an answer look complete (DESIGN, invariant 8).
 * 4. Credit goes back only for bytes that the agent's socket has taken.
 */
import { headerValue } from "../lib/index.ts";
import { type AgentErrorKind, type Answer, agentErrors, eraOf, errorEvent } from "../mcp/index.ts";
import { type AgentResponse, pushCommonHeaders, sendAnswer } from "./answer.ts";
import { EventBoundary } from "./event-boundary.ts";
import type { Flusher } from "./flusher.ts";
import type { ResponseHead } from "./response-headers.ts";

const keepAliveComment = Buffer.from(": keepalive\n\n");
/** Ends the event in hand as one that no client knows, so that its half is not taken for a message. */
const truncatedEvent = Buffer.from("\nevent: truncated\n\n");
const maxRpcIdLength = 1024;

/** Gets credit back for what the agent has taken. */
export interface CreditOwner {
  consumed(bytes: number): void;
}

export class Response {
  readonly #res: AgentResponse;
  readonly #flusher: Flusher;
  readonly #owner: CreditOwner;
  /** `held`: the head is known but has not left. */
  #state: "waiting" | "held" | "streaming" | "over" = "waiting";
  #head: ResponseHead | undefined = undefined;
  #rpcId: string | undefined = undefined;
  #pending: Buffer[] | undefined = undefined;
  #boundary: EventBoundary | undefined = undefined;
  /** Bytes that wait for the agent's socket to drain. */
  #blockedBytes = 0;
  #silentMs = 0;

  constructor(res: AgentResponse, flusher: Flusher, owner: CreditOwner) {
    this.#res = res;
    this.#flusher = flusher;
    this.#owner = owner;
  }

  get isWaiting(): boolean {
    return this.#state === "waiting";
  }

  /** Whether anything of the answer has left, so that a failure can no longer be a status. */
  get hasLeft(): boolean {
    return this.#state === "streaming" || this.#state === "over";
  }

  /** `rpcId`: raw JSON text of the request's id. */
  head(head: ResponseHead, rpcId: string | undefined): void {
    this.#state = "held";
    this.#head = head;
    this.#rpcId = rpcId !== undefined && isPlainId(rpcId) ? rpcId : undefined;
    this.#flusher.add(this);
  }

  data(chunk: Buffer): void {
    if (this.#state === "streaming") this.#write(chunk);
    else if (this.#pending !== undefined) this.#pending.push(chunk);
    else if (this.#state === "held") this.#pending = [chunk];
  }

  /** The answer is complete. */
  end(): void {
    if (this.#state === "held") this.#sendWhole();
    else if (this.#state === "streaming") this.#res.end();
    this.#state = "over";
  }

  /** An answer of our own instead; only while `hasLeft` is false. */
  replace(answer: Answer): void {
    this.#state = "over";
    this.#pending = undefined;
    sendAnswer(this.#res, answer);
  }

  /** Nobody is left to read it. */
  abandon(): void {
    this.#state = "over";
    this.#pending = undefined;
  }

  /** The rest will not come: says so in an event stream where the client cannot resume it, and cuts anything else. */
  breakOff(kind: AgentErrorKind): void {
    const boundary = this.#boundary;
    const isBetween = boundary?.isAtBoundary ?? false;
    this.#state = "over";
    if (boundary === undefined) {
      this.#cut();
    } else if (this.#rpcId === undefined || (boundary.hasId && this.#canResume)) {
      if (isBetween) this.#res.end();
      else this.#cut();
    } else {
      if (!isBetween) this.#res.write(truncatedEvent);
      this.#res.end(errorEvent(agentErrors[kind], { idText: this.#rpcId, requestId: this.#res.requestId }));
    }
  }

  /** From 2026-07-28 on there is no resumption, whatever ids a server sends: the client would wait for its timeout. */
  get #canResume(): boolean {
    return eraOf(undefined, headerValue(this.#res.req.rawHeaders, "mcp-protocol-version")) === "legacy";
  }

  /** Whether it is an event stream that has begun to leave and stands between two events. */
  get isBetweenEvents(): boolean {
    return this.#state === "streaming" && (this.#boundary?.isAtBoundary ?? false);
  }

  get isEventStream(): boolean {
    return this.#state === "streaming" && this.#boundary !== undefined;
  }

  /** As `data`, up to the first place between two events. True: it stands there, and what follows was dropped. */
  lastData(chunk: Buffer): boolean {
    const length = this.#state === "streaming" ? this.#boundary?.nextIn(chunk) : undefined;
    this.data(length === undefined ? chunk : chunk.subarray(0, length));
    return length !== undefined;
  }

  #cut(): void {
    const { socket, req } = this.#res;
    // Without chunks a FIN is the end of the body: only a reset says that it is not.
    if (req.httpVersionMajor === 1 && req.httpVersionMinor >= 1) socket?.destroy();
    else socket?.resetAndDestroy();
    // A pipelined answer has no socket yet.
    if (socket === null) req.socket.resetAndDestroy();
  }

  /** End of the tick in which the head came. */
  flush(): void {
    if (this.#state !== "held" || this.#head === undefined) return;
    this.#state = "streaming";
    if (this.#head.isEventStream) this.#boundary = new EventBoundary();
    this.#res.writeHead(this.#head.status, this.#headers(this.#head, undefined));
    const pending = this.#pending;
    this.#pending = undefined;
    if (pending === undefined) this.#res.flushHeaders();
    else for (const chunk of pending) this.#write(chunk);
  }

  flushFailed(): void {
    this.#state = "over";
    this.#res.req.socket.destroy();
  }

  #sendWhole(): void {
    if (this.#head === undefined) return;
    const { status } = this.#head;
    const chunks = status === 204 || status === 304 ? undefined : (this.#pending ?? []);
    this.#pending = undefined;
    this.#res.writeHead(status, this.#headers(this.#head, chunks && totalLength(chunks)));
    const last = chunks?.pop();
    for (const chunk of chunks ?? []) this.#res.write(chunk);
    if (last === undefined) this.#res.end();
    else this.#res.end(last);
  }

  #headers(head: ResponseHead, length: number | undefined): string[] {
    const { headers } = head;
    headers.push("X-Content-Type-Options", "nosniff");
    if (length !== undefined) headers.push("Content-Length", String(length));
    pushCommonHeaders(headers, this.#res);
    return headers;
  }

  #write(chunk: Buffer): void {
    this.#boundary?.push(chunk);
    this.#silentMs = 0;
    const hasRoom = this.#res.write(chunk);
    if (this.#blockedBytes === 0 && hasRoom) {
      this.#owner.consumed(chunk.length);
      return;
    }
    if (this.#blockedBytes === 0) this.#res.once("drain", () => this.#drained());
    this.#blockedBytes += chunk.length;
  }

  #drained(): void {
    const bytes = this.#blockedBytes;
    this.#blockedBytes = 0;
    this.#owner.consumed(bytes);
  }

  /** Writes a comment after `keepAliveMs` of silence. True: a body that is no event stream is silent for too long. */
  tick(tickMs: number, keepAliveMs: number, idleMs: number): boolean {
    if (this.#state !== "streaming" || this.#blockedBytes > 0) return false;
    this.#silentMs += tickMs;
    const boundary = this.#boundary;
    if (boundary === undefined) return this.#silentMs >= idleMs;
    if (this.#silentMs >= keepAliveMs && boundary.isAtBoundary) {
      this.#silentMs = 0;
      // Behind it a byte order mark would lead nothing any more.
      boundary.push(keepAliveComment);
      this.#res.write(keepAliveComment);
    }
    return false;
  }
}

/** A number or a string in JSON, on one line: what may stand in an error event as it is. */
function isPlainId(text: string): boolean {
  if (text.length > maxRpcIdLength || /[\r\n]/.test(text)) return false;
  try {
    const id: unknown = JSON.parse(text);
    return typeof id === "number" || typeof id === "string";
  } catch {
    return false;
  }
}

function totalLength(chunks: readonly Buffer[]): number {
  let bytes = 0;
  for (const chunk of chunks) bytes += chunk.length;
  return bytes;
}
