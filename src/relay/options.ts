import type { JwksSource } from "../identity/index.ts";
import type { Clock } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";

/** Everything a relay is told; plain data, as `cli` reads it from relay.yaml (DESIGN 4.4). */
export interface RelayOptions {
  /** Port 0: the system chooses, `listen()` tells. */
  readonly listen: { readonly host: string; readonly port: number };
  readonly publicUrl: string;
  /** Host names beside that of `publicUrl`. With a port only that port, without one any. */
  readonly allowedHosts: readonly string[];
  /** Serialised origins, `https://app.example.com`. */
  readonly allowedOrigins: readonly string[];
  readonly tunnels: Readonly<Record<string, TunnelOptions>>;
  readonly limits?: Partial<RelayLimits>;
  readonly timeouts?: Partial<RelayTimeouts>;
  /** This node as gateways see it. */
  readonly node?: { readonly id: string; readonly software: string };
}

export interface TunnelOptions {
  readonly gateways: readonly GatewayOptions[];
  readonly agents: readonly AgentOptions[];
}

export type GatewayOptions = HashGatewayOptions | JwtGatewayOptions;

export interface HashGatewayOptions {
  readonly name: string;
  readonly tokenSha256: readonly string[];
}

export interface JwtGatewayOptions {
  readonly name: string;
  readonly jwt: {
    readonly issuer: string;
    readonly audience: string;
    /** Exactly this `sub`. */
    readonly subject: string;
    readonly algorithms?: readonly string[] | undefined;
    readonly jwks?: JwksSource | undefined;
    /** A PEM file whose certificates are trusted where the keys are fetched; read for each new connection. */
    readonly ca?: string | undefined;
  };
}

export type AgentOptions = KeyAgentOptions | OAuthAgentOptions;

/** Agents with an access token of this issuer. */
export interface OAuthAgentOptions {
  readonly oauth: {
    readonly issuer: string;
    /** Default: the agent's URL. */
    readonly audience?: string | readonly string[] | undefined;
    readonly algorithms?: readonly string[] | undefined;
    readonly requiredScopes?: readonly string[] | undefined;
    readonly clientIds?: readonly string[] | undefined;
    readonly jwks?: JwksSource | undefined;
    /** A PEM file whose certificates are trusted where the keys are fetched; read for each new connection. */
    readonly ca?: string | undefined;
    readonly requireTyp?: boolean | undefined;
  };
  /** Server names; `*` alone is all. */
  readonly servers: readonly string[];
}

export interface KeyAgentOptions {
  readonly name: string;
  readonly keySha256: readonly string[];
  /** Server names; `*` alone is all. */
  readonly servers: readonly string[];
}

export interface RelayLimits {
  /** Request header block of an agent, names and values with their separators. */
  readonly headerBytes: number;
  readonly headerCount: number;
  readonly requestBytes: number;
  /** Bodies up to this size are kept so that another gateway can be tried. */
  readonly replayBytes: number;
  readonly streamsPerAgent: number;
  /** Streams of one gateway connection. */
  readonly streamsPerConnection: number;
  /** Agent connections; gateways come on top. */
  readonly connections: number;
  /** Per gateway credential. */
  readonly upgradesPerMinute: number;
  /** Tunnel sessions of one gateway credential. */
  readonly sessionsPerGateway: number;
}

export interface RelayTimeouts {
  /** Silence on an event stream before a comment is written. */
  readonly keepAliveMs: number;
  /** From OPEN to HEAD. */
  readonly firstByteMs: number;
  /** Silence inside a body that is no event stream. The gateway's own limit comes first. */
  readonly idleMs: number;
  /** An agent that takes no byte for this long is cut. */
  readonly stalledMs: number;
  /** How long a request waits for a tunnel that is just being redialled. */
  readonly holdMs: number;
  /** A server that was served this recently is worth waiting for. */
  readonly recentMs: number;
  /** All tries of one request together. */
  readonly retryMs: number;
  /** From the first byte of a request to the end of its header block. */
  readonly headersMs: number;
  /** From the first byte of a request to the end of its body. */
  readonly requestMs: number;
  /** An idle connection; must exceed the idle time of the load balancer in front. */
  readonly idleConnectionMs: number;
}

/** What a part with a timer, a jitter or a log line is given. */
export interface RelayDeps {
  readonly clock: Clock;
  /** Numbers in [0, 1), like `Math.random`. */
  readonly random: () => number;
  readonly logger: Logger;
}

export const defaultRelayLimits: RelayLimits = {
  headerBytes: 64 * 1024,
  headerCount: 256,
  requestBytes: 4 * 1024 * 1024,
  replayBytes: 64 * 1024,
  streamsPerAgent: 256,
  streamsPerConnection: 2048,
  connections: 10_000,
  upgradesPerMinute: 60,
  sessionsPerGateway: 64,
};

export const defaultRelayTimeouts: RelayTimeouts = {
  keepAliveMs: 15_000,
  firstByteMs: 300_000,
  idleMs: 630_000,
  stalledMs: 60_000,
  holdMs: 1_500,
  recentMs: 60_000,
  retryMs: 2_000,
  headersMs: 20_000,
  requestMs: 120_000,
  idleConnectionMs: 75_000,
};
