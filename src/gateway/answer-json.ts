import { agentErrors, MessageSkimmer } from "../mcp/index.ts";
import { HeldBytes } from "./answer-held.ts";
import { reflectedReason } from "./answer-scrubber.ts";
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
  readonly #held: HeldBytes;
  #state: "held" | "streaming" | "over" = "held";

  constructor(options: AnswerOptions) {
    this.#options = options;
    this.#held = new HeldBytes(options.budget);
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
      const isRoom = this.#held.add(chunk);
      if (!isRoom || this.#held.byteLength > this.#limits.holdBytes) this.#overflow(isRoom);
    }
  }

  end(): void {
    if (this.#state === "over") return;
    if (this.#state === "held" && this.#held.byteLength === 0) this.#endEmpty();
    else this.#endJudged();
  }

  fail(code: number, message: string): void {
    this.#fail({ code, message }, "the upstream failed");
  }

  abandon(): void {
    this.#state = "over";
    this.#held.take();
  }

  #fail({ code, message }: { readonly code: number; readonly message: string }, reason: string): void {
    if (this.#state === "over") return;
    const ending = this.#state === "streaming" ? "cut" : "http";
    this.#state = "over";
    this.#held.take();
    this.#options.hooks.fail({ code, message, reason, ending });
  }

  #pushOn(chunk: Buffer): void {
    const doubt = doubtOf(this.#message);
    if (doubt !== undefined) this.#fail(agentErrors.upstreamFailed, doubt);
    else if (needsWhole(this.#message, this.#options.judge))
      this.#fail(agentErrors.resultTooLarge, "a list that was seen too late");
    else {
      const passed = this.#scrubPart(chunk);
      if (passed === undefined) this.#fail(agentErrors.upstreamFailed, reflectedReason);
      else if (passed.length > 0) this.#options.hooks.emit(passed);
    }
  }

  #overflow(isRoom: boolean): void {
    const doubt = doubtOf(this.#message);
    if (doubt !== undefined) this.#fail(agentErrors.upstreamFailed, doubt);
    else if (!needsWhole(this.#message, this.#options.judge)) this.#release();
    else if (!isRoom || this.#held.byteLength > this.#limits.listBytes)
      this.#fail(agentErrors.resultTooLarge, "a list over its limit");
  }

  #release(): void {
    const passed: Buffer[] = [];
    for (const chunk of this.#held.take()) {
      const part = this.#scrubPart(chunk);
      if (part === undefined) {
        this.#fail(agentErrors.upstreamFailed, reflectedReason);
        return;
      }
      passed.push(part);
    }
    this.#state = "streaming";
    this.#options.hooks.head();
    for (const chunk of passed) if (chunk.length > 0) this.#options.hooks.emit(chunk);
  }

  #scrubPart(chunk: Buffer): Buffer | undefined {
    const { scrubber } = this.#options;
    return scrubber === undefined ? chunk : scrubber.part(chunk);
  }

  #endEmpty(): void {
    if (this.#isResponseDue()) this.#fail(agentErrors.upstreamFailed, "an empty success");
    else this.#finish([]);
  }

  #endJudged(): void {
    // Once read, the piece stands for what was held, and nothing is held any more.
    let whole: Buffer | undefined;
    const read = (): Buffer => {
      whole ??= this.#held.takeJoined();
      return whole;
    };
    const verdict = this.#judge(this.#state === "held" ? read : undefined);
    switch (verdict.kind) {
      case "pass":
        if (this.#held.byteLength <= joinBytes) this.#finish([read()]);
        else this.#finish(this.#held.take());
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

  #finish(found: readonly Buffer[]): void {
    const { hooks } = this.#options;
    const chunks = this.#scrubAll(found);
    if (chunks === undefined) {
      this.#fail(agentErrors.upstreamFailed, reflectedReason);
      return;
    }
    if (this.#state === "held") hooks.head();
    this.#state = "over";
    for (const chunk of chunks) if (chunk.length > 0) hooks.emit(chunk);
    hooks.finish();
  }

  /** The very chunks where there is nothing to take out. */
  #scrubAll(chunks: readonly Buffer[]): readonly Buffer[] | undefined {
    const { scrubber } = this.#options;
    if (scrubber === undefined) return chunks;
    const [only] = chunks;
    const joined = chunks.length === 1 && only !== undefined ? only : Buffer.concat(chunks);
    const passed = this.#state === "held" ? scrubber.whole(joined, (json) => json) : scrubber.lastPart(joined);
    if (passed === undefined) return undefined;
    return passed === joined ? chunks : [passed];
  }
}

/** An error with a null id says that the server could not tell the request's id. */
function answers(message: MessageSkimmer, exchange: AnsweredExchange): boolean {
  return isOwn(message, exchange) || (message.idText === "null" && message.hasError && !message.hasResult);
}
