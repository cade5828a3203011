import { connect } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type FixtureServer, startFixtureServer } from "../fixtures/fixture-server/server.ts";
import { type AgentAnswer, callTool, initialize, modernRequest, open, send } from "../support/agent-requests.ts";
import {
  dialScripted,
  type Frame,
  frame,
  frameTypes,
  goAwayOf,
  type ScriptedGateway,
} from "../support/scripted-gateway.ts";
import { endPayload } from "../support/scripted-relay.ts";
import { mintToken, type Stack, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { mintSecret } from "../support/vault-backed.ts";

/**
 * A gateway that answers what it should not, against a real relay process. Its own agent gets an error of the contract or a visible
 * break, never a wrong success; another tunnel's calls go on beside it.
 */
const upstreamToken = mintSecret("upstream");
const { HEAD, DATA, END, OPEN, RESET, WINDOW } = frameTypes;
const good = { status: 200, headers: ["content-type", "application/json"], by: "upstream" };
const result = Buffer.from('{"jsonrpc":"2.0","id":1,"result":{}}');

describe("a hostile gateway", () => {
  const mallory = mintToken("ptk_");
  const agent = mintToken("pak_");
  let fixture: FixtureServer;
  let stack: Stack;
  let gateway: ScriptedGateway;
  let url: string;
  let beside: Promise<AgentAnswer>;

  const dial = async (): Promise<void> => {
    gateway = await dialScripted({ port: stack.relayPort, tunnel: "mallory", token: mallory.token, hello: true });
  };

  /** A call of the agent of mallory, and the stream on which it arrived. */
  const arrive = async (
    call: () => Promise<AgentAnswer>,
  ): Promise<{ readonly id: number; readonly answer: Promise<AgentAnswer> }> => {
    const seen = gateway.frames.filter(({ type }) => type === OPEN).length;
    const answer = call();
    answer.catch(() => undefined);
    await until(() => gateway.frames.filter(({ type }) => type === OPEN).length > seen, "OPEN");
    const { stream } = gateway.frames.filter(({ type }) => type === OPEN).at(-1) as Frame;
    return { id: stream, answer };
  };
  const post = (): Promise<AgentAnswer> => send(url, { bearer: agent.token, body: initialize });
  const resetOf = (id: number): number | undefined =>
    gateway.frames.find(({ type, stream }) => type === RESET && stream === id)?.payload.readUInt16BE(0);

  beforeAll(async () => {
    fixture = await startFixtureServer({ bearer: upstreamToken, extras: true });
    stack = await startStack({
      secretFiles: { "upstream-token": upstreamToken },
      servers: { fixture: { url: fixture.url, credential: { type: "bearer", token: { file: "./upstream-token" } } } },
      policy: { fixture: { tools: ["*"] } },
      extraTunnels: { mallory },
      extraTunnelAgents: { mallory: [{ name: "victim", keySha256: [agent.sha256], servers: ["*"] }] },
      relayYaml: { limits: { upgradesPerMinute: 1_000 } },
    });
    url = `http://127.0.0.1:${stack.relayPort}/mallory/fixture/mcp`;
    await dial();
  });

  afterAll(async () => {
    gateway?.terminate();
    await stack?.stop();
    await fixture?.close();
  });

  const another = (value: string): Promise<AgentAnswer> =>
    callTool(stack.agentUrl("fixture"), stack.agentKey, "echo", { value });

  afterEach(async () => {
    expect((await beside).text).toContain("beside");
    expect((await another("after")).text).toContain("after");
    expect(stack.relay.exitCode()).toBeUndefined();
    if (gateway.closeCode() !== undefined) await dial();
    const { id, answer } = await arrive(post);
    gateway.send(
      Buffer.concat([frame(HEAD, id, good), frame(DATA, id, result), frame(END, id, endPayload(result.length))]),
    );
    expect((await answer).status).toBe(200);
  });

  const start = (): Promise<{ readonly id: number; readonly answer: Promise<AgentAnswer> }> => {
    beside = another("beside");
    return arrive(post);
  };

  const badHeads: readonly (readonly [string, object])[] = [
    ["status 700", { ...good, status: 700 }],
    ["status 101", { ...good, status: 101 }],
    ["a status with a fraction", { ...good, status: 200.5 }],
    ["a line break in a header", { ...good, headers: ["content-type", "a\r\nset-cookie: b=c"] }],
    ["a header name with a space", { ...good, headers: ["content type", "a"] }],
    ["a header without a value", { ...good, headers: ["content-type"] }],
    ["an unknown maker", { ...good, by: "mallory" }],
    ["a huge rpcId", { ...good, rpcId: `"${"a".repeat(5_000)}"` }],
  ];

  it.each(badHeads)("that sends a HEAD with %s loses the stream only", async (_what, head) => {
    const { id, answer } = await start();
    gateway.send(frame(HEAD, id, head));
    const { status } = await answer;
    expect(status).toBe(502);
    await until(() => resetOf(id) === 40, "RESET(INTERNAL)");
    expect(gateway.closeCode()).toBeUndefined();
  });

  it("gets no header to the agent that could frame, redirect, authenticate or set a cookie", async () => {
    const { id, answer } = await start();
    const framing = ["content-length", "1", "transfer-encoding", "chunked", "connection", "upgrade", "trailer", "x"];
    const sly = [
      "set-cookie",
      "a=b",
      "location",
      "http://evil/",
      "www-authenticate",
      "Basic",
      "server",
      "m",
      "x-own",
      "1",
    ];
    const cors = ["access-control-allow-origin", "*", "strict-transport-security", "max-age=1", "alt-svc", 'h2=":1"'];
    const headers = [...good.headers, ...framing, ...sly, ...cors];
    gateway.send(frame(HEAD, id, { ...good, headers }));
    gateway.send(Buffer.concat([frame(DATA, id, result), frame(END, id, endPayload(result.length))]));
    const { status, headers: arrived, text } = await answer;
    expect([status, text]).toEqual([200, result.toString()]);
    for (const name of [...sly, ...cors].filter((_, i) => i % 2 === 0)) expect(arrived.get(name)).toBeNull();
    for (const name of ["trailer", "upgrade"]) expect(arrived.get(name)).toBeNull();
  });

  it("that advertises without end, and nonsense, keeps only names that can be", async () => {
    beside = another("beside");
    for (let rev = 2; rev < 60; rev += 1) {
      const servers = Array.from({ length: 900 }, (_, i) => ({ name: i === 0 ? "fixture" : `../${rev}/${i}` }));
      gateway.send(frame(frameTypes.ADVERT, 0, { rev, draining: false, servers }));
    }
    const forged = await send(url.replace("fixture", "..%2F59%2F1"), { bearer: agent.token, body: initialize });
    expect(forged.status).toBeGreaterThanOrEqual(403);
    expect(gateway.closeCode()).toBeUndefined();
    // More than a thousand at once is a fault.
    const servers = Array.from({ length: 1_001 }, (_, i) => ({ name: `s${i}` }));
    gateway.send(frame(frameTypes.ADVERT, 0, { rev: 99, draining: false, servers }));
    await gateway.ended();
    expect(goAwayOf(gateway)).toMatchObject({ fault: "bad-payload" });
  });

  it("cannot put markup of its own into an error event by its rpcId", async () => {
    beside = another("beside");
    const { id, answer } = await arrive(post);
    const headers = ["content-type", "text/event-stream"];
    gateway.send(frame(HEAD, id, { ...good, headers, rpcId: '1,"result":{}},"x":{"y"' }));
    gateway.send(frame(RESET, id, Buffer.from([0, 34])));
    const text = await answer.then(
      (whole) => whole.text,
      () => "",
    );
    expect(text).not.toContain('"result"');
  });

  it("that ends a body at another length than it says breaks it visibly", async () => {
    const { id, answer } = await start();
    gateway.send(Buffer.concat([frame(HEAD, id, good), frame(DATA, id, result.subarray(0, 20))]));
    gateway.send(frame(END, id, endPayload(result.length)));
    const outcome = await answer.then(
      ({ status }) => status,
      () => "broken",
    );
    expect(outcome === "broken" || Number(outcome) >= 500).toBe(true);
    await until(() => resetOf(id) === 39, "RESET(INTEGRITY)");
  });

  const faults: readonly (readonly [string, string, (id: number) => readonly Buffer[]])[] = [
    ["answers twice", "second-head", (id) => [frame(HEAD, id, good), frame(HEAD, id, good)]],
    ["sends a body before its head", "data-before-head", (id) => [frame(DATA, id, result)]],
    ["answers a stream that never was", "stream-never-opened", (id) => [frame(HEAD, id + 2, good)]],
    ["answers on an even id", "bad-stream-id", (id) => [frame(HEAD, id + 1, good)]],
    [
      "opens a stream",
      "wrong-direction",
      () => [
        frame(OPEN, 9_999, {
          server: "fixture",
          method: "GET",
          headers: [],
          body: false,
          deadlineMs: 1,
          requestId: "r",
          principal: { id: "key:tester", kind: "key", claims: {} },
        }),
      ],
    ],
    [
      "gives credit above all bounds",
      "credit-overflow",
      (id) => [frame(WINDOW, id, Buffer.from([0x7f, 0xff, 0xff, 0xff]))],
    ],
    [
      "has endless headers",
      "bad-length",
      (id) => [frame(HEAD, id, { ...good, headers: ["content-type", "a".repeat(99_000)] })],
    ],
  ];

  it.each(faults)("that %s loses its session by %s", async (_what, fault, frames) => {
    const { id, answer } = await start();
    for (const one of frames(id)) gateway.send(one);
    await gateway.ended();
    expect(goAwayOf(gateway)).toMatchObject({ drainMs: 0, fault });
    const outcome = await answer.then(
      ({ status, text }) => (status === 200 && text.includes('"result"') ? "success" : "error"),
      () => "error",
    );
    expect(outcome).toBe("error");
  });

  it("that sends beyond the credit of a reader who takes nothing loses its session", async () => {
    beside = another("beside");
    const body = JSON.stringify(initialize);
    const seen = gateway.frames.filter(({ type }) => type === OPEN).length;
    const socket = connect(stack.relayPort, "127.0.0.1");
    socket.on("error", () => undefined);
    socket.pause();
    socket.write(
      `POST /mallory/fixture/mcp HTTP/1.1\r\nHost: 127.0.0.1:${stack.relayPort}\r\nAuthorization: Bearer ${agent.token}\r\n` +
        `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
    await until(() => gateway.frames.filter(({ type }) => type === OPEN).length > seen, "OPEN");
    const { stream } = gateway.frames.filter(({ type }) => type === OPEN).at(-1) as Frame;
    gateway.send(frame(HEAD, stream, good));
    const chunk = frame(DATA, stream, Buffer.alloc(16_384, "x"));
    // Far more than any socket buffer holds; whatever the relay grants is not waited for.
    for (let i = 0; i < 4_096 && gateway.closeCode() === undefined; i += 1) {
      gateway.send(chunk);
      if (i % 16 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    await gateway.ended(20_000);
    expect(goAwayOf(gateway)).toMatchObject({ reason: "FLOW_CONTROL_ERROR" });
    socket.destroy();
  });

  it("that floods with PINGs and reads no answer is let go", async () => {
    beside = another("beside");
    const stream = await open(stack.agentUrl("fixture"), {
      bearer: stack.agentKey,
      ...modernRequest("s", "subscriptions/listen", { notifications: { toolsListChanged: true } }),
    });
    gateway.pause();
    const pings = Buffer.concat(Array.from({ length: 1_000 }, () => frame(frameTypes.PING, 0, Buffer.alloc(8))));
    for (let i = 0; i < 3_000 && gateway.closeCode() === undefined; i += 1) {
      gateway.send(pings);
      if (i % 8 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    await until(() => stack.relay.stderr().includes("too-many-replies"), "the relay names it", 20_000);
    gateway.terminate();
    await gateway.ended();
    expect(stream.complete()).toBeUndefined();
    stream.leave();
  });
});
