import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Check } from "./compare.ts";

const here = fileURLToPath(new URL(".", import.meta.url));
const cache = fileURLToPath(new URL("../../.cache/conformance/", import.meta.url));
const runWithinMs = 180_000;

export interface Suite {
  readonly name: string;
  readonly package: "@modelcontextprotocol/conformance" | "conformance-legacy";
  readonly args: readonly string[];
  /** What our fixture server scores directly. A direct run that says otherwise measures nothing. */
  readonly baseline: { readonly passed: number; readonly failed: number };
}

export const suites: readonly Suite[] = [
  {
    name: "0.1.16 all",
    package: "conformance-legacy",
    args: ["--suite", "all"],
    baseline: { passed: 44, failed: 0 },
  },
  {
    name: "alpha.12 2025-11-25",
    package: "@modelcontextprotocol/conformance",
    args: ["--requirements", "2025-11-25"],
    baseline: { passed: 84, failed: 0 },
  },
  {
    name: "alpha.12 2026-07-28",
    package: "@modelcontextprotocol/conformance",
    args: ["--requirements", "2026-07-28"],
    // The 30 are the tasks extension, which the fixture server does not offer and the suite does not score.
    baseline: { passed: 164, failed: 30 },
  },
];

function run(command: string, args: readonly string[], cwd: string, timeoutMs: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd, stdio: ["ignore", "pipe", "pipe"], timeout: timeoutMs });
    let output = "";
    child.stdout.on("data", (chunk: Buffer) => {
      output += chunk.toString("utf8");
    });
    child.stderr.on("data", (chunk: Buffer) => {
      output += chunk.toString("utf8");
    });
    child.once("error", reject);
    // The exit code says whether checks failed, which is compared elsewhere; only a kill is a failure here.
    child.once("close", (code, signal) =>
      signal === null ? resolve(output) : reject(new Error(`${command} ended by ${signal} (code ${code})\n${output}`)),
    );
  });
}

/** Both suites import `globSync`, which Node 20 does not have and no server scenario uses. */
function dropUnusedImport(file: string): void {
  const lines = readFileSync(file, "utf8").split("\n");
  const patched = lines.map((line, i) => (i < 3 ? line.replace(/,globSync as [\w$]+/, "") : line));
  writeFileSync(file, patched.join("\n"));
}

/** Installs the suites into `.cache/` at first use, or when the lock file has changed since. */
export async function installSuites(): Promise<void> {
  const lock = readFileSync(join(here, "package-lock.json"), "utf8");
  const stamp = join(cache, "installed-lock.json");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === lock) return;
  rmSync(cache, { recursive: true, force: true });
  mkdirSync(cache, { recursive: true });
  for (const file of ["package.json", "package-lock.json"]) cpSync(join(here, file), join(cache, file));
  const output = await run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], cache, runWithinMs);
  for (const name of new Set(suites.map((suite) => suite.package))) {
    const entry = join(cache, "node_modules", name, "dist/index.js");
    if (!existsSync(entry)) throw new Error(`the conformance suites could not be installed:\n${output}`);
    dropUnusedImport(entry);
  }
  writeFileSync(stamp, lock);
}

const resultFolder = /^(?:server-)?(.+?)-\d{4}-\d{2}-\d{2}T[\d-]+Z$/;

function readChecks(folder: string): Check[] {
  const checks: Check[] = [];
  for (const entry of readdirSync(folder)) {
    const scenario = resultFolder.exec(entry)?.[1];
    if (scenario === undefined) throw new Error(`not a result folder: ${entry}`);
    const found = JSON.parse(readFileSync(join(folder, entry, "checks.json"), "utf8")) as Omit<Check, "scenario">[];
    for (const { id, name, status, errorMessage } of found) {
      checks.push({ scenario, id, name, status, ...(errorMessage === undefined ? {} : { errorMessage }) });
    }
  }
  return checks;
}

/** Runs one suite against `url` and returns every check that it made. */
export async function runSuite(suite: Suite, url: string): Promise<Check[]> {
  const folder = mkdtempSync(join(tmpdir(), "postern-conformance-"));
  try {
    const entry = join(cache, "node_modules", suite.package, "dist/index.js");
    const output = await run(
      process.execPath,
      [entry, "server", "--url", url, ...suite.args, "-o", folder],
      cache,
      runWithinMs,
    );
    const checks = readChecks(folder);
    if (checks.length === 0) throw new Error(`${suite.name} made no checks:\n${output}`);
    return checks;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
