import type { ClientKind, Era, ListKind } from "../mcp/types.ts";
import type { ExchangeMethod } from "../tunnel/index.ts";
import type { AnswerScrubber } from "./answer-scrubber.ts";
import type { ByteBudget } from "./byte-budget.ts";

/** The exchange whose answer is judged. */
export interface AnsweredExchange {
  readonly method: ExchangeMethod;
  /** Raw JSON text of the request's id; undefined where the exchange asks nothing (GET, DELETE, notification, response). */
  readonly idText: string | undefined;
  readonly era: Era;
}

/** The policy as an answer meets it; bound to one server by the caller. None of these may throw. */
export interface AnswerJudge {
  /** Whether a list shows the entry; `name` is the tool's or prompt's name, the resource's uri, the template's uriTemplate. */
  shows(kind: ListKind, name: string): boolean;
  /** Whether the server may ask this of the agent. */
  admitsAsk(ask: ClientKind): boolean;
  /** Whether the agent may hear that this resource changed. */
  admitsUpdate(uri: string): boolean;
}

/** What an answer failed with, and what its owner does about it. Nothing follows it. */
export interface AnswerFailure {
  /** Code and message of the error contract that the agent is told, or has been told. */
  readonly code: number;
  readonly message: string;
  /** For the log; holds no byte of the answer. */
  readonly reason: string;
  /**
   * - `http`: no head went out. Answer with an HTTP error (a 2xx becomes 502 or 504, any other status is kept).
   * - `end`: the error event is already emitted. END the stream.
   * - `close`: the agent resumes, or waits for nothing. END the stream, add nothing.
   * - `cut`: part of a body went out. RESET the stream, so that it never looks complete.
   */
  readonly ending: "http" | "end" | "close" | "cut";
}

/** What the filter tells its owner; all called synchronously from `start`, `push`, `end` and `fail`. */
export interface AnswerHooks {
  /** Exactly once, before the first `emit` and before `finish`: send the head now. */
  head(): void;
  /** Body bytes for the agent, in order; may share memory with what was pushed. */
  emit(bytes: Buffer): void;
  /** The answer is complete: send END. */
  finish(): void;
  fail(failure: AnswerFailure): void;
  /** A request of the server passes and is about to be emitted: its answer will come as a POST of its own. */
  onAsk(idText: string, method: string): void;
  /** A request of the server was dropped: tell the server -32601. */
  onAskRefused(idText: string, method: string): void;
  /** Something else was dropped; `reason` holds no byte of the message. For the log. */
  onDrop(reason: string): void;
  /** One JSON-RPC error object as text without line breaks; the owner adds `data.requestId`. */
  errorJson(idText: string, code: number, message: string): string;
}

export interface AnswerLimits {
  /** An answer or event up to this size is judged before its first byte leaves. */
  readonly holdBytes: number;
  /** The most that is held of an answer or event that must be edited or dropped. */
  readonly listBytes: number;
}

export const defaultAnswerLimits: AnswerLimits = { holdBytes: 1024 * 1024, listBytes: 16 * 1024 * 1024 };

export interface AnswerOptions {
  readonly exchange: AnsweredExchange;
  /** Status of the upstream's answer. */
  readonly status: number;
  /** The media type is text/event-stream; else the body is JSON or empty, which the caller has checked. */
  readonly isEventStream: boolean;
  readonly judge: AnswerJudge;
  readonly hooks: AnswerHooks;
  readonly limits?: AnswerLimits;
  /** What all answers together may hold. An answer that finds it used up is judged as if `holdBytes` and `listBytes` were reached. */
  readonly budget: ByteBudget;
  /** Takes the server's credential out of what is about to leave; undefined: it has none. */
  readonly scrubber?: AnswerScrubber | undefined;
}

/**
 * One upstream answer on its way to the agent. Call `start` once, `push` per chunk, then `end` or `fail`. After a
 * failure or the end every call is a no-op.
 */
export interface AnswerWay {
  /** True: bytes of the caller's own may go in front of the next emitted byte. */
  readonly isAtBoundary: boolean;
  start(): void;
  push(chunk: Buffer): void;
  /** The upstream's body is complete. */
  end(): void;
  /** The upstream died or fell silent; code and message are of the error contract. */
  fail(code: number, message: string): void;
  /** Nobody waits for it any more: gives back what is held. No hook is called. */
  abandon(): void;
}
