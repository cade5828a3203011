import type { Caller } from "../credentials/index.ts";
import type { RawHeaders } from "../lib/index.ts";
import {
  type AgentErrorKind,
  type AnswerTo,
  agentErrorAnswer,
  agentErrors,
  type ClientKind,
  errorAnswer,
  type ListKind,
} from "../mcp/index.ts";
import type { Open } from "../tunnel/index.ts";
import type { UpstreamCall, UpstreamError, UpstreamSink } from "../upstream/index.ts";
import { AnswerFilter } from "./answer-filter.ts";
import { type AnswerHeaders, readAnswerHeaders } from "./answer-headers.ts";
import { failedAnswer, isSuccess, replacedAnswer, resetCodeOf } from "./answer-replacement.ts";
import { type AnswerScrubber, reflectedReason } from "./answer-scrubber.ts";
import type { AnswerFailure, AnswerHooks, AnswerJudge } from "./answer-types.ts";
import { refuseAsk } from "./ask-refusal.ts";
import { CarriedAsks } from "./carried-asks.ts";
import type { GatewayServer, Injected, PipelineContext } from "./context.ts";
import { addressee, type Judged } from "./pipeline.ts";
import type { Reply } from "./reply.ts";
import { shownLocation } from "./shown-location.ts";
import { type EndedStream, type Ending, StreamEnd } from "./stream-end.ts";
import { upstreamCure } from "./upstream-cures.ts";

/**
 * The upstream's answer on its way to the agent: what never passes is replaced here (challenges, redirects, bodies that
 * are neither JSON nor an event stream), all else goes through the answer filter.
 *
 * 1. Exactly one of END and RESET ends the reply; `onOver` follows it, once.
 * 2. Once the reply is over, the upstream is no longer read.
 */

/** How many refusals one exchange may send to its upstream. */
const maxAskRefusals = 64;
/** How many dropped messages of one exchange are logged. */
const maxLoggedDrops = 10;

export interface AnswerOwner {
  /** The reply has ended; `end` is `complete` or what broke it. */
  onAnswerOver(end: string): void;
  /**
   * The upstream refused the credential, and nothing was delivered. True: the owner calls again with another one, or, when
   * there is no other, has `refuseCredential` say so; this answer says nothing more by itself.
   */
  onCredentialRefused(): boolean;
}

export interface AnswerTask {
  readonly server: GatewayServer;
  readonly open: Open;
  readonly judged: Judged;
  /** The agent's MCP-Protocol-Version. */
  readonly protocolVersion: string | undefined;
  readonly injected: Injected;
  readonly caller: Caller;
  /** Wall time at which the agent's token ends. */
  readonly validUntil: number | undefined;
  readonly reply: Reply;
  readonly owner: AnswerOwner;
}

export class UpstreamAnswer implements UpstreamSink, AnswerHooks, AnswerJudge, EndedStream {
  readonly #ctx: PipelineContext;
  readonly #task: AnswerTask;
  readonly #server: GatewayServer;
  readonly #open: Open;
  readonly #judged: Judged;
  readonly #reply: Reply;
  readonly #scrubber: AnswerScrubber | undefined;
  /** Set by the owner as soon as the call exists. */
  call: UpstreamCall | undefined;
  #isOver = false;
  #status = 0;
  #headers: AnswerHeaders | undefined;
  #sessionId: string | undefined;
  #filter: AnswerFilter | undefined;
  #asks: CarriedAsks | undefined;
  #refusalCount = 0;
  #dropCount = 0;
  #closeDelimited = false;
  #isReported = false;
  /** Of an event stream that may have to be ended from here. */
  #streamEnd: StreamEnd | undefined;

  constructor(ctx: PipelineContext, task: AnswerTask) {
    this.#ctx = ctx;
    this.#task = task;
    this.#server = task.server;
    this.#open = task.open;
    this.#judged = task.judged;
    this.#reply = task.reply;
    this.#scrubber = task.server.leaks.watch(task.injected, task.caller.id, task.open.requestId);
  }

  get scrubbedCount(): number {
    return this.#scrubber?.hitCount ?? 0;
  }

