import pino from "pino";
import { concealSecrets } from "../lib/index.ts";

/**
 * The only values a log line may carry. A field that is not named here cannot be logged: that is how no header, body
 * or argument ever reaches a log.
 */
export interface LogFields {
  readonly tunnel?: string;
  readonly server?: string;
  readonly gateway?: string;
  readonly principal?: string;
  readonly agent?: string;
  readonly requestId?: string;
  readonly exchangeId?: string;
  readonly streamId?: number;
  readonly connection?: string;
  readonly method?: string;
  readonly status?: number;
  readonly code?: string | number;
  readonly reason?: string;
  /** What a person can do about it. */
  readonly cure?: string;
  readonly durationMs?: number;
  readonly waitMs?: number;
  readonly bytes?: number;
  readonly count?: number;
  readonly address?: string;
  readonly url?: string;
  readonly file?: string;
  readonly signal?: string;
  readonly version?: string;
  readonly store?: string;
  readonly path?: string;
  readonly field?: string;
  /** Places in the code, innermost first. */
  readonly frames?: string;
}

export interface Logger {
  debug(event: string, fields?: LogFields): void;
  info(event: string, fields?: LogFields): void;
  warn(event: string, fields?: LogFields): void;
  error(event: string, fields?: LogFields): void;
  /** A logger whose every line also carries `fields`. */
  with(fields: LogFields): Logger;
}

export type LogLevel = "debug" | "info" | "warn" | "error" | "silent";

const fieldNames: ReadonlySet<string> = new Set<keyof LogFields>([
  "tunnel",
  "server",
  "gateway",
  "principal",
  "agent",
  "requestId",
  "exchangeId",
  "streamId",
  "connection",
  "method",
  "status",
  "code",
  "reason",
  "cure",
  "durationMs",
  "waitMs",
  "bytes",
  "count",
  "address",
  "url",
  "file",
  "signal",
  "version",
  "store",
  "path",
  "field",
  "frames",
]);
const maxTextLength = 2048;

/** Copies only known names with primitive values: what slipped past the types is dropped here. */
function permitted(fields: LogFields): Record<string, string | number> {
  const out: Record<string, string | number> = {};
  for (const [name, value] of Object.entries(fields)) {
    if (!fieldNames.has(name)) continue;
    if (typeof value === "number") out[name] = value;
    else if (typeof value === "string") out[name] = value.slice(0, maxTextLength);
  }
  return out;
}

function wrap(base: pino.Logger): Logger {
  const at =
    (level: "debug" | "info" | "warn" | "error") =>
    (event: string, fields: LogFields = {}): void => {
      base[level](permitted(fields), event);
    };
  return {
    debug: at("debug"),
    info: at("info"),
    warn: at("warn"),
    error: at("error"),
    with: (fields) => wrap(base.child(permitted(fields))),
  };
}

/**
 * JSON lines to `destination`, one per event; levels as words, time as ISO 8601. Each line is searched for every secret that
 * lives in this process before it leaves: the fields should hold none, and this is for the day when one does.
 */
export function createLogger(options: {
  readonly level: LogLevel;
  readonly destination: { write(line: string): void };
}): Logger {
  return wrap(
    pino(
      {
        level: options.level,
        base: null,
        timestamp: pino.stdTimeFunctions.isoTime,
        formatters: { level: (label) => ({ level: label }) },
        serializers: {},
      },
      { write: (line: string) => options.destination.write(concealSecrets(line)) },
    ),
  );
}

export const silentLogger: Logger = createLogger({ level: "silent", destination: { write: () => undefined } });
