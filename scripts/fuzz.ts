import { parseArgs } from "node:util";
import { type FuzzResult, fuzzDecoder, fuzzSessions } from "../test/tunnel/fuzz.ts";

/**
 * `npm run fuzz -- --count 10000000 [--seed 1] [--only decoder|sessions]`: hostile tunnel messages, half of them to the decoder alone, half
 * to whole sessions of both roles. Ends with 1 and the seed at the first input that causes anything but a typed fault.
 */
const { values } = parseArgs({
  options: {
    count: { type: "string", default: "200000" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    only: { type: "string" },
  },
});

const maxGrowthBytes = 64 * 1024 * 1024;
const lookEveryMs = 15_000;

async function run(
  name: string,
  fuzz: (seed: number, count: number, progress: (done: number) => void) => Promise<FuzzResult>,
  count: number,
): Promise<void> {
  const seed = Number(values.seed);
  const startedAt = performance.now();
  let lookedAt = startedAt;
  let baseBytes: number | undefined;
  const progress = (done: number): void => {
    if (performance.now() - lookedAt < lookEveryMs) return;
    lookedAt = performance.now();
    globalThis.gc?.();
    const { heapUsed, external } = process.memoryUsage();
    baseBytes ??= heapUsed + external;
    const growth = heapUsed + external - baseBytes;
    console.log(`  ${done} of ${count}, memory ${growth >= 0 ? "+" : ""}${(growth / 1024 / 1024).toFixed(1)} MiB`);
    if (globalThis.gc !== undefined && growth > maxGrowthBytes) throw new Error("memory grows");
  };
  console.log(`${name}: seed ${seed}`);
  const { inputs, outcomes } = await fuzz(seed, count, progress);
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
  console.log(`${name}: ${inputs} inputs in ${seconds} s`);
  for (const [outcome, times] of Object.entries(outcomes).toSorted(([, a], [, b]) => b - a)) {
    console.log(`  ${outcome.padEnd(28)}${times}`);
  }
}

async function main(): Promise<void> {
  // Nobody reads the stack of a fault, and taking it costs more than finding the fault.
  Error.stackTraceLimit = 0;
  const count = Number(values.count);
  if (!Number.isSafeInteger(count) || count < 1) throw new Error("--count is a whole number above 0");
  const share = values.only === undefined ? Math.ceil(count / 2) : count;
  if (values.only !== "sessions") await run("decoder", fuzzDecoder, share);
  if (values.only !== "decoder") await run("sessions", fuzzSessions, share);
}

await main();
