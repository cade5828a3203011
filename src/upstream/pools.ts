/**
 * Connections to one server. With a client certificate each certificate has connections of its own: a new one gets a new
 * pool at once, and the one before carries its calls and event streams to their end before it closes.
 */
import type { SecureContext } from "node:tls";
import { buildConnector, Pool } from "undici";
import { connectTrusting, guardConnect, guardedLookup } from "../lib/index.ts";

/** Whom the server's TLS is shown, and whom we trust there; the same object while nothing of it changes. */
export interface TlsIdentity {
  readonly context: SecureContext;
  /** The same with these PEM certificates trusted besides. */
  contextTrusting(ca: readonly string[]): SecureContext;
}

export interface PoolOptions {
  readonly origin: string;
  /** A PEM file whose certificates are trusted besides; read for each new connection. */
  readonly caFile?: string | undefined;
  readonly connections: number;
  readonly connectMs: number;
}

/** Largest response head, as on the tunnel (docs/protocol.md, limits). */
const maxHeaderBytes = 64 * 1024;

export class Pools {
  readonly #options: PoolOptions;
  #identity: TlsIdentity | undefined;
  #pool: Pool;
  readonly #retired = new WeakSet<TlsIdentity>();
  readonly #draining = new Set<Pool>();

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#pool = createPool(options, undefined);
  }

  /** A call that was given an identity just before it changed takes the present one: there is no way back. */
  poolFor(identity: TlsIdentity | undefined): Pool {
    if (identity === this.#identity || identity === undefined || this.#retired.has(identity)) return this.#pool;
    this.#drain();
    this.#identity = identity;
    this.#pool = createPool(this.#options, identity);
    return this.#pool;
  }

  async destroy(): Promise<void> {
    await Promise.all([this.#pool, ...this.#draining].map((pool) => pool.destroy()));
  }

  #drain(): void {
    const old = this.#pool;
    if (this.#identity !== undefined) this.#retired.add(this.#identity);
    this.#draining.add(old);
    const forget = (): void => void this.#draining.delete(old);
    // Idle connections close now, the others when what they carry has ended.
    old.close().then(forget, forget);
  }
}

function createPool(options: PoolOptions, identity: TlsIdentity | undefined): Pool {
  return new Pool(options.origin, {
    connections: options.connections,
    pipelining: 1,
    maxHeaderSize: maxHeaderBytes,
    // Deadlines are ours: undici's would end quiet event streams.
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: connectorFor(options, identity),
  });
}

/**
 * With TLS 1.3 the server judges our certificate after the connection stands for us. Node then tells the alert and goes on to
 * the end of the stream, for which undici would take it: a socket that is ended by the alert keeps it as the reason.
 */
function connectorFor(options: PoolOptions, identity: TlsIdentity | undefined): buildConnector.connector {
  const connect = trustingConnector(options, identity);
  return guardConnect("pinned", (target: buildConnector.Options, callback: buildConnector.Callback) => {
    connect(target, (...[error, socket]) => {
      if (error !== null || socket === null) {
        callback(error ?? new Error("no socket"), null);
        return;
      }
      socket.once("error", (reason) => void socket.destroy(reason));
      callback(null, socket);
    });
  });
}

function trustingConnector(
  { connectMs, caFile }: PoolOptions,
  identity: TlsIdentity | undefined,
): buildConnector.connector {
  // Said outright, because NODE_TLS_REJECT_UNAUTHORIZED changes only the default.
  const strict = { timeout: connectMs, rejectUnauthorized: true, lookup: guardedLookup("pinned") };
  const build = (secureContext: SecureContext): buildConnector.connector =>
    buildConnector({ ...strict, secureContext });
  if (caFile !== undefined) return connectTrusting(caFile, build, identity && ((ca) => identity.contextTrusting(ca)));
  return identity === undefined ? buildConnector(strict) : build(identity.context);
}
