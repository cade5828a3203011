import { parseArgs } from "node:util";
import { formatProblem, loadAny, type Problem } from "../config/index.ts";
import { type Command, type CommandIo, type ExitCode, exitCodes } from "./io.ts";

const usage = "usage: postern check -c FILE [--json]";

/** `postern check -c FILE`: says everything that is wrong with one of the three files. Connects to nothing. */
export const check: Command = async (args, io) => {
  const options = readOptions(args);
  if (options === undefined) {
    io.err(usage);
    return exitCodes.usage;
  }
  return report(options.file, options.isJson, io);
};

function readOptions(args: readonly string[]): { readonly file: string; readonly isJson: boolean } | undefined {
  try {
    const { values, positionals } = parseArgs({
      args: [...args],
      options: { config: { type: "string", short: "c" }, json: { type: "boolean", default: false } },
      allowPositionals: true,
    });
    // A bare FILE is taken as well: there is nothing else that it could mean.
    const files = [...positionals, ...(values.config === undefined ? [] : [values.config])];
    const [file] = files;
    return file === undefined || files.length > 1 ? undefined : { file, isJson: values.json };
  } catch {
    return undefined;
  }
}

function report(file: string, isJson: boolean, io: CommandIo): ExitCode {
  const { document, loaded } = loadAny(file);
  const problems = loaded.kind === "bad" ? loaded.problems : [];
  const warnings = loaded.kind === "ok" ? loaded.warnings : [];
  if (isJson) {
    const flat = { file, document: document ?? null, ok: problems.length === 0 };
    io.out(JSON.stringify({ ...flat, problems: problems.map(flatten), warnings: warnings.map(flatten) }));
  } else {
    for (const problem of problems) io.out(formatProblem(problem));
    for (const warning of warnings) io.out(formatProblem({ ...warning, message: `warning: ${warning.message}` }));
    io.out(problems.length === 0 ? `${file}: a ${document} file without faults` : countProblems(file, problems.length));
  }
  return problems.length === 0 ? exitCodes.done : exitCodes.usage;
}

function countProblems(file: string, count: number): string {
  return `${file}: ${count} ${count === 1 ? "problem" : "problems"}`;
}

function flatten({ at, message, cure }: Problem) {
  return { file: at.file, line: at.line, column: at.column, message, cure };
}