  /** What the agent is told when the server takes no credential that there is. */
  refuseCredential(): void {
    if (!this.#isOver) this.#refuse("the server refused the credential", "check the credential of this server");
  }

  /** The agent is gone; the owner ends the rest. */
  abandon(): void {
    this.#isOver = true;
    this.#streamEnd?.cancel();
    this.#filter?.abandon();
    this.#asks?.release(false);
  }

  onHead(status: number, raw: RawHeaders): void {
    if (this.#isOver) return;
    this.#status = status;
    const headers = readAnswerHeaders(status, raw);
    this.#headers = headers;
    if (headers === undefined) this.#refuse("a header repeats in the answer", "check what stands before the server");
    else if (this.#refuseHead(status, headers)) return;
    else if (this.#scrubber?.admitsHeaders(shownOf(headers)) === false) this.#refuse(reflectedReason, undefined);
    else if (!this.#sealSession(headers.sessionId)) this.#refuse("session id that cannot be passed on", undefined);
    else if (headers.body === "other") this.#replace();
    // Without a content type there should be no body: what comes all the same is no JSON.
    else if (headers.body !== "none" || isSuccess(status)) this.#startFilter(headers);
  }

  onData(chunk: Buffer): void {
    if (this.#isOver) return;
    if (this.#headers?.body === "none") this.#replace();
    else this.#filter?.push(chunk);
    this.#streamEnd?.onData();
  }

  onEnd(closeDelimited: boolean): void {
    if (this.#isOver) return;
    this.#closeDelimited = closeDelimited;
    if (this.#filter === undefined) this.#replace();
    else this.#filter.end();
  }

  onError(error: UpstreamError): void {
    if (this.#isOver || this.#hasAnotherCertificate(error)) return;
    const hasCertificate = this.#task.injected.tls !== undefined;
    this.#warn(error.code, error.detail, upstreamCure(error, this.#server.name, hasCertificate));
    this.#isReported = true;
    const isLate = error.code === "first-byte" || error.code === "idle" || error.code === "stalled";
    const kind = isLate ? "upstreamTimeout" : "upstreamFailed";
    if (this.#filter !== undefined) this.#filter.fail(agentErrors[kind].code, agentErrors[kind].message);
    else this.#say(kind, error.code);
  }

  /** Our certificate may have been replaced meanwhile; the server has read nothing, so the call may be made again. */
  #hasAnotherCertificate({ code }: UpstreamError): boolean {
    const mayRetry = code === "client-certificate" && this.#task.injected.tls !== undefined;
    return mayRetry && this.#filter === undefined && this.#task.owner.onCredentialRefused();
  }

  // What the filter asks.

  shows(kind: ListKind, name: string): boolean {
    return this.#ctx.policy.shows(this.#server.name, kind, name);
  }

  admitsAsk(ask: ClientKind): boolean {
    return this.#ctx.policy.admitsAsk(this.#server.name, ask);
  }

  admitsUpdate(uri: string): boolean {
    return this.#ctx.policy.decide(this.#server.name, { kind: "resource", uris: [uri] }).kind === "allow";
  }

  // What the filter says.

  head(): void {
    const headers = this.#headers?.forward ?? [];
    headers.push("x-content-type-options", "nosniff");
    if (this.#sessionId !== undefined) headers.push("mcp-session-id", this.#sessionId);
    const status = this.#status;
    const rpcId = this.#requestIdText();
    this.#reply.head(
      rpcId === undefined ? { status, headers, by: "upstream" } : { status, headers, by: "upstream", rpcId },
    );
  }

  emit(bytes: Buffer): void {
    if (!this.#reply.write(bytes)) this.call?.pause();
  }

  finish(): void {
    this.#forgetEndedSession();
    this.#reply.end(this.#closeDelimited);
    this.#over("complete", true);
  }

  fail(failure: AnswerFailure): void {
    if (this.#isOver) return;
    if (!this.#isReported) this.#warn("answer", failure.reason, undefined);
    const end = resetCodeOf(failure.code);
    if (failure.ending === "http") {
      this.#reply.answer(failedAnswer(this.#status, failure, this.#to()));
    } else if (failure.ending === "cut") {
      this.#reply.reset(end, failure.message);
    } else {
      this.#reply.end(false);
    }
    this.#over(this.#streamEnd?.ending?.end ?? end, false);
  }

  onAsk(idText: string, _method: string): void {
    // The agent will post its answer in the session that this very answer opens, if it does.
    const { session } = this.#judged;
    this.#asks ??= new CarriedAsks(this.#ctx.sessions, session.sealedId ?? this.#sessionId ?? session.key);
    if (!this.#asks.add(idText)) this.onDrop("too many requests of the server are pending");
  }

  onAskRefused(idText: string, _method: string): void {
    this.#refusalCount += 1;
    if (this.#refusalCount > maxAskRefusals) return;
    const sessionId = this.#judged.session.upstreamId ?? this.#headers?.sessionId;
    refuseAsk(this.#task, idText, sessionId);
  }

  onDrop(reason: string): void {
    this.#dropCount += 1;
    if (this.#dropCount <= maxLoggedDrops) this.#warn("dropped", reason, undefined);
  }

  errorJson(idText: string, code: number, message: string): string {
    const { body } = errorAnswer({ status: 200, code, message, idText, requestId: this.#open.requestId });
    return body.toString("utf8");
  }

  /** Answers that would mislead an agent or show it something of the private network (DESIGN 4.6). */
  #refuseHead(status: number, headers: AnswerHeaders): boolean {
    if (status >= 300 && status < 400) {
      this.#refuse("redirect", "configure the URL that it points to", headers.location);
    } else if (status === 401 || (status === 403 && headers.hasChallenge)) {
      if (!this.#task.owner.onCredentialRefused()) this.refuseCredential();
    } else if (headers.isEncoded) {
      this.#refuse("the answer is encoded though identity was asked for", "switch compression off for this server");
    } else {
      return false;
    }
    return true;
  }

  #startFilter(headers: AnswerHeaders): void {
    this.#filter = new AnswerFilter({
      exchange: { method: this.#open.method, idText: this.#requestIdText(), era: this.#judged.era },
      status: this.#status,
      isEventStream: headers.body === "events",
      judge: this,
      hooks: this,
      budget: this.#ctx.answerBudget,
      scrubber: this.#scrubber,
    });
    this.#filter.start();
    const { validUntil } = this.#task;
    if (headers.body === "events" && validUntil !== undefined && !this.#isOver) this.#endable().expireAt(validUntil);
  }

  /** The gateway stops: a stream that would never end by itself makes room; the answer to a call may still come. */
  leave(): void {
    const hasNoEnd = this.#judged.message === undefined || this.#judged.message.method === "subscriptions/listen";
    if (hasNoEnd && this.#headers?.body === "events" && !this.#isOver) this.#endable().drain();
  }

  #endable(): StreamEnd {
    this.#streamEnd ??= new StreamEnd(this.#ctx.clock, this);
    return this.#streamEnd;
  }

  get isAtBoundary(): boolean {
    return this.#filter?.isAtBoundary === true;
  }

  endNow({ end, code, message }: Ending): void {
    if (this.#isOver) return;
    this.#isReported = true;
    const { requestId } = this.#open;
    this.#ctx.logger.info("event stream ends", { server: this.#server.name, requestId, reason: end });
    this.#filter?.fail(code, message);
  }

  /** True unless the upstream's session id cannot be shown to the agent. */
  #sealSession(upstreamId: string | undefined): boolean {
    if (upstreamId === undefined || this.#judged.era === "modern") return true;
    const { session } = this.#judged;
    this.#sessionId =
      session.upstreamId === upstreamId
        ? session.sealedId
        : this.#ctx.sessionIds.seal(this.#server.name, this.#open.principal.id, upstreamId);
    return this.#sessionId !== undefined;
  }

  #forgetEndedSession(): void {
    const { sealedId } = this.#judged.session;
    if (sealedId === undefined) return;
    if (this.#status === 404 || (this.#open.method === "DELETE" && isSuccess(this.#status))) {
      this.#ctx.sessions.forget(sealedId);
    }
  }

  #refuse(reason: string, cure: string | undefined, location?: string): void {
    this.#warn("answer", reason, cure, location);
    this.#say("upstreamFailed", "UPSTREAM_FAILED");
  }

  /** A body that must not pass, or none where an error needs one: the status stays, a success becomes 502. */
  #replace(): void {
    this.#forgetEndedSession();
    if (isSuccess(this.#status))
      this.#warn("answer", "neither JSON nor an event stream", "check the URL of this server");
    this.#reply.answer(replacedAnswer(this.#status, this.#headers?.forward, this.#to()));
    this.#over("UPSTREAM_FAILED", false);
  }

  #say(kind: AgentErrorKind, end: string): void {
    this.#reply.answer(agentErrorAnswer(kind, this.#to()));
    this.#over(end, false);
  }

  /** Of the request that this answers, if it answers one. */
  #requestIdText(): string | undefined {
    const { message } = this.#judged;
    return message?.kind === "request" ? message.idText : undefined;
  }

  #to(): AnswerTo {
    return addressee(this.#open, this.#judged.message);
  }

  #over(end: string, isComplete: boolean): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#streamEnd?.cancel();
    this.call?.abort();
    this.#asks?.release(isComplete && this.#open.method === "POST");
    this.#task.owner.onAnswerOver(end);
  }

  #warn(code: string, reason: string, cure: string | undefined, location?: string): void {
    this.#ctx.logger.warn("upstream answer refused", {
      server: this.#server.name,
      requestId: this.#open.requestId,
      code,
      reason,
      status: this.#status,
      ...(cure === undefined ? {} : { cure }),
      ...(location === undefined ? {} : { url: shownLocation(location, this.#task.injected) }),
    });
  }
}

/** What an agent may see of them, before the session id is sealed. */
function shownOf({ forward, sessionId }: AnswerHeaders): RawHeaders {
  return sessionId === undefined ? forward : [...forward, sessionId];
}
