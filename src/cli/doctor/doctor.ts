import type { GatewayConfig } from "../../config/index.ts";
import { CredentialError, type Credentials, createCredentials } from "../../credentials/index.ts";
import { concealSecrets, systemClock } from "../../lib/index.ts";
import { silentLogger } from "../../telemetry/index.ts";
import { type Command, type CommandIo, type ExitCode, exitCodes } from "../io.ts";
import { openPart, type Part, type PartOptions } from "../load-part.ts";
import { printable } from "../printable.ts";
import { gatewayStages } from "./gateway-stages.ts";
import { relayStages } from "./relay-stages.ts";
import { runStages, type Stage, type StageResult } from "./stages.ts";

const usage = "usage: postern doctor -c FILE [--json]";

/** `postern doctor -c FILE`: tries what the part will need, stage by stage, beside a part that may be running. */
export const doctor: Command = async (args, io) => {
  const opened = openPart(args, usage, io);
  if (opened === undefined) return exitCodes.usage;
  const { part, options } = opened;
  return await diagnose(part, options, io);
};

async function diagnose(part: Part, { file, isJson }: PartOptions, io: CommandIo): Promise<ExitCode> {
  let credentials: Credentials | undefined;
  try {
    credentials = part.kind === "gateway" ? openCredentials(part.config, io) : undefined;
    const stages =
      part.kind === "gateway" && credentials !== undefined
        ? gatewayStages(part.config, credentials)
        : part.kind === "relay"
          ? relayStages(part.config)
          : [];
    const width = Math.max(...[configStage(part), ...stages].map(({ name }) => name.length));
    const results = await runStages([configStage(part), ...stages], (result) => {
      if (!isJson) for (const line of linesOf(result, width)) io.out(line);
    });
    return conclude(part, file, results, isJson, io);
  } catch (error) {
    if (!(error instanceof CredentialError)) throw error;
    io.err(error.message);
    io.err(`cure: ${error.cure}`);
    return exitCodes.usage;
  } finally {
    // A token that the doctor was granted ends with it.
    await credentials?.close();
  }
}

/** A copy of the environment, since what is read as a secret is taken out of it. */
function openCredentials(config: GatewayConfig, io: CommandIo): Credentials {
  const servers = Object.entries(config.servers).map(([name, { credential }]) => [name, credential] as const);
  return createCredentials({
    vault: config.vault,
    servers: Object.fromEntries(servers),
    areCallersVerified: config.agents.verify === "edge",
    clock: systemClock,
    random: Math.random,
    logger: silentLogger,
    env: { ...io.env },
  });
}

function configStage(part: Part): Stage {
  const { kind, warnings } = part;
  const count = kind === "gateway" ? Object.keys(part.config.servers).length : Object.keys(part.config.tunnels).length;
  const noun = kind === "gateway" ? "servers" : "tunnels";
  const remarks = warnings.length === 0 ? "" : `; ${warnings.length} warnings: postern check says which`;
  return { name: "config", run: () => Promise.resolve(`a ${kind}'s, ${noun}: ${count}${remarks}`) };
}

/** For people. Details quote what the relay calls itself, and why it refuses. */
export function linesOf({ name, state, detail, cure }: StageResult, width: number): string[] {
  const line = `${state.padEnd(8)}${name.padEnd(width)}  ${detail}`;
  return (cure === undefined ? [line] : [line, `${" ".repeat(10 + width)}cure: ${cure}`]).map(printable);
}

function conclude(part: Part, file: string, results: readonly StageResult[], isJson: boolean, io: CommandIo): ExitCode {
  const count = (state: StageResult["state"]): number => results.filter((result) => result.state === state).length;
  const isWell = count("failed") === 0;
  if (isJson) io.out(concealSecrets(JSON.stringify({ file, part: part.kind, ok: isWell, stages: results })));
  else io.out(`${file}: ${count("ok")} ok, ${count("failed")} failed, ${count("skipped")} skipped`);
  return isWell ? exitCodes.done : exitCodes.failed;
}
