import { EventAnswer } from "./answer-events.ts";
import { JsonAnswer } from "./answer-json.ts";
import type { AnswerOptions, AnswerWay } from "./answer-types.ts";

/**
 * The judged way of an upstream's answer to the agent; no I/O, no timer. What leaves is, byte for byte, what came in,
 * but for the edits that DESIGN invariant 6 permits:
 *
 * 1. List results show only what the policy shows, whatever exchange they answer (invariants 4 and 13).
 * 2. Requests of the server, resource updates and input requests that the policy does not admit never leave.
 * 3. What cannot be told for certain (batches, repeated judged keys, broken JSON) never leaves.
 * 4. What is about to leave is searched for the server's credential, last of all, so that no edit brings any of it back.
 * 5. `finish` is called only after a complete answer; an answer that holds no response to the request is a failure.
 */
export class AnswerFilter implements AnswerWay {
  readonly #way: AnswerWay;

  constructor(options: AnswerOptions) {
    this.#way = options.isEventStream ? new EventAnswer(options) : new JsonAnswer(options);
  }

  get isAtBoundary(): boolean {
    return this.#way.isAtBoundary;
  }

  start(): void {
    this.#way.start();
  }

  push(chunk: Buffer): void {
    this.#way.push(chunk);
  }

  end(): void {
    this.#way.end();
  }

  fail(code: number, message: string): void {
    this.#way.fail(code, message);
  }

  abandon(): void {
    this.#way.abandon();
  }
}
