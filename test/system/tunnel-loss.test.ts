import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type FixtureServer, startFixtureServer } from "../fixtures/fixture-server/server.ts";
import { callTool, eventData, initialize, modernRequest, open, openSession, send } from "../support/agent-requests.ts";
import { type Stack, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { mintSecret } from "../support/vault-backed.ts";

const upstreamToken = mintSecret("upstream");
/** How long a part waits for calls when it is told to stop. */
const graceMs = 25_000;
const offlineWithinMs = 2_000;

const everythingAllowed = {
  fixture: { tools: ["*"], prompts: ["*"], resources: ["test://**"], client: ["sampling", "elicitation", "roots"] },
};

describe("when the tunnel is down", () => {
  let fixture: FixtureServer;
  let stack: Stack;

  const start = (withoutGateway: boolean): Promise<Stack> =>
    startStack({
      withoutGateway,
      secretFiles: { "upstream-token": upstreamToken },
      servers: { fixture: { url: fixture.url, credential: { type: "bearer", token: { file: "./upstream-token" } } } },
      policy: everythingAllowed,
    });

  beforeAll(async () => {
    fixture = await startFixtureServer({ bearer: upstreamToken, extras: true });
  });

  afterEach(async () => {
    await stack?.stop();
  });

  afterAll(async () => {
    await fixture?.close();
  });

  it("C30 says so within two seconds, on every method", async () => {
    stack = await start(true);
    const url = stack.agentUrl("fixture");
    const bearer = stack.agentKey;
    const requests = [
      { bearer, body: initialize },
      { bearer, ...modernRequest(1, "server/discover") },
      { bearer, method: "GET", headers: { accept: "text/event-stream" } },
      { bearer, method: "DELETE", headers: { "mcp-session-id": "x" } },
    ];
    for (const request of requests) {
      const answer = await send(url, request);
      expect(answer.status).toBe(503);
      expect(answer.durationMs).toBeLessThan(offlineWithinMs);
      expect(answer.headers.get("retry-after")).toMatch(/^\d+$/);
      expect(answer.json().error?.code).toBe(-33010);
      expect(answer.text).not.toContain("127.0.0.1");
    }
  });

  it("C30 fails a call at once when the gateway dies under it, and serves again when one is back", async () => {
    stack = await start(false);
    const url = stack.agentUrl("fixture");
    const call = callTool(url, stack.agentKey, "wait_for_cancel", { label: "dies" });
    await until(() => fixture.log.started.includes("dies"), "the call reaches the server");
    const killedAt = performance.now();
    stack.gateway()?.signal("SIGKILL");
    const answer = await call;
    expect(performance.now() - killedAt).toBeLessThan(offlineWithinMs);
    expect(answer.status).toBe(503);
    expect(answer.json().error?.code).toBe(-33010);
    expect((await callTool(url, stack.agentKey, "echo", { value: "x" })).status).toBe(503);
    await stack.startGateway();
    const later = await callTool(url, stack.agentKey, "echo", { value: "back" });
    expect(later.status).toBe(200);
    expect(later.text).toContain("back");
  });

  it("ends an open event stream with an error event for its request", async () => {
    stack = await start(false);
    const url = stack.agentUrl("fixture");
    const request = modernRequest("sub-1", "subscriptions/listen", { notifications: { toolsListChanged: true } });
    const stream = await open(url, { bearer: stack.agentKey, ...request });
    await until(() => stream.text().includes("acknowledged"), `the subscription stands: ${stream.text()}`);
    stack.gateway()?.signal("SIGKILL");
    await until(() => stream.complete() !== undefined, "the stream ends", offlineWithinMs);
    const last = eventData(stream.text()).at(-1);
    expect(last?.id).toBe("sub-1");
    expect(last?.error?.code).toBe(-33010);
  });

  it("only closes a stream that carried an event id, so that the client can resume", async () => {
    stack = await start(false);
    const url = stack.agentUrl("fixture");
    const headers = await openSession(url, stack.agentKey);
    const body = {
      jsonrpc: "2.0",
      id: 9,
      method: "tools/call",
      params: { name: "wait_for_cancel", arguments: { label: "resumable" } },
    };
    const stream = await open(url, { bearer: stack.agentKey, headers, body });
    await until(() => stream.text().includes("id:"), "the priming event");
    stack.gateway()?.signal("SIGKILL");
    await until(() => stream.complete() !== undefined, "the stream ends", offlineWithinMs);
    expect(eventData(stream.text()).filter(({ error }) => error !== undefined)).toEqual([]);
  });

  it("SIGTERM lets the call that runs end, and ends with 0", async () => {
    stack = await start(false);
    const url = stack.agentUrl("fixture");
    const before = fixture.recorded.length;
    const call = callTool(url, stack.agentKey, "test_tool_with_progress");
    await until(() => fixture.recorded.length > before, "the call reaches the server");
    const gateway = stack.gateway();
    gateway?.signal("SIGTERM");
    const answer = await call;
    expect(answer.status).toBe(200);
    expect(answer.text).toContain("Progress reported.");
    expect(await gateway?.ended).toBe(0);
    expect((await send(url, { bearer: stack.agentKey, body: initialize })).status).toBe(503);
    stack.relay.signal("SIGTERM");
    expect(await stack.relay.ended).toBe(0);
  });

  it("SIGTERM lets the calls that run through the relay end, and ends with 0", async () => {
    stack = await start(false);
    const url = stack.agentUrl("fixture");
    const before = fixture.recorded.length;
    const call = callTool(url, stack.agentKey, "test_tool_with_progress");
    await until(() => fixture.recorded.length > before, "the call reaches the server");
    stack.relay.signal("SIGTERM");
    const answer = await call;
    expect(answer.status).toBe(200);
    expect(answer.text).toContain("Progress reported.");
    expect(await stack.relay.ended).toBe(0);
    expect(stack.gateway()?.exitCode()).toBeUndefined();
  });

  it.each(["gateway", "relay"] as const)("SIGTERM to the %s does not wait for streams that never end", async (part) => {
    stack = await start(false);
    const url = stack.agentUrl("fixture");
    const bearer = stack.agentKey;
    const listen = modernRequest("sub-2", "subscriptions/listen", { notifications: { toolsListChanged: true } });
    const subscription = await open(url, { bearer, ...listen });
    await until(() => subscription.text().includes("acknowledged"), "the subscription stands");
    const headers = { ...(await openSession(url, bearer)), accept: "text/event-stream" };
    const own = await open(url, { bearer, headers, method: "GET" });
    const child = part === "gateway" ? stack.gateway() : stack.relay;
    const from = performance.now();
    child?.signal("SIGTERM");
    expect(await child?.ended).toBe(0);
    expect(performance.now() - from).toBeLessThan(graceMs / 2);
    await until(() => subscription.complete() === true && own.complete() === true, "both streams end in order");
    expect(eventData(subscription.text()).at(-1)?.error?.code).toBe(-33011);
  });

  it("C29 outlives agents that leave at any moment", async () => {
    stack = await start(false);
    const url = stack.agentUrl("fixture");
    const bearer = stack.agentKey;
    const labels = Array.from({ length: 20 }, (_, i) => `leaver ${i}`);
    const headers = await openSession(url, bearer);
    const streams = await Promise.all(
      labels.map((label, i) => {
        const params = { name: "wait_for_cancel", arguments: { label } };
        const body = { jsonrpc: "2.0", id: 100 + i, method: "tools/call", params };
        return open(url, { bearer, headers, body });
      }),
    );
    await until(() => labels.every((label) => fixture.log.started.includes(label)), "all calls run");
    for (const stream of streams) stream.leave();
    const others = await Promise.all(
      Array.from({ length: 20 }, (_, i) => callTool(url, bearer, "echo", { value: `stays ${i}` })),
    );
    for (const [i, answer] of others.entries()) expect(answer.text).toContain(`stays ${i}`);
    expect(stack.relay.exitCode()).toBeUndefined();
    expect(stack.gateway()?.exitCode()).toBeUndefined();
    for (const { text } of stack.outputs()) expect(text).not.toMatch(/unhandledRejection|uncaughtException/);
  });
});
