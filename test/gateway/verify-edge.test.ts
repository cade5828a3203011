/** `agents.verify: edge`: the gateway says for itself who calls, whatever the relay claims. */
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type AgentsOptions, createGateway, type GatewayOptions } from "../../src/gateway/index.ts";
import { createToken } from "../../src/identity/index.ts";
import { Secret } from "../../src/lib/index.ts";
import { compilePolicy } from "../../src/policy/index.ts";
import { silentLogger } from "../../src/telemetry/index.ts";
import type { DialOptions } from "../../src/tunnel/index.ts";
import { TestIssuer } from "../support/issuer.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { until } from "../support/until.ts";
import { audience, EdgeAgents } from "./edge-agents.ts";
import { Harness, header, noCredential, toolCall } from "./harness.ts";
import { ScriptedStream } from "./scripted-stream.ts";
import { type Behaviour, echoResult, idOf } from "./scripted-upstream.ts";

const other = createToken("agent");
const rotated = createToken("agent");
const edge = new EdgeAgents();
const { claude, issuer } = edge;
let agents: AgentsOptions;
let harness: Harness | undefined;

beforeAll(async () => {
  await edge.start();
  agents = {
    keys: [
      { name: "claude", sha256: [claude.sha256, rotated.sha256] },
      { name: "other", sha256: [other.sha256] },
    ],
    issuers: [{ issuer: issuer.url, audience: "urn:somebody-else", jwks: edge.jwks }, ...edge.options.issuers],
  };
});
afterAll(() => edge.stop());
afterEach(async () => {
  await harness?.stop();
  harness = undefined;
});

async function start(behave: Behaviour = echoResult, gateway: Partial<GatewayOptions> = {}): Promise<Harness> {
  harness = await Harness.start(behave, { gateway: { agents, ...gateway } });
  return harness;
}

/** The principal and reason of the one decision. */
async function recorded(h: Harness): Promise<unknown[]> {
  await until(() => h.audit.length === 2, "both records");
  const [decision] = h.audit;
  return [decision?.["principal"], decision?.["decision"], decision?.["reason"]];
}

const body = toolCall("get_x");
const say = (stream: ScriptedStream): unknown => stream.resetBy?.code ?? stream.head?.status;

