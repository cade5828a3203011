import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type FixtureServer, startFixtureServer } from "../fixtures/fixture-server/server.ts";
import { callTool } from "../support/agent-requests.ts";
import { dialScripted, frame, frameTypes, goAwayOf, helloFrame } from "../support/scripted-gateway.ts";
import { mintToken, type Stack, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { mintSecret } from "../support/vault-backed.ts";

/** A gateway that breaks docs/protocol.md loses its own session, is told why, and touches nobody else's. */
const upstreamToken = mintSecret("upstream");
const { HELLO, HEAD, DATA, END, PING, OPEN, WINDOW, WELCOME, ADVERT } = frameTypes;

interface Attack {
  readonly fault: string;
  readonly message: Buffer | string;
}

const u32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
};

/** Well-formed, so that only their direction is wrong. */
const openPayload = {
  server: "fixture",
  method: "GET",
  headers: [],
  body: false,
  deadlineMs: 1_000,
  requestId: "r1",
  principal: { id: "key:mallory", kind: "key", claims: {} },
};
const welcomePayload = {
  version: 1,
  features: [],
  node: { id: "relay-m", instance: "i", software: "mallory/1" },
  connId: "c",
  limits: { streamWindow: 262_144, tunnelWindow: 1_048_576, maxStreams: 16 },
  heartbeatMs: 15_000,
};

const beforeHello: readonly Attack[] = [
  { fault: "text-message", message: "hello" },
  { fault: "hello-expected", message: frame(PING, 0, Buffer.alloc(8)) },
  { fault: "bad-payload", message: frame(HELLO, 0, "[]") },
  { fault: "bad-payload", message: frame(HELLO, 0, "{}") },
  { fault: "bad-payload", message: frame(HELLO, 0, "{".repeat(60_000)) },
  { fault: "bad-utf8", message: frame(HELLO, 0, Buffer.from([0x7b, 0xff, 0xfe, 0x7d])) },
  { fault: "bad-length", message: frame(HELLO, 0, Buffer.alloc(0), 0xffff_ffff) },
  { fault: "no-common-version", message: helloFrame(["fixture"], { versions: [99] }) },
];

const afterHello: readonly Attack[] = [
  { fault: "text-message", message: "{}" },
  { fault: "empty-message", message: Buffer.alloc(0) },
  { fault: "short-header", message: Buffer.alloc(9) },
  { fault: "short-header", message: Buffer.concat([frame(PING, 0, Buffer.alloc(8)), Buffer.alloc(3)]) },
  { fault: "frame-overruns-message", message: frame(DATA, 1, Buffer.alloc(10), 11) },
  { fault: "unknown-type", message: frame(0x7f, 0, Buffer.alloc(0)) },
  { fault: "bad-length", message: frame(PING, 0, Buffer.alloc(7)) },
  { fault: "bad-length", message: frame(DATA, 1, Buffer.alloc(16_385)) },
  { fault: "bad-length", message: frame(DATA, 1, Buffer.alloc(0)) },
  { fault: "wrong-stream", message: frame(PING, 1, Buffer.alloc(8)) },
  { fault: "wrong-stream", message: frame(DATA, 0, Buffer.alloc(1)) },
  { fault: "wrong-direction", message: frame(OPEN, 1, openPayload) },
  { fault: "wrong-direction", message: frame(WELCOME, 0, welcomePayload) },
  { fault: "unexpected-hello", message: helloFrame() },
  { fault: "stream-never-opened", message: frame(HEAD, 99, { status: 200, headers: [], by: "upstream" }) },
  { fault: "stream-never-opened", message: frame(END, 99, Buffer.alloc(8)) },
  { fault: "bad-increment", message: frame(WINDOW, 0, u32(0)) },
  { fault: "credit-overflow", message: frame(WINDOW, 0, u32(0x7fff_ffff)) },
  { fault: "bad-payload", message: frame(ADVERT, 0, "null") },
];

describe("hostile frames at the relay", () => {
  const mallory = mintToken("ptk_");
  let fixture: FixtureServer;
  let stack: Stack;

  beforeAll(async () => {
    fixture = await startFixtureServer({ bearer: upstreamToken, extras: true });
    stack = await startStack({
      extraTunnels: { mallory },
      secretFiles: { "upstream-token": upstreamToken },
      servers: { fixture: { url: fixture.url, credential: { type: "bearer", token: { file: "./upstream-token" } } } },
      policy: { fixture: { tools: ["*"] } },
    });
  });

  afterAll(async () => {
    await stack?.stop();
    await fixture?.close();
  });

  const dial = (hello: boolean): ReturnType<typeof dialScripted> =>
    dialScripted({ port: stack.relayPort, tunnel: "mallory", token: mallory.token, hello });

  async function attack(hello: boolean, { fault, message }: Attack): Promise<void> {
    const label = `beside ${fault} ${Math.random()}`;
    const logged = stack.relay.stderr().length;
    const running = callTool(stack.agentUrl("fixture"), stack.agentKey, "test_tool_with_progress");
    const gateway = await dial(hello);
    gateway.send(message);
    await gateway.ended();
    expect(goAwayOf(gateway)).toMatchObject({ drainMs: 0, fault });
    await until(() => stack.relay.stderr().slice(logged).includes(fault), `the relay logs ${fault}`);
    expect((await running).text).toContain("Progress reported.");
    const next = await callTool(stack.agentUrl("fixture"), stack.agentKey, "echo", { value: label });
    expect(next.text).toContain(label);
    expect(stack.relay.exitCode()).toBeUndefined();
  }

  it.each(beforeHello.map((entry, i) => [entry.fault, i, entry] as const))(
    "before HELLO: %s (%i) ends that session only",
    (_fault, _i, entry) => attack(false, entry),
  );

  it.each(afterHello.map((entry, i) => [entry.fault, i, entry] as const))(
    "in a session: %s (%i) ends that session only",
    (_fault, _i, entry) => attack(true, entry),
  );

  it("C33 a message above 128 KiB ends the carrier with 1009, and nothing else", async () => {
    const gateway = await dial(true);
    gateway.send(Buffer.alloc(128 * 1024 + 1));
    await gateway.ended();
    expect([1006, 1009]).toContain(gateway.closeCode());
    const next = await callTool(stack.agentUrl("fixture"), stack.agentKey, "echo", { value: "still here" });
    expect(next.text).toContain("still here");
  });

  it("refuses a wrong token, and a right one for another tunnel, in the HTTP phase", async () => {
    const wrong = mintToken("ptk_").token;
    await expect(dialScripted({ port: stack.relayPort, tunnel: "mallory", token: wrong })).rejects.toThrow("401");
    await expect(dialScripted({ port: stack.relayPort, tunnel: "acme", token: mallory.token })).rejects.toThrow(
      /40[13]/,
    );
    await expect(dialScripted({ port: stack.relayPort, tunnel: "nobody", token: wrong })).rejects.toThrow("401");
  });

  it("C33 a result of 10 MiB passes, while small calls beside it go on", async () => {
    const bytes = 10 * 1024 * 1024;
    const big = callTool(stack.agentUrl("fixture"), stack.agentKey, "big_result", { bytes });
    const small = await Promise.all(
      Array.from({ length: 5 }, (_, i) =>
        callTool(stack.agentUrl("fixture"), stack.agentKey, "echo", { value: `small ${i}` }),
      ),
    );
    for (const [i, answer] of small.entries()) expect(answer.text).toContain(`small ${i}`);
    const answer = await big;
    expect(answer.status).toBe(200);
    expect(answer.text.length).toBeGreaterThan(bytes);
  });
});
