import type { AddressInfo } from "node:net";
import { createToken } from "../../src/identity/index.ts";
import { systemClock } from "../../src/lib/index.ts";
import type { ExchangeContext } from "../../src/relay/exchange.ts";
import { Flusher } from "../../src/relay/flusher.ts";
import { HostRules } from "../../src/relay/hosts.ts";
import { Ingress } from "../../src/relay/ingress.ts";
import {
  defaultRelayLimits,
  defaultRelayTimeouts,
  type RelayLimits,
  type RelayTimeouts,
} from "../../src/relay/options.ts";
import { RelayTally } from "../../src/relay/tally.ts";
import { Tunnel } from "../../src/relay/tunnels.ts";
import { silentLogger } from "../../src/telemetry/index.ts";
import { FakeSession } from "../support/fake-tunnel.ts";
import { RawClient } from "../support/raw-client.ts";

export interface RigOptions {
  readonly limits?: Partial<RelayLimits>;
  readonly timeouts?: Partial<RelayTimeouts>;
  readonly servers?: readonly string[];
  readonly allowedOrigins?: readonly string[];
}

const tickMs = 10;

/** The relay's public side with scripted sessions behind it: one tunnel `acme`, one agent `claude`. */
export class Rig {
  readonly key = createToken("agent");
  readonly wildcardKey = createToken("agent");
  readonly tunnel: Tunnel;
  readonly ingress: Ingress;
  port = 0;
  readonly #clients: RawClient[] = [];
  readonly #stalledMs: number;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: RigOptions = {}) {
    const deps = { clock: systemClock, random: Math.random, logger: silentLogger };
    const limits = { ...defaultRelayLimits, ...options.limits };
    const timeouts = { ...defaultRelayTimeouts, ...options.timeouts };
    const context: ExchangeContext = { ...deps, limits, timeouts, flusher: new Flusher(), tally: new RelayTally() };
    const agents = [
      { name: "claude", keySha256: [this.key.sha256], servers: options.servers ?? ["tickets"] },
      { name: "root", keySha256: [this.wildcardKey.sha256], servers: ["*"] },
    ];
    this.tunnel = new Tunnel("acme", { gateways: [], agents }, deps, { ...timeouts, ...limits });
    this.ingress = new Ingress(context, {
      hosts: new HostRules("https://relay.example.com", ["127.0.0.1"], options.allowedOrigins ?? []),
      tunnels: new Map([["acme", this.tunnel]]),
      onUpgrade: (_req, socket) => socket.destroy(),
    });
    this.#stalledMs = timeouts.stalledMs;
    this.#timer = setInterval(() => this.passMs(tickMs), tickMs);
  }

  /** Time passes for everything that is counted in ticks, without anybody waiting for it. */
  passMs(ms: number): void {
    for (let passed = 0; passed < ms; passed += tickMs) {
      for (const connection of this.ingress.connections) connection.tick(tickMs, this.#stalledMs);
    }
  }

  async listen(): Promise<this> {
    await new Promise<void>((resolve) => this.ingress.server.listen(0, "127.0.0.1", resolve));
    this.port = (this.ingress.server.address() as AddressInfo).port;
    return this;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}/acme/tickets/mcp`;
  }

  connect(servers: string[] = ["tickets"], peer: ConstructorParameters<typeof FakeSession>[1] = {}): FakeSession {
    const session = new FakeSession(servers, peer);
    this.tunnel.add("k8s", session);
    return session;
  }

  /** A POST (or another verb) with the agent's key. */
  fetch(
    options: {
      path?: string;
      method?: string;
      body?: string;
      headers?: Record<string, string>;
      signal?: AbortSignal;
    } = {},
  ): Promise<Response> {
    const { path = "/acme/tickets/mcp", method = "POST", headers, signal } = options;
    const body = options.body ?? (method === "POST" ? '{"jsonrpc":"2.0","id":1,"method":"ping"}' : undefined);
    return fetch(`http://127.0.0.1:${this.port}${path}`, {
      method,
      headers: { authorization: `Bearer ${this.key.token.reveal()}`, "content-type": "application/json", ...headers },
      ...(body === undefined ? {} : { body }),
      ...(signal === undefined ? {} : { signal }),
      redirect: "manual",
    });
  }

  raw(): RawClient {
    const client = new RawClient(this.port);
    this.#clients.push(client);
    return client;
  }

  /** A request as it stands on the wire; a value may be given several times. */
  request(line: string, headers: readonly string[] = [], body = ""): string {
    const own = line.startsWith("POST") && !headers.some((h) => /^(content-length|transfer-encoding):/i.test(h));
    const lines = [
      line,
      ...(headers.some((header) => /^host:/i.test(header)) ? [] : ["Host: 127.0.0.1"]),
      ...(headers.some((header) => /^authorization:/i.test(header))
        ? []
        : [`Authorization: Bearer ${this.key.token.reveal()}`]),
      ...headers,
      ...(own ? [`Content-Length: ${Buffer.byteLength(body)}`] : []),
    ];
    return `${lines.join("\r\n")}\r\n\r\n${body}`;
  }

  /** Nothing of any exchange is left. */
  get leftovers(): number {
    let count = this.tunnel.waiterCount + (this.agentStreams ?? 0);
    for (const connection of this.ingress.connections) count += connection.exchanges.size + connection.busyCount;
    return count;
  }

  get agentStreams(): number | undefined {
    return this.tunnel.agents.find(this.key.token.reveal())?.openStreams;
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    for (const client of this.#clients) client.destroy();
    const closed = new Promise((resolve) => this.ingress.server.close(resolve));
    this.ingress.server.closeAllConnections();
    await closed;
  }
}
