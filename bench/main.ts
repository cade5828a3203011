import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { cpus, loadavg } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { modernRequest } from "../test/support/agent-requests.ts";
import { type Stack, startStack } from "../test/support/stack.ts";
import { judgeTables } from "./gate.ts";
import type { Job, LoadResult } from "./load.ts";
import { measureMemory } from "./memory.ts";
import { cpuSeconds, type Listening, type LoadGenerator, startListening, startLoadGenerator } from "./processes.ts";
import { median, printTable, type Row, type Table } from "./report.ts";

/**
 * `npm run bench`: the same calls to the same server directly, over two plain HTTP hops, and through Postern with
 * policy, injection and audit on; every part a process of its own, all on loopback. The targets take turns in rounds,
 * so that what drifts (clock, heat, neighbours) hits all alike. `npm run bench -- memory` is in memory.ts, `-- principals` in
 * principals.ts; `-- scrub` compares calls with and without a credential: what injecting it and searching for it costs.
 */
const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: "boolean", default: false },
    short: { type: "boolean", default: false },
    peer: { type: "string", multiple: true, default: [] },
    "upstream-port": { type: "string", default: "0" },
    /** Fail when Postern falls below what it must reach, less a margin for noise. */
    gate: { type: "boolean", default: false },
    /** A folder for CPU profiles of relay and gateway. */
    profile: { type: "string" },
    "without-postern": { type: "boolean", default: false },
  },
});

const usage = `--peer must be name=url, with an http: URL that leads to the upstream of this run. Give that a port of your
choice with --upstream-port; it serves http://127.0.0.1:<port>/mcp.`;

const pace = flags.short
  ? { rounds: 3, roundMs: 1_000, warmupMs: 4_000, streamCalls: 60, bigCalls: 1 }
  : { rounds: 7, roundMs: 2_000, warmupMs: 8_000, streamCalls: 200, bigCalls: 2 };
const concurrencies = [1, 32, 128] as const;
const isScrub = positionals[0] === "scrub";
const referenceName = isScrub ? "no credential" : "two hops";
const megabyte = 1_000_000;
const gateMargin = 0.3;

/** A way to the upstream. */
interface Target {
  readonly name: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** The processes between the load and the upstream. */
  readonly pids: readonly number[];
  /** Somebody else's: when it fails, its row is missing and the run goes on. */
  readonly isPeer?: boolean;
}

function job(
  target: Target,
  kind: "small" | "stream" | "big",
  load: Pick<Job, "concurrency" | "durationMs" | "calls" | "firstText">,
): Job {
  const { body, headers } = modernRequest(1, "tools/call", {
    name: `get_${kind}`,
    arguments: { project: "OPS", limit: 10 },
  });
  return {
    url: target.url,
    headers: {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      ...headers,
      ...target.headers,
    },
    body: JSON.stringify(body),
    ...load,
  };
}

interface Measured extends LoadResult {
  readonly cpuUsPerCall: number | undefined;
}

async function measured(generator: LoadGenerator, target: Target, work: Job): Promise<Measured> {
  const before = cpuSeconds(target.pids);
  const result = await generator.perform(work);
  const after = cpuSeconds(target.pids);
  if (result.failures > 0) throw new Error(`${target.name}: ${result.failures} failures, the first: ${result.failure}`);
  if (result.calls === 0) throw new Error(`${target.name}: no call ended`);
  const isKnown = before !== undefined && after !== undefined && target.pids.length > 0;
  return { ...result, cpuUsPerCall: isKnown ? ((after - before) * 1e6) / result.calls : undefined };
}

async function keepResult(
  results: Map<string, Measured[]>,
  list: Measured[],
  target: Target,
  once: (target: Target) => Promise<Measured>,
): Promise<void> {
  try {
    list.push(await once(target));
  } catch (error) {
    if (target.isPeer !== true) throw error;
    console.error(`left out: ${error instanceof Error ? error.message : String(error)}`);
    results.delete(target.name);
  }
}

/** Rounds of all targets, each round starting with another one. */
async function inRounds(
  targets: readonly Target[],
  rounds: number,
  once: (target: Target) => Promise<Measured>,
): Promise<Map<string, Measured[]>> {
  const results = new Map<string, Measured[]>(targets.map(({ name }) => [name, []]));
  for (let round = 0; round < rounds; round += 1) {
    for (let i = 0; i < targets.length; i += 1) {
      const target = targets[(round + i) % targets.length];
      const list = target === undefined ? undefined : results.get(target.name);
      if (target !== undefined && list !== undefined) await keepResult(results, list, target, once);
    }
  }
  return results;
}

