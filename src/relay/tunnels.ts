/**
 * Which gateways are connected. One `Tunnel` per name in relay.yaml, for as long as it stands there.
 *
 * 1. A newcomer replaces a session only of the same tunnel, credential name, gateway id and slot; at once, without
 *    waiting for the old one. One that drains has made room already: it goes on with its streams until its drain is over.
 * 2. A session leaves when it ends, and only if it is still the registered one.
 * 3. No session outlives the credential that it came with, be it that it expires or that a reload takes it away.
 */
import { KeyRings, type VerifiedToken } from "../identity/index.ts";
import type { SessionEnd, TunnelSession } from "../tunnel/index.ts";
import { Agents } from "./agents.ts";
import { type GatewayCredential, Gateways } from "./gateways.ts";
import type { RelayDeps, RelayTimeouts, TunnelOptions } from "./options.ts";
import { watchExpiry } from "./session-expiry.ts";

export interface RegisteredSession {
  readonly gateway: string;
  readonly session: TunnelSession;
}

/** What a gateway came in with. */
export interface SessionCredential {
  readonly credential: GatewayCredential;
  /** Undefined: a tunnel token, which does not expire. */
  readonly token: VerifiedToken | undefined;
}

/** Somebody who waits for a session to come. */
export interface Waiter {
  onSession(): void;
}

const replacedBy = "a newer connection of the same gateway, id and slot";
/** A gateway chooses the names that it advertises, and how often it comes and goes. */
const maxRemembered = 4_096;
/** Ends after which the same process dials again. With a SHUTDOWN it goes, and so do its MCP sessions. */
const comesBack: ReadonlySet<SessionEnd["reason"]> = new Set<SessionEnd["reason"]>([
  "LOST",
  "MAX_AGE",
  "REBALANCE",
  "AUTH_EXPIRED",
  "PROTOCOL_ERROR",
  "FLOW_CONTROL_ERROR",
  "INTERNAL",
]);

export class Tunnel {
  readonly name: string;
  readonly agents: Agents;
  readonly gateways: Gateways;
  readonly #deps: RelayDeps;
  readonly #recentMs: number;
  readonly #sessions = new Map<string, RegisteredSession>();
  /** When a server was last served by a session that is gone. */
  readonly #lastServed = new Map<string, number>();
  /** Gateway processes whose session was lost, by its place: they are likely to dial again, and hold the MCP sessions of agents. */
  readonly #lost = new Map<string, { readonly instance: string; readonly at: number }>();
  readonly #waiters = new Set<Waiter>();
  readonly #credentials = new WeakMap<TunnelSession, GatewayCredential>();

  constructor(
    name: string,
    options: TunnelOptions,
    deps: RelayDeps,
    limits: { readonly recentMs: RelayTimeouts["recentMs"]; readonly upgradesPerMinute: number },
    keyRings = new KeyRings(deps),
  ) {
    this.name = name;
    this.#deps = deps;
    this.#recentMs = limits.recentMs;
    this.agents = new Agents(deps, keyRings);
    this.gateways = new Gateways(deps, keyRings, limits.upgradesPerMinute);
    this.plan(options)();
  }

