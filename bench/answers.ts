import { AnswerFilter } from "../src/gateway/answer-filter.ts";
import { ByteBudget } from "../src/gateway/byte-budget.ts";
import { editLists, MessageSkimmer } from "../src/mcp/index.ts";

/** What judging an answer costs, without any I/O: `npx tsx bench/answers.ts`. */

const noop = (): void => undefined;

const budget = new ByteBudget(Number.POSITIVE_INFINITY);

function filterOf(isEventStream: boolean): AnswerFilter {
  return new AnswerFilter({
    exchange: { method: "POST", idText: "1", era: "legacy" },
    status: 200,
    isEventStream,
    judge: { shows: (_kind, name) => name.endsWith("0"), admitsAsk: () => false, admitsUpdate: () => true },
    hooks: {
      head: noop,
      emit: noop,
      finish: noop,
      fail: ({ reason }) => {
        throw new Error(reason);
      },
      onAsk: noop,
      onAskRefused: noop,
      onDrop: noop,
      errorJson: () => "{}",
    },
    budget,
  });
}

function runAnswer(chunks: readonly Buffer[], isEventStream: boolean): void {
  const filter = filterOf(isEventStream);
  filter.start();
  for (const chunk of chunks) filter.push(chunk);
  filter.end();
}

/** Runs `work` for about a second after a warm-up and prints time per run and throughput. */
function measure(name: string, bytes: number, work: () => void): void {
  const runFor = (ms: number): { runs: number; tookMs: number } => {
    const start = performance.now();
    let runs = 0;
    do {
      for (let i = 0; i < 10; i += 1) work();
      runs += 10;
    } while (performance.now() - start < ms);
    return { runs, tookMs: performance.now() - start };
  };
  runFor(300);
  const { runs, tookMs } = runFor(1000);
  const micros = (tookMs * 1000) / runs;
  console.log(
    `${name.padEnd(44)} ${micros.toFixed(2).padStart(12)} µs ${(bytes / micros).toFixed(0).padStart(8)} MB/s`,
  );
}

function cut(body: Buffer, size: number): Buffer[] {
  const chunks: Buffer[] = [];
  for (let at = 0; at < body.length; at += size) chunks.push(body.subarray(at, at + size));
  return chunks;
}

function resultOf(content: unknown): Buffer {
  return Buffer.from(JSON.stringify({ jsonrpc: "2.0", id: 1, result: { content } }));
}

const text = (bytes: number): unknown => [
  { type: "text", text: "The quick brown fox. ".repeat(Math.ceil(bytes / 21)) },
];
const rows = (count: number): unknown =>
  Array.from({ length: count }, (_, i) => ({ id: i, name: `row ${i}`, tags: ["a", "b"], open: true, ratio: i / 7 }));
const tool = (i: number): unknown => ({
  name: `tool_${i}`,
  description: "Does one thing, and does it well enough to be measured here.",
  inputSchema: { type: "object", properties: { q: { type: "string" }, n: { type: "integer" } }, required: ["q"] },
});
const tools = Buffer.from(
  JSON.stringify({ jsonrpc: "2.0", id: 1, result: { tools: Array.from({ length: 120 }, (_, i) => tool(i)) } }),
);

for (const [name, body] of [
  ["1 KB of text", resultOf(text(950))],
  ["1 KB of rows", resultOf(rows(14))],
  ["1 MB of rows", resultOf(rows(14_000))],
  ["10 MB of text", resultOf(text(10_000_000))],
] as const) {
  measure(`skim, ${name}`, body.length, () => {
    new MessageSkimmer().push(body);
  });
  const chunks = cut(body, 64 * 1024);
  measure(`JSON answer, ${name}`, body.length, () => runAnswer(chunks, false));
  const stream = Buffer.concat([Buffer.from("event: message\ndata: "), body, Buffer.from("\n\n")]);
  const parts = cut(stream, 64 * 1024);
  measure(`event stream, ${name}`, stream.length, () => runAnswer(parts, true));
}
measure("edit, 120 tools, 12 stay", tools.length, () => {
  editLists(tools, (_kind, name) => name.endsWith("0"));
});
measure("JSON answer, 120 tools, 12 stay", tools.length, () => runAnswer([tools], false));
