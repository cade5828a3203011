/** `postern demo [--once]`: relay, gateway, private server and secret store in one process, and an agent that calls through. */
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { formatProblem, type Loaded, loadGatewayConfig, loadRelayConfig } from "../../config/index.ts";
import { createToken } from "../../identity/index.ts";
import { Secret } from "../../lib/index.ts";
import { createLogger } from "../../telemetry/index.ts";
import { type Command, type CommandIo, type ExitCode, exitCodes } from "../io.ts";
import { runUntilSignal } from "../run.ts";
import { startGateway } from "../start-gateway.ts";
import { startRelay } from "../start-relay.ts";
import { gatewayYaml, policyYaml, relayYaml } from "./files.ts";
import { offeredTools, startPrivateServer } from "./private-server.ts";
import { startSecretStore } from "./secret-store.ts";
import { walkThrough } from "./walkthrough.ts";

const readyWithinMs = 8_000;

export const demo: Command = async (args, io) => {
  const once = readOnce(args);
  if (once === undefined) {
    io.err("usage: postern demo [--once]");
    return exitCodes.usage;
  }
  const folder = mkdtempSync(join(tmpdir(), "postern-demo-"));
  const stops: (() => Promise<void>)[] = [];
  try {
    return await runDemo(folder, once, io, stops);
  } catch (error) {
    io.err(`the demo failed: ${error instanceof Error ? error.message : "unknown"}`);
    return exitCodes.failed;
  } finally {
    for (const stop of stops.toReversed()) await stop();
    rmSync(folder, { recursive: true, force: true });
  }
};

function readOnce(args: readonly string[]): boolean | undefined {
  try {
    return parseArgs({ args: [...args], options: { once: { type: "boolean", default: false } } }).values.once;
  } catch {
    return undefined;
  }
}

async function runDemo(
  folder: string,
  once: boolean,
  io: CommandIo,
  stops: (() => Promise<void>)[],
): Promise<ExitCode> {
  const say = (line: string): void => io.out(line);
  const logger = createLogger({ level: "warn", destination: process.stderr });
  const credential = new Secret(`demo-${randomBytes(24).toString("base64url")}`);
  const storeToken = new Secret(randomBytes(24).toString("base64url"));
  const tunnelToken = createToken("tunnel");
  const agentKey = createToken("agent");

  say("Postern demo: everything on loopback, nothing kept afterwards.\n");
  const server = await startPrivateServer(credential);
  stops.push(() => server.close());
  say(`1. private MCP server at ${server.url}, inside "the network"; it answers nobody without its bearer token`);
  const store = await startSecretStore({ token: storeToken, secrets: { "secret/mcp/tickets": { token: credential } } });
  stops.push(() => store.close());
  say(`2. secret store with Vault's API at ${store.address}; only the gateway may read that token from it`);

  const port = await findFreePort();
  const publicUrl = `http://127.0.0.1:${port}`;
  const write = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text, { mode: 0o600 });
    return join(folder, name);
  };
  write("tunnel-token", tunnelToken.token.reveal());
  write("store-token", storeToken.reveal());
  write("policy.yaml", policyYaml);
  const relayFile = write(
    "relay.yaml",
    relayYaml({ publicUrl, port, tunnelHash: tunnelToken.sha256, agentHash: agentKey.sha256 }),
  );
  const gatewayFile = write("gateway.yaml", gatewayYaml({ port, storeAddress: store.address, serverUrl: server.url }));

  const relay = await startRelay(whole(loadRelayConfig(relayFile)), { nodeId: "demo", env: {}, logger });
  const gateway = await startGateway(whole(loadGatewayConfig(gatewayFile)), io.env, logger);
  stops.push(
    () => relay.stop(500),
    () => gateway.stop(500),
  );
  await untilReady(() => gateway.isReady());
  say(`3. the gateway has dialled out to the relay at ${publicUrl}; the agent knows only a URL below it and a key`);

  const agentUrl = `${publicUrl}/demo/tickets/mcp`;
  const isRight = await walkThrough({
    agentUrl,
    agentKey: agentKey.token.reveal(),
    credential,
    offeredTools,
    say,
  });
  say(isRight ? "\nThe demo did what it should." : "\nThe demo did NOT do what it should.");
  if (once || !isRight) return isRight ? exitCodes.done : exitCodes.failed;

  say(`\nIt stays up until Ctrl-C. Files: ${folder}\n`);
  say(`   URL   ${agentUrl}`);
  say(`   key   ${agentKey.token.reveal()}\n`);
  say("Your own client, for instance:\n");
  say(`   npx @modelcontextprotocol/inspector --cli ${agentUrl} --transport http \\`);
  say(`     --header "Authorization: Bearer ${agentKey.token.reveal()}" --method tools/list\n`);
  return runUntilSignal({ stop: async () => undefined, failed: Promise.race([relay.failed, gateway.failed]) }, logger);
}

function whole<T>(loaded: Loaded<T>): T {
  if (loaded.kind === "ok") return loaded.config;
  throw new Error(loaded.problems.map(formatProblem).join("\n"));
}

/** The gateway's file must name the relay's port before the relay listens; the gap between is harmless on loopback. */
async function findFreePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve, reject) => {
    probe.once("error", reject);
    probe.listen(0, "127.0.0.1", () => resolve());
  });
  const address = probe.address();
  await new Promise<void>((resolve) => probe.close(() => resolve()));
  if (typeof address !== "object" || address === null) throw new Error("no free port");
  return address.port;
}

async function untilReady(isReady: () => boolean): Promise<void> {
  const deadline = performance.now() + readyWithinMs;
  while (!isReady()) {
    if (performance.now() > deadline) throw new Error(`the gateway was not ready within ${readyWithinMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
