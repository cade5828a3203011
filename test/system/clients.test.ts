import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type FixtureServer, startFixtureServer } from "../fixtures/fixture-server/server.ts";
import { openSession, send } from "../support/agent-requests.ts";
import { findLeaks } from "../support/canary.ts";
import { clientKinds, connectClient, type TestClient } from "../support/clients.ts";
import { type Stack, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { mintSecret, requireBao, startVaultBacking, type VaultBacking } from "../support/vault-backed.ts";

/** The whole path with real parts: SDK clients, relay, gateway, OpenBao, and a server that demands the bearer token. */
const binary = requireBao();
const upstreamToken = mintSecret("upstream");

const policy = {
  fixture: {
    tools: [{ name: "*", except: ["drop_*"] }],
    prompts: ["test_simple_prompt", "test_prompt_with_arguments"],
    resources: ["test://static-text", "test://watched-resource", "test://template/*/data"],
    client: ["sampling", "elicitation", "roots"],
  },
};

describe.skipIf(binary === undefined)("clients through relay and gateway", () => {
  let vault: VaultBacking;
  let fixture: FixtureServer;
  let stack: Stack;

  beforeAll(async () => {
    vault = await startVaultBacking(binary ?? "", ["secret/data/mcp/*"]);
    await vault.bao.putSecret("secret", "mcp/fixture", { token: upstreamToken });
    fixture = await startFixtureServer({ bearer: upstreamToken, extras: true });
    stack = await startStack({
      vault: vault.yaml,
      secretFiles: { "secret-id": vault.secretId },
      servers: {
        fixture: {
          url: fixture.url,
          credential: { type: "bearer", token: { vault: { mount: "secret", path: "mcp/fixture", field: "token" } } },
        },
      },
      policy,
    });
  });

  afterAll(async () => {
    await stack?.stop();
    await fixture?.close();
    await vault?.bao.stop();
  });

  describe.each(clientKinds)("%s", (kind) => {
    let agent: TestClient;
    let direct: TestClient;

    beforeAll(async () => {
      agent = await connectClient(kind, { url: stack.agentUrl("fixture"), bearer: stack.agentKey });
      direct = await connectClient(kind, { url: fixture.url, bearer: upstreamToken });
    });

    afterAll(async () => {
      await agent?.close();
      await direct?.close();
    });

    it("meets the server itself: era, identity and capabilities are its own", () => {
      expect(agent.era).toBe(kind === "v2 auto" || kind === "v2 pin" ? "modern" : "legacy");
      expect(agent.era).toBe(direct.era);
      expect(agent.serverInfo()).toEqual(direct.serverInfo());
      expect(agent.capabilities()).toEqual(direct.capabilities());
    });

    it("C16 sees the allowed tools, each as the server describes it, and no other", async () => {
      const { tools } = await agent.listTools();
      const all = (await direct.listTools()).tools;
      expect(all.map(({ name }) => name)).toContain("drop_everything");
      expect(tools).toEqual(all.filter(({ name }) => !name.startsWith("drop_")));
    });

    it("sees the allowed prompts, resources and templates only", async () => {
      const prompts = (await agent.listPrompts()).prompts.map(({ name }) => name);
      expect(prompts.sort()).toEqual(["test_prompt_with_arguments", "test_simple_prompt"]);
      const resources = (await agent.listResources()).resources.map(({ uri }) => uri);
      expect(resources.sort()).toEqual(["test://static-text", "test://watched-resource"]);
      const { resourceTemplates } = await agent.listResourceTemplates();
      expect(resourceTemplates.map(({ uriTemplate }) => uriTemplate)).toEqual(["test://template/{id}/data"]);
    });

    it("calls an allowed tool, which succeeds because of the injected credential", async () => {
      const args = { value: `héllo ${kind} 9007199254740993` };
      expect(await agent.callTool("echo", args)).toEqual(await direct.callTool("echo", args));
      const seen = fixture.recorded.filter(({ body }) => body.includes(args.value));
      expect(seen).toHaveLength(2);
      for (const { headers } of seen) expect(headers["authorization"]).toBe(`Bearer ${upstreamToken}`);
    });

    it("C16 is refused a denied tool as the server refuses an unknown one, and the server never hears of it", async () => {
      const before = fixture.recorded.length;
      await expect(agent.callTool("drop_everything")).rejects.toMatchObject({ code: -32602 });
      await expect(agent.callTool("drop_everything")).rejects.toThrow("Unknown tool: drop_everything");
      expect(fixture.recorded.slice(before).filter(({ body }) => body.includes("drop_everything"))).toEqual([]);
    });

    it("C10 hears progress while the call runs", async () => {
      const heard: number[] = [];
      await agent.callTool("test_tool_with_progress", {}, { onProgress: (progress) => heard.push(progress) });
      expect(heard).toEqual([0, 50, 100]);
    });

    it("C09 answers what the server asks", async () => {
      const before = agent.asked.length;
      if (agent.era === "legacy") {
        const sampled = await agent.callTool("test_sampling", { prompt: "Capital of France?" });
        expect(sampled.content[0]?.text).toContain("Paris");
        const elicited = await agent.callTool("test_elicitation", { message: "Sure?" });
        expect(elicited.content[0]?.text).toContain("action=accept");
        expect(agent.asked.slice(before)).toEqual(["sampling", "elicitation"]);
      } else {
        const result = await agent.callTool("test_input_required_result_multiple_inputs");
        expect(result.content[0]?.text).toContain("Alice");
        expect(agent.asked.slice(before).sort()).toEqual(["elicitation", "roots", "sampling"]);
      }
    });

    it("reads allowed resources and is told that others do not exist", async () => {
      for (const uri of ["test://static-text", "test://template/123/data"]) {
        expect(await agent.readResource(uri)).toEqual(await direct.readResource(uri));
      }
      // The v2 SDK reads -32002 with a URI as the -32602 of the current revision.
      const code = kind === "v1" ? -32002 : -32602;
      await expect(agent.readResource("test://static-binary")).rejects.toMatchObject({ code });
    });

    it("gets allowed prompts with completion, and no other", async () => {
      const args = { arg1: "a", arg2: "b" };
      const prompt = "test_prompt_with_arguments";
      expect(await agent.getPrompt(prompt, args)).toEqual(await direct.getPrompt(prompt, args));
      expect(await agent.complete(prompt, "arg1", "par")).toEqual(await direct.complete(prompt, "arg1", "par"));
      await expect(agent.getPrompt("test_prompt_with_image")).rejects.toMatchObject({ code: -32602 });
    });

    it("C11 cancels, and the server hears of it at once", async () => {
      const abort = new AbortController();
      const label = `cancelled by ${kind}`;
      const call = agent.callTool("wait_for_cancel", { label }, { signal: abort.signal });
      const outcome = expect(call).rejects.toThrow();
      await until(() => fixture.log.started.includes(label), "the call reaches the server");
      abort.abort("no longer interested");
      await outcome;
      await until(() => fixture.log.cancelled.includes(label), "the cancellation reaches the server", 2_000);
    });

    it("is told of changes", async () => {
      if (agent.era === "legacy") {
        expect(await agent.subscribe("test://watched-resource")).toEqual({});
        await expect(agent.subscribe("test://static-binary")).rejects.toThrow();
        return;
      }
      const heard: string[] = [];
      agent.onNotification((method) => heard.push(method));
      const subscription = await agent.listen({ toolsListChanged: true });
      fixture.notify.toolsChanged();
      await until(() => heard.includes("notifications/tools/list_changed"), "the change is announced");
      await subscription.close();
    });
  });

  it("C03 ends the server's session with the agent's DELETE, after which the id is unknown", async () => {
    const url = stack.agentUrl("fixture");
    const before = fixture.sessionCount;
    const headers = await openSession(url, stack.agentKey);
    expect(fixture.sessionCount).toBe(before + 1);
    const list = { jsonrpc: "2.0", id: 2, method: "tools/list" };
    expect((await send(url, { bearer: stack.agentKey, headers, body: list })).status).toBe(200);
    const ended = await send(url, { bearer: stack.agentKey, headers, method: "DELETE" });
    expect(ended.status).toBeLessThan(300);
    expect(fixture.sessionCount).toBe(before);
    const after = await send(url, { bearer: stack.agentKey, headers, body: list });
    expect(after.status).toBe(404);
    expect(after.json().error).toBeDefined();
  });

  it("C01 passes on that a session was lost", async () => {
    const url = stack.agentUrl("fixture");
    const headers = await openSession(url, stack.agentKey);
    await fixture.forgetSessions();
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, i) =>
        send(url, { bearer: stack.agentKey, headers, body: { jsonrpc: "2.0", id: 10 + i, method: "tools/list" } }),
      ),
    );
    for (const answer of answers) {
      expect(answer.status).toBe(404);
      expect(answer.json().error?.code).toBe(-32001);
    }
  });

  it("C24 sends the server nothing of the agent's but what the protocol needs", async () => {
    const url = stack.agentUrl("fixture");
    const before = fixture.recorded.length;
    const agentSecrets = { cookie: mintSecret("cookie"), apiKey: mintSecret("apikey"), proxy: mintSecret("proxy") };
    const headers = {
      cookie: `session=${agentSecrets.cookie}`,
      "x-api-key": agentSecrets.apiKey,
      "proxy-authorization": `Basic ${agentSecrets.proxy}`,
      "x-forwarded-for": "203.0.113.9",
      forwarded: "for=203.0.113.9",
    };
    const session = await openSession(url, stack.agentKey);
    const list = { jsonrpc: "2.0", id: 2, method: "tools/list" };
    await send(url, { bearer: stack.agentKey, headers: { ...session, ...headers }, body: list });
    await send(url, { bearer: stack.agentKey, headers: { ...session, ...headers }, method: "DELETE" });
    const arrived = fixture.recorded.slice(before);
    expect(arrived.map(({ method }) => method)).toEqual(["POST", "POST", "POST", "DELETE"]);
    for (const { headers: seen } of arrived) {
      expect(seen["authorization"]).toBe(`Bearer ${upstreamToken}`);
      for (const name of Object.keys(headers)) expect(Object.keys(seen)).not.toContain(name);
    }
    const text = JSON.stringify(arrived);
    expect(findLeaks([{ name: "upstream", text }], { ...agentSecrets, agentKey: stack.agentKey })).toEqual([]);
  });

  it("records a decision and an outcome for each call, with who, what and which rule", async () => {
    const url = stack.agentUrl("fixture");
    const session = await openSession(url, stack.agentKey);
    const body = {
      jsonrpc: "2.0",
      id: 5,
      method: "tools/call",
      params: { name: "drop_everything", arguments: { canary: "argument-value" } },
    };
    const answer = await send(url, { bearer: stack.agentKey, headers: session, body });
    const requestId = answer.headers.get("x-request-id") ?? "none";
    expect(answer.json().error?.data?.["requestId"]).toBe(requestId);
    const find = (): Record<string, unknown>[] =>
      stack.audit().filter((record) => JSON.stringify(record).includes(requestId));
    await until(() => find().length >= 1, "the audit record");
    const text = JSON.stringify(find());
    for (const part of ["drop_everything", "key:tester", "tools/call", "fixture", "deny"]) expect(text).toContain(part);
    expect(text).not.toContain("argument-value");
  });

  it("C24 prints no secret anywhere", () => {
    const secrets = {
      ...vault.secrets,
      "upstream token": upstreamToken,
      "agent key": stack.agentKey,
      "tunnel token": stack.tunnelToken,
    };
    expect(findLeaks(stack.outputs(), secrets)).toEqual([]);
  });
});
