import { type Answer, agentErrorAnswer } from "../mcp/index.ts";
import type { Open, Reset, StreamSink, TunnelStream } from "../tunnel/index.ts";
import type { UpstreamCall } from "../upstream/index.ts";
import type { AgentHeaders } from "./agent-headers.ts";
import type { AuditText, AuditWaiter, Refused } from "./audit.ts";
import type { GatewayServer, PipelineContext } from "./context.ts";
import { addressee, authoriseStream, type Judged, judge, readHeaders, unexpectedBody } from "./pipeline.ts";
import { Reply } from "./reply.ts";
import { type AnswerOwner, UpstreamAnswer } from "./upstream-answer.ts";

/**
 * One HTTP exchange on its way through the gateway, from OPEN to its outcome record.
 *
 * 1. Nothing reaches the upstream before the decision was recorded (DESIGN 3.3).
 * 2. `#finish` runs exactly once, whatever ends the exchange, and gives back all that was taken.
 * 3. Whatever arrives late (audit, credential, upstream) finds the state `over` and does nothing.
 */

type State = "reading" | "recording" | "injecting" | "calling" | "over";

/** Smaller bodies are copied, so that they do not keep the tunnel message alive that they came in. */
const copyBelowBytes = 8 * 1024;

export class Exchange implements StreamSink, AuditWaiter, AnswerOwner {
  readonly #ctx: PipelineContext;
  readonly #open: Open;
  readonly #stream: TunnelStream;
  readonly #reply: Reply;
  readonly #exchangeId: string;
  readonly #startedAt: number;
  #state: State = "reading";
  #server: GatewayServer | undefined;
  #headers: AgentHeaders | undefined;
  #chunks: Buffer[] = [];
  #bytesIn = 0;
  /** Bytes held of the process budget. */
  #held = 0;
  #body: Buffer | undefined;
  #judged: Judged | undefined;
  #subject: AuditText | undefined;
  #answer: UpstreamAnswer | undefined;
  #call: UpstreamCall | undefined;

  constructor(ctx: PipelineContext, open: Open, stream: TunnelStream) {
    this.#ctx = ctx;
    this.#open = open;
    this.#stream = stream;
    this.#reply = new Reply(stream, ctx.clock);
    this.#exchangeId = ctx.nextExchangeId();
    this.#startedAt = ctx.clock.now();
    ctx.open.add(this);
  }

  /** Steps 1 and 2; a request without a body is judged at once. */
  start(): void {
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
    if (!this.#open.hasBody) this.#judge();
  }

  onData(chunk: Buffer): void {
    this.#stream.consumed(chunk.length);
    if (this.#state !== "reading") return;
    this.#bytesIn += chunk.length;
    if (this.#bytesIn > this.#ctx.requestBytes) {
      this.#refuse("bodyTooLarge", agentErrorAnswer("bodyTooLarge", addressee(this.#open)));
    } else if (this.#ctx.budget.take(chunk.length)) {
      this.#held += chunk.length;
      this.#chunks.push(chunk.length < copyBelowBytes ? Buffer.from(chunk) : chunk);
    } else {
      this.#refuse("out of memory for bodies", agentErrorAnswer("overloaded", addressee(this.#open)));
    }
  }

  onEnd(): void {
    if (this.#state === "reading") this.#judge();
  }

  onReset(reset: Reset): void {
    const { requestId, server } = this.#open;
    this.#ctx.logger.debug("exchange reset", { code: reset.code, requestId, server });
    this.#reply.close();
    this.#call?.abort();
    this.#answer?.abandon();
    this.#finish(reset.code);
  }

  onDrain(): void {
    this.#call?.resume();
  }

  /** Steps 3 to 8, then the decision is recorded. */
  #judge(): void {
    const headers = this.#headers;
    if (headers === undefined) return;
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
      name: subject === undefined ? undefined : nameOf(subject),
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
      const injection = this.#server?.credential.inject();
      if (injection instanceof Promise) {
        injection.then(
          ({ headers }) => this.#forward(headers),
          () => this.#say("credentialFailed"),
        );
      } else if (injection !== undefined) {
        this.#forward(injection.headers);
      }
    } catch {
      // The credentials room has logged why; nothing of it may reach the agent.
      this.#say("credentialFailed");
    }
  }

  /** Step 10: the very bytes that were judged go to the upstream. */
  #forward(credential: readonly string[]): void {
    const server = this.#server;
    const judged = this.#judged;
    const headers = this.#headers;
    if (this.#state !== "injecting" || server === undefined || judged === undefined || headers === undefined) return;
    const firstByteMs = this.#open.deadlineMs - (this.#ctx.clock.now() - this.#startedAt);
    if (firstByteMs <= 0) {
      this.#reply.reset("EXPIRED", "deadline passed before the call was made");
      this.#finish("EXPIRED");
      return;
    }
    this.#state = "calling";
    const { upstreamId } = judged.session;
    const session = upstreamId === undefined ? [] : ["mcp-session-id", upstreamId];
    const { method } = this.#open;
    const body = this.#body;
    const request = { method, headers: [...headers.forward, ...session, ...credential], body, firstByteMs };
    const { protocolVersion } = headers;
    const task = { server, open: this.#open, judged, protocolVersion, reply: this.#reply, owner: this };
    this.#answer = new UpstreamAnswer(this.#ctx, task);
    this.#call = server.upstream.request(request, this.#answer);
    this.#answer.call = this.#call;
  }

  onAnswerOver(end: string): void {
    this.#finish(end);
  }

  /** An answer of ours instead of the upstream's. */
  #say(kind: "unavailable" | "credentialFailed"): void {
    if (this.#state !== "over") {
      this.#answerWith(agentErrorAnswer(kind, addressee(this.#open, this.#judged?.message)));
    }
  }

  #answerWith(answer: Answer): void {
    this.#reply.answer(answer);
    this.#finish("complete");
  }

  #refuseStream(code: "NO_SERVER" | "FORBIDDEN"): void {
    this.#note({ kind: "refused", reason: code });
    this.#reply.reset(code, "the server is not to be used");
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
    this.#ctx.budget.give(this.#held);
    this.#chunks = [];
    this.#body = undefined;
    const judged = this.#judged;
    if (judged?.flightId !== undefined) this.#ctx.sessions.finish(judged.session.key, judged.flightId);
    if (this.#subject === undefined) return;
    const { headAt } = this.#reply;
    this.#ctx.audit.outcome(this.#subject, {
      status: this.#reply.status,
      by: this.#reply.by,
      end,
      bytesIn: this.#bytesIn,
      bytesOut: this.#reply.bytesOut,
      firstByteMs: headAt === undefined ? undefined : headAt - this.#startedAt,
      durationMs: this.#ctx.clock.now() - this.#startedAt,
    });
  }
}

/** What the record calls the thing that was asked for. */
function nameOf(subject: Judged["subject"]): string | undefined {
  switch (subject.kind) {
    case "tool":
    case "prompt":
      return subject.name;
    case "resource":
      return subject.uris.filter((uri) => uri !== undefined).join(" ");
    case "template":
      return subject.uriTemplate;
    case "client":
      return subject.ask;
    case "open":
    case "unknown":
      return undefined;
  }
}
