import type { Clock, Timer } from "../lib/index.ts";

/**
 * What must be remembered of the MCP sessions of one server: which request ids are in flight in each, and which
 * requests of the server wait for an answer that the agent will post.
 *
 * Every entry belongs to an exchange and goes with it. A request that a broken stream carried lives on for a while, since
 * the agent may resume that stream and still answer.
 */

/** Asks per session and of the whole server; the oldest of the session gives way. */
export const maxAsksPerSession = 256;
const maxAsks = 16_384;
const lingerMs = 5 * 60_000;

interface Ask {
  /** When it goes; Infinity while its exchange is open. */
  until: number;
  /** An answer is on its way. */
  isClaimed: boolean;
}

export class McpSessions {
  readonly #clock: Clock;
  readonly #inFlight = new Map<string, Set<string>>();
  /** Session, then id of the server's request. */
  readonly #asks = new Map<string, Map<string, Ask>>();
  #askCount = 0;
  #timer: Timer | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Sessions that anything is remembered of. */
  get size(): number {
    return new Set([...this.#inFlight.keys(), ...this.#asks.keys()]).size;
  }

  /** False when a request with this id is in flight in the session already. */
  begin(session: string, id: string): boolean {
    let ids = this.#inFlight.get(session);
    if (ids === undefined) {
      ids = new Set();
      this.#inFlight.set(session, ids);
    } else if (ids.has(id)) {
      return false;
    }
    ids.add(id);
    return true;
  }

  finish(session: string, id: string): void {
    const ids = this.#inFlight.get(session);
    if (ids?.delete(id) === true && ids.size === 0) this.#inFlight.delete(session);
  }

  /** The server asked something of the agent. False: too many are pending, so the answer could not be let through. */
  ask(session: string, id: string): boolean {
    let asks = this.#asks.get(session);
    if (asks === undefined) {
      asks = new Map();
      this.#asks.set(session, asks);
    }
    if (!asks.has(id)) {
      if (this.#askCount >= maxAsks) return this.#refuseAsk(session, asks);
      if (asks.size >= maxAsksPerSession) this.#dropOldest(session, asks);
      this.#askCount += 1;
    }
    asks.set(id, { until: Number.POSITIVE_INFINITY, isClaimed: false });
    return true;
  }

  /**
   * True for the first answer to a request of the server that waits for one in this session. Until `dropAsk`, as the answer
   * leaves, or `releaseAsk`, if it does not, there is no second.
   */
  claimAsk(session: string, id: string): boolean {
    const ask = this.#asks.get(session)?.get(id);
    if (ask === undefined || ask.isClaimed || ask.until <= this.#clock.now()) return false;
    ask.isClaimed = true;
    return true;
  }

  /** The answer did not leave: the agent may send it again. */
  releaseAsk(session: string, id: string): void {
    const ask = this.#asks.get(session)?.get(id);
    if (ask !== undefined) ask.isClaimed = false;
  }

  dropAsk(session: string, id: string): void {
    const asks = this.#asks.get(session);
    if (asks?.delete(id) !== true) return;
    this.#askCount -= 1;
    if (asks.size === 0) this.#asks.delete(session);
  }

  /** The exchange that carried the request broke: an answer may still come for five minutes. */
  lingerAsk(session: string, id: string): void {
    const ask = this.#asks.get(session)?.get(id);
    if (ask === undefined) return;
    ask.until = this.#clock.now() + lingerMs;
    this.#timer ??= this.#clock.after(lingerMs, () => this.#sweep());
  }

  /** The MCP session ended. */
  forget(session: string): void {
    const asks = this.#asks.get(session);
    if (asks === undefined) return;
    this.#askCount -= asks.size;
    this.#asks.delete(session);
  }

  #refuseAsk(session: string, asks: ReadonlyMap<string, Ask>): false {
    if (asks.size === 0) this.#asks.delete(session);
    return false;
  }

  #dropOldest(session: string, asks: ReadonlyMap<string, Ask>): void {
    const oldest = asks.keys().next();
    if (oldest.done !== true) this.dropAsk(session, oldest.value);
  }

  #sweep(): void {
    this.#timer = undefined;
    const now = this.#clock.now();
    let isLingering = false;
    for (const [session, asks] of this.#asks) {
      for (const [id, { until }] of asks) {
        if (until <= now) this.dropAsk(session, id);
        else if (until !== Number.POSITIVE_INFINITY) isLingering = true;
      }
    }
    if (isLingering) this.#timer = this.#clock.after(lingerMs, () => this.#sweep());
  }
}
