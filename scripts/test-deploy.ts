import { parseArgs } from "node:util";
import { checkCharts } from "./deploy/charts.ts";
import { Checks } from "./deploy/checks.ts";
import { checkImage } from "./deploy/image.ts";

/** Called by scripts/test-deploy.sh, which installs and builds what these checks look at. */
const { values: flags } = parseArgs({ options: { without: { type: "string", multiple: true, default: [] } } });
const isCi = process.env["CI"] === "true";
const checks = new Checks();

for (const [part, act] of [
  ["charts", checkCharts],
  ["image", checkImage],
] as const) {
  if (flags.without.includes(part)) checks.leaveOut(part, isCi);
  else await act(checks);
}

const skipped = checks.skipped === 0 ? "" : `, ${checks.skipped} skipped`;
console.log(`\n${checks.passed} passed, ${checks.failed} failed${skipped}`);
process.exit(checks.failed === 0 ? 0 : 1);
