/** What a gateway needs, from its own machine outwards: the relay, the store, each server with its credential, the agents' issuers. */
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import type { GatewayConfig } from "../../config/index.ts";
import { CredentialError, type Credentials, type Injection, type StoreProbe } from "../../credentials/index.ts";
import { caCure, tryKeys } from "../../identity/index.ts";
import { readCertificates, systemClock } from "../../lib/index.ts";
import { silentLogger } from "../../telemetry/index.ts";
import { type DialOutcome, dialTunnel, type GatewaySession, type StreamHandler } from "../../tunnel/index.ts";
import { checkTunnelToken } from "../tunnel-token.ts";
import { software } from "../version.ts";
import { probeMcp } from "./mcp-probe.ts";
import { netStages, type Target } from "./net-stages.ts";
import { NotTried, type Stage, Trouble } from "./stages.ts";

const echoMs = 5_000;

export function gatewayStages(config: GatewayConfig, credentials: Credentials): readonly Stage[] {
  const store = credentials.probeStore();
  return [
    ...relayStages(config, credentials),
    ...(store === undefined ? [] : storeStages(config, store)),
    ...Object.keys(config.servers).flatMap((name) => serverStages(name, config, credentials)),
    ...issuerStages(config.agents.verify === "edge" ? config.agents.issuers : []),
  ];
}

interface CaFile {
  readonly stages: readonly Stage[];
  /** What to give to `netStages`. */
  readonly trust: Pick<Target, "ca" | "caKey" | "needs">;
  /** What the stage has read. */
  readonly text: () => string | undefined;
}

/** The file that `key` names, if it names one. */
function caFile(label: string, file: string | undefined, key: string): CaFile {
  let pem: string | undefined;
  const text = (): string | undefined => pem;
  if (file === undefined) return { stages: [], trust: { caKey: key }, text };
  const stage: Stage = {
    name: `${label} ca`,
    run: () => {
      pem = readCa(file, key);
      return Promise.resolve("readable");
    },
  };
  return { stages: [stage], trust: { ca: text, caKey: key, needs: [stage.name] }, text };
}

function readCa(file: string, key: string): string {
  const cure = `a readable file of PEM certificates at ${file}`;
  let pem: string;
  try {
    pem = readFileSync(file, "utf8");
  } catch {
    throw new Trouble(`${key} cannot be read`, cure);
  }
  if (readCertificates(pem) === undefined) throw new Trouble(`${key} holds no certificate`, cure);
  return pem;
}

function relayStages(config: GatewayConfig, credentials: Credentials): readonly Stage[] {
  const { relay } = config;
  const ca = caFile("relay", relay.ca, "relay.ca");
  const net = netStages({ label: "relay", url: new URL(relay.url), key: "relay.url", ...ca.trust });
  const token: Stage = {
    name: "relay token",
    needs: needsStore(relay.token) ? [loginName] : [],
    run: () => explained(async () => void checkTunnelToken(await credentials.read(relay.token)), "read"),
  };
  let outcome: DialOutcome | undefined;
  const upgrade: Stage = {
    name: "relay upgrade",
    needs: [net.last, token.name],
    deadlineMs: 25_000,
    run: async (signal) => {
      outcome = await dial(config, credentials, ca.text(), signal);
      return judgeUpgrade(outcome);
    },
  };
  const hello: Stage = {
    name: "relay hello",
    needs: [upgrade.name],
    run: () => Promise.resolve(judgeHello(outcome)),
  };
  const echo: Stage = {
    name: "relay echo",
    needs: [hello.name],
    run: () => measureEcho((outcome as Extract<DialOutcome, { kind: "session" }>).session),
  };
  return [...ca.stages, ...net.stages, token, upgrade, hello, echo];
}

/**
 * As a replica of its own that serves nothing: it takes nobody's place, and no call comes to it. Nothing of it outlives the stage
 * that closes it.
 */
async function dial(
  config: GatewayConfig,
  credentials: Credentials,
  ca: string | undefined,
  signal: AbortSignal,
): Promise<DialOutcome> {
  const { relay, gateway, agents } = config;
  const mark = randomBytes(4).toString("hex");
  return await dialTunnel({
    url: relay.url,
    tunnel: relay.tunnel,
    token: await credentials.read(relay.token),
    ...(ca === undefined ? {} : { ca }),
    gateway: { id: replicaOf(gateway.id, mark), instance: `doctor-${mark}`, slot: 0, software },
    servers: [],
    onStream: refuseStream,
    ...(agents.verify === "edge" ? { needsAgentTokens: true } : {}),
    signal,
    clock: systemClock,
    random: Math.random,
    logger: silentLogger,
  });
}

