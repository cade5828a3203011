import type { Clock } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { HttpCall, type UpstreamCall, type UpstreamSink } from "./call.ts";
import { Deadlines } from "./deadlines.ts";
import { Pools, type TlsIdentity } from "./pools.ts";

export interface UpstreamOptions {
  /** `http` or `https`; requests go to exactly this URL, query included. */
  readonly url: string;
  /** A PEM file whose certificates are trusted beside the system's roots; read for each new connection. */
  readonly caFile?: string | undefined;
  readonly timeouts?: {
    /** Request to response head; default 5 min. */
    readonly firstByteMs?: number;
    /** Between two chunks of a body that is no event stream; default 10 min. */
    readonly idleMs?: number;
    /** How long a paused answer may stay unread; default 5 min. */
    readonly stalledMs?: number;
    readonly connectMs?: number;
  };
  /** Sockets at most; each call, event streams included, holds one. Default 2,048. */
  readonly connections?: number;
  readonly logger: Logger;
  readonly clock: Clock;
}

export interface UpstreamRequest {
  readonly method: "POST" | "GET" | "DELETE";
  /** Everything the upstream shall see beside Host, Connection, Content-Length and Accept-Encoding; given away: the call adds to it. */
  readonly headers: string[];
  readonly body?: Buffer | undefined;
  /** Whom TLS shows the server. A new one gets connections of its own; those of the one before end with their calls. */
  readonly tls?: TlsIdentity | undefined;
  /** Shortens the first-byte deadline for this call. */
  readonly firstByteMs?: number;
}

export interface Upstream {
  /** Starts a call. The sink is never called before this returns. */
  request(request: UpstreamRequest, sink: UpstreamSink): UpstreamCall;
  /** Calls in progress. */
  readonly openCount: number;
  /** Ends every call with `closed`; resolves when the sockets are gone. */
  close(): Promise<void>;
}

/** Enough sockets for every stream of a tunnel session: fewer would let slow streams hold up everybody else's calls. */
const defaultConnections = 2048;

class HttpUpstream implements Upstream {
  readonly #pools: Pools;
  readonly #path: string;
  readonly #clock: Clock;
  readonly #deadlines: Deadlines;
  readonly #timeouts: { readonly firstByteMs: number; readonly idleMs: number; readonly stalledMs: number };

  constructor(options: UpstreamOptions) {
    const url = new URL(options.url);
    this.#path = url.pathname + url.search;
    this.#clock = options.clock;
    this.#timeouts = {
      firstByteMs: options.timeouts?.firstByteMs ?? 5 * 60_000,
      idleMs: options.timeouts?.idleMs ?? 10 * 60_000,
      stalledMs: options.timeouts?.stalledMs ?? 5 * 60_000,
    };
    const shortest = Math.min(this.#timeouts.firstByteMs, this.#timeouts.idleMs, this.#timeouts.stalledMs);
    this.#deadlines = new Deadlines({ clock: options.clock, tickMs: Math.min(1000, Math.max(5, shortest / 10)) });
    this.#pools = new Pools({
      origin: url.origin,
      caFile: options.caFile,
      connections: options.connections ?? defaultConnections,
      connectMs: options.timeouts?.connectMs ?? 10_000,
    });
  }

  get openCount(): number {
    return this.#deadlines.size;
  }

  request(request: UpstreamRequest, sink: UpstreamSink): UpstreamCall {
    const { method, headers, body = null, tls, firstByteMs } = request;
    const call = new HttpCall(sink, this.#clock, this.#deadlines, this.#timeouts, firstByteMs);
    // The body is judged and passed on as it is: an encoded one could not be read (cases.md C06).
    headers.push("accept-encoding", "identity");
    call.dispatch(this.#pools.poolFor(tls), { path: this.#path, method, headers, body });
    return call;
  }

  async close(): Promise<void> {
    await this.#pools.destroy();
  }
}

/** Opens no connection by itself. Throws TypeError for a URL that is no URL. */
export function createUpstream(options: UpstreamOptions): Upstream {
  return new HttpUpstream(options);
}
