import { randomUUID } from "node:crypto";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { type KeyRing, KeyRings } from "../identity/index.ts";
import type { Timer } from "../lib/index.ts";
import { tunnelPath } from "../tunnel/index.ts";
import type { AgentRequest } from "./answer.ts";
import type { LiveExchange } from "./connection.ts";
import type { ExchangeContext } from "./exchange.ts";
import { Flusher } from "./flusher.ts";
import { HostRules } from "./hosts.ts";
import { Ingress } from "./ingress.ts";
import {
  defaultRelayLimits,
  defaultRelayTimeouts,
  type RelayDeps,
  type RelayLimits,
  type RelayOptions,
} from "./options.ts";
import { withoutUpgrade } from "./other-upgrade.ts";
import { isName } from "./route.ts";
import { RelayTally } from "./tally.ts";
import { Tunnel } from "./tunnels.ts";
import { UpgradeDoor } from "./upgrade.ts";

/** What a person, or `postern status`, may know of a relay: names, states and counts. */
export interface RelayStatus {
  readonly isListening: boolean;
  readonly isDraining: boolean;
  readonly connections: number;
  readonly exchanges: number;
  readonly tunnels: readonly TunnelStatus[];
  readonly counts: RelayTally;
}

export interface TunnelStatus {
  readonly name: string;
  readonly sessions: readonly {
    readonly gateway: string;
    readonly id: string;
    readonly slot: number;
    readonly connection: string;
    readonly servers: readonly string[];
    readonly isAccepting: boolean;
    readonly streams: number;
    /** Milliseconds since the last echo; undefined: none yet. */
    readonly echoAgeMs: number | undefined;
  }[];
  readonly waiting: number;
  /** Entries by key and by issuer, and the principals that have exchanges now. */
  readonly agents: { readonly keys: number; readonly issuers: number; readonly active: number };
}

export interface Relay {
  /** Rejects with the system's error (EADDRINUSE, EACCES) when it cannot listen. */
  listen(): Promise<{ readonly port: number }>;
  /** Takes nothing new, lets what runs finish for `graceMs`, ends the rest visibly, closes. Safe twice. */
  drain(graceMs: number): Promise<void>;
  /** Ends everything now. Safe twice. */
  close(): Promise<void>;
  /**
   * Takes up who may call and dial, `publicUrl`, the allowed hosts and origins, and the limits but `fixedLimits`; whatever else
   * differs needs a new relay. All of it or, when it throws, nothing. `streamsPerConnection` holds for sessions that come from
   * now on. Keys that are there no more end their sessions (GOAWAY with REVOKED) and their event
   * streams; what has not changed goes on.
   */
  reload(options: ReloadOptions): void;
  status(): RelayStatus;
  /** Ready whether or not a gateway is connected: what is behind a tunnel is the customer's. */
  readiness(): { readonly isReady: boolean; readonly detail: Readonly<Record<string, unknown>> };
}

/** What can change while a relay runs. */
export type ReloadOptions = Pick<RelayOptions, "publicUrl" | "allowedHosts" | "allowedOrigins" | "tunnels" | "limits">;

/** Of a server's own parser: they stay as they were at its start. */
export const fixedLimits = ["headerBytes"] as const satisfies readonly (keyof RelayLimits)[];

/** Throws when a name, a hash or `publicUrl` is malformed. */
export function createRelay(options: RelayOptions, deps: RelayDeps): Relay {
  return new RelayNode(options, deps);
}

const maxTickMs = 1_000;
const closeGraceMs = 1_000;
const drainSlackMs = 1_000;
const idleLookMs = 25;

class RelayNode implements Relay {
  readonly #options: RelayOptions;
  readonly #context: Omit<ExchangeContext, "limits"> & { limits: RelayLimits };
  readonly #keyRings: KeyRings;
  readonly #tally = new RelayTally();
  readonly #tunnels = new Map<string, Tunnel>();
  readonly #door: UpgradeDoor;
  readonly #ingress: Ingress;
  readonly #carriers = new Set<Duplex>();
  #state: "idle" | "listening" | "draining" | "closed" = "idle";
  #tick: Timer | undefined = undefined;
  #closed: Promise<void> | undefined = undefined;

