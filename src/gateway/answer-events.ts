import {
  agentErrors,
  dataOf,
  type EventFacts,
  type EventSink,
  EventSplitter,
  MessageSkimmer,
  replaceData,
  withoutData,
} from "../mcp/index.ts";
import { HeldBytes } from "./answer-held.ts";
import { reflectedReason } from "./answer-scrubber.ts";
import { type AnswerLimits, type AnswerOptions, type AnswerWay, defaultAnswerLimits } from "./answer-types.ts";
import {
  type Ask,
  deniedText,
  doubtOf,
  isOwn,
  judgeMessage,
  kindOf,
  needsWhole,
  type Verdict,
} from "./answer-verdict.ts";

interface AnswerError {
  readonly code: number;
  readonly message: string;
}

/**
 * Ends an event of which only a part went out. The type makes clients ignore it; without the empty line the next
 * event would become part of it.
 */
const truncation = Buffer.from("\nevent: truncated\n\n");

/**
 * The way of an event stream. The head leaves at once, every event with its last byte; an event over `holdBytes` that
 * needs no edit so far streams through, and is cut off if the verdict turns bad before its end.
 */
export class EventAnswer implements AnswerWay {
  readonly #options: AnswerOptions;
  readonly #limits: AnswerLimits;
  readonly #splitter: EventSplitter;
  /** Of the data of the event in progress; undefined: no data so far. */
  #message: MessageSkimmer | undefined;
  readonly #held: HeldBytes;
  /** `streaming`: a part of the event in progress has gone out. */
  #state: "held" | "streaming" | "over" = "held";
  #isAnswered = false;
  /** The client knows an event id to resume by. */
  #hasLastId = false;

  constructor(options: AnswerOptions) {
    this.#options = options;
    this.#held = new HeldBytes(options.budget);
    this.#limits = options.limits ?? defaultAnswerLimits;
    const sink: EventSink = {
      onData: (piece) => this.#readData(piece),
      onPart: (bytes) => this.#takePart(bytes),
      onEvent: (bytes, facts) => this.#takeEvent(bytes, facts),
      onLoose: (bytes) => this.#emit(bytes),
    };
    this.#splitter = new EventSplitter(sink);
  }

  get isAtBoundary(): boolean {
    return this.#state === "held";
  }

  start(): void {
    this.#options.hooks.head();
  }

