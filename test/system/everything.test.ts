import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Child, startChild } from "../support/child.ts";
import { connectClient, type TestClient } from "../support/clients.ts";
import { freePort, type Stack, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

/** The official server-everything (SDK v1): both SDK generations get through Postern what they get directly. */
const entry = fileURLToPath(import.meta.resolve("@modelcontextprotocol/server-everything/dist/index.js"));

/** Clock readings and ids differ between any two runs. */
function normalise(value: unknown): unknown {
  const text = JSON.stringify(value)
    .replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, "<uuid>")
    .replaceAll(/\d{1,2}:\d{2}:\d{2} ?(?:[AP]M)?/g, "<time>")
    .replaceAll(/\d{4}-\d{2}-\d{2}T[\d:.]+Z/g, "<date>");
  return JSON.parse(text);
}

const calls: readonly (readonly [string, Record<string, unknown>])[] = [
  ["echo", { message: "grüße \u{1f600}" }],
  ["get-sum", { a: 9_007_199_254_740_991, b: 0.5 }],
  ["get-sum", { a: "no number", b: 1 }],
  ["get-tiny-image", {}],
  ["get-annotated-message", { messageType: "error", includeImage: true }],
  ["get-structured-content", { location: "Chicago" }],
  ["get-resource-links", { count: 3 }],
  ["get-resource-reference", { resourceType: "Text", resourceId: 1 }],
  ["get-roots-list", {}],
  ["trigger-sampling-request", { prompt: "Hello", maxTokens: 10 }],
  ["trigger-elicitation-request", {}],
  ["no-such-tool", {}],
];

describe.each(["v1", "v2 legacy"] as const)("server-everything through Postern, client %s", (kind) => {
  let server: Child;
  let stack: Stack;
  let direct: TestClient;
  let agent: TestClient;

  beforeAll(async () => {
    const port = await freePort();
    server = startChild({
      name: "server-everything",
      command: process.execPath,
      args: [entry, "streamableHttp"],
      env: { PORT: String(port) },
    });
    const url = `http://127.0.0.1:${port}/mcp`;
    const answers = (): Promise<boolean> =>
      fetch(url, { method: "GET" }).then(
        () => true,
        () => false,
      );
    await until(answers, "server-everything listens", 15_000);
    stack = await startStack({
      servers: { everything: { url } },
      policy: {
        everything: {
          tools: ["*"],
          prompts: ["*"],
          resources: ["demo://**"],
          client: ["sampling", "elicitation", "roots"],
        },
      },
    });
    direct = await connectClient(kind, { url });
    agent = await connectClient(kind, { url: stack.agentUrl("everything"), bearer: stack.agentKey });
  });

  afterAll(async () => {
    await agent?.close();
    await direct?.close();
    await stack?.stop();
    await server?.stop();
  });

  /** The same action on both sides has the same result. */
  async function expectSame(act: (client: TestClient) => Promise<unknown>): Promise<unknown> {
    const expected = normalise(await act(direct));
    expect(normalise(await act(agent))).toEqual(expected);
    return expected;
  }

  /** The same action on both sides fails in the same way. */
  async function expectSameError(act: (client: TestClient) => Promise<unknown>): Promise<void> {
    const fail = async (client: TestClient): Promise<unknown> =>
      act(client).then(
        () => "no error",
        (error: { code?: unknown; message?: unknown }) => ({ code: error.code, message: error.message }),
      );
    const expected = await fail(direct);
    expect(expected).not.toBe("no error");
    expect(await fail(agent)).toEqual(expected);
  }

  it("is the same server", () => {
    expect(agent.serverInfo()).toEqual(direct.serverInfo());
    expect(agent.capabilities()).toEqual(direct.capabilities());
  });

  it("lists the same tools, prompts, resources and templates", async () => {
    // Tools that depend on what the client can do are registered a moment after the handshake.
    const count = async (client: TestClient): Promise<number> => (await client.listTools()).tools.length;
    await until(async () => (await count(direct)) > 12 && (await count(agent)) > 12, "all tools are registered");
    const { tools } = (await expectSame((client) => client.listTools())) as { tools: unknown[] };
    expect(tools.length).toBeGreaterThan(12);
    await expectSame((client) => client.listPrompts());
    await expectSame((client) => client.listResources());
    await expectSame((client) => client.listResourceTemplates());
  });

  it.each(calls)("gives the same answer to %s %j", async (name, args) => {
    await expectSame((client) => client.callTool(name, args));
  });

  it("reports the same progress", async () => {
    await expectSame(async (client) => {
      const heard: number[] = [];
      const onProgress = (progress: number): void => void heard.push(progress);
      const args = { duration: 0.5, steps: 5 };
      const result = await client.callTool("trigger-long-running-operation", args, { onProgress });
      expect(heard).toEqual([1, 2, 3, 4, 5]);
      return result;
    });
  });

  it("gives the same prompts, completions and resources", async () => {
    await expectSame((client) => client.getPrompt("simple-prompt"));
    await expectSame((client) => client.getPrompt("args-prompt", { city: "Oslo", state: "x" }));
    await expectSameError((client) => client.getPrompt("no-such-prompt"));
    await expectSame((client) => client.complete("completable-prompt", "department", "E"));
    await expectSame((client) => client.readResource("demo://resource/dynamic/text/1"));
    await expectSame((client) => client.readResource("demo://resource/static/document/features.md"));
    await expectSame((client) => client.subscribe("demo://resource/dynamic/text/1"));
  });
});
