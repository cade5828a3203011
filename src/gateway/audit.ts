import { type Clock, formatPosition, type Timer } from "../lib/index.ts";
import type { Subject } from "../mcp/index.ts";
import type { Decision } from "../policy/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { type LineTarget, LineWriter } from "./line-writer.ts";

/**
 * What happened, as JSON lines: a `decision` before a call leaves and an `outcome` after it ended, so that a crash cannot
 * hide a call that ran. Arguments, results and credentials have no field here.
 */

export interface AuditOptions {
  readonly target: LineTarget;
  /** What happens to calls while no record can be written. */
  readonly onError: "deny" | "continue";
  /** Records waiting for the disk; default 8 MiB. */
  readonly maxQueueBytes?: number;
  /** How long one write may take; default 5 s. */
  readonly writeTimeoutMs?: number;
}

export interface AuditSubject {
  readonly exchangeId: string;
  readonly requestId: string;
  readonly principalId: string;
  readonly server: string;
  /** HTTP method. */
  readonly verb: string;
  /** JSON-RPC method; undefined for GET, DELETE, posted responses and what could not be read. */
  readonly method: string | undefined;
  /** See `nameOfSubject`. */
  readonly name: string | undefined;
}

/** What records call the thing that is asked for: tool, prompt, URI or template; undefined where there is none. */
export function nameOfSubject(subject: Subject): string | undefined {
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

/** An `AuditSubject` as it stands in records. */
export interface AuditText {
  readonly text: string;
}

/** What the gateway decided itself, before any policy: for instance `batch` or `session`. */
export interface Refused {
  readonly kind: "refused";
  readonly reason: string;
}

export interface AuditOutcome {
  /** Undefined: the exchange was reset before a head. */
  readonly status: number | undefined;
  readonly by: "upstream" | "gateway" | undefined;
  /** `complete`, or what broke it: a reset code, or an upstream's error code. */
  readonly end: string;
  readonly bytesIn: number;
  readonly bytesOut: number;
  /** Places in the answer where the server's credential was found. */
  readonly scrubbed: number;
  readonly firstByteMs: number | undefined;
  readonly durationMs: number;
}

export interface AuditWaiter {
  /** `mayProceed` is false when the record could not be written and `onError` is `deny`. */
  onAudited(mayProceed: boolean): void;
}

/** Longer names are cut: they are the agent's text. */
const maxNameLength = 1024;
const problemLogMs = 10_000;
/** How long an outcome may wait for a decision to share a write with. */
const outcomeWaitMs = 10;

export class AuditLog {
  readonly #writer: LineWriter;
  readonly #clock: Clock;
  readonly #logger: Logger;
  /** Members that every record of this process has. */
  readonly #origin: string;
  readonly #continuesOnError: boolean;
  #position = 0;
  #isWritable = true;
  #lastProblemAt = Number.NEGATIVE_INFINITY;
  #lostCount = 0;
  #lastWall = Number.NaN;
  #lastTime = "";
  /** What ended a moment ago. */
  #ended: { readonly subject: AuditText; readonly outcome: AuditOutcome }[] = [];
  #outcomeTimer: Timer | undefined;

  /** Throws what `fs.openSync` throws. */
  constructor(
    options: AuditOptions,
    context: { readonly tunnel: string; readonly gateway: string; readonly clock: Clock; readonly logger: Logger },
  ) {
    this.#clock = context.clock;
    this.#logger = context.logger;
    this.#origin = member("gateway", context.gateway) + member("tunnel", context.tunnel);
    this.#continuesOnError = options.onError === "continue";
    this.#writer = new LineWriter({
      target: options.target,
      clock: context.clock,
      maxQueueBytes: options.maxQueueBytes ?? 8 * 1024 * 1024,
      writeTimeoutMs: options.writeTimeoutMs ?? 5_000,
      onProblem: (code) => this.#onProblem(code),
    });
  }

  /** False from a failed write until one succeeds. */
  get isWritable(): boolean {
    return this.#isWritable;
  }

  /** Records that were not written since the start. */
  get lostCount(): number {
    return this.#lostCount;
  }

  /** The part that both records of an exchange share, made once. */
  describe(subject: AuditSubject): AuditText {
    const { exchangeId, requestId, principalId, server, verb, method, name } = subject;
    const text =
      plain("exchangeId", exchangeId) +
      member("requestId", requestId) +
      member("principal", principalId) +
      plain("server", server) +
      plain("verb", verb) +
      member("method", cut(method)) +
      member("name", cut(name));
    return { text };
  }

  /** Answers the waiter on a later tick, when the record is with the kernel. */
  decision(subject: AuditText, decision: Decision | Refused, waiter: AuditWaiter): void {
    this.#writeOutcomes();
    const line =
      this.#begin("decision", subject) +
      plain("decision", decision.kind === "allow" ? "allow" : "deny") +
      member("reason", decision.kind === "allow" ? undefined : decision.reason) +
      member("rule", decision.kind === "refused" ? undefined : decision.rule) +
      member("at", decision.kind === "refused" || decision.at === undefined ? undefined : formatPosition(decision.at)) +
      lineEnd;
    const isQueued = this.#writer.append(line, {
      onWritten: (isWritten) => {
        if (isWritten) this.#isWritable = true;
        waiter.onAudited(isWritten || this.#continuesOnError);
      },
    });
    if (!isQueued) queueMicrotask(() => waiter.onAudited(this.#continuesOnError));
  }

  /** Nobody waits for it, so it is written with the next decision, or `outcomeWaitMs` later. */
  outcome(subject: AuditText, outcome: AuditOutcome): void {
    this.#ended.push({ subject, outcome });
    this.#outcomeTimer ??= this.#clock.after(outcomeWaitMs, () => {
      this.#outcomeTimer = undefined;
      this.#writeOutcomes();
    });
  }

  #writeOutcomes(): void {
    if (this.#ended.length === 0) return;
    const ended = this.#ended;
    this.#ended = [];
    for (const { subject, outcome } of ended) this.#writeOutcome(subject, outcome);
  }

  #writeOutcome(subject: AuditText, outcome: AuditOutcome): void {
    this.#writer.append(
      this.#begin("outcome", subject) +
        member("status", outcome.status) +
        plain("by", outcome.by) +
        member("end", outcome.end) +
        member("bytesIn", outcome.bytesIn) +
        member("bytesOut", outcome.bytesOut) +
        member("scrubbed", outcome.scrubbed === 0 ? undefined : outcome.scrubbed) +
        member("firstByteMs", round(outcome.firstByteMs)) +
        member("durationMs", round(outcome.durationMs)) +
        lineEnd,
    );
  }

  /** For log rotation. Where the file cannot be had anew the old one stays in use: a signal must not end the process. */
  reopen(): void {
    try {
      this.#writer.reopen();
    } catch (error) {
      const code = error instanceof Error && "code" in error ? String(error.code) : "unknown";
      const cure = "the folder and permissions of the audit file, and SIGHUP; records go on into the old file";
      this.#logger.error("audit file not opened anew", { code, cure });
    }
  }

  /** Resolves when every record was written or given up. */
  async close(): Promise<void> {
    this.#outcomeTimer?.cancel();
    this.#writeOutcomes();
    await this.#writer.close();
  }

  #begin(event: string, subject: AuditText): string {
    this.#position += 1;
    return `{"event":"${event}","position":${this.#position},"time":"${this.#time()}"${this.#origin}${subject.text}`;
  }

  #time(): string {
    const wall = this.#clock.wall();
    if (wall !== this.#lastWall) {
      this.#lastWall = wall;
      this.#lastTime = new Date(wall).toISOString();
    }
    return this.#lastTime;
  }

  #onProblem(code: string): void {
    this.#isWritable = false;
    this.#lostCount += 1;
    const now = this.#clock.now();
    if (now - this.#lastProblemAt < problemLogMs) return;
    this.#lastProblemAt = now;
    this.#logger.error("audit record not written", {
      code,
      count: this.#lostCount,
      cure: "free space and permissions of the audit file; calls are refused until it can be written again",
    });
  }
}

function cut(text: string | undefined): string | undefined {
  if (text === undefined || text.length <= maxNameLength) return text;
  return `${text.slice(0, maxNameLength)}…`;
}

function round(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : Math.round(ms * 1000) / 1000;
}

/** One member after others. Records are put together by hand: JSON.stringify of a record costs more than a whole decision. */
function member(name: string, value: string | number | undefined): string {
  return value === undefined ? "" : `,"${name}":${typeof value === "string" ? JSON.stringify(value) : value}`;
}

/** As `member`, for what is made here or was checked against a pattern that admits no quote and no backslash. */
function plain(name: string, value: string | undefined): string {
  return value === undefined ? "" : `,"${name}":"${value}"`;
}

const lineEnd = "}\n";
