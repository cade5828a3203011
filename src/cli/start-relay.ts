/** Builds a relay with its admin port from a checked configuration. The command and the demo both start here. */
import { isDeepStrictEqual } from "node:util";
import { listenAdmin } from "../admin/index.ts";
import type { RelayConfig } from "../config/index.ts";
import { systemClock } from "../lib/index.ts";
import { createRelay, fixedLimits } from "../relay/index.ts";
import type { Logger } from "../telemetry/index.ts";
import type { RunningPart } from "./run.ts";
import { software } from "./version.ts";

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
export async function startRelay(config: RelayConfig, nodeId: string, logger: Logger): Promise<RunningRelay> {
  const relay = createRelay(
    { ...config, node: { id: nodeId, software } },
    { clock: systemClock, random: Math.random, logger },
  );
  const admin = await listenAdmin({ ...config.admin.listen, allowedHosts: [] }, relay);
  try {
    logger.info("relay starts", { url: config.publicUrl, version: software });
    const { port } = await relay.listen();
    return {
      port,
      adminPort: admin.port,
      failed: new Promise(() => undefined),
      reload(next) {
        relay.reload(next);
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
