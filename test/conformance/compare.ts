/** One check of the conformance suite. Ids repeat within a scenario, so the name belongs to its identity. */
export interface Check {
  readonly scenario: string;
  readonly id: string;
  readonly name: string;
  readonly status: string;
  readonly errorMessage?: string;
}

export interface Difference {
  readonly scenario: string;
  readonly id: string;
  readonly name: string;
  readonly status: string;
  /** How often it was seen on each side. */
  readonly direct: number;
  readonly through: number;
  readonly errorMessage?: string;
}

const judged = (check: Check): boolean => check.status !== "INFO";

export function countChecks(checks: readonly Check[]): { readonly passed: number; readonly failed: number } {
  const of = (status: string): number => checks.filter((check) => check.status === status).length;
  return { passed: of("SUCCESS"), failed: of("FAILURE") };
}

/** Every (scenario, id, name, status) that the two runs did not see equally often, without INFO rows, sorted. */
export function compareChecks(direct: readonly Check[], through: readonly Check[]): Difference[] {
  const seen = new Map<string, Difference>();
  const count = (check: Check, side: "direct" | "through"): void => {
    const { scenario, id, name, status, errorMessage } = check;
    const key = JSON.stringify([scenario, id, name, status]);
    const before = seen.get(key) ?? { scenario, id, name, status, direct: 0, through: 0 };
    const message = before.errorMessage ?? errorMessage;
    seen.set(key, {
      ...before,
      [side]: before[side] + 1,
      ...(message === undefined ? {} : { errorMessage: message }),
    });
  };
  for (const check of direct.filter(judged)) count(check, "direct");
  for (const check of through.filter(judged)) count(check, "through");
  return [...seen.entries()]
    .filter(([, entry]) => entry.direct !== entry.through)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([, entry]) => entry);
}
