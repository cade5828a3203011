import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createGateway, type Gateway } from "../../src/gateway/index.ts";
import { createToken } from "../../src/identity/index.ts";
import { systemClock } from "../../src/lib/index.ts";
import { compilePolicy } from "../../src/policy/index.ts";
import { createRelay, type Relay, type RelayOptions } from "../../src/relay/index.ts";
import { silentLogger } from "../../src/telemetry/index.ts";
import { dialTunnel, type KeepaliveOptions } from "../../src/tunnel/index.ts";
import { bearer, openPolicy } from "../gateway/harness.ts";
import { type Shim, startShim } from "./shim.ts";
import { until } from "./until.ts";

/**
 * Relay and gateway in this process, on real sockets, with the TCP shim between them: for deadlines that the files do not set and
 * that a test must shorten.
 */
export interface Path {
  readonly relay: Relay;
  /** The first, where there are several. */
  readonly gateway: Gateway;
  readonly shim: Shim;
  readonly port: number;
  readonly url: string;
  readonly agentKey: string;
  stop(): Promise<void>;
}

export async function startPath(options: {
  readonly upstreamUrl: string;
  readonly relayTimeouts?: RelayOptions["timeouts"];
  readonly gatewayTimeouts?: { readonly firstByteMs?: number; readonly idleMs?: number };
  readonly keepalive?: KeepaliveOptions;
  /** Gateways of one tunnel and token; default 1. */
  readonly replicas?: number;
}): Promise<Path> {
  const [tunnelToken, agentToken] = [createToken("tunnel"), createToken("agent")];
  const deps = { clock: systemClock, random: Math.random, logger: silentLogger };
  const relay = createRelay(
    {
      listen: { host: "127.0.0.1", port: 0 },
      publicUrl: "http://127.0.0.1",
      allowedHosts: ["127.0.0.1"],
      allowedOrigins: [],
      tunnels: {
        acme: {
          gateways: [{ name: "edge", tokenSha256: [tunnelToken.sha256] }],
          agents: [{ name: "tester", keySha256: [agentToken.sha256], servers: ["*"] }],
        },
      },
      ...(options.relayTimeouts === undefined ? {} : { timeouts: options.relayTimeouts }),
    },
    deps,
  );
  const { port } = await relay.listen();
  const shim = await startShim(port);
  const dir = mkdtempSync(join(tmpdir(), "postern-path-"));
  const { keepalive } = options;
  const create = (id: string): Gateway =>
    createGateway(
      {
        relay: { url: `ws://127.0.0.1:${shim.port}`, tunnel: "acme", readToken: () => tunnelToken.token },
        id,
        software: "postern/test",
        servers: { tickets: { url: options.upstreamUrl } },
        audit: { target: { file: join(dir, `${id}.jsonl`) }, onError: "deny" },
        timeouts: options.gatewayTimeouts,
      },
      {
        ...deps,
        // The wait before a dial is short.
        random: () => 0.05,
        policy: compilePolicy(openPolicy),
        credentials: { forServer: () => bearer },
        dial: (dial) => dialTunnel(keepalive === undefined ? dial : { ...dial, keepalive }),
      },
    );
  const gateway = create("edge-1");
  const others = Array.from({ length: (options.replicas ?? 1) - 1 }, (_, i) => create(`edge-${i + 2}`));
  for (const one of [gateway, ...others]) one.start();
  await until(() => [gateway, ...others].every((one) => one.ready()), "the tunnels stand");
  return {
    relay,
    gateway,
    shim,
    port,
    url: `http://127.0.0.1:${port}/acme/tickets/mcp`,
    agentKey: agentToken.token.reveal(),
    stop: async () => {
      for (const one of [gateway, ...others]) await one.stop(0);
      await relay.close();
      await shim.close();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}