  constructor(options: RelayOptions, deps: RelayDeps) {
    this.#options = options;
    const limits = { ...defaultRelayLimits, ...options.limits };
    const timeouts = { ...defaultRelayTimeouts, ...options.timeouts };
    this.#context = { ...deps, limits, timeouts, flusher: new Flusher(), tally: this.#tally };
    this.#keyRings = new KeyRings(deps);
    this.#planTunnels(options.tunnels)();
    const hosts = createHosts(options);
    const node = { id: "relay", software: "postern", ...options.node, instance: randomUUID() };
    this.#door = new UpgradeDoor({ ...deps, hosts, tunnels: this.#tunnels, limits, node, tally: this.#tally });
    this.#ingress = new Ingress(this.#context, {
      hosts,
      tunnels: this.#tunnels,
      onUpgrade: (req, socket, head) => this.#onUpgrade(req, socket, head),
    });
  }

  async listen(): Promise<{ readonly port: number }> {
    const { server } = this.#ingress;
    const { host, port } = this.#options.listen;
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(port, host, () => {
        server.removeListener("error", reject);
        resolve();
      });
    });
    server.on("error", (error) => this.#context.logger.error("listener failed", { reason: error.name }));
    this.#state = "listening";
    this.#armTick();
    this.#warm();
    const address = server.address() as AddressInfo;
    this.#context.logger.info("relay listens", { address: `${host}:${address.port}` });
    return { port: address.port };
  }

  #onUpgrade(req: AgentRequest, socket: Duplex, head: Buffer): void {
    const path = (req.url ?? "").split("?", 1)[0];
    if (path !== tunnelPath) {
      withoutUpgrade(req, socket, head, this.#ingress.server);
      return;
    }
    this.#carriers.add(socket);
    socket.once("close", () => this.#carriers.delete(socket));
    this.#door.onUpgrade(req, socket, head);
  }

  /** One timer for every deadline that is counted in seconds, instead of one that is reset on every byte. */
  #armTick(): void {
    const { keepAliveMs, stalledMs, idleMs, firstByteMs } = this.#context.timeouts;
    const tickMs = Math.min(maxTickMs, Math.ceil(Math.min(keepAliveMs, stalledMs, idleMs, firstByteMs) / 4));
    this.#tick = this.#context.clock.after(tickMs, () => {
      for (const connection of this.#ingress.connections) connection.tick(tickMs, stalledMs);
      if (this.#state !== "closed") this.#armTick();
    });
  }

  #exchangeCount(): number {
    let count = 0;
    for (const { exchanges } of this.#ingress.connections) count += exchanges.size;
    return count;
  }

  /** A copy: an exchange that ends leaves its set. */
  #exchanges(): LiveExchange[] {
    return [...this.#ingress.connections].flatMap(({ exchanges }) => [...exchanges]);
  }

  reload(options: ReloadOptions): void {
    const hosts = createHosts(options);
    const change = this.#planTunnels(options.tunnels);
    change();
    this.#ingress.hosts = hosts;
    this.#door.hosts = hosts;
    this.#changeLimits({ ...this.#context.limits, ...options.limits });
    this.#forgetKeyRings();
    this.#warm();
  }

  #changeLimits(wanted: RelayLimits): void {
    const { headerBytes } = this.#context.limits;
    const limits = { ...wanted, headerBytes };
    this.#context.limits = limits;
    this.#door.limits = limits;
    this.#ingress.changeConnections(limits.connections);
    for (const { gateways } of this.#tunnels.values()) gateways.changeUpgrades(limits.upgradesPerMinute);
  }

  /** As `Tunnel.plan`, for all of them. */
  #planTunnels(wanted: RelayOptions["tunnels"]): () => void {
    const changes: (() => void)[] = [];
    for (const [name, options] of Object.entries(wanted)) {
      if (!isName(name)) throw new Error("a tunnel has a name that cannot stand in a URL");
      const known = this.#tunnels.get(name);
      if (known !== undefined) {
        changes.push(known.plan(options));
        continue;
      }
      const tunnel = this.#createTunnel(name, options);
      changes.push(() => this.#tunnels.set(name, tunnel));
    }
    for (const [name, tunnel] of this.#tunnels) {
      if (Object.hasOwn(wanted, name)) continue;
      const empty = tunnel.plan({ gateways: [], agents: [] });
      changes.push(empty, () => this.#tunnels.delete(name));
    }
    return () => {
      for (const change of changes) change();
    };
  }

  #createTunnel(name: string, options: RelayOptions["tunnels"][string]): Tunnel {
    const { timeouts, limits } = this.#context;
    const rules = { recentMs: timeouts.recentMs, upgradesPerMinute: limits.upgradesPerMinute };
    return new Tunnel(name, options, this.#context, rules, this.#keyRings);
  }

  #warm(): void {
    for (const { agents, gateways } of this.#tunnels.values()) {
      agents.warm();
      gateways.warm();
    }
  }

  #forgetKeyRings(): void {
    const used = new Set<KeyRing>();
    for (const { agents, gateways } of this.#tunnels.values()) {
      for (const ring of [...agents.keyRings, ...gateways.keyRings]) used.add(ring);
    }
    this.#keyRings.keepOnly(used);
  }

  async drain(graceMs: number): Promise<void> {
    if (this.#state === "listening") {
      this.#state = "draining";
      this.#ingress.isDraining = true;
      this.#door.isDraining = true;
      this.#ingress.server.close();
      // Longer than our own grace: what is cut at its end is cut here, and says why.
      for (const session of this.#sessions()) session.goAway("SHUTDOWN", graceMs + drainSlackMs);
      for (const exchange of this.#exchanges()) exchange.leave();
      await this.#whenIdle(graceMs);
    }
    await this.close();
  }

  /** Until no exchange runs, `graceMs` have passed, or `close()` was called. */
  #whenIdle(graceMs: number): Promise<void> {
    const { clock } = this.#context;
    const until = clock.now() + graceMs;
    return new Promise((resolve) => {
      const look = (): void => {
        if (this.#exchangeCount() === 0 || clock.now() >= until || this.#state === "closed") resolve();
        else clock.after(Math.min(idleLookMs, until - clock.now()), look);
      };
      look();
    });
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    const wasIdle = this.#state === "idle";
    this.#state = "closed";
    this.#ingress.isDraining = true;
    this.#door.isDraining = true;
    for (const exchange of this.#exchanges()) exchange.cut();
    for (const session of [...this.#sessions()]) session.terminate("SHUTDOWN", "the relay is closing");
    if (!wasIdle) await this.#closeServer();
    this.#tick?.cancel();
    await this.#keyRings.close();
  }

  /** Last answers get a moment to leave; sockets that were upgraded are none of the server's. */
  async #closeServer(): Promise<void> {
    const { server } = this.#ingress;
    await new Promise<void>((resolve) => {
      const timer = this.#context.clock.after(closeGraceMs, () => server.closeAllConnections());
      const done = (): void => {
        timer.cancel();
        resolve();
      };
      if (server.listening) server.close(done);
      else if (this.#ingress.connections.size === 0) done();
      else server.once("close", done);
      // Answers that were just ended leave in this turn, and their connections are idle after it.
      setImmediate(() => server.closeIdleConnections());
      for (const socket of [...this.#carriers]) socket.destroy();
    });
  }

  *#sessions() {
    for (const tunnel of this.#tunnels.values()) for (const { session } of tunnel.sessions) yield session;
  }

  status(): RelayStatus {
    const now = this.#context.clock.now();
    return {
      isListening: this.#state === "listening",
      isDraining: this.#state === "draining",
      connections: this.#ingress.connections.size,
      exchanges: this.#exchangeCount(),
      tunnels: [...this.#tunnels.values()].map((tunnel) => tunnelStatus(tunnel, now)),
      counts: this.#tally,
    };
  }

  readiness(): { readonly isReady: boolean; readonly detail: Readonly<Record<string, unknown>> } {
    const isReady = this.#state === "listening";
    return { isReady, detail: { state: this.#state } };
  }
}

function createHosts(options: ReloadOptions): HostRules {
  return new HostRules(options.publicUrl, options.allowedHosts, options.allowedOrigins);
}

function tunnelStatus(tunnel: Tunnel, now: number): TunnelStatus {
  const sessions = [...tunnel.sessions].map(({ gateway, session }) => ({
    gateway,
    id: session.peer.id,
    slot: session.peer.slot,
    connection: session.connId,
    servers: [...session.servers],
    isAccepting: session.isAccepting,
    streams: session.openStreamCount,
    echoAgeMs: session.lastEchoAt === undefined ? undefined : now - session.lastEchoAt,
  }));
  return { name: tunnel.name, sessions, waiting: tunnel.waiterCount, agents: tunnel.agents.summary };
}
