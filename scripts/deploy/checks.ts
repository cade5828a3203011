/** Counts checks as they run; a check that throws has failed. */
export class Checks {
  passed = 0;
  failed = 0;
  skipped = 0;

  async check(name: string, act: () => void | Promise<void>): Promise<void> {
    try {
      await act();
      this.passed += 1;
      console.log(`ok    ${name}`);
    } catch (error) {
      this.failed += 1;
      console.log(`FAIL  ${name}\n      ${message(error).replaceAll("\n", "\n      ")}`);
    }
  }

  /** What cannot be shown here: a failure where nothing may be left out. */
  leaveOut(name: string, isFailure: boolean): void {
    if (isFailure) this.failed += 1;
    else this.skipped += 1;
    console.log(`${isFailure ? "FAIL  LEFT OUT" : "LEFT OUT"}: ${name}`);
  }
}

export function expect(isTrue: boolean, otherwise: string): void {
  if (!isTrue) throw new Error(otherwise);
}

function message(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const output = (error as { stderr?: unknown }).stderr;
  return typeof output === "string" && output !== "" ? `${error.message}\n${output}` : error.message;
}
