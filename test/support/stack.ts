import { createHash, randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { stringify } from "yaml";
import { type Child, startChild } from "./child.ts";
import { noteRelay, noteSecret, searchEverything } from "./known-secrets.ts";
import { until } from "./until.ts";

const binary = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));
const readyWithinMs = 15_000;

type Document = Readonly<Record<string, unknown>>;

export interface StackOptions {
  /** The `servers` section of gateway.yaml. `{ file: "x" }` sources name a key of `secretFiles`. */
  readonly servers: Document;
  /** The `servers` section of policy.yaml. */
  readonly policy: Document;
  /** File name → content, written beside gateway.yaml with mode 0600. */
  readonly secretFiles?: Readonly<Record<string, string>>;
  /** The `vault` section of gateway.yaml. */
  readonly vault?: Document;
  /** What the agent believes to talk to; default is the relay's own address. */
  readonly publicUrl?: string;
  /** Environment of the gateway process. */
  readonly env?: Readonly<Record<string, string>>;
  /** Environment of the relay process. */
  readonly relayEnv?: Readonly<Record<string, string>>;
  /** More keys for the files. */
  readonly relayYaml?: Document;
  readonly gatewayYaml?: Document;
  /** The source of `admin.token`, for each part. */
  readonly adminTokens?: { readonly relay?: Document; readonly gateway?: Document };
  /** Servers of the agent; default all. */
  readonly agentServers?: readonly string[];
  /** More tunnels at the relay, by name. */
  readonly extraTunnels?: Readonly<Record<string, MintedToken>>;
  /** Agents of those tunnels, as relay.yaml has them. */
  readonly extraTunnelAgents?: Readonly<Record<string, readonly Document[]>>;
  /** More agents of the tunnel `acme`, by name, with the same servers. */
  readonly extraAgents?: Readonly<Record<string, MintedToken>>;
  /** Start the relay only. */
  readonly withoutGateway?: boolean;
  /** For a bench, whose outputs are too large to be searched for secrets at the end. */
  readonly withoutSearch?: boolean;
  /** For Node itself, such as `--expose-gc` or `--cpu-prof`. */
  readonly nodeArgs?: readonly string[];
}

/** A relay and a gateway as real processes on loopback, with one tunnel `acme` and one agent key. */
export interface Stack {
  readonly dir: string;
  readonly relayPort: number;
  readonly agentKey: string;
  readonly tunnelToken: string;
  readonly relayAdmin: string;
  readonly gatewayAdmin: string;
  agentUrl(server: string): string;
  /** Starts a gateway; the one before must have ended. Resolves when it is ready. */
  startGateway(): Promise<Child>;
  readonly relay: Child;
  gateway(): Child | undefined;
  /** Rewrites policy.yaml. */
  writePolicy(servers: Document): void;
  /** Every byte that any process of the stack has written: outputs and the audit file, one entry each. */
  outputs(): readonly { readonly name: string; readonly text: string }[];
  /** The audit records so far. */
  audit(): readonly Record<string, unknown>[];
  /**
   * SIGTERM to the gateway, then the relay; removes the directory. Output stays readable. Rejects when a secret of this test
   * file stands in any of it, in the metrics, or in what an agent heard.
   */
  stop(): Promise<void>;
}

export interface MintedToken {
  readonly token: string;
  readonly sha256: string;
}

/** Written out in full: our files accept no anchors and aliases. */
const toYaml = (document: Document): string => stringify(document, { aliasDuplicateObjects: false });

/** DESIGN 4.1: prefix and 43 base64url characters; the hash is over the whole text. */
export function mintToken(prefix: "ptk_" | "pak_"): MintedToken {
  const token = noteSecret(prefix, prefix + randomBytes(32).toString("base64url"), prefix === "pak_");
  return { token, sha256: createHash("sha256").update(token).digest("hex") };
}

/** A port that was free a moment ago: the processes are told theirs by configuration. */
export async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address() as AddressInfo;
  await new Promise<void>((resolve) => probe.close(() => resolve()));
  return port;
}

async function isReady(admin: string): Promise<boolean> {
  try {
    return (await fetch(`${admin}/readyz`, { signal: AbortSignal.timeout(1_000) })).status === 200;
  } catch {
    return false;
  }
}

async function waitReady(child: Child, admin: string): Promise<void> {
  const ended = (): boolean => child.exitCode() !== undefined;
  const report = (): string => `${child.name}:\n${child.stdout()}\n${child.stderr()}`;
  try {
    await until(async () => ended() || (await isReady(admin)), `${child.name} is ready`, readyWithinMs);
  } catch (error) {
    throw new Error(report(), { cause: error });
  }
  if (ended()) throw new Error(`${child.name} ended with ${child.exitCode()} before it was ready\n${report()}`);
}

/** Empty when nothing answers, as when a test has ended the part. */
async function readMetrics(admin: string): Promise<string> {
  try {
    return await (await fetch(`${admin}/metrics`, { signal: AbortSignal.timeout(1_000) })).text();
  } catch {
    return "";
  }
}

function readIfThere(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}

interface Ports {
  readonly relay: number;
  readonly relayAdmin: number;
  readonly gatewayAdmin: number;
}

const extraTunnel = ({ sha256 }: MintedToken, agents: readonly Document[]): Document => ({
  gateways: [{ name: "extra", tokenSha256: [sha256] }],
  agents,
});

const adminSection = (port: number, token: Document | undefined): Document => ({
  listen: `127.0.0.1:${port}`,
  ...(token === undefined ? {} : { token }),
});

