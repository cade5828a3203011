import { AnswerFilter } from "../../src/gateway/answer-filter.ts";
import type { AnswerScrubber } from "../../src/gateway/answer-scrubber.ts";
import type { AnswerFailure, AnswerLimits } from "../../src/gateway/answer-types.ts";
import { ByteBudget } from "../../src/gateway/byte-budget.ts";
import type { ClientKind, Era } from "../../src/mcp/index.ts";
import type { ExchangeMethod } from "../../src/tunnel/index.ts";

export interface RecordedOptions {
  readonly method?: ExchangeMethod;
  /** Null: the exchange asks nothing. */
  readonly idText?: string | null;
  readonly era?: Era;
  readonly status?: number;
  readonly isEventStream?: boolean;
  readonly shown?: readonly string[];
  readonly asks?: readonly ClientKind[];
  readonly limits?: AnswerLimits;
  readonly budget?: ByteBudget;
  readonly scrubber?: AnswerScrubber;
}

/** Runs an answer through a filter and writes down what leaves it, in order. */
export class Recorder {
  readonly filter: AnswerFilter;
  /** One entry per call of a hook: `head`, `emit`, `finish`, `ask 1 ping`, … */
  readonly calls: string[] = [];
  readonly emitted: Buffer[] = [];
  failure: AnswerFailure | undefined;

  constructor(options: RecordedOptions = {}) {
    const shown = options.shown ?? ["a"];
    this.filter = new AnswerFilter({
      exchange: {
        method: options.method ?? "POST",
        idText: options.idText === null ? undefined : (options.idText ?? "1"),
        era: options.era ?? "legacy",
      },
      status: options.status ?? 200,
      isEventStream: options.isEventStream ?? false,
      judge: {
        shows: (_kind, name) => shown.includes(name),
        admitsAsk: (ask) => options.asks?.includes(ask) ?? false,
        admitsUpdate: (uri) => shown.includes(uri),
      },
      hooks: {
        head: () => this.calls.push("head"),
        emit: (bytes) => {
          this.calls.push("emit");
          this.emitted.push(bytes);
        },
        finish: () => this.calls.push("finish"),
        fail: (failure) => {
          this.calls.push(`fail ${failure.code} ${failure.ending}`);
          this.failure = failure;
        },
        onAsk: (idText, method) => this.calls.push(`ask ${idText} ${method}`),
        onAskRefused: (idText, method) => this.calls.push(`refused ${idText} ${method}`),
        onDrop: () => this.calls.push("drop"),
        errorJson: (idText, code) => `{"jsonrpc":"2.0","id":${idText},"error":{"code":${code}}}`,
      },
      budget: options.budget ?? new ByteBudget(Number.POSITIVE_INFINITY),
      scrubber: options.scrubber,
      ...(options.limits === undefined ? {} : { limits: options.limits }),
    });
    this.filter.start();
  }

  /** Pushes the whole body, cut into `sizes` and the rest, and ends it. */
  run(body: string | Buffer, sizes: readonly number[] = []): this {
    this.push(body, sizes);
    this.filter.end();
    return this;
  }

  push(body: string | Buffer, sizes: readonly number[] = []): this {
    const bytes = Buffer.from(body as string);
    let at = 0;
    for (const size of sizes) {
      this.filter.push(bytes.subarray(at, at + size));
      at += size;
    }
    this.filter.push(bytes.subarray(at));
    return this;
  }

  get body(): Buffer {
    return Buffer.concat(this.emitted);
  }

  get text(): string {
    return this.body.toString();
  }

  /** Everything but the pieces that the body was emitted in. */
  get outcome(): string[] {
    return this.calls.filter((call) => call !== "emit");
  }
}
