/** Builds a relay with its admin port from a checked configuration. The command and the demo both start here. */
import { isDeepStrictEqual } from "node:util";
import { listenAdmin, type StatusSource } from "../admin/index.ts";
import type { RelayConfig } from "../config/index.ts";
import { systemClock } from "../lib/index.ts";
import { createRelay, fixedLimits, type Relay, relayMetrics } from "../relay/index.ts";
import { type Logger, processMetrics, renderMetrics } from "../telemetry/index.ts";
import { openAdminToken } from "./admin-token.ts";
import type { CommandIo } from "./io.ts";
import type { RunningPart } from "./run.ts";
import { reportOfRelay } from "./status-documents.ts";
import { software, version } from "./version.ts";

export interface RunningRelay extends RunningPart {
  readonly port: number;
  readonly adminPort: number;
  /** Takes up what a running relay can; throws, and changes nothing, when that cannot be. Gives the keys that wait for a restart. */
  reload(config: RelayConfig): readonly string[];
}

/** Sections of relay.yaml that are read at the start only. */
const fixedSections = ["listen", "admin"] as const;

/** Keys that differ between the file at the start and the file now, and that a running relay does not take up. */
function waitingKeys(next: RelayConfig, started: RelayConfig): readonly string[] {
  const sections = fixedSections.filter((key) => !isDeepStrictEqual(next[key], started[key]));
  const limits = fixedLimits.filter((key) => next.limits[key] !== started.limits[key]);
  return [...sections, ...limits.map((key) => `limits.${key}`)];
}

/** Rejects with the system's error when a port cannot be had; nothing is left open then. */
export async function startRelay(
  config: RelayConfig,
  { nodeId, env, logger }: { readonly nodeId: string; readonly env: CommandIo["env"]; readonly logger: Logger },
): Promise<RunningRelay> {
  const relay = createRelay(
    { ...config, node: { id: nodeId, software } },
    { clock: systemClock, random: Math.random, logger },
  );
  const { listen, token } = config.admin;
  let { publicUrl } = config;
  const admin = await listenAdmin(
    { ...listen, allowedHosts: [listen.host], readToken: openAdminToken(token, env, logger) },
    statusSource(() => publicUrl, relay),
  );
  try {
    logger.info("relay starts", { url: config.publicUrl, version: software });
    const { port } = await relay.listen();
    return {
      port,
      adminPort: admin.port,
      failed: new Promise(() => undefined),
      reload(next) {
        relay.reload(next);
        publicUrl = next.publicUrl;
        return waitingKeys(next, config);
      },
      // Readiness is answered to the last, so that a load balancer sees the relay go.
      async stop(graceMs) {
        await relay.drain(graceMs);
        await relay.close();
        await admin.close();
      },
    };
  } catch (error) {
    await admin.close();
    throw error;
  }
}

function statusSource(publicUrl: () => string, relay: Relay): StatusSource {
  const startedAt = systemClock.now();
  return {
    readiness: () => relay.readiness(),
    metrics: () => renderMetrics([...processMetrics(version, "relay"), ...relayMetrics(relay.status())]),
    status: () => reportOfRelay(publicUrl(), relay.status(), { software, upMs: systemClock.now() - startedAt }),
  };
}
