import type { Table } from "./report.ts";

/** What Postern must reach against two plain hops in the same run, as a ratio where above 1 is better. */
interface Limit {
  readonly title: RegExp;
  readonly ratio: number;
}

const limits: readonly Limit[] = [
  // A median that is at most 1.2 times theirs.
  { title: /^small tools\/call, 1 in parallel/, ratio: 1 / 1.2 },
  { title: /^small tools\/call, 32 in parallel/, ratio: 1 },
  { title: /^small tools\/call, 128 in parallel/, ratio: 1 },
  { title: /^a result of 100 MiB/, ratio: 0.4 },
];

export interface Verdict {
  readonly title: string;
  readonly reached: number;
  readonly limit: number;
  readonly isKept: boolean;
}

/**
 * Judges the tables; a table without a limit has no verdict. `margin` is the part of a limit that noise may cost: on two
 * shared cores the same ratio was seen to vary by a third between runs.
 */
export function judgeTables(tables: readonly Table[], margin: number): Verdict[] {
  return limits.map(({ title, ratio }) => {
    const table = tables.find((one) => title.test(one.title));
    const reached = table?.rows.find(({ target }) => target === "Postern")?.ratio;
    if (table === undefined || reached === undefined) throw new Error(`no ratio for ${title.source}`);
    const limit = ratio * (1 - margin);
    return { title: table.title, reached, limit, isKept: reached >= limit };
  });
}
