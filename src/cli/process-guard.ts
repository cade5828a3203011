/**
 * What Node does by itself when something goes wrong, or when a signal comes, shows memory, environment and messages to
 * whoever reads the output. In the long-running commands it goes through our logger, or does not happen.
 *
 * 1. An error that nobody caught ends the process, as by default; of it the log has the kind, the code and the frames, never the
 *    message, which may quote anything.
 * 2. No signal opens the inspector or writes a heap snapshot or a report.
 */
import type { Logger } from "../telemetry/index.ts";
import { exitCodes } from "./io.ts";

const maxFrames = 8;
/** Of `--heapsnapshot-signal` and `--report-signal`; SIGUSR1 opens the inspector unless somebody listens for it. */
const debugSignals = ["SIGUSR1", "SIGUSR2"] as const;
/** Switches of Node that show more than anybody should see; `DEBUG` and `NODE_DEBUG` print what libraries think useful. */
const tellingSwitches =
  /--(?:inspect|heapsnapshot|heap-prof|report-|abort-on-uncaught|tls-keylog|trace-(?:tls|uncaught|event)|diagnostic-dir)[\w-]*/g;

/** Call it once, before the configuration is read. */
export function guardProcess(logger: Logger): void {
  silenceReports();
  for (const signal of debugSignals) {
    process.removeAllListeners(signal);
    process.on(signal, () => logger.warn("signal ignored", { signal }));
  }
  process.removeAllListeners("warning");
  process.on("warning", (warning) => logger.warn("process warning", traceOf(warning)));
  const end = (error: unknown): void => {
    logger.error("unexpected error, ending", traceOf(error));
    process.exit(exitCodes.failed);
  };
  process.on("uncaughtException", end);
  process.on("unhandledRejection", end);
  warnOfSwitches(logger);
}

/** A diagnostic report holds the whole environment and the messages of errors. */
function silenceReports(): void {
  const { report } = process;
  report.reportOnFatalError = false;
  report.reportOnSignal = false;
  report.reportOnUncaughtException = false;
  // Not in Node 20.
  if ("excludeEnv" in report) report.excludeEnv = true;
}

function warnOfSwitches(logger: Logger): void {
  const given = [...process.execArgv, process.env["NODE_OPTIONS"] ?? ""].join(" ");
  const names = new Set(given.match(tellingSwitches) ?? []);
  for (const name of ["DEBUG", "NODE_DEBUG"]) if ((process.env[name] ?? "") !== "") names.add(name);
  for (const name of names) {
    logger.warn("a debugging switch is on, which may show secrets", { field: name, cure: `start without ${name}` });
  }
}

/** What may be told of an error that we know nothing of. */
function traceOf(error: unknown): { readonly reason: string; readonly code?: string; readonly frames?: string } {
  if (!(error instanceof Error)) return { reason: typeof error };
  const code = "code" in error && isWord(error.code) ? { code: error.code } : {};
  const frames = framesOf((error.stack ?? "").replace(error.message, ""));
  return {
    reason: isWord(error.name) ? error.name : "Error",
    ...code,
    ...(frames === "" ? {} : { frames }),
  };
}

function isWord(text: unknown): text is string {
  return typeof text === "string" && /^\w{1,64}$/.test(text);
}

/** Files of ours and of Node with line and column, innermost first; a line of the message is none, however it looks. */
function framesOf(stack: string): string {
  const frames = stack.matchAll(
    /^ {4}at (?:[^\n]*?\()?(?:file:\/\/[^\n]*\/dist\/|(?=node:))([\w./:-]{1,120}:\d+:\d+)\)?$/gm,
  );
  return [...frames]
    .slice(0, maxFrames)
    .map(([, frame]) => frame)
    .join(" < ");
}
