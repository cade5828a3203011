import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type FixtureServer, startFixtureServer } from "../fixtures/fixture-server/server.ts";
import { type MiniGateway, startMiniGateway } from "../mini-gateway/mini-gateway.ts";
import { callTool, eventData, modernRequest, open, openSession, send } from "../support/agent-requests.ts";
import { mintToken, type Stack, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { mintSecret } from "../support/vault-backed.ts";

/** docs/protocol.md is enough: a gateway that was written from it alone serves agents through the real relay. */
const upstreamToken = mintSecret("upstream");

describe("a gateway written from docs/protocol.md alone", () => {
  let fixture: FixtureServer;
  let stack: Stack;
  let gateway: MiniGateway;

  const dial = (changes: { readonly token?: string; readonly tunnel?: string } = {}): Promise<MiniGateway> =>
    startMiniGateway({
      port: stack.relayPort,
      tunnel: "acme",
      token: stack.tunnelToken,
      servers: { fixture: fixture.url, nobody: "http://127.0.0.1:1/mcp" },
      inject: ["authorization", `Bearer ${upstreamToken}`],
      // Small, so that bodies wait for credit.
      streamWindow: 4_096,
      tunnelWindow: 8_192,
      ...changes,
    });

  beforeAll(async () => {
    fixture = await startFixtureServer({ bearer: upstreamToken, extras: true });
    stack = await startStack({ withoutGateway: true, servers: { fixture: { url: fixture.url } }, policy: {} });
    gateway = await dial();
  });

  afterAll(async () => {
    gateway?.terminate();
    await stack?.stop();
    await fixture?.close();
  });

  it("serves a call that is answered as JSON, and one as events", async () => {
    const url = stack.agentUrl("fixture");
    const discover = await send(url, { bearer: stack.agentKey, ...modernRequest(1, "server/discover") });
    expect(discover.status).toBe(200);
    expect(discover.json().result).toBeDefined();
    // The fixture answers a call of the legacy era with events.
    const headers = await openSession(url, stack.agentKey);
    const params = { name: "test_tool_with_progress", arguments: {}, _meta: { progressToken: "p" } };
    const body = { jsonrpc: "2.0", id: "e", method: "tools/call", params };
    const stream = await open(url, { bearer: stack.agentKey, headers, body });
    expect(stream.headers.get("content-type")).toContain("text/event-stream");
    await until(() => stream.complete() !== undefined, "the stream ends");
    expect(stream.complete()).toBe(true);
    expect(eventData(stream.text()).at(-1)?.id).toBe("e");
    expect(stream.text()).toContain("notifications/progress");
    expect(stream.text()).toContain("Progress reported.");
  });

  it("carries a session of the legacy era with GET and DELETE", async () => {
    const url = stack.agentUrl("fixture");
    const headers = await openSession(url, stack.agentKey);
    const stream = await open(url, { bearer: stack.agentKey, method: "GET", headers });
    expect(stream.status).toBe(200);
    const deleted = await send(url, { bearer: stack.agentKey, method: "DELETE", headers });
    expect(deleted.status).toBeLessThan(300);
    stream.leave();
    await until(() => gateway.openStreams() === 0, "nothing is left");
  });

  it("keeps to both windows, with bodies far above them", async () => {
    const url = stack.agentUrl("fixture");
    const value = "v".repeat(300_000);
    const [echoed, big] = await Promise.all([
      callTool(url, stack.agentKey, "echo", { value }),
      callTool(url, stack.agentKey, "big_result", { bytes: 3_000_000 }),
    ]);
    expect(echoed.text).toContain(value);
    expect(big.text.length).toBeGreaterThan(3_000_000);
    expect(gateway.endReason()).toBeUndefined();
  });

  it("has its refusals worded by the relay", async () => {
    const nobody = await callTool(stack.agentUrl("nobody"), stack.agentKey, "echo", { value: "x" });
    expect([nobody.status, nobody.json().error?.code]).toEqual([502, -33021]);
    const unknown = await callTool(stack.agentUrl("absent"), stack.agentKey, "echo", { value: "x" });
    expect(unknown.status).toBe(403);
  });

  it("releases the server when the agent leaves", async () => {
    const request = modernRequest(7, "tools/call", { name: "wait_for_cancel", arguments: { label: "mini" } });
    const leaving = new AbortController();
    const call = send(stack.agentUrl("fixture"), { bearer: stack.agentKey, signal: leaving.signal, ...request });
    await until(() => fixture.log.started.includes("mini"), "the call runs");
    leaving.abort();
    await expect(call).rejects.toThrow();
    await until(() => fixture.log.cancelled.includes("mini"), "the server hears of it");
    await until(() => gateway.openStreams() === 0, "the stream is over");
  });

  it("is refused with a wrong token", async () => {
    await expect(dial({ token: mintToken("ptk_").token })).rejects.toThrow("401");
  });

  it("is replaced by a newcomer with its identity, and drains when it goes", async () => {
    const newcomer = await dial();
    await until(() => gateway.endReason() !== undefined, "the old one is told");
    expect(gateway.endReason()).toBe("REPLACED");
    gateway = newcomer;
    const running = callTool(stack.agentUrl("fixture"), stack.agentKey, "test_tool_with_progress");
    await until(() => gateway.openStreams() > 0, "the call runs");
    gateway.drain(10_000);
    expect((await running).text).toContain("Progress reported.");
    await until(() => gateway.endReason() === "SHUTDOWN", "it is gone");
    const after = await callTool(stack.agentUrl("fixture"), stack.agentKey, "echo", { value: "x" });
    expect(after.status).toBe(503);
  });
});
