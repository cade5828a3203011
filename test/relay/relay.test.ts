import { connect } from "node:net";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createToken } from "../../src/identity/index.ts";
import { Secret, systemClock } from "../../src/lib/index.ts";
import { createRelay, type Relay, type RelayOptions } from "../../src/relay/index.ts";
import { createLogger, type Logger, silentLogger } from "../../src/telemetry/index.ts";
import { type DialOutcome, dialTunnel, type GatewaySession, type StreamHandler } from "../../src/tunnel/index.ts";
import { RawClient } from "../support/raw-client.ts";
import { until } from "../support/until.ts";

const deps = { clock: systemClock, random: Math.random, logger: silentLogger };
const acme = createToken("tunnel");
const other = createToken("tunnel");
const key = createToken("agent");
let relay: Relay;
let port: number;
let sessions: GatewaySession[] = [];

async function start(limits: RelayOptions["limits"] = {}, logger: Logger = silentLogger): Promise<void> {
  relay = createRelay(
    {
      listen: { host: "127.0.0.1", port: 0 },
      publicUrl: "http://127.0.0.1",
      allowedHosts: [],
      allowedOrigins: [],
      tunnels: {
        acme: {
          gateways: [{ name: "k8s", tokenSha256: [acme.sha256] }],
          agents: [{ name: "claude", keySha256: [key.sha256], servers: ["*"] }],
        },
        other: { gateways: [{ name: "k8s", tokenSha256: [other.sha256] }], agents: [] },
      },
      limits,
    },
    { ...deps, logger },
  );
  ({ port } = await relay.listen());
}

beforeEach(() => start());

afterEach(async () => {
  for (const session of sessions) session.terminate("SHUTDOWN", "the test is over");
  sessions = [];
  await relay.close();
});

const echo: StreamHandler = (open, stream) => {
  const parts: Buffer[] = [];
  const answer = (): void => {
    stream.sendHead({ status: 200, headers: ["content-type", "application/json"], by: "upstream" });
    if (stream.write(Buffer.concat([Buffer.from(`"${open.server} `), ...parts, Buffer.from('"')]))) stream.end();
    else stream.end();
  };
  if (!open.hasBody) setImmediate(answer);
  return {
    onData: (chunk) => {
      parts.push(Buffer.from(chunk));
      stream.consumed(chunk.length);
    },
    onEnd: answer,
    onReset: () => undefined,
  };
};

function dial(
  options: { tunnel?: string; token?: Secret; id?: string; onStream?: StreamHandler } = {},
): Promise<DialOutcome> {
  return dialTunnel({
    ...deps,
    url: `ws://127.0.0.1:${port}`,
    tunnel: options.tunnel ?? "acme",
    token: options.token ?? acme.token,
    gateway: { id: options.id ?? "edge-1", instance: "i", slot: 0, software: "test" },
    servers: ["tickets"],
    onStream: options.onStream ?? echo,
  });
}

async function connected(options: Parameters<typeof dial>[0] = {}): Promise<GatewaySession> {
  const outcome = await dial(options);
  if (outcome.kind !== "session") throw new Error(JSON.stringify(outcome));
  sessions.push(outcome.session);
  await until(
    () => relay.status().tunnels[0]?.sessions.some(({ connection }) => connection === outcome.session.connId) === true,
    "registered",
  );
  return outcome.session;
}

function call(body: string, method = "POST"): Promise<Response> {
  return fetch(`http://127.0.0.1:${port}/acme/tickets/mcp`, {
    method,
    headers: { authorization: `Bearer ${key.token.reveal()}`, "content-type": "application/json" },
    ...(method === "POST" ? { body } : {}),
  });
}

