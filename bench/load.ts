import { HttpConnection, requestBytes, type Timing } from "./http-client.ts";

/**
 * The load generator, as a process of its own: reads jobs as JSON lines from stdin, answers each with one JSON line.
 */
export interface Job {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly concurrency: number;
  /** Ends after this long, or after `calls`, whichever is given. */
  readonly durationMs?: number;
  readonly calls?: number;
  /** What in the body stops the clock of the first byte; any byte by default. Must not be cut by the server. */
  readonly firstText?: string;
}

export interface LoadResult {
  readonly calls: number;
  readonly seconds: number;
  readonly bodyBytes: number;
  readonly medianMs: number;
  readonly p99Ms: number;
  readonly firstByteMedianMs: number;
  readonly firstByteP99Ms: number;
  /** Anything but a 200 with a whole body. The first reason is kept. */
  readonly failures: number;
  readonly failure?: string;
}

/** `share` from 0 to 1; 0 for an empty list. */
function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

class Run {
  readonly #job: Job;
  readonly #request: Buffer;
  readonly #startedAt = performance.now();
  readonly #totals: number[] = [];
  readonly #firsts: number[] = [];
  #bodyBytes = 0;
  #started = 0;
  #failures = 0;
  #failure: string | undefined;

  constructor(job: Job) {
    this.#job = job;
    this.#request = requestBytes(new URL(job.url), job.headers, job.body);
  }

  #mayStart(): boolean {
    const { calls, durationMs } = this.#job;
    if (calls !== undefined) return this.#started < calls;
    return performance.now() - this.#startedAt < (durationMs ?? 0);
  }

  #note(result: Timing | Error): boolean {
    if (result instanceof Error || result.status !== 200) {
      this.#failures += 1;
      this.#failure ??= result instanceof Error ? result.message : `status ${result.status}`;
      return !(result instanceof Error);
    }
    this.#totals.push(result.totalMs);
    this.#firsts.push(result.firstByteMs);
    this.#bodyBytes += result.bodyBytes;
    return true;
  }

  /** One connection, one call after the other. */
  async worker(): Promise<void> {
    const url = new URL(this.#job.url);
    const connection = await HttpConnection.open(Number(url.port), url.hostname);
    await new Promise<void>((resolve) => {
      const next = (): void => {
        if (!this.#mayStart()) {
          resolve();
          return;
        }
        this.#started += 1;
        connection.exchange(this.#request, this.#job.firstText, (result) => (this.#note(result) ? next() : resolve()));
      };
      next();
    });
    connection.close();
  }

  result(): LoadResult {
    const totals = this.#totals.toSorted((a, b) => a - b);
    const firsts = this.#firsts.toSorted((a, b) => a - b);
    return {
      calls: totals.length,
      seconds: (performance.now() - this.#startedAt) / 1_000,
      bodyBytes: this.#bodyBytes,
      medianMs: quantile(totals, 0.5),
      p99Ms: quantile(totals, 0.99),
      firstByteMedianMs: quantile(firsts, 0.5),
      firstByteP99Ms: quantile(firsts, 0.99),
      failures: this.#failures,
      ...(this.#failure === undefined ? {} : { failure: this.#failure }),
    };
  }
}

async function perform(job: Job): Promise<LoadResult> {
  const run = new Run(job);
  await Promise.all(Array.from({ length: job.concurrency }, () => run.worker()));
  return run.result();
}

async function main(): Promise<void> {
  process.stdin.setEncoding("utf8");
  let rest = "";
  for await (const text of process.stdin as AsyncIterable<string>) {
    rest += text;
    const lines = rest.split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const answer = await perform(JSON.parse(line) as Job).catch((error: unknown) => ({ error: String(error) }));
      process.stdout.write(`${JSON.stringify(answer)}\n`);
    }
  }
}

await main();
