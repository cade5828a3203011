import type { Caller } from "../credentials/index.ts";
import type { Secret } from "../lib/index.ts";
import { type Answer, agentErrorAnswer } from "../mcp/index.ts";
import type { Open, Principal, Reset, ResetCode, StreamSink, TunnelStream } from "../tunnel/index.ts";
import type { UpstreamCall } from "../upstream/index.ts";
import type { AgentHeaders } from "./agent-headers.ts";
import type { AgentVerdict } from "./agent-verifier.ts";
import { type AuditText, type AuditWaiter, nameOfSubject, type Refused } from "./audit.ts";
import { type AwaitedBody, maxBodyMs } from "./body-watch.ts";
import type { GatewayServer, Injected, PipelineContext } from "./context.ts";
import { type CredentialSeeker, findAnother } from "./credential-retry.ts";
import { addressee, authoriseStream, type Judged, judge, readHeaders, unexpectedBody } from "./pipeline.ts";
import { Reply } from "./reply.ts";
import { type AnswerOwner, UpstreamAnswer } from "./upstream-answer.ts";

/**
 * One HTTP exchange on its way through the gateway, from OPEN to its outcome record.
 *
 * 1. Nothing reaches the upstream before the decision was recorded (DESIGN 3.3).
 * 2. `#finish` runs exactly once, whatever ends the exchange, and gives back all that was taken.
 * 3. Whatever arrives late (verdict, audit, credential, upstream) finds the state `over` and does nothing.
 * 4. A call is made twice only where the upstream refused the first credential, and nothing of that answer has left.
 */

type State = "reading" | "recording" | "injecting" | "calling" | "over";

/** Smaller bodies are copied, so that they do not keep the tunnel message alive that they came in. */
const copyBelowBytes = 8 * 1024;
/** Where the gateway verifies for itself, what the relay claims stands nowhere, not even in a refusal's record. */
const unverified: Principal = { id: "unverified", kind: "key", claims: {} };
/** What the relay is told with a reset that comes before any judgement. */
const refusals = {
  NO_SERVER: "the server is not to be used",
  FORBIDDEN: "the server is not to be used",
  OVERLOADED: "try again later",
  EXPIRED: "the request did not come in time",
} as const;

export class Exchange implements StreamSink, AuditWaiter, AnswerOwner, CredentialSeeker, AwaitedBody {
  readonly #ctx: PipelineContext;
  #open: Open;
  readonly #stream: TunnelStream;
  readonly #reply: Reply;
  readonly #exchangeId: string;
  readonly #startedAt: number;
  readonly bodyUntil: number;
  #state: State = "reading";
  #server: GatewayServer | undefined;
  #headers: AgentHeaders | undefined;
  #isVerifying = false;
  #isBodyComplete = false;
  /** Wall time at which the agent's token ends. */
  #validUntil: number | undefined;
  /** What credentials may depend on. */
  #caller: Caller;
  #chunks: Buffer[] = [];
  #bytesIn = 0;
  /** Whose share of the budget for bodies this one counts in, as the relay claims; it decides nothing else. */
  readonly #owner: string;
  /** Bytes held of the process budget. */
  #held = 0;
  #body: Buffer | undefined;
  #judged: Judged | undefined;
  #subject: AuditText | undefined;
  #answer: UpstreamAnswer | undefined;
  #call: UpstreamCall | undefined;
  #injected: Injected | undefined;
  #isRetried = false;
  #lacksCredential = false;

  constructor(ctx: PipelineContext, open: Open, stream: TunnelStream) {
    this.#ctx = ctx;
    this.#open = open;
    this.#stream = stream;
    this.#reply = new Reply(stream, ctx.clock);
    this.#exchangeId = ctx.nextExchangeId();
    this.#startedAt = ctx.clock.now();
    this.#owner = open.principal.id;
    this.bodyUntil = this.#startedAt + Math.min(open.deadlineMs, maxBodyMs);
    this.#caller = open.principal;
    ctx.open.add(this);
    if (open.hasBody) ctx.bodies.add(this);
  }

