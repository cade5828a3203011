import { agentErrors, MessageSkimmer } from "../mcp/index.ts";
import {
  type AnsweredExchange,
  type AnswerLimits,
  type AnswerOptions,
  type AnswerWay,
  defaultAnswerLimits,
} from "./answer-types.ts";
import { deniedText, doubtOf, isOwn, judgeMessage, kindOf, needsWhole, type Verdict } from "./answer-verdict.ts";

/** Answers up to this size leave in one piece, even if they came in several. */
const joinBytes = 64 * 1024;

/**
 * The way of a JSON body. The head waits for the verdict, so that a failure can still become an HTTP error; only a body
 * over `holdBytes` that needs no edit so far streams through, and then the end is withheld if the verdict is bad.
 */
export class JsonAnswer implements AnswerWay {
  readonly #options: AnswerOptions;
  readonly #limits: AnswerLimits;
  readonly #message = new MessageSkimmer();
  #held: Buffer[] = [];
  #heldBytes = 0;
  #state: "held" | "streaming" | "over" = "held";

  constructor(options: AnswerOptions) {
    this.#options = options;
    this.#limits = options.limits ?? defaultAnswerLimits;
  }

  /** Nothing can go in between the bytes of one JSON text. */
  get isAtBoundary(): boolean {
    return false;
  }

  start(): void {
    // The head waits for the verdict.
  }

  push(chunk: Buffer): void {
    if (this.#state === "over" || chunk.length === 0) return;
    this.#message.push(chunk);
    if (this.#state === "streaming") this.#pushOn(chunk);
    else {
      this.#held.push(chunk);
      this.#heldBytes += chunk.length;
      if (this.#heldBytes > this.#limits.holdBytes) this.#overflow();
    }
  }

  end(): void {
    if (this.#state === "over") return;
    if (this.#state === "held" && this.#heldBytes === 0) this.#endEmpty();
    else this.#endJudged();
  }

  fail(code: number, message: string): void {
    this.#fail({ code, message }, "the upstream failed");
  }

  #fail({ code, message }: { readonly code: number; readonly message: string }, reason: string): void {
    if (this.#state === "over") return;
    const ending = this.#state === "streaming" ? "cut" : "http";
    this.#state = "over";
    this.#held = [];
    this.#options.hooks.fail({ code, message, reason, ending });
  }

  #pushOn(chunk: Buffer): void {
    const doubt = doubtOf(this.#message);
    if (doubt !== undefined) this.#fail(agentErrors.upstreamFailed, doubt);
    else if (needsWhole(this.#message, this.#options.judge))
      this.#fail(agentErrors.resultTooLarge, "a list that was seen too late");
    else this.#options.hooks.emit(chunk);
  }

  #overflow(): void {
    const doubt = doubtOf(this.#message);
    if (doubt !== undefined) this.#fail(agentErrors.upstreamFailed, doubt);
    else if (!needsWhole(this.#message, this.#options.judge)) this.#release();
    else if (this.#heldBytes > this.#limits.listBytes) this.#fail(agentErrors.resultTooLarge, "a list over its limit");
  }

  #release(): void {
    this.#state = "streaming";
    this.#options.hooks.head();
    const held = this.#held;
    this.#held = [];
    for (const chunk of held) this.#options.hooks.emit(chunk);
  }

  #endEmpty(): void {
    if (this.#isResponseDue()) this.#fail(agentErrors.upstreamFailed, "an empty success");
    else this.#finish([]);
  }

  #endJudged(): void {
    const isHeld = this.#state === "held";
    const verdict = this.#judge(isHeld ? () => this.#join() : undefined);
    switch (verdict.kind) {
      case "pass":
        this.#finish(isHeld && this.#heldBytes <= joinBytes ? [this.#join()] : this.#held);
        break;
      case "replace":
        this.#finish([verdict.bytes]);
        break;
      case "deny":
        this.#finish([deniedText(this.#message, this.#options.hooks)]);
        break;
      case "drop":
      case "refuse":
        this.#fail(agentErrors.upstreamFailed, verdict.reason);
    }
  }

  #judge(read: (() => Buffer) | undefined): Verdict {
    const { exchange, judge } = this.#options;
    const message = this.#message;
    const isDue = this.#isResponseDue();
    if (message.isComplete && doubtOf(message) === undefined) {
      const kind = kindOf(message);
      if (kind === "request" || kind === "notification") return { kind: "refuse", reason: `no response but a ${kind}` };
      if (kind === "none" && !isDue) return { kind: "pass" };
      if (isDue && !answers(message, exchange)) return { kind: "refuse", reason: "a response to another request" };
    }
    return judgeMessage(message, read, judge);
  }

  /** An error status, a notification and a GET or DELETE may be answered with anything, or nothing. */
  #isResponseDue(): boolean {
    const { exchange, status } = this.#options;
    return exchange.idText !== undefined && status >= 200 && status < 300;
  }

  #join(): Buffer {
    const [first] = this.#held;
    return this.#held.length === 1 && first !== undefined ? first : Buffer.concat(this.#held);
  }

  #finish(chunks: readonly Buffer[]): void {
    const { hooks } = this.#options;
    if (this.#state === "held") hooks.head();
    this.#state = "over";
    this.#held = [];
    for (const chunk of chunks) hooks.emit(chunk);
    hooks.finish();
  }
}

/** An error with a null id says that the server could not tell the request's id. */
function answers(message: MessageSkimmer, exchange: AnsweredExchange): boolean {
  return isOwn(message, exchange) || (message.idText === "null" && message.hasError && !message.hasResult);
}
