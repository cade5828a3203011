/** `postern relay` and `postern gateway`: load the file, start the part, run until a signal. */
import { hostname } from "node:os";
import { parseArgs } from "node:util";
import { setFlagsFromString } from "node:v8";
import { formatProblem, type Loaded, loadGatewayConfig, loadRelayConfig } from "../config/index.ts";
import { formatPosition } from "../lib/index.ts";
import { createLogger, type Logger, type LogLevel } from "../telemetry/index.ts";
import { type Command, type CommandIo, type ExitCode, exitCodes } from "./io.ts";
import { guardProcess } from "./process-guard.ts";
import { type RunningPart, runUntilSignal } from "./run.ts";
import { type RunningGateway, startGateway } from "./start-gateway.ts";
import { type RunningRelay, startRelay } from "./start-relay.ts";

/**
 * V8 inlines 920 bytes of bytecode into a function by itself, and a call's way leads through many small ones. With more room a call
 * that comes alone costs a tenth to a fifth less CPU (docs/performance.md). Where V8 does not know the flag, nothing changes.
 */
const inliningFlag = "--max-inlined-bytecode-size-cumulative=4000";

const logLevels: readonly LogLevel[] = ["debug", "info", "warn", "error"];

export const relay: Command = (args, io) =>
  runPart("relay", args, io, loadRelayConfig, async (config, logger, file) => {
    let part: RunningRelay | undefined;
    let isDue = false;
    // From the first moment: without a listener the signal ends the process.
    process.on("SIGHUP", () => {
      if (part === undefined) isDue = true;
      else reloadRelay(part, file, logger);
    });
    part = await startRelay(config, { nodeId: hostname(), env: io.env, logger });
    if (isDue) reloadRelay(part, file, logger);
    return part;
  });

export const gateway: Command = (args, io) =>
  runPart("gateway", args, io, loadGatewayConfig, async (config, logger) => {
    let part: RunningGateway | undefined;
    // What was opened a moment ago needs no second opening; but without a listener the signal ends the process.
    process.on("SIGHUP", () => part?.reopenAudit());
    part = await startGateway(config, io.env, logger);
    return part;
  });

async function runPart<T>(
  name: string,
  args: readonly string[],
  io: CommandIo,
  load: (file: string) => Loaded<T>,
  start: (config: T, logger: Logger, file: string) => Promise<RunningPart>,
): Promise<ExitCode> {
  const file = readFileArgument(args);
  if (file === undefined) {
    io.err(`usage: postern ${name} -c FILE`);
    return exitCodes.usage;
  }
  const level = readLogLevel(io);
  if (level === undefined) {
    io.err(`POSTERN_LOG_LEVEL must be one of ${logLevels.join(", ")}`);
    return exitCodes.usage;
  }
  setFlagsFromString(inliningFlag);
  const logger = createLogger({ level, destination: process.stderr });
  guardProcess(logger);
  const loaded = load(file);
  if (loaded.kind === "bad") {
    for (const problem of loaded.problems) io.err(formatProblem(problem));
    return exitCodes.usage;
  }
  for (const warning of loaded.warnings) logger.warn(warning.message, { file: warning.at.file, cure: warning.cure });
  try {
    return await runUntilSignal(await start(loaded.config, logger, file), logger);
  } catch (error) {
    logger.error(`${name} did not start`, { reason: describe(error), ...cureOf(error) });
    return exitCodes.failed;
  }
}

/** The whole file or nothing of it: while anything is wrong with it, all stays as it was. */
function reloadRelay(part: RunningRelay, file: string, logger: Logger): void {
  const loaded = loadRelayConfig(file);
  const findings = loaded.kind === "bad" ? loaded.problems : loaded.warnings;
  const log = loaded.kind === "bad" ? logger.error : logger.warn;
  for (const { at, message, cure } of findings) log(message, { file: formatPosition(at), cure });
  if (loaded.kind === "bad") {
    logger.error("not reloaded", { file, count: findings.length, cure: "the file without these problems, and SIGHUP" });
    return;
  }
  try {
    const waiting = part.reload(loaded.config);
    for (const key of waiting) logger.warn("a change needs a restart", { field: key, cure: "restart the relay" });
    logger.info("reloaded", { file });
  } catch (error) {
    logger.error("not reloaded", { file, reason: describe(error) });
  }
}

function readFileArgument(args: readonly string[]): string | undefined {
  try {
    const { values } = parseArgs({ args: [...args], options: { config: { type: "string", short: "c" } } });
    return values.config;
  } catch {
    return undefined;
  }
}

function readLogLevel(io: CommandIo): LogLevel | undefined {
  const wanted = io.env["POSTERN_LOG_LEVEL"] ?? "info";
  return logLevels.find((level) => level === wanted);
}

/** System errors name a code, an address or a path, and nothing else of ours holds a secret in its message. */
function describe(error: unknown): string {
  return error instanceof Error ? error.message : "unknown";
}

const startCures: Readonly<Record<string, string>> = {
  EADDRINUSE: "another process has this address: stop it, or change `listen` or `admin.listen`",
  EADDRNOTAVAIL: "this machine has no such address: correct `listen` or `admin.listen`",
};

function cureOf(error: unknown): { readonly cure?: string } {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  const cure = startCures[code];
  return cure === undefined ? {} : { cure };
}
