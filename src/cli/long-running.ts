/** `postern relay` and `postern gateway`: load the file, start the part, run until a signal. */
import { hostname } from "node:os";
import { parseArgs } from "node:util";
import { formatProblem, type Loaded, loadGatewayConfig, loadRelayConfig } from "../config/index.ts";
import { createLogger, type Logger, type LogLevel } from "../telemetry/index.ts";
import { type Command, type CommandIo, type ExitCode, exitCodes } from "./io.ts";
import { type RunningPart, runUntilSignal } from "./run.ts";
import { startGateway } from "./start-gateway.ts";
import { startRelay } from "./start-relay.ts";

const logLevels: readonly LogLevel[] = ["debug", "info", "warn", "error"];

export const relay: Command = (args, io) =>
  runPart("relay", args, io, loadRelayConfig, (config, logger) => startRelay(config, hostname(), logger));

export const gateway: Command = (args, io) =>
  runPart("gateway", args, io, loadGatewayConfig, async (config, logger) => {
    const part = await startGateway(config, io.env, logger);
    process.on("SIGHUP", () => part.reopenAudit());
    return part;
  });

async function runPart<T>(
  name: string,
  args: readonly string[],
  io: CommandIo,
  load: (file: string) => Loaded<T>,
  start: (config: T, logger: Logger) => Promise<RunningPart>,
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
  const loaded = load(file);
  if (loaded.kind === "bad") {
    for (const problem of loaded.problems) io.err(formatProblem(problem));
    return exitCodes.usage;
  }
  const logger = createLogger({ level, destination: process.stderr });
  for (const warning of loaded.warnings) logger.warn(warning.message, { file: warning.at.file, cure: warning.cure });
  try {
    return await runUntilSignal(await start(loaded.config, logger), logger);
  } catch (error) {
    logger.error(`${name} did not start`, { reason: describe(error) });
    return exitCodes.failed;
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
