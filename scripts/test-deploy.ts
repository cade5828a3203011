import { writeFileSync } from "node:fs";
import { join } from "node:path";
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

// As .ci/run counts the reports of the other test commands.
const reports = process.env["POSTERN_REPORTS"];
if (reports !== undefined) {
  const { passed, failed, skipped } = checks;
  const report = { numPassedTests: passed, numFailedTests: failed, numPendingTests: skipped, numTodoTests: 0 };
  writeFileSync(join(reports, "deploy.json"), JSON.stringify(report));
}

const skipped = checks.skipped === 0 ? "" : `, ${checks.skipped} skipped`;
console.log(`\n${checks.passed} passed, ${checks.failed} failed${skipped}`);
process.exit(checks.failed === 0 ? 0 : 1);