/** An id that no gateway has; the wire admits 128 characters. */
export function replicaOf(id: string, mark: string): string {
  const own = `-doctor-${mark}`;
  return id.slice(0, 128 - own.length) + own;
}

const refuseStream: StreamHandler = (_open, stream) => {
  stream.reset("NO_SERVER", "a doctor serves nothing");
  return { onData: () => undefined, onEnd: () => undefined, onReset: () => undefined };
};

const refusalCures: Readonly<Record<number, string>> = {
  401: "relay.tunnel and relay.token belong together; the relay's file has the token's hash under that tunnel",
  403: "the host of relay.url is that of the relay's publicUrl, or among its allowedHosts",
  426: "the same version of gateway and relay, or a relay at this address at all",
  429: "fewer dials: the relay counts them by its upgradesPerMinute",
  503: "the relay is ending, or its own issuer is away: its log says which",
};

function judgeUpgrade(outcome: DialOutcome): string {
  if (outcome.kind === "refused" && outcome.status !== undefined) {
    const cure = refusalCures[outcome.status] ?? "what answers at relay.url: it may be no relay";
    throw new Trouble(`the relay refuses the upgrade: ${outcome.status} ${outcome.reason}`, cure);
  }
  const early: readonly string[] = ["URL", "DNS", "CONNECT", "TLS", "UPGRADE", "ABORTED"];
  const isTooEarly = outcome.kind === "failed" && (early.includes(outcome.code) || isUpgradeTimeout(outcome));
  if (!isTooEarly) return "token accepted";
  const cure = "whether what stands at relay.url is a relay, and whether what stands between lets WebSockets through";
  throw new Trouble(`no upgrade: ${outcome.code} (${outcome.detail})`, cure);
}

function isUpgradeTimeout(outcome: Extract<DialOutcome, { kind: "failed" }>): boolean {
  return outcome.code === "TIMEOUT" && outcome.detail !== "no welcome in time";
}

function judgeHello(outcome: DialOutcome | undefined): string {
  if (outcome?.kind === "session") return `connection ${outcome.session.connId}, ${outcome.session.peer.software}`;
  if (outcome?.kind === "refused") {
    throw new Trouble(`the relay refuses this gateway: ${outcome.reason}`, "the relay's log says why");
  }
  const cure =
    outcome?.code === "FEATURE"
      ? "a newer relay, or agents: { verify: relay }"
      : "the same version of gateway and relay, and what stands between: it may end WebSockets";
  throw new Trouble(`no welcome: ${outcome?.code ?? "none"} (${outcome?.detail ?? ""})`, cure);
}

async function measureEcho(session: GatewaySession): Promise<string> {
  try {
    return `back after ${(await session.echo(echoMs)).toFixed(1)} ms`;
  } catch {
    throw new Trouble("no echo came back", "what stands between: it lets the WebSocket open and then nothing through");
  } finally {
    session.goAway("SHUTDOWN", 0);
    session.terminate("SHUTDOWN", "the look is over");
  }
}

const loginName = "vault login";

function storeStages(config: GatewayConfig, probe: StoreProbe): readonly Stage[] {
  const { vault } = config;
  const isSocket = probe.address.startsWith("unix:");
  const ca = caFile("vault", vault?.ca, "vault.ca");
  const net = isSocket
    ? { stages: [], last: undefined }
    : netStages({
        label: "vault",
        url: new URL(probe.address),
        key: vault?.auth.method === "agent" ? "vault.auth.agent.address" : "vault.address",
        ...ca.trust,
      });
  const health: Stage = {
    name: "vault health",
    needs: net.last === undefined ? [] : [net.last],
    deadlineMs: 12_000,
    run: () =>
      explained(
        () => probe.health(),
        (found) => (found === "unknown" ? "it answers, and tells no more" : found),
      ),
  };
  const login: Stage = {
    name: loginName,
    needs: [health.name],
    deadlineMs: 12_000,
    run: () => {
      if (probe.harm !== undefined) throw new NotTried(`${probe.harm}; \`postern status\` tells how it went there`);
      return explained(
        () => probe.logIn(),
        (leftMs) =>
          `by ${vault?.auth.method}, ${leftMs === undefined ? "without an end" : `for ${Math.round(leftMs / 1000)} s`}`,
      );
    },
  };
  const access: Stage = {
    name: "vault policy",
    needs: [login.name],
    deadlineMs: 12_000,
    run: async () => {
      const { count, missing } = await guarded(() => probe.access());
      if (missing.length === 0) return `grants all that is configured: ${count}`;
      const paths = missing.map(({ path }) => path).join(", ");
      throw new Trouble(`the policy withholds ${paths}`, `grant ${missing.map(({ stanza }) => stanza).join(" and ")}`);
    },
  };
  return [...ca.stages, ...net.stages, health, login, access];
}