function relayDocument(options: StackOptions, ports: Ports, tunnel: MintedToken, agent: MintedToken): Document {
  const servers = options.agentServers ?? ["*"];
  const agents = Object.entries({ tester: agent, ...options.extraAgents }).map(([name, { sha256 }]) => ({
    name,
    keySha256: [sha256],
    servers,
  }));
  return {
    listen: `127.0.0.1:${ports.relay}`,
    publicUrl: options.publicUrl ?? `http://127.0.0.1:${ports.relay}`,
    // The gateway dials the relay itself, whatever agents call it.
    ...(options.publicUrl === undefined ? {} : { allowedHosts: [`127.0.0.1:${ports.relay}`] }),
    admin: adminSection(ports.relayAdmin, options.adminTokens?.relay),
    tunnels: {
      acme: {
        gateways: [{ name: "edge", tokenSha256: [tunnel.sha256] }],
        agents,
      },
      ...Object.fromEntries(
        Object.entries(options.extraTunnels ?? {}).map(([name, minted]) => [
          name,
          extraTunnel(minted, options.extraTunnelAgents?.[name] ?? []),
        ]),
      ),
    },
    ...options.relayYaml,
  };
}

function gatewayDocument(options: StackOptions, ports: Ports): Document {
  return {
    relay: {
      url: `ws://127.0.0.1:${ports.relay}`,
      tunnel: "acme",
      token: { file: "./tunnel-token" },
    },
    ...(options.vault === undefined ? {} : { vault: options.vault }),
    servers: options.servers,
    policy: "./policy.yaml",
    gateway: { id: "edge-1" },
    admin: adminSection(ports.gatewayAdmin, options.adminTokens?.gateway),
    audit: { file: "./audit.jsonl" },
    ...options.gatewayYaml,
  };
}

function writeFiles(dir: string, options: StackOptions, ports: Ports, tunnel: MintedToken, agent: MintedToken): void {
  const secret = (name: string, content: string): void =>
    writeFileSync(join(dir, name), `${content}\n`, { mode: 0o600 });
  secret("tunnel-token", tunnel.token);
  for (const [name, content] of Object.entries(options.secretFiles ?? {})) secret(name, noteSecret(name, content));
  writeFileSync(join(dir, "relay.yaml"), toYaml(relayDocument(options, ports, tunnel, agent)));
  writeFileSync(join(dir, "gateway.yaml"), toYaml(gatewayDocument(options, ports)));
  writeFileSync(join(dir, "policy.yaml"), toYaml({ version: 1, servers: options.policy }));
}

/** A port that was free a moment ago may be somebody else's now: then others are tried. */
export async function startStack(options: StackOptions): Promise<Stack> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await startOnce(options);
    } catch (error) {
      if (tries === 3 || !String(error).includes("EADDRINUSE")) throw error;
    }
  }
}

async function startOnce(options: StackOptions): Promise<Stack> {
  const dir = mkdtempSync(join(tmpdir(), "postern-stack-"));
  mkdirSync(dir, { recursive: true });
  const ports: Ports = { relay: await freePort(), relayAdmin: await freePort(), gatewayAdmin: await freePort() };
  const [tunnel, agent] = [mintToken("ptk_"), mintToken("pak_")];
  writeFiles(dir, options, ports, tunnel, agent);
  noteRelay(ports.relay);
  const children: Child[] = [];
  let auditText = "";
  const readAudit = (): string => readIfThere(join(dir, "audit.jsonl")) || auditText;
  const relayAdmin = `http://127.0.0.1:${ports.relayAdmin}`;
  const gatewayAdmin = `http://127.0.0.1:${ports.gatewayAdmin}`;
  const run = (part: "relay" | "gateway", env: Readonly<Record<string, string>>): Child => {
    const args = [...(options.nodeArgs ?? []), binary, part, "-c", join(dir, `${part}.yaml`)];
    const child = startChild({ name: part, command: process.execPath, args, env });
    children.push(child);
    return child;
  };
  const relay = run("relay", options.relayEnv ?? {});
  let gateway: Child | undefined;
  let metrics = "";
  const outputs = (): { name: string; text: string }[] => [
    ...children.map((child) => ({ name: child.name, text: child.stdout() + child.stderr() })),
    { name: "audit", text: readAudit() },
  ];
  const stop = async (): Promise<void> => {
    metrics += (await Promise.all([relayAdmin, gatewayAdmin].map(readMetrics))).join("");
    await gateway?.stop();
    await relay.stop();
    auditText = readAudit();
    rmSync(dir, { recursive: true, force: true });
    if (options.withoutSearch !== true) searchEverything([...outputs(), { name: "metrics", text: metrics }]);
  };
  const startGateway = async (): Promise<Child> => {
    const child = run("gateway", options.env ?? {});
    gateway = child;
    await waitReady(child, gatewayAdmin);
    return child;
  };
  try {
    await waitReady(relay, relayAdmin);
    if (options.withoutGateway !== true) await startGateway();
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    dir,
    relayPort: ports.relay,
    agentKey: agent.token,
    tunnelToken: tunnel.token,
    relayAdmin,
    gatewayAdmin,
    agentUrl: (server) => `${options.publicUrl ?? `http://127.0.0.1:${ports.relay}`}/acme/${server}/mcp`,
    startGateway,
    relay,
    gateway: () => gateway,
    writePolicy: (servers) => writeFileSync(join(dir, "policy.yaml"), toYaml({ version: 1, servers })),
    outputs,
    audit: () =>
      readAudit()
        .split("\n")
        .filter((line) => line !== "")
        .map((line) => JSON.parse(line) as Record<string, unknown>),
    stop,
  };
}