describe("a relay with a real gateway end", () => {
  it("carries small and large bodies both ways", async () => {
    await connected();
    expect(await (await call("hello")).text()).toBe('"tickets hello"');
    const large = "x".repeat(3_000_000);
    const answer = await (await call(large)).text();
    expect(answer.length).toBe(large.length + '"tickets "'.length);
    expect((await call("", "GET")).status).toBe(200);
    const answers = await Promise.all(Array.from({ length: 100 }, async (_, i) => (await call(`n${i}`)).text()));
    expect(answers).toEqual(Array.from({ length: 100 }, (_, i) => `"tickets n${i}"`));
    await until(() => relay.status().exchanges === 0, "nothing is left");
    await until(() => relay.status().tunnels[0]?.sessions[0]?.streams === 0, "no stream is left");
  });

  it("C29 C32 survives a storm of cancels", async () => {
    let resets = 0;
    const session = await connected({
      onStream: (open, stream) => {
        if (open.method === "POST") return echo(open, stream);
        stream.sendHead({ status: 200, headers: ["content-type", "text/event-stream"], by: "upstream" });
        return { onData: () => undefined, onEnd: () => undefined, onReset: () => (resets += 1) };
      },
    });
    for (let round = 0; round < 8; round += 1) {
      const aborts = Array.from({ length: 50 }, () => new AbortController());
      await Promise.all(
        aborts.map(async (abort) => {
          const answer = await fetch(`http://127.0.0.1:${port}/acme/tickets/mcp`, {
            headers: { authorization: `Bearer ${key.token.reveal()}` },
            signal: abort.signal,
          });
          expect(answer.status).toBe(200);
          abort.abort();
        }),
      );
    }
    await until(() => resets === 400, "every cancel arrived");
    expect(await (await call("still here")).text()).toBe('"tickets still here"');
    expect(session.isAccepting).toBe(true);
    await until(() => relay.status().exchanges === 0 && session.openStreamCount === 0, "nothing is left");
  });

  it("C30 fails calls in flight at once when the gateway dies", async () => {
    const session = await connected({
      onStream: () => ({ onData: () => undefined, onEnd: () => undefined, onReset: () => undefined }),
    });
    const pending = call("x");
    await until(() => session.openStreamCount === 1, "in flight");
    const started = performance.now();
    session.terminate("LOST", "killed");
    expect((await pending).status).toBe(503);
    expect(performance.now() - started).toBeLessThan(1_000);
  });

  it("C31 takes a newcomer at once", async () => {
    const old = await connected();
    const fresh = await connected();
    expect((await old.ended).by).toBe("peer");
    expect(await (await call("x")).text()).toBe('"tickets x"');
    expect(relay.status().tunnels[0]?.sessions.map(({ connection }) => connection)).toEqual([fresh.connId]);
  });

  it("is ready whether or not a gateway is", async () => {
    expect(relay.readiness().isReady).toBe(true);
    await relay.drain(0);
    expect(relay.readiness().isReady).toBe(false);
  });
});