/** For whom a credential is read that is the same for everybody. */
const nobody = { id: "doctor" };

/** Types whose secret is used up when it is read. */
const untried: Readonly<Record<string, string>> = {
  oauthRefreshToken: "a refresh token is spent by being tried; `postern status` tells how it is",
};

function serverStages(name: string, config: GatewayConfig, credentials: Credentials): readonly Stage[] {
  const server = config.servers[name];
  if (server === undefined) return [];
  const label = `server ${name}`;
  const { credential } = server;
  const ca = caFile(label, server.ca, `servers.${name}.ca`);
  const net = netStages({
    label,
    url: new URL(server.url),
    key: `servers.${name}.url`,
    isJudgedLater: credential?.type === "mtls",
    ...ca.trust,
  });
  let found: Injection = { headers: [], secrets: [] };
  const reading: Stage = {
    name: `${label} credential`,
    needs: needsStore(credential) ? [loginName] : [],
    deadlineMs: 20_000,
    run: async () => {
      const type: string = credential?.type ?? "none";
      const own = credentials.forServer(name);
      const why = own.isPerCaller ? "it depends on who calls; `postern status` tells how calls went" : untried[type];
      if (why !== undefined) throw new NotTried(why);
      found = await guarded(async () => await own.inject(nobody));
      const names = found.headers.filter((_, i) => i % 2 === 0);
      return `${type}: ${found.tls === undefined ? names.join(", ") : "a certificate and its key"}`;
    },
  };
  const mcp: Stage = {
    name: `${label} mcp`,
    needs: [net.last, ...(credential === undefined ? [] : [reading.name])],
    deadlineMs: 25_000,
    run: () =>
      probeMcp({
        server: name,
        url: server.url,
        caFile: server.ca,
        headers: found.headers,
        tls: found.tls,
        hasCredential: credential !== undefined,
        software,
        clock: systemClock,
      }),
  };
  return [...ca.stages, ...net.stages, ...(credential === undefined ? [] : [reading]), mcp];
}

/** Whether anything in it is read from the store. */
function needsStore(part: unknown): boolean {
  if (typeof part !== "object" || part === null) return false;
  return Object.entries(part).some(
    ([key, value]) => key === "vault" || key === "pki" || value === "vaultIdentity" || needsStore(value),
  );
}

export interface IssuerEntry {
  readonly issuer: string;
  readonly jwks?: { readonly url: string } | { readonly file: string } | undefined;
  readonly ca?: string | undefined;
}

/** Each issuer once, however many entries believe in it. */
export function issuerStages(entries: readonly IssuerEntry[]): readonly Stage[] {
  const distinct = new Map(entries.map((entry) => [JSON.stringify([entry.issuer, entry.jwks, entry.ca]), entry]));
  return [...distinct.values()].map(({ issuer, jwks, ca }, i, all) => {
    const isAlone = all.filter((other) => other.issuer === issuer).length === 1;
    return {
      name: `issuer ${issuer}${isAlone ? "" : ` (${i + 1})`}`,
      run: async () => {
        const { isThere, reason } = await tryKeys(issuer, { jwks, ca }, { clock: systemClock, random: Math.random });
        if (isThere) return "its keys are there";
        const place = jwks === undefined ? "its metadata names the keys (jwks_uri)" : "the entry's jwks";
        const cure = caCure(reason ?? "") ?? `whether ${place}, and the way from here to there`;
        throw new Trouble(`no keys: ${reason ?? "unknown"}`, cure);
      },
    };
  });
}

async function guarded<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    // Message and cure of these name places, never values.
    if (error instanceof CredentialError) throw new Trouble(error.message, error.cure);
    throw error;
  }
}

async function explained<T>(work: () => Promise<T>, say: string | ((found: T) => string)): Promise<string> {
  const found = await guarded(work);
  return typeof say === "string" ? say : say(found);
}
