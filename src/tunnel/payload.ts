import { isUtf8 } from "node:buffer";
import { Secret } from "../lib/index.ts";
import { isFaultName, ProtocolFault } from "./errors.ts";
import type { Advert, GoAway, HelloFrame, Welcome } from "./frame.ts";
import { isServerName, isWireId } from "./heads.ts";
import type { TunnelLimits } from "./options.ts";
import type { GoAwayReason, Head, Open } from "./types.ts";

/** JSON payloads: from bytes to the shapes of frame.ts. Every function throws `ProtocolFault` for what is not the right shape. Pure. */

type Members = Readonly<Record<string, unknown>>;

const maxInteger = 0x7fff_ffff;
const maxFeatures = 64;
const maxVersions = 64;
const maxServers = 1_000;
const maxSoftwareLength = 128;
const minWindowBytes = 1_024;
const minHeartbeatMs = 10;
const maxHeartbeatMs = 120_000;

const bad = (): ProtocolFault => new ProtocolFault("bad-payload");

function isObject(value: unknown): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The JSON object in `payload`. */
export function parseObject(payload: Buffer): Members {
  if (!isUtf8(payload)) throw new ProtocolFault("bad-utf8");
  let value: unknown;
  try {
    value = JSON.parse(payload.toString("utf8"));
  } catch {
    throw bad();
  }
  return object(value);
}

function object(value: unknown): Members {
  if (!isObject(value)) throw bad();
  return value;
}

function text(value: unknown): string {
  if (typeof value !== "string") throw bad();
  return value;
}

function number(value: unknown): number {
  if (typeof value !== "number") throw bad();
  return value;
}

function boolean(value: unknown): boolean {
  if (typeof value !== "boolean") throw bad();
  return value;
}

function integer(value: unknown, min: number, max: number): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < min || value > max) throw bad();
  return value;
}

function wireId(value: unknown): string {
  if (typeof value !== "string" || !isWireId(value)) throw bad();
  return value;
}

function software(value: unknown): string {
  const name = text(value);
  if (name.length > maxSoftwareLength) throw bad();
  return name;
}

function list(value: unknown, max: number): readonly unknown[] {
  if (!Array.isArray(value) || value.length > max) throw bad();
  return value;
}

function strings(value: unknown): readonly string[] {
  if (!Array.isArray(value)) throw bad();
  for (const item of value) if (typeof item !== "string") throw bad();
  return value;
}

function limits(value: unknown): TunnelLimits {
  const members = object(value);
  return {
    streamWindowBytes: integer(members["streamWindow"], minWindowBytes, maxInteger),
    tunnelWindowBytes: integer(members["tunnelWindow"], minWindowBytes, maxInteger),
    maxStreams: integer(members["maxStreams"], 0, maxInteger),
  };
}

function features(value: unknown): readonly string[] {
  return list(value, maxFeatures).map(text);
}

export function readAdvert(members: Members): Advert {
  const names = list(members["servers"], maxServers).map((server) => text(object(server)["name"]));
  return {
    rev: integer(members["rev"], 0, maxInteger),
    draining: boolean(members["draining"]),
    servers: names.filter(isServerName),
  };
}

export function readHello(members: Members): HelloFrame {
  const gateway = object(members["gateway"]);
  const advert = readAdvert(object(members["advert"]));
  return {
    versions: list(members["versions"], maxVersions).map((version) => integer(version, 0, maxInteger)),
    features: features(members["features"]),
    gateway: {
      id: wireId(gateway["id"]),
      instance: wireId(gateway["instance"]),
      slot: integer(gateway["slot"], 0, 255),
      software: software(gateway["software"]),
    },
    limits: limits(members["limits"]),
    servers: advert.servers,
    advert,
  };
}

export function readWelcome(members: Members): Welcome {
  const node = object(members["node"]);
  return {
    version: integer(members["version"], 0, maxInteger),
    features: features(members["features"]),
    node: {
      id: wireId(node["id"]),
      instance: wireId(node["instance"]),
      software: software(node["software"]),
    },
    connId: wireId(members["connId"]),
    limits: limits(members["limits"]),
    heartbeatMs: integer(members["heartbeatMs"], minHeartbeatMs, maxHeartbeatMs),
  };
}

const goAwayReasons: ReadonlySet<string> = new Set<GoAwayReason>([
  "SHUTDOWN",
  "MAX_AGE",
  "REBALANCE",
  "REPLACED",
  "AUTH_EXPIRED",
  "REVOKED",
  "PROTOCOL_ERROR",
  "FLOW_CONTROL_ERROR",
  "INTERNAL",
]);

export function readGoAway(members: Members): GoAway {
  const reason = text(members["reason"]);
  const reconnectInMs = members["reconnectInMs"];
  const fault = members["fault"];
  return {
    reason: goAwayReasons.has(reason) ? (reason as GoAwayReason) : "INTERNAL",
    lastStream: integer(members["lastStream"], 0, maxInteger),
    drainMs: integer(members["drainMs"], 0, maxInteger),
    reconnectInMs: reconnectInMs === undefined ? 0 : integer(reconnectInMs, 0, maxInteger),
    fault: typeof fault === "string" && isFaultName(fault) ? fault : undefined,
  };
}

/** Types are checked here; what the values say is `faultOfOpen`'s business. */
export function readOpen(members: Members): Open {
  const principal = object(members["principal"]);
  const agentToken = members["agentToken"];
  return {
    server: text(members["server"]),
    method: text(members["method"]) as Open["method"],
    headers: strings(members["headers"]),
    hasBody: boolean(members["body"]),
    deadlineMs: number(members["deadlineMs"]),
    requestId: text(members["requestId"]),
    principal: {
      id: text(principal["id"]),
      kind: text(principal["kind"]) as Open["principal"]["kind"],
      claims: object(principal["claims"]),
    },
    ...(agentToken === undefined ? {} : { agentToken: new Secret(text(agentToken), "passing") }),
  };
}

/** As `readOpen`, for `faultOfHead`. */
export function readHead(members: Members): Head {
  const status = number(members["status"]);
  const headers = strings(members["headers"]);
  const by = text(members["by"]) as Head["by"];
  const rpcId = members["rpcId"];
  return rpcId === undefined ? { status, headers, by } : { status, headers, by, rpcId: text(rpcId) };
}
