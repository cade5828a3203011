import { parseArgs } from "node:util";
import { formatProblem, type GatewayConfig, loadAny, type Problem } from "../config/index.ts";
import { CredentialError } from "../credentials/index.ts";
import { type CallerPath, callerPaths } from "./caller-paths.ts";
import { type Command, type CommandIo, type ExitCode, exitCodes } from "./io.ts";

const usage = "usage: postern check -c FILE [--principal ID] [--json]";

interface Options {
  readonly file: string;
  readonly isJson: boolean;
  readonly principal: string | undefined;
}

/**
 * `postern check -c FILE`: says everything that is wrong with one of the three files. Connects to nothing. With `--principal ID`
 * it also prints where in the store this principal's own secrets belong.
 */
export const check: Command = async (args, io) => {
  const options = readOptions(args);
  if (options === undefined) {
    io.err(usage);
    return exitCodes.usage;
  }
  return report(options, io);
};

function readOptions(args: readonly string[]): Options | undefined {
  try {
    const { values, positionals } = parseArgs({
      args: [...args],
      options: {
        config: { type: "string", short: "c" },
        principal: { type: "string" },
        json: { type: "boolean", default: false },
      },
      allowPositionals: true,
    });
    // A bare FILE is taken as well: there is nothing else that it could mean.
    const files = [...positionals, ...(values.config === undefined ? [] : [values.config])];
    const [file] = files;
    return file === undefined || files.length > 1
      ? undefined
      : { file, isJson: values.json, principal: values.principal };
  } catch {
    return undefined;
  }
}

function report({ file, isJson, principal }: Options, io: CommandIo): ExitCode {
  const { document, loaded } = loadAny(file);
  const problems = loaded.kind === "bad" ? loaded.problems : [];
  const warnings = loaded.kind === "ok" ? loaded.warnings : [];
  let paths: readonly CallerPath[] | undefined;
  if (principal !== undefined) {
    const found = findPaths(document, loaded, principal);
    if (typeof found === "string") {
      io.err(found);
      return exitCodes.usage;
    }
    paths = found;
  }
  if (isJson) {
    const flat = { file, document: document ?? null, ok: problems.length === 0 };
    io.out(JSON.stringify({ ...flat, problems: problems.map(flatten), warnings: warnings.map(flatten), paths }));
  } else {
    for (const problem of problems) io.out(formatProblem(problem));
    for (const warning of warnings) io.out(formatProblem({ ...warning, message: `warning: ${warning.message}` }));
    io.out(problems.length === 0 ? `${file}: a ${document} file without faults` : countProblems(file, problems.length));
    for (const { server, mount, path } of paths ?? []) io.out(`${server}: mount ${mount}, path ${path}`);
    if (paths?.length === 0) io.out("no secret depends on the principal");
  }
  return problems.length === 0 ? exitCodes.done : exitCodes.usage;
}

/** Undefined where the file is no sound gateway.yaml; a text that says what is wrong with the id. */
function findPaths(
  document: string | undefined,
  loaded: ReturnType<typeof loadAny>["loaded"],
  id: string,
): CallerPath[] | string | undefined {
  if (loaded.kind === "bad") return undefined;
  if (document !== "gateway") return "--principal belongs to a gateway file";
  if (!/^(?:key|oauth):./s.test(id))
    return "--principal is key:<name> or oauth:<issuer>#<sub>, as the audit log has it";
  try {
    return callerPaths(loaded.config as GatewayConfig, id);
  } catch (error) {
    if (error instanceof CredentialError) return `--principal: ${error.message}`;
    throw error;
  }
}

function countProblems(file: string, count: number): string {
  return `${file}: ${count} ${count === 1 ? "problem" : "problems"}`;
}

function flatten({ at, message, cure }: Problem) {
  return { file: at.file, line: at.line, column: at.column, message, cure };
}
