import { parseArgs } from "node:util";
import {
  formatProblem,
  type GatewayConfig,
  type Loaded,
  loadAny,
  loadGatewayConfig,
  loadRelayConfig,
  type Problem,
  type RelayConfig,
} from "../config/index.ts";
import type { CommandIo } from "./io.ts";

export type Part =
  | { readonly kind: "gateway"; readonly config: GatewayConfig; readonly warnings: readonly Problem[] }
  | { readonly kind: "relay"; readonly config: RelayConfig; readonly warnings: readonly Problem[] };

export interface PartOptions {
  readonly file: string;
  readonly isJson: boolean;
}

/**
 * What `-c FILE [--json]` names, for commands that look at one part. Undefined once it has said what is wrong with the arguments
 * or the file; then the exit code is that of bad usage.
 */
export function openPart(
  args: readonly string[],
  usage: string,
  io: CommandIo,
): { readonly part: Part; readonly options: PartOptions } | undefined {
  const options = readOptions(args);
  if (options === undefined) {
    io.err(usage);
    return undefined;
  }
  const part = loadPart(options.file);
  if (part.kind !== "bad") return { part, options };
  for (const problem of part.problems) io.err(formatProblem(problem));
  return undefined;
}

function readOptions(args: readonly string[]): PartOptions | undefined {
  try {
    const { values } = parseArgs({
      args: [...args],
      options: { config: { type: "string", short: "c" }, json: { type: "boolean", default: false } },
    });
    return values.config === undefined ? undefined : { file: values.config, isJson: values.json };
  } catch {
    return undefined;
  }
}

/** The gateway's or the relay's file, whichever it is; a policy alone is neither. */
function loadPart(file: string): Part | { readonly kind: "bad"; readonly problems: readonly Problem[] } {
  const { document, loaded } = loadAny(file);
  if (document === "gateway") return name("gateway", loadGatewayConfig(file));
  if (document === "relay") return name("relay", loadRelayConfig(file));
  if (loaded.kind === "bad") return loaded;
  const at = { file, line: 1, column: 1 };
  return { kind: "bad", problems: [{ at, message: "this is a policy", cure: "the gateway's file, which names it" }] };
}

function name<K extends "gateway" | "relay", T>(kind: K, loaded: Loaded<T>) {
  if (loaded.kind === "bad") return loaded;
  return { kind, config: loaded.config, warnings: loaded.warnings } as const;
}
