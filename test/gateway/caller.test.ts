/** For whom a credential is asked for: whoever this gateway has verified, or whom the relay claims where it is believed. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import type { Caller } from "../../src/credentials/index.ts";
import type { Injector } from "../../src/gateway/index.ts";
import { Secret } from "../../src/lib/index.ts";
import { until } from "../support/until.ts";
import { EdgeAgents } from "./edge-agents.ts";
import { Harness, toolCall } from "./harness.ts";
import { type Behaviour, echoResult, json } from "./scripted-upstream.ts";

const edge = new EdgeAgents();
const { claude, issuer } = edge;
let harness: Harness | undefined;

beforeAll(() => edge.start());
afterAll(() => edge.stop());
afterEach(async () => {
  await harness?.stop();
  harness = undefined;
});

/** Gives each caller a value of its own, and remembers what it was asked. */
function spy(): { readonly credential: Injector; readonly asked: (readonly [string, Caller])[] } {
  const asked: (readonly [string, Caller])[] = [];
  const injection = (what: string, caller: Caller) => {
    asked.push([what, caller]);
    const text = `${what}-for-${caller.id}`;
    return { headers: ["X-Key", text], secrets: [new Secret(text)] };
  };
  return {
    asked,
    credential: {
      isPerCaller: true,
      inject: (caller) => injection("first", caller),
      refresh: (_, caller) => injection("second", caller),
    },
  };
}

const body = toolCall("get_x");

describe("a credential is asked for", () => {
  const start = async (
    behave: Behaviour,
    isEdge = true,
  ): Promise<{ h: Harness; asked: (readonly [string, Caller])[] }> => {
    const { credential, asked } = spy();
    const h = await Harness.start(behave, { credential, ...(isEdge ? { gateway: { agents: edge.options } } : {}) });
    harness = h;
    return { h, asked };
  };

  it("C24 with the agent's own token and its end, for a principal that the gateway verified", async () => {
    const { h, asked } = await start(echoResult);
    const exp = Math.floor(Date.now() / 1000) + 600;
    const agentToken = await issuer.token({ claims: { exp } });
    await h.call({ body, agentToken, principal: "key:forged" });
    expect(asked.map(([, { id, expiresAt }]) => [id, expiresAt])).toEqual([[`oauth:${issuer.url}#alice`, exp * 1000]]);
    expect(asked[0]?.[1].token?.reveal()).toBe(agentToken);
    expect(`${asked[0]?.[1].token}`).toBe("[secret]");
  });

  it("C24 without an agent's key, which is nobody's to show", async () => {
    const { h, asked } = await start(echoResult);
    await h.call({ body, agentToken: claude.token.reveal(), principal: "key:forged" });
    expect(asked.map(([, { id, token, expiresAt }]) => [id, token, expiresAt])).toEqual([
      ["key:claude", undefined, undefined],
    ]);
  });

  it("by the name that the relay gives, where it is believed, and by nothing else", async () => {
    const { h, asked } = await start(echoResult, false);
    await h.call({ body, agentToken: "claimed-by-the-relay", principal: "key:claimed" });
    expect(asked.map(([, { id, token }]) => [id, token])).toEqual([["key:claimed", undefined]]);
  });

  it("C26 for the same caller again, when the server refused the first", async () => {
    const { h, asked } = await start((request, response) => {
      if (String(request.headers["x-key"]).startsWith("second")) echoResult(request, response);
      else json(response, "{}", 401, {});
    });
    const agentToken = await issuer.token({ claims: { sub: "bob" } });
    expect((await h.call({ body, agentToken })).head?.status).toBe(200);
    expect(asked.map(([what, { id }]) => [what, id])).toEqual([
      ["first", `oauth:${issuer.url}#bob`],
      ["second", `oauth:${issuer.url}#bob`],
    ]);
    expect(asked[1]?.[1].token?.reveal()).toBe(agentToken);
  });

  it("for the same caller, when a question of the server is refused in its session", async () => {
    const ask = '{"jsonrpc":"2.0","id":"q","method":"roots/list"}';
    const { h, asked } = await start((request, response) => {
      if (request.body.includes("-32601")) json(response, "", 202);
      else {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.end(`data: ${ask}\n\ndata: {"jsonrpc":"2.0","id":1,"result":{"content":[]}}\n\n`);
      }
    });
    const agentToken = await issuer.token({ claims: { sub: "carol" } });
    await h.call({ body, agentToken });
    await until(() => h.upstream.seen.length === 2, "the refusal");
    expect(h.upstream.seen[1]?.headers["x-key"]).toBe(`first-for-oauth:${issuer.url}#carol`);
    expect(asked).toHaveLength(2);
    await until(() => h.gateway.status().openUpstreamCalls === 0, "the refusal's own end");
  });
});
