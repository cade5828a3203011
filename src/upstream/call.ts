import type { Dispatcher } from "undici";
import type { Clock, RawHeaders } from "../lib/index.ts";
import { ByName } from "../lib/index.ts";
import type { Deadlines, Waiting } from "./deadlines.ts";
import { mapUpstreamError, type UpstreamError } from "./errors.ts";

/** What the caller of an upstream hears: one head, data, then exactly one of `onEnd` and `onError`; nothing after `abort`. */
export interface UpstreamSink {
  onHead(status: number, headers: RawHeaders): void;
  /** The chunk is the caller's to keep. */
  onData(chunk: Buffer): void;
  /** `closeDelimited`: the answer had no length, so nobody can tell whether it is whole. */
  onEnd(closeDelimited: boolean): void;
  onError(error: UpstreamError): void;
}

/** One call in progress. Every method is a no-op once the call is over. */
export interface UpstreamCall {
  /** At most one more chunk is delivered before the upstream is no longer read. */
  pause(): void;
  resume(): void;
  /** Closes the connection to the upstream at once; the sink hears nothing more. */
  abort(): void;
}

export interface CallTimeouts {
  readonly firstByteMs: number;
  readonly idleMs: number;
  readonly stalledMs: number;
}

const roles = new ByName((lower) => {
  if (lower === "content-type") return "type";
  return lower === "content-length" || lower === "transfer-encoding" ? "framing" : "other";
});

/** `closeDelimited`: a body with neither length nor chunks ends where the connection does (RFC 9112 6.3). */
function readBodyKind(status: number, headers: RawHeaders): { isEventStream: boolean; closeDelimited: boolean } {
  let isEventStream = false;
  let isFramed = status === 204 || status === 304;
  for (let i = 0; i + 1 < headers.length; i += 2) {
    const role = roles.get(headers[i] ?? "");
    if (role === "type") isEventStream ||= eventStream.test(headers[i + 1] ?? "");
    else if (role === "framing") isFramed = true;
  }
  return { isEventStream, closeDelimited: !isFramed };
}

const eventStream = /^\s*text\/event-stream\s*(?:;|$)/i;

function decode(raw: readonly Buffer[]): string[] {
  const headers = new Array<string>(raw.length);
  for (let i = 0; i < raw.length; i += 1) headers[i] = raw[i]?.toString("latin1") ?? "";
  return headers;
}

type State = "waiting" | "body" | "over";

/**
 * One request on its way, as undici's handler and as the caller's handle in one object: nothing else is made for a call.
 * undici's older handler form is used on purpose, since it gives raw headers without building an object of them.
 */
export class HttpCall implements Dispatcher.DispatchHandler, UpstreamCall, Waiting {
  readonly #sink: UpstreamSink;
  readonly #clock: Clock;
  readonly #deadlines: Deadlines;
  readonly #timeouts: CallTimeouts;
  #state: State = "waiting";
  #isStarted = false;
  #sent = false;
  #isPaused = false;
  #isEventStream = false;
  #closeDelimited = false;
  #abortRequest: ((reason?: Error) => void) | undefined;
  #resumeParser: (() => void) | undefined;
  deadlineAt: number;

  /** `firstByteMs` shortens that of `timeouts`. */
  constructor(
    sink: UpstreamSink,
    clock: Clock,
    deadlines: Deadlines,
    timeouts: CallTimeouts,
    firstByteMs = timeouts.firstByteMs,
  ) {
    this.#sink = sink;
    this.#clock = clock;
    this.#deadlines = deadlines;
    this.#timeouts = timeouts;
    this.deadlineAt = clock.now() + Math.min(firstByteMs, timeouts.firstByteMs);
    deadlines.add(this);
  }

  /** Hands the call to undici. What undici refuses at once is reported on a later tick. */
  dispatch(dispatcher: Dispatcher, options: Dispatcher.DispatchOptions): void {
    dispatcher.dispatch(options, this);
    this.#isStarted = true;
  }

  pause(): void {
    if (this.#state === "over" || this.#isPaused) return;
    this.#isPaused = true;
    this.deadlineAt = this.#clock.now() + this.#timeouts.stalledMs;
  }

  resume(): void {
    if (this.#state === "over" || !this.#isPaused) return;
    this.#isPaused = false;
    this.#touch();
    this.#resumeParser?.();
  }

  abort(): void {
    if (this.#finish()) this.#abortRequest?.();
  }

  onDeadline(): void {
    const code = this.#isPaused ? "stalled" : this.#state === "waiting" ? "first-byte" : "idle";
    if (!this.#finish()) return;
    this.#abortRequest?.();
    this.#sink.onError({ code, sent: this.#sent, detail: "deadline" });
  }

  /** undici: the request is about to be written to a connection. */
  onConnect(abort: (reason?: Error) => void): void {
    this.#abortRequest = abort;
    if (this.#state === "over") abort();
    else this.#sent = true;
  }

  /** undici: a response head; those below 200 announce another one. */
  onHeaders(status: number, raw: Buffer[], resume: () => void): boolean {
    if (this.#state !== "waiting" || status < 200) return true;
    const headers = decode(raw);
    this.#state = "body";
    this.#resumeParser = resume;
    const { isEventStream, closeDelimited } = readBodyKind(status, headers);
    this.#isEventStream = isEventStream;
    this.#closeDelimited = closeDelimited;
    this.#touch();
    this.#sink.onHead(status, headers);
    return !this.#isPaused;
  }

  onData(chunk: Buffer): boolean {
    if (this.#state !== "body") return true;
    this.#touch();
    this.#sink.onData(chunk);
    return !this.#isPaused;
  }

  /** undici: the answer is whole. Trailers are dropped (DESIGN invariant 2). */
  onComplete(): void {
    if (this.#finish()) this.#sink.onEnd(this.#closeDelimited);
  }

  onError(error: unknown): void {
    if (this.#isStarted) this.#fail(error);
    else queueMicrotask(() => this.#fail(error));
  }

  #fail(error: unknown): void {
    if (this.#finish()) this.#sink.onError(mapUpstreamError(error, this.#sent));
  }

  #touch(): void {
    if (this.#isPaused) return;
    this.deadlineAt = this.#isEventStream ? Number.POSITIVE_INFINITY : this.#clock.now() + this.#timeouts.idleMs;
  }

  /** True for the first caller only. */
  #finish(): boolean {
    if (this.#state === "over") return false;
    this.#state = "over";
    this.#deadlines.delete(this);
    return true;
  }
}