describe("who calls", () => {
  it.each([
    ["a key", () => claude.token.reveal(), "key:claude"],
    ["its successor", () => rotated.token.reveal(), "key:claude"],
    ["a token", () => issuer.token(), () => `oauth:${issuer.url}#alice`],
  ])("is told by %s, and the relay's claim stands nowhere", async (_, mint, principal) => {
    const h = await start();
    const agentToken = await mint();
    const stream = await h.call({ body, agentToken, principal: "key:forged-admin", pieces: 9 });
    expect(say(stream)).toBe(200);
    expect(await recorded(h)).toEqual([typeof principal === "string" ? principal : principal(), "allow", undefined]);
    expect(h.log + JSON.stringify(h.audit)).not.toMatch(/forged-admin/);
    expect(h.log + JSON.stringify(h.audit) + JSON.stringify(h.upstream.seen[0]?.rawHeaders)).not.toContain(agentToken);
  });

  const bad: readonly (readonly [string, () => string | undefined | Promise<string>, string])[] = [
    ["no token", () => undefined, "no agent token"],
    ["a key that nobody has", () => createToken("agent").token.reveal(), "agent token: form"],
    ["a gateway's token", () => createToken("tunnel").token.reveal(), "agent token: form"],
    ["no form of a token", () => "canary-5f3a-secret", "agent token: form"],
    ["a token that has expired", () => issuer.token({ claims: { exp: 1_700_000_000 } }), "agent token: expired"],
    ["a token for another audience", () => issuer.token({ claims: { aud: "urn:x" } }), "agent token: audience"],
    [
      "a token of another issuer",
      () => issuer.token({ claims: { iss: "https://evil.example.com" } }),
      "agent token: unknown",
    ],
    [
      "a token that somebody else signed",
      async () => {
        const forger = new TestIssuer();
        await forger.addKey();
        return forger.token({ claims: { iss: issuer.url } });
      },
      "agent token: signature",
    ],
    [
      "an unsigned token",
      () => {
        const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
        return `${part({ alg: "none" })}.${part(issuer.claims())}.`;
      },
      "agent token: form",
    ],
    ["a token of 20 KB", () => issuer.token({ claims: { x: "y".repeat(20_000) } }), "agent token: size"],
  ];
  it.each(bad)("C24 %s is FORBIDDEN, and nothing is sent", async (_, mint, reason) => {
    const h = await start();
    const agentToken = await mint();
    const stream = await h.call({ body, principal: "key:claude", ...(agentToken === undefined ? {} : { agentToken }) });
    expect(say(stream)).toBe("FORBIDDEN");
    expect(await recorded(h)).toEqual(["unverified", "deny", reason]);
    expect(h.upstream.seen).toHaveLength(0);
  });

  it("cannot be told while the issuer's keys are not to be had: the agent may come again", async () => {
    const absent = { issuer: "http://127.0.0.1:1", audience, jwks: { file: join(edge.folder, "none.json") } };
    const h = await start(echoResult, { agents: { keys: [], issuers: [absent] } });
    const agentToken = await issuer.token({ claims: { iss: absent.issuer } });
    expect(say(await h.call({ body, agentToken }))).toBe("OVERLOADED");
    expect(await recorded(h)).toEqual(["unverified", "deny", "agent token: no keys of its issuer"]);
  });

  it("is settled before the server's name, for GET and DELETE too", async () => {
    const h = await start();
    for (const method of ["GET", "DELETE"] as const) {
      expect(say(await h.call({ method }))).toBe("FORBIDDEN");
      expect(say(await h.call({ method, server: "nowhere" }))).toBe("FORBIDDEN");
    }
    const agentToken = await issuer.token();
    expect(say(await h.call({ method: "GET", server: "nowhere", agentToken }))).toBe("NO_SERVER");
    expect(say(await h.call({ method: "GET", server: "ungranted", agentToken }))).toBe("FORBIDDEN");
    expect(h.upstream.seen).toHaveLength(0);
  });

  it("the agent that leaves while its token is verified leaves nothing", async () => {
    const h = await start();
    const stream = h.begin({ body, agentToken: await issuer.token({ claims: { sub: "leaver" } }) });
    stream.cancel();
    await until(() => h.gateway.status().openExchanges === 0, "it is over");
    expect(h.upstream.seen).toHaveLength(0);
    expect(h.audit).toEqual([]);
  });

  it("binds MCP sessions to whom the gateway verified, not to whom the relay names", async () => {
    const h = await start((request, response) => {
      response.writeHead(200, { "content-type": "application/json", "mcp-session-id": "s-1" });
      response.end(`{"jsonrpc":"2.0","id":${idOf(request.body)},"result":{}}`);
    });
    const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`;
    const opened = await h.call({ body: initialize, agentToken: claude.token.reveal(), principal: "key:x" });
    const session = header(opened, "mcp-session-id") ?? "";
    const go = (agentToken: string, principal: string) =>
      h.call({ body, agentToken, principal, headers: ["Mcp-Session-Id", session] });
    expect(say(await go(rotated.token.reveal(), "key:y"))).toBe(200);
    // The relay claims the owner's name for somebody else's key.
    expect(say(await go(other.token.reveal(), "key:x"))).toBe(404);
    expect(say(await go(other.token.reveal(), "key:claude"))).toBe(404);
  });
});

describe("a relay that does not pass tokens on", () => {
  it.each([true, false])("is not served where they are needed (%s), and readiness says so", async (isEdge) => {
    const dialled: DialOptions[] = [];
    const clock = new ManualClock();
    const gateway = createGateway(
      {
        relay: { url: "wss://relay.example.com", tunnel: "acme", readToken: () => new Secret("ptk_test") },
        id: "edge-1",
        software: "postern/test",
        servers: {},
        audit: { target: { file: join(edge.folder, `${isEdge}.jsonl`) }, onError: "deny" },
        agents: isEdge ? agents : undefined,
      },
      {
        policy: compilePolicy({ servers: {} }),
        credentials: { forServer: () => noCredential },
        clock,
        random: () => 0,
        logger: silentLogger,
        dial: async (options) => {
          dialled.push(options);
          return { kind: "failed", code: "FEATURE", detail: "no tokens" };
        },
      },
    );
    gateway.start();
    clock.advance(1_000);
    await until(() => gateway.status().tunnel.lastProblem !== undefined, "the outcome");
    expect(dialled[0]?.needsAgentTokens).toBe(isEdge ? true : undefined);
    expect([gateway.ready(), gateway.status().tunnel.lastProblem]).toEqual([false, "FEATURE: no tokens"]);
    await gateway.stop(0);
  });
});

describe("a token that ends", () => {
  /** Valid for about `ms` more: a minute of leeway is part of it. */
  const lasting = (ms: number): Promise<string> =>
    issuer.token({ claims: { sub: `s${ms}`, exp: (Date.now() + ms - 60_000) / 1000 } });
  const event = `data: {"jsonrpc":"2.0","method":"notifications/message","params":{}}\n\n`;

  /** Opens a stream and says one event; the rest is the test's. */
  function streaming(): { behave: Behaviour; response: () => ServerResponse | undefined } {
    let held: ServerResponse | undefined;
    return {
      behave: (_, response) => {
        held = response;
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(event);
      },
      response: () => held,
    };
  }

  it("ends a GET stream", async () => {
    const upstream = streaming();
    const h = await start(upstream.behave);
    const stream = h.begin({ method: "GET", agentToken: await lasting(1_500) });
    await until(() => stream.text === event, "the first event");
    expect(stream.isOver).toBe(false);
    await until(() => stream.isOver, "the end");
    expect(stream.text).toBe(event);
    await until(() => h.audit.length === 2, "both records");
    expect(h.audit[1]).toMatchObject({ event: "outcome", end: "TOKEN_EXPIRED" });
    await until(() => h.upstream.seen[0]?.isAborted() === true, "the upstream is let go");
    expect(h.log).toContain("TOKEN_EXPIRED");
  });

  it("ends a POST's stream with an error for its id, after the event in progress", async () => {
    const upstream = streaming();
    const h = await start(upstream.behave);
    const stream = h.begin({ body: toolCall("get_x", "q"), agentToken: await lasting(1_200) });
    await until(() => stream.text === event, "the first event");
    await until(() => stream.isOver, "the end");
    const last = stream.text.slice(event.length);
    expect(last).toMatch(/^event: message\ndata: \{"jsonrpc":"2.0","id":"q","error":\{"code":-33002,/);
    expect(last).toContain("Token expired");
  });

  it("waits for the end of an event of which a part has left", async () => {
    const upstream = streaming();
    const h = await start(upstream.behave);
    const stream = h.begin({ method: "GET", agentToken: await lasting(1_500) });
    await until(() => stream.text === event, "the first event");
    const start_ = `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"x":"${"y".repeat(1_100_000)}`;
    upstream.response()?.write(start_);
    await until(() => stream.text.length > event.length, "a part has left");
    const startedAt = performance.now();
    await until(() => performance.now() - startedAt > 1_600, "the token has ended");
    expect(stream.isOver).toBe(false);
    upstream.response()?.write(`"}}\n\n`);
    await until(() => stream.isOver, "the end");
    expect(stream.text.endsWith(`"}}\n\n`)).toBe(true);
    expect(stream.text).not.toContain("truncated");
  });

  it("C24 serves no call whose body the relay keeps until it has ended", async () => {
    const h = await start();
    const agentToken = new Secret(await lasting(600));
    const startedAt = performance.now();
    const stream = new ScriptedStream(h.gateway.onStream, {
      server: "tickets",
      method: "POST",
      headers: ["Content-Type", "application/json", "Accept", "application/json, text/event-stream"],
      hasBody: true,
      deadlineMs: 300_000,
      requestId: "req-late",
      principal: { id: "key:claude", kind: "key", claims: {} },
      agentToken,
    });
    await until(() => performance.now() - startedAt > 800, "the token has ended");
    expect(stream.isOver).toBe(false);
    stream.send(Buffer.from(body), body.length);
    await until(() => stream.isOver, "it is refused");
    expect(say(stream)).toBe("FORBIDDEN");
    expect(await recorded(h)).toEqual([`oauth:${issuer.url}#s600`, "deny", "agent token: expired"]);
    expect(h.upstream.seen).toHaveLength(0);
  });

  it("does not touch what is answered in time, nor a stream of a key", async () => {
    const upstream = streaming();
    const h = await start(upstream.behave);
    const stream = h.begin({ body: toolCall("get_x", 5), agentToken: claude.token.reveal() });
    const short = h.begin({ body: toolCall("get_x", 6), agentToken: await lasting(30_000) });
    await until(() => stream.text === event && short.text === event, "both streams");
    short.cancel();
    upstream.response()?.destroy();
    stream.cancel();
    await until(() => h.gateway.status().openExchanges === 0, "both are over");
  });
});