  push(chunk: Buffer): void {
    if (this.#state !== "over" && chunk.length > 0) this.#splitter.push(chunk);
  }

  /** What is left without the empty line is no event, and clients discard it. */
  end(): void {
    if (this.#state === "over") return;
    if (this.#state === "streaming") this.#lose(agentErrors.upstreamFailed, "the stream ended amid an event");
    else if (this.#isResponseDue() && !this.#isResumable()) {
      this.#failWithEvent(agentErrors.upstreamFailed, "the stream ended without a response");
    } else {
      this.#over();
      this.#options.hooks.finish();
    }
  }

  fail(code: number, message: string): void {
    if (this.#state !== "over") this.#lose({ code, message }, "the upstream failed");
  }

  abandon(): void {
    this.#over();
  }

  /** The stream was lost, but nothing in it was wrong. */
  #lose(error: AnswerError, reason: string): void {
    if (this.#isResumable()) this.#close(error, reason);
    else this.#failWithEvent(error, reason);
  }

  #readData(piece: Buffer): void {
    if (this.#state === "over") return;
    this.#message ??= new MessageSkimmer();
    this.#message.push(piece);
  }

  #takePart(bytes: Buffer): void {
    if (this.#state === "streaming") this.#passPart(bytes);
    else if (this.#state === "held") {
      const isRoom = this.#held.add(bytes);
      if (!isRoom || this.#held.byteLength > this.#limits.holdBytes) this.#overflow(isRoom);
    }
  }

  #passPart(bytes: Buffer): void {
    const message = this.#message;
    const doubt = message === undefined ? undefined : doubtOf(message);
    if (doubt !== undefined) this.#failWithEvent(agentErrors.upstreamFailed, doubt);
    else if (message !== undefined && needsWhole(message, this.#options.judge)) {
      this.#failWithEvent(agentErrors.resultTooLarge, "an event that was seen through too late");
    } else {
      const passed = this.#scrubParts([bytes]);
      for (const part of passed ?? []) this.#emit(part);
    }
  }

  /** Undefined: the credential was found, and the stream has ended. */
  #scrubParts(parts: readonly Buffer[]): Buffer[] | undefined {
    const { scrubber } = this.#options;
    const passed: Buffer[] = [];
    for (const bytes of parts) {
      const part = scrubber === undefined ? bytes : scrubber.part(bytes);
      if (part === undefined) {
        this.#failWithEvent(agentErrors.upstreamFailed, reflectedReason);
        return undefined;
      }
      passed.push(part);
    }
    return passed;
  }

  /** Of a whole event, or the end of one whose beginning has gone out; undefined as above. */
  #scrubEvent(bytes: Buffer): Buffer | undefined {
    const { scrubber } = this.#options;
    if (scrubber === undefined) return bytes;
    const passed = this.#state === "streaming" ? scrubber.lastPart(bytes) : scrubber.whole(bytes, dataOf);
    if (passed === undefined) this.#failWithEvent(agentErrors.upstreamFailed, reflectedReason);
    return passed;
  }

  #overflow(isRoom: boolean): void {
    const message = this.#message;
    const doubt = message === undefined ? undefined : doubtOf(message);
    if (doubt !== undefined) this.#failWithEvent(agentErrors.upstreamFailed, doubt);
    else if (message === undefined || !needsWhole(message, this.#options.judge)) {
      const passed = this.#scrubParts(this.#held.take());
      if (passed === undefined) return;
      this.#state = "streaming";
      for (const part of passed) this.#emit(part);
    } else if (!isRoom || this.#held.byteLength > this.#limits.listBytes) {
      this.#failWithEvent(agentErrors.resultTooLarge, "an event over its limit");
    }
  }

  #takeEvent(last: Buffer, facts: EventFacts): void {
    if (this.#state === "over") return;
    const message = this.#message;
    this.#message = undefined;
    if (this.#state === "streaming") this.#endStreamed(last, facts, message);
    else {
      this.#held.add(last);
      const event = this.#held.takeJoined();
      this.#carryOut(
        this.#judge(message, facts, () => dataOf(event)),
        event,
        facts,
        message,
      );
    }
  }

  #endStreamed(last: Buffer, facts: EventFacts, message: MessageSkimmer | undefined): void {
    const verdict = this.#judge(message, facts, undefined);
    if (verdict.kind !== "pass") {
      this.#failWithEvent(
        agentErrors.upstreamFailed,
        "reason" in verdict ? verdict.reason : "an event seen through too late",
      );
      return;
    }
    this.#passEvent(last, facts, message, verdict.ask);
  }

  #judge(message: MessageSkimmer | undefined, facts: EventFacts, read: (() => Buffer) | undefined): Verdict {
    if (!facts.isCertain) return { kind: "refuse", reason: "a field that parsers read differently" };
    if (message === undefined || message.isBlank) return { kind: "pass" };
    // Data that is no object or array is a message to nobody; neither is an object without the members of one.
    if (!facts.isMessage && !message.isArray) {
      if (!message.isObject) return { kind: "pass" };
      if (message.isComplete && doubtOf(message) === undefined && kindOf(message) === "none") return { kind: "pass" };
    }
    return judgeMessage(message, read, this.#options.judge);
  }

  #carryOut(verdict: Verdict, event: Buffer, facts: EventFacts, message: MessageSkimmer | undefined): void {
    switch (verdict.kind) {
      case "pass":
        this.#passEvent(event, facts, message, verdict.ask);
        break;
      case "replace":
        this.#passEvent(replaceData(event, verdict.bytes), facts, message);
        break;
      case "deny":
        if (message !== undefined) {
          this.#passEvent(replaceData(event, deniedText(message, this.#options.hooks)), facts, message);
        }
        break;
      case "drop":
        this.#drop(event, facts, verdict.reason, verdict.ask);
        break;
      case "refuse":
        // Whoever waits for this exchange's response would wait for ever.
        if (this.#isResponseDue()) this.#failWithEvent(agentErrors.upstreamFailed, verdict.reason);
        else this.#drop(event, facts, verdict.reason);
    }
  }

  #passEvent(bytes: Buffer, facts: EventFacts, message: MessageSkimmer | undefined, ask?: Ask): void {
    const passed = this.#scrubEvent(bytes);
    if (passed === undefined) return;
    this.#state = "held";
    this.#noteId(facts);
    if (message !== undefined && kindOf(message) === "response" && isOwn(message, this.#options.exchange)) {
      this.#isAnswered = true;
    }
    if (ask !== undefined) this.#options.hooks.onAsk(ask.idText, ask.method);
    this.#emit(passed);
  }

  #drop(event: Buffer, facts: EventFacts, reason: string, ask?: Ask): void {
    this.#noteId(facts);
    const rest = withoutData(event);
    const passed = rest === undefined ? undefined : this.#scrubEvent(rest);
    if (passed !== undefined) this.#emit(passed);
    if (this.#state === "over") return;
    if (ask === undefined) this.#options.hooks.onDrop(reason);
    else this.#options.hooks.onAskRefused(ask.idText, ask.method);
  }

  #noteId({ id }: EventFacts): void {
    if (id !== "absent") this.#hasLastId = id === "given";
  }

  #isResponseDue(): boolean {
    const { exchange, status } = this.#options;
    return exchange.idText !== undefined && !this.#isAnswered && status >= 200 && status < 300;
  }

  /** The client has an event id and will come back for the rest (up to 2025-11-25, "Resumability and Redelivery"). */
  #isResumable(): boolean {
    return this.#options.exchange.era === "legacy" && this.#hasLastId;
  }

  #failWithEvent(error: AnswerError, reason: string): void {
    if (this.#state === "streaming") this.#options.hooks.emit(truncation);
    const { exchange, hooks } = this.#options;
    if (!this.#isResponseDue()) {
      this.#close(error, reason);
      return;
    }
    this.#over();
    const text = hooks.errorJson(exchange.idText ?? "null", error.code, error.message);
    hooks.emit(Buffer.from(`event: message\ndata: ${text}\n\n`));
    hooks.fail({ code: error.code, message: error.message, reason, ending: "end" });
  }

  /** An event in progress stays without its empty line: to end it would tell the client its id, and lose it. */
  #close(error: AnswerError, reason: string): void {
    this.#over();
    this.#options.hooks.fail({ code: error.code, message: error.message, reason, ending: "close" });
  }

  #over(): void {
    this.#state = "over";
    this.#held.take();
    this.#message = undefined;
  }

  #emit(bytes: Buffer): void {
    if (this.#state !== "over" && bytes.length > 0) this.#options.hooks.emit(bytes);
  }
}
