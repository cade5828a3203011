/** What one target did in one test, over all rounds. */
export interface Row {
  readonly target: string;
  /** Medians over the rounds. */
  readonly perSecond: number;
  readonly medianMs: number;
  readonly p99Ms: number;
  /** Lowest and highest `perSecond` of a round. */
  readonly lowest: number;
  readonly highest: number;
  /** CPU of the processes in the middle, user and system, per call; undefined where nobody is in the middle. */
  readonly cpuUsPerCall: number | undefined;
  /** Against the target of reference: above 1 is better. */
  readonly ratio: number | undefined;
}

export interface Table {
  readonly title: string;
  readonly unit: "calls/s" | "MB/s" | "ms";
  readonly rows: readonly Row[];
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle] ?? 0;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? 0) + upper) / 2;
}

const number = (value: number, digits: number): string =>
  value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });

export function printTable({ title, unit, rows }: Table, reference: string): void {
  const isTime = unit === "ms";
  console.log(`\n${title}`);
  const heads = [...(isTime ? [] : [unit]), "median ms", "p99 ms", "CPU µs/call", "spread"];
  console.log(`  ${"".padEnd(14)}${heads.map((name) => name.padStart(14)).join("")}${`to ${reference}`.padStart(18)}`);
  for (const row of rows) {
    const spread = `${number(row.lowest, isTime ? 2 : 0)}–${number(row.highest, isTime ? 2 : 0)}`;
    const cpu = row.cpuUsPerCall === undefined ? "-" : number(row.cpuUsPerCall, 0);
    const cells = [number(row.medianMs, 2), number(row.p99Ms, 2), cpu, spread];
    if (!isTime) cells.unshift(number(row.perSecond, 0));
    const ratio = row.ratio === undefined ? "-" : `${number(row.ratio, 2)}x`;
    console.log(`  ${row.target.padEnd(14)}${cells.map((cell) => cell.padStart(14)).join("")}${ratio.padStart(18)}`);
  }
}
