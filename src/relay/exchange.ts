/**
 * One agent request and the tunnel stream that carries it.
 *
 * 1. A stream is opened once the body is here, or is too large to be kept: a small request is then one message on the
 *    wire, and can be sent again through another gateway as long as nobody processed it.
 * 2. Whatever ends the exchange passes `#finish`, once: counts, sets and waiters cannot leak.
 * 3. An agent that leaves resets its stream at once; a stream that dies answers its agent at once.
 */

import { headerValue, type Timer } from "../lib/index.ts";
import { type AgentErrorKind, agentErrorAnswer, errorAnswer, resetErrorKind } from "../mcp/index.ts";
import type { Head, Reset, ResetCode, StreamSink, TunnelSession, TunnelStream } from "../tunnel/index.ts";
import { instanceOf } from "./affinity.ts";
import { type BodyOwner, finishRequest, listenToBody } from "./answer.ts";
import { requestTimeout } from "./client-error.ts";
import type { LiveExchange } from "./connection.ts";
import type { Flusher } from "./flusher.ts";
import { type JudgedRequest, openOf } from "./judged-request.ts";
import type { RelayDeps, RelayLimits, RelayTimeouts } from "./options.ts";
import { type CreditOwner, Response } from "./response.ts";
import { readResponseHead } from "./response-headers.ts";
import { isWorthAnother, Search } from "./search.ts";
import type { RelayTally } from "./tally.ts";
import type { Waiter } from "./tunnels.ts";

/** What all exchanges of a relay share. */
export interface ExchangeContext extends RelayDeps {
  readonly limits: RelayLimits;
  readonly timeouts: RelayTimeouts;
  readonly flusher: Flusher;
  readonly tally: RelayTally;
}

/** The gateway knows the deadline too and answers better; this is for one that does not. */
const deadlineGraceMs = 5_000;
/** An event that is not complete by then is broken off. */
const endGraceMs = 30_000;
const noBody: readonly Buffer[] = [];
const noSessions: readonly TunnelSession[] = [];

interface Ending {
  readonly message: string;
  readonly kind: AgentErrorKind;
  readonly code: string;
}

const endings: Readonly<Record<"expired" | "draining", Ending>> = {
  expired: { message: "the agent's credential holds no more", kind: "unauthorized", code: "EXPIRED" },
  draining: { message: "the relay shuts down", kind: "overloaded", code: "DRAINING" },
};

export class Exchange implements StreamSink, BodyOwner, CreditOwner, LiveExchange, Waiter {
  readonly #context: ExchangeContext;
  readonly #request: JudgedRequest;
  readonly #response: Response;
  #isOver = false;
  #stream: TunnelStream | undefined = undefined;
  #session: TunnelSession | undefined = undefined;

  #isReceiving = false;
  #receivedBytes = 0;
  #isBodyComplete = false;
  /** What came of the body so far, while the whole of it can still be sent again. */
  #kept: Buffer[] | undefined = undefined;
  #isReplayable = true;

  /** The gateway process that the MCP session is with; undefined: any will do. */
  #instance: string | undefined;
  /** Undefined while the first gateway has not failed: mostly, until the end. */
  #search: Search | undefined = undefined;
  #holdTimer: Timer | undefined = undefined;
  #openMs = 0;
  /** Why the event stream ends at the next place between two events. */
  #ending: Ending | undefined = undefined;
  #endingMs = 0;

  constructor(context: ExchangeContext, request: JudgedRequest) {
    this.#context = context;
    this.#request = request;
    this.#instance = instanceOf(request.headers.forwarded);
    this.#response = new Response(request.res, context.flusher, this);
  }

  start(): void {
    const { agent, connection } = this.#request;
    agent.openStreams += 1;
    connection.exchanges.add(this);
    if (this.#pick() === undefined) this.#holdOrGiveUp(true);
    else this.#receive();
  }

  #pick(): TunnelSession | undefined {
    const { tunnel, server } = this.#request;
    return tunnel.pick(server, this.#search?.tried ?? noSessions, this.#instance);
  }

  #receive(): void {
    const { req, res, headers, hasBody } = this.#request;
    if ((headers.contentLength ?? 0) > this.#context.limits.requestBytes) {
      this.#refuse("bodyTooLarge");
      return;
    }
    this.#isReceiving = true;
    if (!hasBody) {
      this.#isBodyComplete = true;
      this.#open();
      return;
    }
    if (res.owesContinue) {
      res.owesContinue = false;
      res.writeContinue();
    }
    req.bodyOwner = this;
    listenToBody(req);
  }

