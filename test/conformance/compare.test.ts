import { describe, expect, it } from "vitest";
import { type Check, compareChecks, countChecks } from "./compare.ts";

const check = (status: string, name = "N", id = "a"): Check => ({ scenario: "s", id, name, status });

describe("compareChecks", () => {
  it("finds nothing in equal runs, whatever their order", () => {
    const first = [check("SUCCESS"), check("FAILURE", "M")];
    expect(compareChecks(first, [...first].reverse())).toEqual([]);
  });

  it("ignores INFO rows", () => {
    expect(compareChecks([check("SUCCESS"), check("INFO")], [check("SUCCESS")])).toEqual([]);
  });

  it("names a check whose status differs, on both sides", () => {
    const differences = compareChecks([check("SUCCESS")], [check("FAILURE")]);
    expect(differences).toMatchObject([
      { status: "FAILURE", direct: 0, through: 1 },
      { status: "SUCCESS", direct: 1, through: 0 },
    ]);
  });

  it("sees that a check which repeats was made once less", () => {
    const differences = compareChecks([check("SUCCESS"), check("SUCCESS")], [check("SUCCESS")]);
    expect(differences).toMatchObject([{ direct: 2, through: 1 }]);
  });

  it("keeps checks apart that share an id", () => {
    const direct = [check("SUCCESS", "M"), check("FAILURE", "N")];
    const through = [check("FAILURE", "M"), check("SUCCESS", "N")];
    expect(compareChecks(direct, through)).toHaveLength(4);
  });

  it("does not call a run equal that checked nothing", () => {
    expect(compareChecks([check("SUCCESS")], [])).toHaveLength(1);
  });
});

describe("countChecks", () => {
  it("counts successes and failures only", () => {
    const checks = [check("SUCCESS"), check("SUCCESS"), check("FAILURE"), check("WARNING"), check("INFO")];
    expect(countChecks(checks)).toEqual({ passed: 2, failed: 1 });
  });
});