describe("the gateways' door", () => {
  it("answers the same 401 to all who may not come in", async () => {
    const wrong = createToken("tunnel").token;
    const outcomes = await Promise.all([
      dial({ token: wrong }),
      dial({ tunnel: "nobody" }),
      dial({ tunnel: "other" }),
      dial({ token: other.token }),
      dial({ token: key.token }),
      dial({ token: new Secret("nonsense") }),
    ]);
    for (const outcome of outcomes) {
      expect(outcome).toEqual({ kind: "refused", status: 401, reason: "Unauthorized", retryAfterMs: undefined });
    }
  });

  it("limits upgrades per credential, and says when to come again", async () => {
    await relay.close();
    await start({ upgradesPerMinute: 3 });
    for (const id of ["a", "b", "c"]) await connected({ id });
    const refused = await dial({ id: "d" });
    expect(refused).toMatchObject({ kind: "refused", status: 429 });
    expect(refused.kind === "refused" && (refused.retryAfterMs ?? 0)).toBeGreaterThan(1_000);
    const neighbour = await dial({ tunnel: "other", token: other.token });
    expect(neighbour.kind).toBe("session");
    if (neighbour.kind === "session") sessions.push(neighbour.session);
  });

  it("limits the sessions of one credential", async () => {
    await relay.close();
    await start({ sessionsPerGateway: 2 });
    for (const id of ["a", "b"]) await connected({ id });
    expect((await dial({ id: "c" })).kind).toBe("refused");
    await connected({ id: "a" });
  });

  it("outlives a socket that is reset in the tick of its upgrade", async () => {
    for (let i = 0; i < 20; i += 1) {
      const socket = connect({ port, host: "127.0.0.1" });
      socket.on("error", () => undefined);
      const lines = [
        "GET /_postern/v1/tunnel HTTP/1.1",
        "Host: 127.0.0.1",
        "Connection: Upgrade",
        "Upgrade: websocket",
      ];
      lines.push(`Authorization: Bearer ${acme.token.reveal()}`, "Postern-Tunnel: acme", "Sec-WebSocket-Version: 13");
      lines.push("Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol: postern.v1");
      await new Promise<void>((resolve) => socket.once("connect", resolve));
      socket.write(`${lines.join("\r\n")}\r\n\r\n`, () => socket.resetAndDestroy());
      await new Promise<void>((resolve) => socket.once("close", () => resolve()));
    }
    await connected();
    expect((await call("x")).status).toBe(200);
  });

  it("refuses a foreign Host or Origin", async () => {
    const client = new RawClient(port);
    client.send(
      "GET /_postern/v1/tunnel HTTP/1.1\r\nHost: evil.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    );
    await client.has("HTTP/1.1 403");
    await client.closed();
  });
});

describe("the log", () => {
  it("C24 has what a person needs, and no secret", async () => {
    await relay.close();
    const lines: string[] = [];
    const logger = createLogger({ level: "debug", destination: { write: (line) => void lines.push(line) } });
    await start({}, logger);
    const session = await connected();
    await call("body-canary");
    const wrong = createToken("agent").token.reveal();
    await fetch(`http://127.0.0.1:${port}/acme/tickets/mcp?canary`, { headers: { authorization: `Bearer ${wrong}` } });
    await dial({ token: other.token });
    session.terminate("LOST", "gone");
    await until(() => lines.some((line) => line.includes("tunnel ended")), "the end is logged");
    const text = lines.join("");
    for (const event of ["relay listens", "tunnel connected", "request refused", "upgrade refused"])
      expect(text).toContain(event);
    expect(text).toContain('"gateway":"k8s"');
    for (const secret of [acme.token, other.token, key.token]) expect(text).not.toContain(secret.reveal());
    for (const secret of [wrong, acme.sha256, key.sha256, "canary"]) expect(text).not.toContain(secret);
  });
});

describe("other offers to upgrade", () => {
  it("are ignored: Java's HTTP client offers h2c with every request", async () => {
    await connected();
    const client = new RawClient(port);
    const lines = ["POST /acme/tickets/mcp HTTP/1.1", "Host: 127.0.0.1", "Connection: Upgrade, HTTP2-Settings"];
    lines.push("Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA", "Content-Length: 10");
    lines.push(`Authorization: Bearer ${key.token.reveal()}`);
    client.send(`${lines.join("\r\n")}\r\n\r\nfirst`);
    await until(() => relay.status().connections === 1, "the connection is taken back");
    client.send("-half");
    await client.has('"tickets first-half"');
    client.send(`${lines.join("\r\n")}\r\n\r\nonce again`);
    await client.has('"tickets once again"');
    client.send("GET /MCP HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    await client.has("HTTP/1.1 404");
    client.destroy();
  });

  const offer = (body: string): string =>
    [
      "POST /acme/tickets/mcp HTTP/1.1",
      "Host: 127.0.0.1",
      "Connection: Upgrade",
      "Upgrade: h2c",
      `Authorization: Bearer ${key.token.reveal()}`,
      `Content-Length: ${body.length}`,
      "",
      body,
    ].join("\r\n");

  it("leave nothing behind on a connection that makes them again and again", async () => {
    const warnings: string[] = [];
    const note = (warning: Error): void => void warnings.push(warning.name);
    process.on("warning", note);
    await connected();
    const client = new RawClient(port);
    for (let i = 0; i < 12; i += 1) {
      client.send(offer(`call ${i}`));
      await client.has(`"tickets call ${i}"`);
    }
    expect(relay.status().connections).toBe(1);
    client.destroy();
    await until(() => relay.status().connections === 0, "the connection is forgotten");
    process.off("warning", note);
    expect(warnings).toEqual([]);
  });

  it("behind a request that is still running end the connection: their answer could overtake", async () => {
    const held = await connected({
      onStream: () => ({ onData: () => undefined, onEnd: () => undefined, onReset: () => undefined }),
    });
    const client = new RawClient(port);
    client.send(offer("first").replace("Connection: Upgrade\r\nUpgrade: h2c\r\n", ""));
    await until(() => held.openStreamCount === 1, "the first is running");
    client.send("GET /acme/nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n");
    await client.closed();
    expect(client.text).toBe("");
    await until(() => held.openStreamCount === 0, "the first was cancelled");
  });
});

describe("a relay that ends", () => {
  it("drains: lets calls finish, takes no new ones, and leaves nothing open", async () => {
    let finish: () => void = () => undefined;
    const session = await connected({
      onStream: (_open, stream) => {
        finish = () => {
          stream.sendHead({ status: 200, headers: ["content-type", "application/json"], by: "upstream" });
          stream.write(Buffer.from('"late"'));
          stream.end();
        };
        return { onData: () => undefined, onEnd: () => undefined, onReset: () => undefined };
      },
    });
    const pending = call("x");
    await until(() => session.openStreamCount === 1, "in flight");
    const early = new RawClient(port);
    early.send("GET /acme/tickets/m");
    await until(() => relay.status().connections === 2, "a request has begun");
    const drained = relay.drain(5_000);
    await until(() => !session.isAccepting, "the gateway was told");
    await expect(call("y")).rejects.toThrow();
    early.send(`cp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${key.token.reveal()}\r\n\r\n`);
    await early.has("HTTP/1.1 503");
    await early.has('"code":-33011');
    expect(early.text).toContain("Connection: close");
    finish();
    expect(await (await pending).text()).toBe('"late"');
    await drained;
    await session.ended;
  });

  it("ends what does not finish in time visibly", async () => {
    const session = await connected({
      onStream: (_open, stream) => {
        stream.sendHead({ status: 200, headers: ["content-type", "text/event-stream"], by: "upstream", rpcId: "7" });
        stream.write(Buffer.from("data: 1\n\n"));
        return { onData: () => undefined, onEnd: () => undefined, onReset: () => undefined };
      },
    });
    const answer = await call("x");
    await relay.drain(50);
    expect(await answer.text()).toContain('"id":7,"error":{"code":-33011');
    await session.ended;
    await relay.close();
    await relay.drain(10);
  });

  it("cannot listen on a port that is taken, and says so", async () => {
    const second = createRelay(
      {
        listen: { host: "127.0.0.1", port },
        publicUrl: "http://127.0.0.1",
        allowedHosts: [],
        allowedOrigins: [],
        tunnels: {},
      },
      deps,
    );
    await expect(second.listen()).rejects.toMatchObject({ code: "EADDRINUSE" });
    await second.close();
  });
});