  /** Under `agents.verify: edge` the agent's own token comes first: what the relay claims is not even kept. */
  start(): void {
    const { agents } = this.#ctx;
    if (agents === undefined) {
      this.#authorise();
      return;
    }
    const { agentToken } = this.#open;
    this.#open = { ...this.#open, principal: unverified, agentToken: undefined };
    this.#caller = unverified;
    const verdict = agents.verify(agentToken);
    if (verdict instanceof Promise) {
      this.#isVerifying = true;
      verdict
        .then((found) => this.#identify(found, agentToken))
        .catch(() => this.#resetWith("INTERNAL", "internal error"));
    } else {
      this.#identify(verdict, agentToken);
    }
  }

  #identify(verdict: AgentVerdict, agentToken: Secret | undefined): void {
    this.#isVerifying = false;
    if (this.#state !== "reading") return;
    if (verdict.kind === "refused") {
      this.#refuseStream("FORBIDDEN", verdict.reason);
    } else if (verdict.kind === "unavailable") {
      this.#refuseStream("OVERLOADED", "agent token: no keys of its issuer");
    } else {
      const { principal, ends } = verdict;
      this.#open = { ...this.#open, principal };
      this.#validUntil = ends?.validUntil;
      // An agent's key is for relay and gateway alone: no third party has a use for it.
      this.#caller =
        ends === undefined ? principal : { id: principal.id, token: agentToken, expiresAt: ends.expiresAt };
      this.#authorise();
    }
  }

  /** Steps 1 and 2; a request without a body is judged at once. */
  #authorise(): void {
    const server = authoriseStream(this.#ctx, this.#open);
    if (typeof server === "string") {
      this.#refuseStream(server);
      return;
    }
    this.#server = server;
    const headers = readHeaders(this.#open);
    if (headers === "headerRepeats") this.#refuse(headers, agentErrorAnswer(headers, addressee(this.#open)));
    else if (headers === "unexpected body") this.#refuse(headers, unexpectedBody(addressee(this.#open)));
    else this.#headers = headers;
    if (!this.#open.hasBody || this.#isBodyComplete) this.#judge();
  }

  onData(chunk: Buffer): void {
    this.#stream.consumed(chunk.length);
    if (this.#state !== "reading") return;
    this.#bytesIn += chunk.length;
    if (this.#bytesIn > this.#ctx.requestBytes) {
      this.#refuse("bodyTooLarge", agentErrorAnswer("bodyTooLarge", addressee(this.#open)));
    } else if (this.#ctx.budget.take(chunk.length, this.#owner)) {
      this.#held += chunk.length;
      this.#chunks.push(chunk.length < copyBelowBytes ? Buffer.from(chunk) : chunk);
    } else {
      this.#refuse("out of memory for bodies", agentErrorAnswer("overloaded", addressee(this.#open)));
    }
  }

  onEnd(): void {
    this.#ctx.bodies.delete(this);
    if (this.#state !== "reading") return;
    this.#isBodyComplete = true;
    if (!this.#isVerifying) this.#judge();
  }

  /** Answered or not: a stream whose request never ends would be there for ever. */
  onBodyLate(): void {
    if (this.#state === "reading") this.#refuseStream("EXPIRED", refusals.EXPIRED);
    else this.#stream.reset("EXPIRED", "the request did not end in time");
  }

  onReset(reset: Reset): void {
    this.#ctx.bodies.delete(this);
    const { requestId, server } = this.#open;
    this.#ctx.logger.debug("exchange reset", { code: reset.code, requestId, server });
    this.#reply.close();
    this.#call?.abort();
    this.#answer?.abandon();
    this.#finish(reset.code);
  }

  /** The gateway stops. */
  leave(): void {
    this.#answer?.leave();
  }

  onDrain(): void {
    this.#call?.resume();
  }

  /** Steps 3 to 8, then the decision is recorded. */
  #judge(): void {
    const headers = this.#headers;
    if (headers === undefined) return;
    if (this.#validUntil !== undefined && this.#ctx.clock.wall() > this.#validUntil) {
      // When the rest of a request comes is for the relay to choose.
      this.#refuseStream("FORBIDDEN", "agent token: expired");
      return;
    }
    const [only] = this.#chunks;
    const body = this.#chunks.length === 1 && only !== undefined ? only : Buffer.concat(this.#chunks);
    this.#chunks = [];
    const judged = judge(this.#ctx, this.#open, headers, body);
    this.#judged = judged;
    // A refused call's body is of no more use.
    if (judged.answer === undefined && this.#open.method === "POST") this.#body = body;
    this.#record(judged.decision);
  }

  #record(decision: Judged["decision"]): void {
    this.#state = "recording";
    const { message, subject } = this.#judged ?? {};
    this.#subject = this.#ctx.audit.describe({
      exchangeId: this.#exchangeId,
      requestId: this.#open.requestId,
      principalId: this.#open.principal.id,
      server: this.#open.server,
      verb: this.#open.method,
      method: message?.method,
      name: subject === undefined ? undefined : nameOfSubject(subject),
    });
    this.#ctx.audit.decision(this.#subject, decision, this);
  }

  onAudited(mayProceed: boolean): void {
    if (this.#state !== "recording") return;
    const answer = this.#judged?.answer;
    if (!mayProceed) this.#say("unavailable");
    else if (answer === undefined) this.#inject();
    else this.#answerWith(answer);
  }

  /** Step 9: without the server's credential no call is made. */
  #inject(): void {
    this.#state = "injecting";
    try {
      const injection = this.#server?.credential.inject(this.#caller);
      if (injection instanceof Promise) {
        injection.then(
          (found) => this.#forward(found),
          () => this.#say("credentialFailed"),
        );
      } else if (injection !== undefined) {
        this.#forward(injection);
      }
    } catch {
      // The credentials room has logged why; nothing of it may reach the agent.
      this.#say("credentialFailed");
    }
  }

  /** Step 10: the very bytes that were judged go to the upstream. */
  #forward(injected: Injected): void {
    const server = this.#server;
    const judged = this.#judged;
    const headers = this.#headers;
    if (this.#state !== "injecting" || server === undefined || judged === undefined || headers === undefined) return;
    const firstByteMs = this.#open.deadlineMs - (this.#ctx.clock.now() - this.#startedAt);
    if (firstByteMs <= 0) {
      if (this.#isRetried) this.#answer?.refuseCredential();
      else this.#resetWith("EXPIRED", "deadline passed before the call was made");
      return;
    }
    this.#state = "calling";
    this.#injected = injected;
    const { upstreamId } = judged.session;
    if (judged.askId !== undefined) this.#ctx.sessions.dropAsk(judged.session.key, judged.askId);
    const { method } = this.#open;
    const body = this.#body;
    const { tls } = injected;
    const sent =
      upstreamId === undefined
        ? [...headers.forward, ...injected.headers]
        : [...headers.forward, "mcp-session-id", upstreamId, ...injected.headers];
    const request = { method, headers: sent, body, firstByteMs, tls };
    const { protocolVersion } = headers;
    const validUntil = this.#validUntil;
    this.#answer = new UpstreamAnswer(this.#ctx, {
      server,
      open: this.#open,
      judged,
      protocolVersion,
      injected,
      validUntil,
      caller: this.#caller,
      reply: this.#reply,
      owner: this,
    });
    this.#call = server.upstream.request(request, this.#answer);
    this.#answer.call = this.#call;
  }

  onAnswerOver(end: string): void {
    this.#finish(end);
  }

  /** The secret may have been rotated: the call is made once more, with another one. */
  onCredentialRefused(): boolean {
    const { credential } = this.#server ?? {};
    const failed = this.#injected;
    if (this.#state !== "calling" || this.#isRetried || credential === undefined || failed === undefined) return false;
    this.#isRetried = true;
    this.#state = "injecting";
    this.#call?.abort();
    findAnother(credential, failed, this.#caller, this);
    return true;
  }

  onAnother(next: Injected): void {
    if (this.#state !== "injecting") return;
    if (this.#server !== undefined) this.#server.calls.retries += 1;
    this.#forward(next);
  }

  onNoOther(): void {
    if (this.#state === "injecting") this.#answer?.refuseCredential();
  }

  /** An answer of ours instead of the upstream's. */
  #say(kind: "unavailable" | "credentialFailed"): void {
    if (this.#state !== "over") {
      this.#lacksCredential = kind === "credentialFailed";
      this.#answerWith(agentErrorAnswer(kind, addressee(this.#open, this.#judged?.message)));
    }
  }

  #answerWith(answer: Answer): void {
    this.#reply.answer(answer);
    this.#finish("complete");
  }

  #refuseStream(code: keyof typeof refusals, reason: string = code): void {
    this.#note({ kind: "refused", reason });
    this.#resetWith(code, refusals[code]);
  }

  #resetWith(code: ResetCode, message: string): void {
    this.#ctx.bodies.delete(this);
    this.#reply.reset(code, message);
    this.#finish(code);
  }

  /** Ends an exchange whose body was not read to its end. */
  #refuse(reason: string, answer: Answer): void {
    this.#note({ kind: "refused", reason });
    this.#answerWith(answer);
  }

  /** Records a refusal that waits for nothing: whatever becomes of the record, nothing was sent. */
  #note(decision: Refused): void {
    this.#record(decision);
    this.#state = "reading";
  }

  #finish(end: string): void {
    if (this.#state === "over") return;
    this.#state = "over";
    this.#ctx.open.delete(this);
    this.#ctx.budget.give(this.#held, this.#owner);
    this.#chunks = [];
    this.#body = undefined;
    const judged = this.#judged;
    if (judged?.flightId !== undefined) this.#ctx.sessions.finish(judged.session.key, judged.flightId);
    // Gone already where the answer left; where it did not, the agent may try again.
    if (judged?.askId !== undefined) this.#ctx.sessions.releaseAsk(judged.session.key, judged.askId);
    const durationMs = this.#ctx.clock.now() - this.#startedAt;
    this.#count(end, durationMs);
    if (this.#subject === undefined) return;
    const { headAt } = this.#reply;
    this.#ctx.audit.outcome(this.#subject, {
      status: this.#reply.status,
      by: this.#reply.by,
      end,
      bytesIn: this.#bytesIn,
      bytesOut: this.#reply.bytesOut,
      scrubbed: this.#answer?.scrubbedCount ?? 0,
      firstByteMs: headAt === undefined ? undefined : headAt - this.#startedAt,
      durationMs,
    });
  }

  #count(end: string, durationMs: number): void {
    const { status, by } = this.#reply;
    const call = { decision: this.#judged?.decision, end, status, by, lacksCredential: this.#lacksCredential };
    (this.#server?.calls ?? this.#ctx.unknownServer).add(call, durationMs, this.#open.method === "POST");
  }
}
