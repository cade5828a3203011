import { randomBytes } from "node:crypto";
import { parseArgs } from "node:util";
import { type Check, compareChecks, countChecks, type Difference } from "../test/conformance/compare.ts";
import { installSuites, runSuite, type Suite, suites } from "../test/conformance/suites.ts";
import { type FixtureServer, startFixtureServer } from "../test/fixtures/fixture-server/server.ts";
import { type Forwarder, startForwarder } from "../test/support/forwarder.ts";
import { type Stack, startStack } from "../test/support/stack.ts";

/**
 * `npm run conformance`: runs the official suites against the fixture server, directly and through Postern (relay and
 * gateway as processes of their own), and fails on every difference. The suites cannot send a token, so the same
 * forwarder stands in front of both; the fixture server demands a token that only the gateway can add.
 */
const { values: flags } = parseArgs({
  options: { "direct-only": { type: "boolean", default: false }, suite: { type: "string" } },
});

/** All that the suites touch is allowed: what remains are differences of the path. */
const policy = {
  fixture: {
    tools: ["*"],
    prompts: ["*"],
    resources: ["test://**"],
    resourceTemplates: ["test://**"],
    client: ["sampling", "elicitation", "roots"],
  },
};

/** The URL names localhost: one scenario checks protection against DNS rebinding, and runs only there. */
const url = (forwarder: Forwarder, path: string): string => `http://localhost:${forwarder.port}${path}`;

async function startPath(fixture: FixtureServer, upstreamToken: string, forwarder: Forwarder): Promise<Stack> {
  const publicUrl = `http://localhost:${forwarder.port}`;
  const stack = await startStack({
    publicUrl,
    // The suite also plays a browser page of the same origin.
    relayYaml: { allowedOrigins: [publicUrl] },
    secretFiles: { "upstream-token": upstreamToken },
    servers: { fixture: { url: fixture.url, credential: { type: "bearer", token: { file: "./upstream-token" } } } },
    policy,
  });
  forwarder.aim({ port: stack.relayPort, authorization: `Bearer ${stack.agentKey}` });
  return stack;
}

const column = (checks: readonly Check[] | undefined): string => {
  if (checks === undefined) return "-".padStart(12);
  const { passed, failed } = countChecks(checks);
  return `${passed}/${failed}`.padStart(12);
};

function printDifferences(differences: readonly Difference[]): void {
  for (const { scenario, id, name, status, direct, through, errorMessage } of differences) {
    console.log(`    ${scenario} ${id} ${name} ${status}: direct ${direct}, through Postern ${through}`);
    if (errorMessage !== undefined) console.log(`      ${errorMessage.slice(0, 400)}`);
  }
}

/** True when the suite says the same of both paths, and of the direct one what it should. */
async function compareSuite(suite: Suite, directUrl: string, throughUrl: string | undefined): Promise<boolean> {
  const direct = await runSuite(suite, directUrl);
  const through = throughUrl === undefined ? undefined : await runSuite(suite, throughUrl);
  console.log(`${suite.name.padEnd(22)}${column(direct)}${column(through)}`);
  const { passed, failed } = countChecks(direct);
  const isBaseline = passed === suite.baseline.passed && failed === suite.baseline.failed;
  if (!isBaseline) {
    console.log(
      `    the direct run should say ${suite.baseline.passed}/${suite.baseline.failed}: fix the fixture server`,
    );
    for (const check of direct.filter(({ status }) => status === "FAILURE")) {
      console.log(`    ${check.scenario} ${check.id}: ${check.errorMessage ?? ""}`);
    }
  }
  const differences = through === undefined ? [] : compareChecks(direct, through);
  printDifferences(differences);
  return isBaseline && differences.length === 0;
}

async function main(): Promise<boolean> {
  await installSuites();
  const upstreamToken = `up-${randomBytes(24).toString("base64url")}`;
  const fixture = await startFixtureServer({ bearer: upstreamToken });
  const directForwarder = await startForwarder();
  directForwarder.aim({ port: fixture.port, authorization: `Bearer ${upstreamToken}` });
  const throughForwarder = await startForwarder();
  let stack: Stack | undefined;
  try {
    if (!flags["direct-only"]) stack = await startPath(fixture, upstreamToken, throughForwarder);
    console.log(`${"passed/failed".padEnd(22)}${"direct".padStart(12)}${"Postern".padStart(12)}`);
    let isSame = true;
    for (const suite of suites.filter(({ name }) => flags.suite === undefined || name.includes(flags.suite))) {
      const throughUrl = stack === undefined ? undefined : url(throughForwarder, "/acme/fixture/mcp");
      if (!(await compareSuite(suite, url(directForwarder, "/mcp"), throughUrl))) isSame = false;
    }
    return isSame;
  } finally {
    await stack?.stop();
    await throughForwarder.close();
    await directForwarder.close();
    await fixture.close();
  }
}

const isSame = await main();
const passed = flags["direct-only"]
  ? "The direct runs give the expected results."
  : "Postern gives what the server gives.";
console.log(isSame ? passed : "There are differences.");
process.exit(isSame ? 0 : 1);
