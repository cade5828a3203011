/** Builds a gateway with its policy, credentials and admin port from a checked configuration. */
import { readFileSync } from "node:fs";
import { listenAdmin, type StatusSource } from "../admin/index.ts";
import type { GatewayConfig } from "../config/index.ts";
import { CredentialError, type Credentials, createCredentials, credentialMetrics } from "../credentials/index.ts";
import { createGateway, type Gateway, type GatewayStatus, gatewayMetrics } from "../gateway/index.ts";
import { type Secret, systemClock } from "../lib/index.ts";
import { compilePolicy } from "../policy/index.ts";
import { type Logger, processMetrics, renderMetrics } from "../telemetry/index.ts";
import { openAdminToken } from "./admin-token.ts";
import type { CommandIo } from "./io.ts";
import type { RunningPart } from "./run.ts";
import { reportOfGateway } from "./status-documents.ts";
import { checkTunnelToken } from "./tunnel-token.ts";
import { software, version } from "./version.ts";

export interface RunningGateway extends RunningPart {
  readonly adminPort: number;
  isReady(): boolean;
  reopenAudit(): void;
}

/** Rejects when the admin port, a CA file or the audit file cannot be had; nothing is left open then. */
export async function startGateway(
  config: GatewayConfig,
  env: CommandIo["env"],
  logger: Logger,
): Promise<RunningGateway> {
  const shared = { clock: systemClock, random: Math.random, logger };
  const credentials = createCredentials({
    ...shared,
    env,
    vault: config.vault,
    areCallersVerified: config.agents.verify === "edge",
    servers: Object.fromEntries(Object.entries(config.servers).map(([name, { credential }]) => [name, credential])),
  });
  const gateway = createGateway(
    {
      relay: {
        url: config.relay.url,
        tunnel: config.relay.tunnel,
        ca: config.relay.ca === undefined ? undefined : readFileSync(config.relay.ca, "utf8"),
        readToken: () => readToken(credentials, config, logger),
      },
      id: config.gateway.id,
      software,
      servers: config.servers,
      agents: config.agents.verify === "edge" ? config.agents : undefined,
      audit: {
        target: config.audit.file === undefined ? { fd: 1 } : { file: config.audit.file },
        onError: config.audit.onError,
      },
      limits: config.limits,
      timeouts: config.timeouts,
    },
    { ...shared, policy: compilePolicy(config.policy), credentials },
  );
  const { listen, token } = config.admin;
  const admin = await listenAdmin(
    { ...listen, allowedHosts: [listen.host], readToken: openAdminToken(token, env, logger) },
    statusSource(config, gateway, credentials),
  ).catch(async (error: unknown) => {
    await gateway.stop(0);
    await credentials.close();
    throw error;
  });
  gateway.start();
  void credentials.checkAccess();
  logger.info("gateway is dialling", { url: config.relay.url, tunnel: config.relay.tunnel, version: software });
  return {
    adminPort: admin.port,
    failed: new Promise(() => undefined),
    isReady: () => gateway.ready(),
    reopenAudit: () => gateway.reopenAudit(),
    async stop(graceMs) {
      await gateway.stop(graceMs);
      await credentials.close();
      await admin.close();
    },
  };
}

/** Says where a token was looked for and what to do: the supervisor only sees that a dial failed. */
async function readToken(credentials: Credentials, config: GatewayConfig, logger: Logger): Promise<Secret> {
  try {
    return checkTunnelToken(await credentials.read(config.relay.token));
  } catch (error) {
    if (error instanceof CredentialError) {
      const { code, message: reason, cure } = error;
      logger.error("relay.token cannot be used", { tunnel: config.relay.tunnel, code, reason, cure });
    }
    throw error;
  }
}

function statusSource(config: GatewayConfig, gateway: Gateway, credentials: Credentials): StatusSource {
  const startedAt = systemClock.now();
  return {
    readiness: () => readinessOf(gateway.status()),
    metrics: () =>
      renderMetrics([
        ...processMetrics(version, "gateway"),
        ...gatewayMetrics(gateway.status()),
        ...credentialMetrics(credentials.states()),
      ]),
    status: () =>
      reportOfGateway(config.relay, gateway.status(), credentials.states(), {
        software,
        upMs: systemClock.now() - startedAt,
      }),
  };
}

function readinessOf(status: GatewayStatus): { isReady: boolean; detail: Readonly<Record<string, unknown>> } {
  const { state, lastEchoAgoMs, lastProblem } = status.tunnel;
  return {
    isReady: status.isReady,
    detail: { tunnel: state, lastEchoAgoMs, lastProblem, auditWritable: status.audit.isWritable },
  };
}
