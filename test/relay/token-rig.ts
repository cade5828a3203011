import { createToken } from "../../src/identity/index.ts";
import { type Clock, Secret, systemClock } from "../../src/lib/index.ts";
import { createRelay, type Relay, type RelayOptions } from "../../src/relay/index.ts";
import { createLogger } from "../../src/telemetry/index.ts";
import { type DialOutcome, dialTunnel, type GatewaySession, type StreamHandler } from "../../src/tunnel/index.ts";
import { TestIssuer } from "../support/issuer.ts";
import { until } from "../support/until.ts";

const publicUrl = "http://127.0.0.1";
/** A quarter of the shortest of its times. */
const lookEveryMs = 15;

/** A relay with a real gateway end, an issuer, one agent by key; its wall clock can be moved. */
export class TokenRig {
  readonly issuer = new TestIssuer();
  readonly tunnelToken = createToken("tunnel");
  readonly key = createToken("agent");
  readonly otherKey = createToken("agent");
  readonly lines: string[] = [];
  /** How far the relay's wall clock is ahead. */
  aheadMs = 0;
  port = 0;
  #relay: Relay | undefined;
  readonly #sessions: GatewaySession[] = [];

  get relay(): Relay {
    if (this.#relay === undefined) throw new Error("not started");
    return this.#relay;
  }

  /** Times that the relay has looked at all deadlines. */
  #looks = 0;

  readonly clock: Clock = {
    now: () => systemClock.now(),
    wall: () => systemClock.wall() + this.aheadMs,
    after: (ms, fire) =>
      systemClock.after(ms, () => {
        fire();
        if (ms === lookEveryMs) this.#looks += 1;
      }),
  };

  /** Until the relay must have noticed what is past its time. */
  async looked(): Promise<void> {
    const before = this.#looks;
    await until(() => this.#looks > before + 1, "the relay looks at the deadlines");
  }

  /** The tunnel `acme` as it is by default: `tickets` for a key, all that `oauth` says for tokens. */
  tunnel(more: Partial<RelayOptions["tunnels"][string]> = {}): RelayOptions["tunnels"][string] {
    return {
      gateways: [{ name: "k8s", tokenSha256: [this.tunnelToken.sha256] }],
      agents: [
        { name: "claude", keySha256: [this.key.sha256], servers: ["tickets"] },
        { oauth: { issuer: this.issuer.url }, servers: ["tickets", "wiki"] },
      ],
      ...more,
    };
  }

  options(tunnels: RelayOptions["tunnels"]): RelayOptions {
    return {
      listen: { host: "127.0.0.1", port: 0 },
      publicUrl,
      allowedHosts: [],
      allowedOrigins: ["https://app.example.com"],
      tunnels: { plain: { gateways: [], agents: [] }, ...tunnels },
      timeouts: { keepAliveMs: 4 * lookEveryMs, holdMs: 100, recentMs: 100 },
    };
  }

  async start(more: Partial<RelayOptions["tunnels"][string]> = {}): Promise<this> {
    if (this.issuer.keys.length === 0) await this.issuer.start();
    const logger = createLogger({ level: "debug", destination: { write: (line) => void this.lines.push(line) } });
    this.#relay = createRelay(this.options({ acme: this.tunnel(more) }), {
      clock: this.clock,
      random: Math.random,
      logger,
    });
    ({ port: this.port } = await this.relay.listen());
    return this;
  }

  reload(tunnels: RelayOptions["tunnels"]): void {
    this.relay.reload(this.options(tunnels));
  }

  /** A token of the issuer for the agent's URL of `server`. */
  token(claims: Readonly<Record<string, unknown>> = {}, server = "tickets"): Promise<string> {
    return this.issuer.token({ claims: { aud: this.resource(server), ...claims } });
  }

  resource(server: string, tunnel = "acme"): string {
    return `${publicUrl}/${tunnel}/${server}/mcp`;
  }

  fetch(path: string, bearer?: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    if (bearer !== undefined) headers.set("authorization", `Bearer ${bearer}`);
    return fetch(`http://127.0.0.1:${this.port}${path}`, { ...init, headers, redirect: "manual" });
  }

  call(bearer?: string, server = "tickets"): Promise<Response> {
    const init = { method: "POST", body: "{}", headers: { "content-type": "application/json" } };
    return this.fetch(`/acme/${server}/mcp`, bearer, init);
  }

  dial(options: { token?: string; onStream?: StreamHandler; id?: string } = {}): Promise<DialOutcome> {
    return dialTunnel({
      clock: systemClock,
      random: Math.random,
      logger: createLogger({ level: "silent", destination: { write: () => undefined } }),
      url: `ws://127.0.0.1:${this.port}`,
      tunnel: "acme",
      token: new Secret(options.token ?? this.tunnelToken.token.reveal()),
      gateway: { id: options.id ?? "edge-1", instance: "i", slot: 0, software: "test" },
      servers: ["tickets", "wiki"],
      onStream: options.onStream ?? tellPrincipal,
    });
  }

  async connect(options: Parameters<TokenRig["dial"]>[0] = {}): Promise<GatewaySession> {
    const outcome = await this.dial(options);
    if (outcome.kind !== "session") throw new Error(JSON.stringify(outcome));
    this.#sessions.push(outcome.session);
    const isThere = () =>
      this.relay
        .status()
        .tunnels.some(({ sessions }) => sessions.some(({ connection }) => connection === outcome.session.connId));
    await until(isThere, "registered");
    return outcome.session;
  }

  async close(): Promise<void> {
    for (const session of this.#sessions) session.terminate("SHUTDOWN", "the test is over");
    await this.#relay?.close();
    await this.issuer.close();
  }
}

/** Answers with the principal that the relay claims. */
export const tellPrincipal: StreamHandler = (open, stream) => {
  const answer = (): void => {
    stream.sendHead({ status: 200, headers: ["content-type", "application/json"], by: "upstream" });
    stream.write(Buffer.from(JSON.stringify(open.principal)));
    stream.end();
  };
  if (!open.hasBody) setImmediate(answer);
  return {
    onData: (chunk) => stream.consumed(chunk.length),
    onEnd: answer,
    onReset: () => undefined,
  };
};