  onBody(chunk: Buffer): void {
    if (this.#isOver) return;
    this.#receivedBytes += chunk.length;
    if (this.#receivedBytes > this.#context.limits.requestBytes) {
      this.#dropStream("TOO_LARGE", "request body too large");
      this.#refuse("bodyTooLarge");
    } else if (this.#stream !== undefined) {
      if (!this.#stream.write(chunk)) this.#request.req.pause();
    } else {
      this.#keep(chunk);
    }
  }

  #keep(chunk: Buffer): void {
    if (this.#kept === undefined) this.#kept = [chunk];
    else this.#kept.push(chunk);
    if (this.#receivedBytes <= this.#context.limits.replayBytes || !this.#isReplayable) return;
    this.#isReplayable = false;
    this.#request.req.pause();
    this.#open();
  }

  onBodyEnd(): void {
    if (this.#isOver) return;
    this.#isBodyComplete = true;
    if (this.#stream !== undefined) this.#stream.end();
    else if (this.#isReplayable) this.#open();
  }

  /** Tries gateways until one takes the stream, at most three; then waits for another, or gives up. */
  #open(): void {
    const { clock, timeouts } = this.#context;
    // A body, or a gateway, may be long in coming: what held when the request arrived need not hold now.
    const refusal = this.#request.agent.refusalOf(this.#request.server, clock.wall());
    if (refusal !== undefined) {
      this.#refuse(refusal);
      return;
    }
    while (this.#search?.mayTry(clock.now()) ?? true) {
      const session = this.#pick();
      if (session === undefined) {
        this.#holdOrGiveUp(true);
        return;
      }
      const opened = session.openStream(openOf(this.#request, session, timeouts.firstByteMs), this);
      if (!("code" in opened)) {
        this.#session = session;
        this.#stream = opened;
        this.#sendKept(opened);
        return;
      }
      if (opened.code === "TOO_LARGE") {
        this.#refuse("headersTooLarge");
        return;
      }
      this.#startSearch().note(session, opened.code, clock.now());
    }
    this.#holdOrGiveUp(false);
  }

  #startSearch(): Search {
    this.#search ??= new Search(this.#context.timeouts);
    return this.#search;
  }

  #sendKept(stream: TunnelStream): void {
    let hasRoom = true;
    for (const chunk of this.#kept ?? noBody) hasRoom = stream.write(chunk);
    if (this.#isBodyComplete && this.#request.hasBody) stream.end();
    if (this.#isReplayable) return;
    this.#kept = undefined;
    if (hasRoom && !this.#isBodyComplete) this.#request.req.resume();
  }

  onDrain(): void {
    if (!this.#isBodyComplete) this.#request.req.resume();
  }

  /** Waits for a gateway that is likely to be back in a moment. `mayHold` false: enough was tried. */
  #holdOrGiveUp(mayHold: boolean): void {
    const { tunnel, server } = this.#request;
    const { clock } = this.#context;
    const holdMs = mayHold ? this.#startSearch().holdMs(clock.now()) : 0;
    if (holdMs === 0 || !tunnel.isExpected(server)) {
      this.#giveUp();
      return;
    }
    this.#holdTimer = clock.after(holdMs, () => this.#heldLong());
    tunnel.wait(this);
  }

  onSession(): void {
    if (!this.#isOver && this.#pick() !== undefined) this.#goOn();
  }

  /** Any other gateway says that it does not know the MCP session, so that the agent begins a new one. */
  #heldLong(): void {
    this.#instance = undefined;
    if (this.#pick() === undefined) this.#giveUp();
    else this.#goOn();
  }

  #goOn(): void {
    this.#stopWaiting();
    if (this.#isReceiving) this.#open();
    else this.#receive();
  }

  #giveUp(): void {
    const { tunnel, server, agent } = this.#request;
    const isServed = tunnel.isConnected && !tunnel.isExpected(server);
    const code = this.#search?.lastCode ?? (isServed ? "NO_SERVER" : "TUNNEL_LOST");
    this.#refuse(resetErrorKind(code, agent.usesAll));
  }

  onHead(head: Head): void {
    const read = readResponseHead(head);
    if (read === undefined) {
      this.#dropStream("INTERNAL", "invalid response head");
      this.#refuse("upstreamFailed");
      return;
    }
    this.#kept = undefined;
    this.#response.head(read, head.rpcId);
  }

  onData(chunk: Buffer): void {
    if (this.#ending === undefined) this.#response.data(chunk);
    else if (this.#response.lastData(chunk)) this.#endEvents(this.#ending);
  }

  /** An event stream ends between two events, anything else finishes. */
  #endSoon(ending: Ending, tickMs: number): void {
    if (this.#isOver || !this.#response.isEventStream) return;
    this.#ending = ending;
    this.#endingMs += tickMs;
    if (this.#response.isBetweenEvents || this.#endingMs > endGraceMs) this.#endEvents(ending);
  }

  #endEvents(ending: Ending): void {
    this.#dropStream("CANCEL", ending.message);
    this.#fail(ending.kind, ending.code);
  }

  consumed(bytes: number): void {
    this.#stream?.consumed(bytes);
  }

  onEnd(): void {
    if (this.#isOver) return;
    if (this.#response.isWaiting) {
      this.#dropStream("INTERNAL", "end before head");
      this.#refuse("upstreamFailed");
      return;
    }
    this.#response.end();
    // The server answered without waiting for the whole body: nobody wants the rest.
    if (!this.#isBodyComplete) this.#dropStream("CANCEL", "answered before the request was complete");
    this.#finish();
  }

  onReset(reset: Reset): void {
    if (this.#isOver || this.#stream === undefined) return;
    this.#stream = undefined;
    if (this.#session !== undefined && this.#response.isWaiting && this.#isReplayable && isWorthAnother(reset)) {
      this.#startSearch().note(this.#session, reset.code, this.#context.clock.now());
      this.#open();
      return;
    }
    this.#fail(resetErrorKind(reset.code, this.#request.agent.usesAll), reset.code);
  }

  #fail(kind: AgentErrorKind, code: string): void {
    const { res, agent, server, tunnel } = this.#request;
    this.#context.logger.info("exchange failed", {
      requestId: res.requestId,
      tunnel: tunnel.name,
      server,
      principal: agent.principal.id,
      code,
    });
    if (this.#response.hasLeft) {
      this.#response.breakOff(kind);
      this.#finish();
    } else {
      this.#refuse(kind);
    }
  }

  /** Answers instead of a gateway. */
  #refuse(kind: AgentErrorKind): void {
    const extra = kind === "unauthorized" ? { headers: ["www-authenticate", "Bearer"] } : undefined;
    this.#response.replace(agentErrorAnswer(kind, { requestId: this.#request.res.requestId }, extra));
    this.#finish();
  }

  agentGone(): void {
    this.#leave("CANCEL", "the agent left");
  }

  agentStalled(): void {
    this.#leave("STALLED", "the agent takes no bytes");
  }

  #leave(code: "CANCEL" | "STALLED", message: string): void {
    if (this.#isOver) return;
    this.#context.logger.debug("agent left", { requestId: this.#request.res.requestId, code });
    this.#response.abandon();
    this.#dropStream(code, message);
    this.#finish();
  }

  requestTimedOut(): boolean {
    if (this.#isOver || this.#isBodyComplete || !this.#response.isWaiting) return false;
    const { res } = this.#request;
    res.shouldKeepAlive = false;
    this.#dropStream("CANCEL", "the request did not come in time");
    this.#response.replace(errorAnswer({ ...requestTimeout, requestId: res.requestId }));
    this.#finish();
    return true;
  }

  /** Whether the stream would never end by itself: the server's own, or a subscription. */
  get #hasNoEnd(): boolean {
    const { method, headers } = this.#request;
    return method === "GET" || headerValue(headers.forwarded, "mcp-method") === "subscriptions/listen";
  }

  leave(): void {
    if (this.#hasNoEnd) this.#endSoon(endings.draining, 0);
  }

  cut(): void {
    if (this.#isOver) return;
    this.#dropStream("DRAINING", "the relay shuts down");
    this.#fail("overloaded", "DRAINING");
  }

  tick(tickMs: number): void {
    const { keepAliveMs, idleMs, firstByteMs } = this.#context.timeouts;
    if (this.#response.tick(tickMs, keepAliveMs, idleMs)) this.#timeOut("IDLE");
    const { agent, server } = this.#request;
    if (agent.refusalOf(server, this.#context.clock.wall()) !== undefined) this.#endSoon(endings.expired, tickMs);
    if (this.#stream === undefined || !this.#response.isWaiting) return;
    this.#openMs += tickMs;
    if (this.#openMs > firstByteMs + deadlineGraceMs) this.#timeOut("DEADLINE");
  }

  #timeOut(code: "IDLE" | "DEADLINE"): void {
    this.#dropStream(code, "no byte in time");
    this.#fail("upstreamTimeout", code);
  }

  /** Forgotten before it is reset, so that whatever that calls back finds no stream here. */
  #dropStream(code: ResetCode, message: string): void {
    const stream = this.#stream;
    this.#stream = undefined;
    stream?.reset(code, message);
  }

  #stopWaiting(): void {
    this.#holdTimer?.cancel();
    this.#request.tunnel.stopWaiting(this);
  }

  #finish(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const { agent, connection, req, res, hasBody } = this.#request;
    this.#context.tally.answered(res.headersSent ? res.statusCode : 0);
    agent.openStreams -= 1;
    connection.exchanges.delete(this);
    if (this.#holdTimer !== undefined) this.#stopWaiting();
    this.#kept = undefined;
    req.bodyOwner = undefined;
    finishRequest(req, hasBody, connection, this.#context.clock);
  }
}
