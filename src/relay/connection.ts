import type { Socket } from "node:net";

/** What a connection must tell, or may end, of the exchanges that run on it. */
export interface LiveExchange {
  /** The agent's socket is gone. */
  agentGone(): void;
  /** The agent has taken no byte for too long; its socket is about to be destroyed. */
  agentStalled(): void;
  /** Called about once per `tickMs`, for every deadline of the exchange. */
  tick(tickMs: number): void;
  /** The request did not come in time. False: an answer is under way, so nothing can be said any more. */
  requestTimedOut(): boolean;
  /** The relay takes nothing new: what would never end by itself makes room. */
  leave(): void;
  /** The relay is going away. */
  cut(): void;
}

/** One connection of an agent. With pipelining it may carry several exchanges, so it owns a set of them. */
export class AgentConnection {
  readonly socket: Socket;
  readonly exchanges = new Set<LiveExchange>();
  /** Requests whose body or answer is still under way: nothing may be written beside them. */
  busyCount = 0;
  /** A last answer was written; whatever comes in is ignored until the socket closes. */
  isClosing = false;
  #lastQueuedBytes = 0;
  #stalledMs = 0;

  constructor(socket: Socket) {
    this.socket = socket;
  }

  closed(): void {
    for (const exchange of [...this.exchanges]) exchange.agentGone();
  }

  /**
   * An agent that takes nothing keeps our buffers full and its upstream waiting; what has been handed to the socket is
   * the only honest measure of that.
   */
  tick(tickMs: number, stalledLimitMs: number): void {
    const queued = this.socket.writableLength;
    this.#stalledMs = queued > 0 && queued === this.#lastQueuedBytes ? this.#stalledMs + tickMs : 0;
    this.#lastQueuedBytes = queued;
    if (this.#stalledMs >= stalledLimitMs) {
      for (const exchange of [...this.exchanges]) exchange.agentStalled();
      this.socket.resetAndDestroy();
      return;
    }
    for (const exchange of this.exchanges) exchange.tick(tickMs);
  }
}
