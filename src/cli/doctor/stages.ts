/**
 * The stages of a diagnosis: each begins when those that it needs have passed, has a deadline of its own, and ends as one line. A
 * stage whose need has failed is skipped and says which one it waited for, so that the first failure is the one to look at.
 */

export interface Stage {
  /** What is looked at and in which respect: `relay tls`. */
  readonly name: string;
  /** Names of stages before this one. */
  readonly needs?: readonly string[];
  readonly deadlineMs?: number;
  /** Resolves to what was found. Rejects with `Trouble` or `NotTried`; `signal` ends it. */
  readonly run: (signal: AbortSignal) => Promise<string>;
}

export interface StageResult {
  readonly name: string;
  readonly state: "ok" | "failed" | "skipped";
  readonly detail: string;
  readonly cure?: string;
  readonly ms: number;
}

/** A stage that failed. Neither text holds anything secret. */
export class Trouble extends Error {
  readonly cure: string;

  constructor(message: string, cure: string) {
    super(message);
    this.cure = cure;
  }
}

/** A stage that is better not tried. */
export class NotTried extends Error {}

const stageDeadlineMs = 10_000;
const totalDeadlineMs = 60_000;

/** Runs every stage; `onResult` hears of them in their order, each as soon as it and those before it are over. */
export async function runStages(
  stages: readonly Stage[],
  onResult: (result: StageResult) => void,
  totalMs = totalDeadlineMs,
): Promise<readonly StageResult[]> {
  const whole = AbortSignal.timeout(totalMs);
  const running = new Map<string, Promise<StageResult>>();
  for (const stage of stages) {
    const needs = (stage.needs ?? []).flatMap((name) => running.get(name) ?? []);
    running.set(stage.name, follow(stage, needs, whole));
  }
  const results: StageResult[] = [];
  for (const pending of running.values()) {
    const result = await pending;
    results.push(result);
    onResult(result);
  }
  return results;
}

async function follow(stage: Stage, needs: readonly Promise<StageResult>[], whole: AbortSignal): Promise<StageResult> {
  const { name } = stage;
  const missing = (await Promise.all(needs)).find(({ state }) => state !== "ok");
  const startedAt = performance.now();
  const end = (state: StageResult["state"], detail: string, cure?: string): StageResult => ({
    name,
    state,
    detail,
    ...(cure === undefined ? {} : { cure }),
    ms: Math.round(performance.now() - startedAt),
  });
  if (missing !== undefined) return end("skipped", `waits for "${missing.name}"`);
  try {
    return end("ok", await withDeadline(stage, whole));
  } catch (error) {
    if (error instanceof NotTried) return end("skipped", error.message);
    if (error instanceof Trouble) return end("failed", error.message, error.cure);
    // A foreign message may quote what it was given.
    const kind = error instanceof Error ? error.name : "unknown";
    return end("failed", `ended unexpectedly: ${kind}`, "report this as a defect");
  }
}

async function withDeadline(stage: Stage, whole: AbortSignal): Promise<string> {
  const own = AbortSignal.timeout(stage.deadlineMs ?? stageDeadlineMs);
  const signal = AbortSignal.any([own, whole]);
  return await new Promise((resolve, reject) => {
    const giveUp = (): void => {
      const cure = "the network between here and there: a firewall may drop what it does not refuse";
      reject(new Trouble(whole.aborted ? "not done within the minute of all stages" : "no end in time", cure));
    };
    if (signal.aborted) giveUp();
    signal.addEventListener("abort", giveUp, { once: true });
    stage.run(signal).then(resolve, reject);
  });
}