function medianOfKnown(values: readonly (number | undefined)[]): number | undefined {
  const known = values.filter((value) => value !== undefined);
  return known.length === 0 ? undefined : median(known);
}

type Read = (result: LoadResult) => { readonly rate: number; readonly medianMs: number; readonly p99Ms: number };

function tableOf(
  title: string,
  unit: Table["unit"],
  results: Map<string, Measured[]>,
  read: Read,
  compares: "rates" | "medians" = unit === "ms" ? "medians" : "rates",
): Table {
  const reference = (results.get(referenceName) ?? []).map(read);
  const rows = [...results]
    .filter(([, list]) => list.length > 0)
    .map(([target, list]): Row => {
      const values = list.map(read);
      const shown = values.map(({ rate, medianMs }) => (unit === "ms" ? medianMs : rate));
      return {
        target,
        perSecond: median(values.map(({ rate }) => rate)),
        medianMs: median(values.map(({ medianMs }) => medianMs)),
        p99Ms: median(values.map(({ p99Ms }) => p99Ms)),
        cpuUsPerCall: medianOfKnown(list.map(({ cpuUsPerCall }) => cpuUsPerCall)),
        lowest: Math.min(...shown),
        highest: Math.max(...shown),
        // Round by round, so that what slows a whole round down cancels out.
        ratio: medianOfKnown(values.map((value, round) => ratioOf(value, reference[round], compares))),
      };
    });
  return { title, unit, rows };
}

function ratioOf(
  value: ReturnType<Read>,
  reference: ReturnType<Read> | undefined,
  compares: "rates" | "medians",
): number | undefined {
  if (reference === undefined) return undefined;
  return compares === "rates" ? value.rate / reference.rate : reference.medianMs / value.medianMs;
}

async function measureSmall(generator: LoadGenerator, targets: readonly Target[], concurrency: number): Promise<Table> {
  const results = await inRounds(targets, pace.rounds, (target) =>
    measured(generator, target, job(target, "small", { concurrency, durationMs: pace.roundMs })),
  );
  const title = `small tools/call, ${concurrency} in parallel, answers of 1 KB`;
  const read: Read = ({ calls, seconds, medianMs, p99Ms }) => ({ rate: calls / seconds, medianMs, p99Ms });
  return tableOf(title, "calls/s", results, read, concurrency === 1 ? "medians" : "rates");
}

async function measureStream(generator: LoadGenerator, targets: readonly Target[]): Promise<Table> {
  const results = await inRounds(targets, pace.rounds, (target) =>
    measured(generator, target, job(target, "stream", { concurrency: 1, calls: pace.streamCalls, firstText: "data:" })),
  );
  return tableOf("time to the first event of a stream", "ms", results, (result) => ({
    rate: result.calls / result.seconds,
    medianMs: result.firstByteMedianMs,
    p99Ms: result.firstByteP99Ms,
  }));
}

async function measureBig(generator: LoadGenerator, targets: readonly Target[]): Promise<Table> {
  const once = (target: Target): Promise<Measured> =>
    measured(generator, target, job(target, "big", { concurrency: 1, calls: pace.bigCalls }));
  // The first large result of a process is read by code that is not compiled yet.
  await inRounds(targets, 1, once);
  const results = await inRounds(targets, Math.ceil(pace.rounds / 2), once);
  return tableOf("a result of 100 MiB", "MB/s", results, (result) => ({
    rate: result.bodyBytes / megabyte / result.seconds,
    medianMs: result.medianMs,
    p99Ms: result.p99Ms,
  }));
}

const policy = {
  tools: ["search_issues", "list_*", { name: "get_*", except: ["get_admin_*"] }],
  resources: ["ticket://open/*"],
  deny: { tools: ["drop_*"] },
};

