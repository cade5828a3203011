import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { createGateway, type Gateway } from "../../src/gateway/index.ts";
import { Secret, systemClock } from "../../src/lib/index.ts";
import { compilePolicy } from "../../src/policy/index.ts";
import { silentLogger } from "../../src/telemetry/index.ts";
import {
  acceptTunnel,
  type Head,
  type Open,
  type Reset,
  type TunnelSession,
  type TunnelStream,
} from "../../src/tunnel/index.ts";
import { until } from "../support/until.ts";
import { bearer, openPolicy, toolCall } from "./harness.ts";
import { type Behaviour, echoResult, ScriptedUpstream } from "./scripted-upstream.ts";

/** The relay's end of a real tunnel on loopback. */
class Relay {
  readonly sessions: TunnelSession[] = [];
  readonly #server: Server = createServer();

  async start(): Promise<string> {
    this.#server.on("upgrade", (req, socket, head) => {
      socket.on("error", () => undefined);
      void acceptTunnel({
        req,
        socket,
        head,
        node: { id: "relay", instance: "r1", software: "test" },
        onHello: () => ({ kind: "accept" }),
        clock: systemClock,
        random: Math.random,
        logger: silentLogger,
      }).then((outcome) => {
        if (outcome.kind === "session") this.sessions.push(outcome.session);
      });
    });
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `ws://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get current(): TunnelSession {
    return this.sessions.at(-1)!;
  }

  async stop(): Promise<void> {
    for (const session of this.sessions) session.terminate("SHUTDOWN", "test over");
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

class Agent {
  head: Head | undefined;
  text = "";
  isEnded = false;
  reset: Reset | undefined;
  stream: TunnelStream | undefined;

  constructor(session: TunnelSession, body: Buffer) {
    const open: Open = {
      server: "tickets",
      method: "POST",
      headers: ["content-type", "application/json"],
      hasBody: true,
      deadlineMs: 60_000,
      requestId: "req-1",
      principal: { id: "key:claude", kind: "key", claims: {} },
    };
    const stream = session.openStream(open, {
      onHead: (head) => {
        this.head = head;
      },
      onData: (chunk) => {
        this.text += chunk.toString("latin1");
        this.stream?.consumed(chunk.length);
      },
      onEnd: () => {
        this.isEnded = true;
      },
      onReset: (reset) => {
        this.reset = reset;
      },
    });
    if ("code" in stream) throw new Error(stream.code);
    this.stream = stream;
    stream.write(body);
    stream.end();
  }
}

let cleanups: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.reverse()) await cleanup();
  cleanups = [];
});

interface Parts {
  readonly gateway: Gateway;
  readonly relay: Relay;
  readonly upstream: ScriptedUpstream;
  readonly auditFile: string;
}

async function start(behave: Behaviour): Promise<Parts> {
  const relay = new Relay();
  const url = await relay.start();
  const upstream = await ScriptedUpstream.start(behave);
  const folder = mkdtempSync(join(tmpdir(), "postern-audit-"));
  const auditFile = join(folder, "a.jsonl");
  const gateway = createGateway(
    {
      relay: { url, tunnel: "acme", readToken: () => new Secret("ptk_test") },
      id: "edge-1",
      software: "postern/test",
      servers: { tickets: { url: upstream.url } },
      audit: { target: { file: auditFile }, onError: "deny" },
    },
    {
      policy: compilePolicy(openPolicy),
      credentials: { forServer: () => bearer },
      clock: systemClock,
      random: () => 0.05,
      logger: silentLogger,
    },
  );
  cleanups.push(
    async () => rmSync(folder, { recursive: true }),
    () => relay.stop(),
    () => upstream.stop(),
    () => gateway.stop(0),
  );
  gateway.start();
  await until(() => gateway.ready() && relay.sessions.length === 1, "the tunnel is up");
  return { gateway, relay, upstream, auditFile };
}

describe("a gateway on a real tunnel", () => {
  it("serves a call, one of 4 MiB and an answer of 20 MB too", async () => {
    const big = JSON.stringify("y".repeat(20_000_000));
    const { gateway, relay, upstream } = await start((request, response) => {
      if (request.body.length < 1000) echoResult(request, response);
      else
        response
          .writeHead(200, { "content-type": "application/json" })
          .end(`{"jsonrpc":"2.0","id":1,"result":{"content":[${big}]}}`);
    });
    const small = new Agent(relay.current, Buffer.from(toolCall("get_x")));
    await until(() => small.isEnded, "small call");
    expect([small.head?.status, small.text]).toEqual([200, '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}']);
    const body = Buffer.from(toolCall("get_x", 1, `,"pad":"${"x".repeat(4 * 1024 * 1024 - 200)}"`));
    const large = new Agent(relay.current, body);
    await until(() => large.isEnded || large.reset !== undefined, "large call", 15_000);
    expect(large.reset).toBeUndefined();
    expect(upstream.seen.at(-1)?.body.equals(body)).toBe(true);
    expect(large.text.length).toBe(20_000_000 + '{"jsonrpc":"2.0","id":1,"result":{"content":[""]}}'.length);
    expect(gateway.status()).toMatchObject({ openExchanges: 0, openUpstreamCalls: 0, bodyBytes: 0 });
  });

  it("C11 a cancelled stream closes its upstream request within 100 ms", async () => {
    const { gateway, relay, upstream } = await start(() => undefined);
    const agent = new Agent(relay.current, Buffer.from(toolCall("get_x")));
    await until(() => upstream.seen.length === 1, "at the upstream");
    const cancelledAt = performance.now();
    agent.stream?.reset("CANCEL");
    await until(() => upstream.seen[0]?.isAborted() === true, "aborted");
    expect(performance.now() - cancelledAt).toBeLessThan(500);
    expect(gateway.status().openExchanges).toBe(0);
  });

  it("C29 C30 when the tunnel dies its calls are let go, and the next tunnel serves again", async () => {
    const { gateway, relay, upstream } = await start((request, response) => {
      if (!request.body.includes("get_slow")) echoResult(request, response);
    });
    const calls = Array.from({ length: 20 }, () => new Agent(relay.current, Buffer.from(toolCall("get_slow"))));
    await until(() => upstream.seen.length === 20, "at the upstream");
    relay.current.terminate("LOST", "cable pulled");
    await until(() => upstream.seen.every((seen) => seen.isAborted()), "all aborted", 1000);
    expect(calls.every((call) => call.reset?.code === "TUNNEL_LOST")).toBe(true);
    expect(gateway.status()).toMatchObject({ openExchanges: 0, openUpstreamCalls: 0, mcpSessions: 0 });
    await until(() => relay.sessions.length === 2 && gateway.ready(), "the next tunnel");
    const again = new Agent(relay.current, Buffer.from(toolCall("get_x")));
    await until(() => again.isEnded, "served again");
    expect(again.head?.status).toBe(200);
  });

  it("C32 a storm of cancels leaves the tunnel, the other calls and the upstream alone", async () => {
    const { gateway, relay, upstream } = await start((request, response) => {
      if (!request.body.includes("get_slow")) echoResult(request, response);
    });
    const good: Agent[] = [];
    for (let i = 0; i < 1000; i += 1) {
      new Agent(relay.current, Buffer.from(toolCall("get_slow"))).stream?.reset("CANCEL");
      if (i % 50 === 0) good.push(new Agent(relay.current, Buffer.from(toolCall("get_x"))));
    }
    await until(() => good.every((agent) => agent.isEnded), "small calls");
    expect(good.every((agent) => agent.head?.status === 200)).toBe(true);
    await until(() => gateway.status().openExchanges === 0, "nothing open");
    expect(gateway.status()).toMatchObject({ openUpstreamCalls: 0, bodyBytes: 0 });
    expect(relay.sessions).toHaveLength(1);
    expect(upstream.seen.length).toBeLessThan(1021);
  });

  it("stop lets an open call end, and takes no new one", async () => {
    const release: (() => void)[] = [];
    const { gateway, relay } = await start((request, response) => release.push(() => echoResult(request, response)));
    const call = new Agent(relay.current, Buffer.from(toolCall("get_x")));
    await until(() => release.length === 1, "at the upstream");
    let isStopped = false;
    const stopping = gateway.stop(5_000).then(() => {
      isStopped = true;
    });
    await until(() => !relay.current.isAccepting, "GOAWAY");
    expect([isStopped, gateway.ready()]).toEqual([false, false]);
    release[0]?.();
    await until(() => call.isEnded, "the call ends");
    await stopping;
    expect(call.head?.status).toBe(200);
  });

  it("stop records the end of every call that it cuts, after its decision, in the order of the positions", async () => {
    const { gateway, relay, upstream, auditFile } = await start(() => undefined);
    const count = 20;
    for (let i = 0; i < count; i += 1) new Agent(relay.current, Buffer.from(toolCall("get_ticket")));
    await until(() => upstream.seen.length === count, "all are with the server");
    // Not with the server yet when the tunnel goes.
    for (let i = 0; i < count; i += 1) new Agent(relay.current, Buffer.from(toolCall("get_ticket")));
    await until(() => gateway.status().openExchanges > count, "one more is here");
    await gateway.stop(0);
    const records = readFileSync(auditFile, "utf8")
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as { event: string; position: number; exchangeId: string; end?: string });
    expect(records.map(({ position }) => position)).toEqual(records.map((_, i) => i + 1));
    const decided = new Set<string>();
    const ended = new Set<string>();
    for (const { event, exchangeId, end } of records) {
      if (event === "decision") decided.add(exchangeId);
      else if (decided.has(exchangeId) && end !== "complete") ended.add(exchangeId);
    }
    expect(decided.size).toBeGreaterThan(count);
    expect([...ended].sort()).toEqual([...decided].sort());
  });
});
