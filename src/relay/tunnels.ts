/**
 * Which gateways are connected. One `Tunnel` per name in relay.yaml, for the whole life of the relay.
 *
 * 1. A newcomer replaces a session only of the same tunnel, credential name, gateway id and slot; at once, without
 *    waiting for the old one.
 * 2. A session leaves when it ends, and only if it is still the registered one.
 */
import { type KeyPrincipal, KeyTable, keyPrincipal } from "../identity/index.ts";
import type { TunnelSession } from "../tunnel/index.ts";
import type { AgentOptions, RelayDeps, RelayTimeouts, TunnelOptions } from "./options.ts";
import { TokenBucket } from "./token-bucket.ts";

/** An entry under `agents`. */
export class Agent {
  readonly name: string;
  readonly principal: KeyPrincipal;
  readonly #servers: ReadonlySet<string>;
  /** `servers: ["*"]`. */
  readonly usesAll: boolean;
  openStreams = 0;

  constructor(options: AgentOptions) {
    this.name = options.name;
    this.principal = keyPrincipal(options.name);
    this.#servers = new Set(options.servers);
    this.usesAll = this.#servers.has("*");
  }

  mayUse(server: string): boolean {
    return this.usesAll || this.#servers.has(server);
  }
}

/** An entry under `gateways`: the name is the credential's, never what a hello says. */
export interface GatewayCredential {
  readonly name: string;
  readonly upgrades: TokenBucket;
}

export interface RegisteredSession {
  readonly gateway: string;
  readonly session: TunnelSession;
}

/** Somebody who waits for a session to come. */
export interface Waiter {
  onSession(): void;
}

/** A gateway chooses the names that it advertises, and how often it comes and goes. */
const maxRemembered = 4_096;

export class Tunnel {
  readonly name: string;
  readonly agents: KeyTable<Agent>;
  readonly gateways: KeyTable<GatewayCredential>;
  readonly #deps: RelayDeps;
  readonly #recentMs: number;
  readonly #sessions = new Map<string, RegisteredSession>();
  /** When a server was last served by a session that is gone. */
  readonly #lastServed = new Map<string, number>();
  readonly #waiters = new Set<Waiter>();

  constructor(
    name: string,
    options: TunnelOptions,
    deps: RelayDeps,
    limits: { readonly recentMs: RelayTimeouts["recentMs"]; readonly upgradesPerMinute: number },
  ) {
    this.name = name;
    this.#deps = deps;
    this.#recentMs = limits.recentMs;
    this.agents = new KeyTable(
      "agent",
      options.agents.map((agent) => ({ sha256: agent.keySha256, value: new Agent(agent) })),
    );
    this.gateways = new KeyTable(
      "tunnel",
      options.gateways.map(({ name: gateway, tokenSha256 }) => ({
        sha256: tokenSha256,
        value: { name: gateway, upgrades: new TokenBucket(limits.upgradesPerMinute, deps.clock) },
      })),
    );
  }

  get sessions(): Iterable<RegisteredSession> {
    return this.#sessions.values();
  }

  /** Sessions of a credential that a newcomer would stand beside, rather than replace. */
  countBeside(gateway: string, id: string, slot: number): number {
    let count = 0;
    for (const { gateway: other, session } of this.#sessions.values()) {
      if (other === gateway && !(session.peer.id === id && session.peer.slot === slot)) count += 1;
    }
    return count;
  }

  /** Registers a session that has said WELCOME. */
  add(gateway: string, session: TunnelSession): void {
    const key = JSON.stringify([gateway, session.peer.id, session.peer.slot]);
    const old = this.#sessions.get(key);
    this.#sessions.set(key, { gateway, session });
    old?.session.terminate("REPLACED", "a newer connection of the same gateway, id and slot");
    this.#log("tunnel connected", gateway, session);
    void session.ended.then((end) => {
      this.#remove(key, session);
      this.#deps.logger.info("tunnel ended", {
        tunnel: this.name,
        gateway,
        connection: session.connId,
        code: end.reason,
        reason: end.detail,
      });
    });
    for (const waiter of [...this.#waiters]) waiter.onSession();
  }

  #log(event: string, gateway: string, session: TunnelSession): void {
    this.#deps.logger.info(event, {
      tunnel: this.name,
      gateway,
      connection: session.connId,
      count: session.servers.length,
    });
  }

  #remove(key: string, session: TunnelSession): void {
    if (this.#sessions.get(key)?.session === session) this.#sessions.delete(key);
    const now = this.#deps.clock.now();
    for (const [server, at] of this.#lastServed) if (now - at > this.#recentMs) this.#lastServed.delete(server);
    for (const server of session.servers) {
      if (this.#lastServed.size < maxRemembered) this.#lastServed.set(server, now);
    }
  }

  /** The least busy session that advertises `server` and takes new streams, leaving out those in `tried`. */
  pick(server: string, tried: readonly TunnelSession[]): TunnelSession | undefined {
    let best: TunnelSession | undefined;
    for (const { session } of this.#sessions.values()) {
      if (!session.isAccepting || (best !== undefined && session.openStreamCount >= best.openStreamCount)) continue;
      if (session.servers.includes(server) && !tried.includes(session)) best = session;
    }
    return best;
  }

  /** Whether some gateway takes new streams, for whatever server. */
  get isConnected(): boolean {
    for (const { session } of this.#sessions.values()) if (session.isAccepting) return true;
    return false;
  }

  /** Whether a gateway that serves `server` went so recently, or is going, that it is likely to be back in a moment. */
  isExpected(server: string): boolean {
    const at = this.#lastServed.get(server);
    if (at !== undefined && this.#deps.clock.now() - at <= this.#recentMs) return true;
    for (const { session } of this.#sessions.values()) {
      if (!session.isAccepting && session.servers.includes(server)) return true;
    }
    return false;
  }

  wait(waiter: Waiter): void {
    this.#waiters.add(waiter);
  }

  stopWaiting(waiter: Waiter): void {
    this.#waiters.delete(waiter);
  }

  get waiterCount(): number {
    return this.#waiters.size;
  }
}
