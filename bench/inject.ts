/** What a credential from a warm cache costs a call: `npx tsx bench/inject.ts`. Microseconds at the median, by shape. */
import { medianInjectUs, warmCredentials } from "../test/support/warm-credentials.ts";

const warm = await warmCredentials();
const report = warm.shapes.map((shape) => [shape, Number(medianInjectUs(warm, shape, 5_000).toFixed(3))]);
await warm.stop();
process.stdout.write(`${JSON.stringify(Object.fromEntries(report), undefined, 2)}\n`);