async function startPostern(upstream: Listening): Promise<Stack> {
  const url = `http://127.0.0.1:${upstream.port}/mcp`;
  return startStack({
    withoutSearch: true,
    nodeArgs: flags.profile === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${flags.profile}`],
    secretFiles: { "upstream-token": randomBytes(32).toString("base64url") },
    servers: {
      tickets: { url, credential: { type: "bearer", token: { file: "./upstream-token" } } },
      ...(isScrub ? { plain: { url } } : {}),
    },
    policy: { tickets: policy, ...(isScrub ? { plain: policy } : {}) },
  });
}

function peerTargets(): Target[] {
  return flags.peer.map((text) => {
    const at = text.indexOf("=");
    if (at < 1 || !/^http:\/\/./.test(text.slice(at + 1))) throw new Error(usage);
    return { name: text.slice(0, at), url: text.slice(at + 1), headers: {}, pids: [], isPeer: true };
  });
}

async function measureAll(generator: LoadGenerator, targets: readonly Target[]): Promise<Table[]> {
  // One call at a time runs code that many in parallel seldom run, such as a tunnel message for a single frame.
  for (const concurrency of [32, 1]) {
    await inRounds(targets, 1, (target) =>
      measured(generator, target, job(target, "small", { concurrency, durationMs: pace.warmupMs })),
    );
  }
  const tables: Table[] = [];
  const add = (table: Table): void => {
    tables.push(table);
    if (!flags.json) printTable(table, referenceName);
  };
  for (const concurrency of concurrencies) add(await measureSmall(generator, targets, concurrency));
  add(await measureStream(generator, targets));
  add(await measureBig(generator, targets));
  return tables;
}

/** What the numbers depend on. A busy machine measures its other work. */
function describeMachine(): { readonly summary: string; readonly isBusy: boolean } {
  const cores = cpus().length;
  const [load = 0] = loadavg();
  const isBusy = load > cores / 2;
  const model = cpus()[0]?.model ?? "unknown processor";
  const warning = isBusy ? ", BUSY: trust no absolute number and few ratios" : "";
  return { summary: `Node ${process.version}, ${cores} cores, ${model}, load ${load.toFixed(1)}${warning}`, isBusy };
}

function applyGate(tables: readonly Table[]): void {
  console.log("");
  for (const { title, reached, limit, isKept } of judgeTables(tables, gateMargin)) {
    console.log(`${isKept ? "kept  " : "BROKEN"} ${reached.toFixed(2)} against ${limit.toFixed(2)}: ${title}`);
    if (!isKept) process.exitCode = 1;
  }
}

async function main(): Promise<void> {
  if (positionals[0] === "memory") {
    if (!(await measureMemory(flags.short))) process.exitCode = 1;
    return;
  }
  if (positionals[0] === "principals") {
    const file = fileURLToPath(new URL("./principals.ts", import.meta.url));
    const { status } = spawnSync(process.execPath, ["--expose-gc", "--import", "tsx", file], { stdio: "inherit" });
    process.exitCode = status ?? 1;
    return;
  }
  const peers = peerTargets();
  const upstream = await startListening("./upstream.ts", { PORT: flags["upstream-port"] });
  const inner = await startListening("./hop.ts", { TARGET: `http://127.0.0.1:${upstream.port}` });
  const outer = await startListening("./hop.ts", { TARGET: `http://127.0.0.1:${inner.port}` });
  const generator = startLoadGenerator();
  const plain = (name: string, port: number, pids: readonly number[]): Target => ({
    name,
    url: `http://127.0.0.1:${port}/mcp`,
    headers: {},
    pids,
  });
  let stack: Stack | undefined;
  try {
    if (!flags["without-postern"]) stack = await startPostern(upstream);
    const targets = isScrub
      ? []
      : [plain("direct", upstream.port, []), plain(referenceName, outer.port, [outer.pid, inner.pid])];
    if (stack !== undefined) {
      const headers = { authorization: `Bearer ${stack.agentKey}` };
      const pids = [stack.relay.pid, stack.gateway()?.pid ?? -1];
      if (isScrub) targets.push({ name: referenceName, url: stack.agentUrl("plain"), headers, pids });
      targets.push({ name: isScrub ? "bearer" : "Postern", url: stack.agentUrl("tickets"), headers, pids });
    }
    const machine = describeMachine();
    if (!flags.json) console.log(`${machine.summary}; ${pace.rounds} rounds`);
    const tables = await measureAll(generator, [...targets, ...peers]);
    if (flags.json) console.log(JSON.stringify({ machine, pace, tables }, undefined, 2));
    if (flags.gate) applyGate(tables);
  } finally {
    await stack?.stop();
    generator.stop();
    for (const child of [outer, inner, upstream]) child.stop();
  }
}

await main();