  /**
   * Works out what `options` change, and throws if that cannot be; the function that is returned changes it. Then the sessions of
   * credentials that are there no more have ended, and the event streams of agents whose key is not there end soon.
   */
  plan(options: TunnelOptions): () => void {
    const changeAgents = this.agents.plan(options.agents);
    const changeGateways = this.gateways.plan(options.gateways);
    return () => {
      changeAgents();
      changeGateways();
      for (const { session } of [...this.#sessions.values()]) this.#endIfRevoked(session);
    };
  }

  #endIfRevoked(session: TunnelSession): void {
    if (this.#credentials.get(session)?.isRevoked === true) session.goAway("REVOKED", 0);
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

  /** Registers a session that has said WELCOME. `by` undefined: its credential is not looked after. */
  add(gateway: string, session: TunnelSession, by?: SessionCredential): void {
    const key = JSON.stringify([gateway, session.peer.id, session.peer.slot]);
    const old = this.#sessions.get(key);
    this.#sessions.set(key, { gateway, session });
    if (old?.session.isAccepting === false) this.#letLeave(`leaving ${key}`, old);
    else old?.session.terminate("REPLACED", replacedBy);
    this.#lost.delete(key);
    this.#log("tunnel connected", gateway, session);
    void session.ended.then((end) => {
      if (comesBack.has(end.reason) && this.#sessions.get(key)?.session === session) this.#noteLost(key, session);
      this.#remove(session);
      this.#deps.logger.info("tunnel ended", {
        tunnel: this.name,
        gateway,
        connection: session.connId,
        code: end.reason,
        reason: end.detail,
      });
    });
    if (by !== undefined) this.#lookAfter(session, by);
    for (const waiter of [...this.#waiters]) waiter.onSession();
  }

  #lookAfter(session: TunnelSession, { credential, token }: SessionCredential): void {
    this.#credentials.set(session, credential);
    if (token !== undefined) watchExpiry(session, token, this.#deps.clock);
    // A reload may have come between the upgrade and the welcome.
    this.#endIfRevoked(session);
  }

  #log(event: string, gateway: string, session: TunnelSession): void {
    this.#deps.logger.info(event, {
      tunnel: this.name,
      gateway,
      connection: session.connId,
      count: session.servers.length,
    });
  }

  /** One that drains serves its streams beside its successor: one such session for each place, since their ends are theirs to choose. */
  #letLeave(key: string, old: RegisteredSession): void {
    const before = this.#sessions.get(key);
    this.#sessions.set(key, old);
    before?.session.terminate("REPLACED", replacedBy);
  }

  #remove(session: TunnelSession): void {
    for (const [key, entry] of this.#sessions) if (entry.session === session) this.#sessions.delete(key);
    const now = this.#deps.clock.now();
    for (const [server, at] of this.#lastServed) if (now - at > this.#recentMs) this.#lastServed.delete(server);
    for (const server of session.servers) {
      if (this.#lastServed.size < maxRemembered) this.#lastServed.set(server, now);
    }
  }

  #noteLost(key: string, session: TunnelSession): void {
    const now = this.#deps.clock.now();
    for (const [other, { at }] of this.#lost) if (now - at > this.#recentMs) this.#lost.delete(other);
    if (this.#lost.size < maxRemembered) this.#lost.set(key, { instance: session.peer.instance, at: now });
  }

  /**
   * The least busy session that advertises `server` and takes new streams, leaving out those in `tried`. `instance`: of no other
   * gateway process than this one, as long as it is here or likely to be back.
   */
  pick(server: string, tried: readonly TunnelSession[], instance?: string): TunnelSession | undefined {
    const only = instance !== undefined && this.#belongsTo(server, instance) ? instance : undefined;
    let best: TunnelSession | undefined;
    for (const { session } of this.#sessions.values()) {
      if (only !== undefined && session.peer.instance !== only) continue;
      if (!session.isAccepting || (best !== undefined && session.openStreamCount >= best.openStreamCount)) continue;
      if (session.servers.includes(server) && !tried.includes(session)) best = session;
    }
    return best;
  }

  #belongsTo(server: string, instance: string): boolean {
    for (const { session } of this.#sessions.values()) {
      if (session.peer.instance !== instance || session.drainReason === "SHUTDOWN") continue;
      if (session.servers.includes(server)) return true;
    }
    const now = this.#deps.clock.now();
    for (const lost of this.#lost.values()) {
      if (lost.instance === instance && now - lost.at <= this.#recentMs) return true;
    }
    return false;
  }

  /**
   * Whether some gateway takes new streams, for whatever server. One that serves none, such as `postern doctor`, must not turn
   * "the gateway is away" into "there is no such server".
   */
  get isConnected(): boolean {
    for (const { session } of this.#sessions.values())
      if (session.isAccepting && session.servers.length > 0) return true;
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
