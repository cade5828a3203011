import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { findLeaks } from "../support/canary.ts";
import { type RawAgentRequest, rawExchange } from "../support/raw-exchange.ts";
import { answerText, RawUpstream } from "../support/raw-upstream.ts";
import { type Stack, startStack } from "../support/stack.ts";
import { mintSecret } from "../support/vault-backed.ts";

/**
 * What a hostile agent may try with the request itself, as docs/threat-model.md numbers it: to be shown the credential, to replace it,
 * or to send it elsewhere. Through the real relay and gateway; what counts is every byte that the server was sent.
 */
const secrets = { token: mintSecret("bearer"), key: mintSecret("key") };
const smuggled = "smuggled-by-the-agent";
const call = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_x","arguments":{}}}';
const fine = answerText("200 OK\nContent-Type: application/json", '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}');

describe("the ways out through a request", () => {
  let server: RawUpstream;
  let elsewhere: RawUpstream;
  let stack: Stack;

  beforeAll(async () => {
    server = await RawUpstream.start((socket) => socket.write(fine));
    elsewhere = await RawUpstream.start((socket) => socket.write(fine));
    const url = `${server.origin}/inner/mcp?tenant=1`;
    const servers = {
      bearer: { url, credential: { type: "bearer", token: { file: "./token" } } },
      headers: { url, credential: { type: "headers", headers: { "X-Api-Key": { file: "./key" }, "X-Org": "acme" } } },
    };
    stack = await startStack({
      secretFiles: { token: secrets.token, key: secrets.key },
      env: { POSTERN_LOG_LEVEL: "debug" },
      relayEnv: { POSTERN_LOG_LEVEL: "debug" },
      servers,
      policy: { bearer: { tools: ["*"] }, headers: { tools: ["*"] } },
    });
  });

  afterAll(async () => {
    await stack?.stop();
    await server?.stop();
    await elsewhere?.stop();
  });

  interface Attempt extends Partial<RawAgentRequest> {
    readonly to?: "bearer" | "headers";
    readonly more?: readonly string[];
  }

  /** The status, and what the server was sent, if anything. Whatever that was, nothing of the agent's is in its place. */
  async function attempt({ to = "bearer", more = [], ...request }: Attempt) {
    const before = server.seen.length;
    const answer = await rawExchange(stack.relayPort, {
      target: `/acme/${to}/mcp`,
      headers: [
        `Authorization: Bearer ${stack.agentKey}`,
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        ...more,
      ],
      body: call,
      ...request,
    });
    expect(findLeaks([{ name: "answer", text: `${answer.text} ` }], secrets)).toEqual([]);
    expect(elsewhere.seen).toEqual([]);
    const sent = server.seen.slice(before);
    for (const { text, line, headers } of sent) {
      expect(line).toBe("POST /inner/mcp?tenant=1 HTTP/1.1");
      expect(headers["host"]).toEqual([server.origin.slice("http://".length)]);
      expect(text).not.toContain(smuggled);
      expect(text).not.toContain(stack.agentKey);
      if (to === "bearer") expect(headers["authorization"]).toEqual([`Bearer ${secrets.token}`]);
      else expect([headers["x-api-key"], headers["x-org"]]).toEqual([[secrets.key], ["acme"]]);
    }
    return { status: answer.status, sent, text: answer.text };
  }

  it.each([
    ["TRACE", {}],
    ["TRACE with Max-Forwards", { more: ["Max-Forwards: 0"] }],
    ["OPTIONS", {}],
    ["PUT", {}],
    ["PATCH", {}],
    ["HEAD", {}],
    ["DEBUG", {}],
  ])("L36 the method %s shows no request, and reaches no server", async (name, more) => {
    const seen = await attempt({ method: name.split(" ")[0] ?? "", body: "", ...more });
    expect(seen.sent).toEqual([]);
    expect(seen.status).toBeGreaterThanOrEqual(name === "OPTIONS" ? 204 : 400);
  });

  it.each(["X-HTTP-Method-Override: TRACE", "X-HTTP-Method: TRACE", "X-Method-Override: TRACE", "_method: TRACE"])(
    "L36 %s changes nothing",
    async (header) => {
      const seen = await attempt({ more: [header] });
      expect([seen.status, seen.sent.length]).toEqual([200, 1]);
      expect(seen.sent[0]?.text).not.toContain("TRACE");
    },
  );

  it("L36 a target in absolute form, of an authority, or with another host sends nothing elsewhere", async () => {
    const { host } = new URL(elsewhere.origin);
    for (const request of [
      { target: `${elsewhere.origin}/acme/bearer/mcp` },
      { target: `http://127.0.0.1:${stack.relayPort}/acme/bearer/mcp` },
      { method: "CONNECT", target: host, body: "" },
      { target: `//${host}/acme/bearer/mcp` },
      { target: `/acme/bearer@${host}/mcp` },
      { target: "/acme/bearer/mcp", host },
    ]) {
      await attempt(request);
    }
  });

  it.each([
    "Proxy-Authorization",
    "Cookie",
    "Cookie2",
    "X-Api-Key",
    "X-Auth-Token",
    "X-Access-Token",
    "X-Amz-Security-Token",
    "X-Vault-Token",
    "X-Vault-Namespace",
    "Mcp-Auth",
    "X-Mcp-Auth",
    "X-Forwarded-Access-Token",
    "X-Authorization",
    "Api-Key",
    "PRIVATE-TOKEN",
  ])("L37 a carrier of the agent's own does not reach the server: %s", async (name) => {
    const seen = await attempt({ more: [`${name}: ${smuggled}`] });
    expect([seen.status, seen.sent.length]).toEqual([200, 1]);
  });

  it.each([
    ["the same spelling", ["X-Api-Key: V"]],
    ["small letters", ["x-api-key: V"]],
    ["capitals", ["X-API-KEY: V"]],
    ["underscores", ["X_Api_Key: V", "x_api-key: V"]],
    ["two lines", ["X-Api-Key: V", "x-api-key: V2"]],
    ["a second header of the credential", ["X-Org: V", "x-org: V"]],
    ["what Connection names", ["Connection: X-Api-Key, Authorization, Mcp-Name", "X-Api-Key: V"]],
    ["what Keep-Alive and TE name", ["Keep-Alive: x=V", "TE: trailers, V", "Trailer: X-Api-Key"]],
    ["a space before the colon", ["X-Api-Key : V"]],
    ["a folded line", ["X-A: b\r\n X-Api-Key: V"]],
  ])("L38 an injected header is neither replaced nor doubled: %s", async (_, headers) => {
    for (const to of ["headers", "bearer"] as const) {
      const seen = await attempt({ to, more: headers.map((line) => line.replaceAll("V", smuggled)) });
      expect([200, 400]).toContain(seen.status);
      for (const { headers: sent } of seen.sent) expect(Object.keys(sent)).not.toContain("x_api_key");
    }
  });

  it("L38 a second Authorization is refused", async () => {
    const seen = await attempt({ more: [`Authorization: Bearer ${smuggled}`] });
    expect([seen.status, seen.sent.length]).toEqual([400, 0]);
  });

  it.each([
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Forwarded-Server",
    "Forwarded",
    "X-Real-IP",
    "X-Original-URL",
    "X-Rewrite-URL",
    "X-Host",
    "X-HTTP-Host-Override",
    "Via",
    "Origin",
    "Referer",
    "From",
    "Client-IP",
    "Destination",
    "User-Agent",
  ])("L39 what says where or who one is does not reach the server: %s", async (name) => {
    const seen = await attempt({ more: [`${name}: ${smuggled}.example`] });
    // A foreign Origin is refused before anything else.
    expect([seen.status, seen.sent.length]).toEqual(name === "Origin" ? [403, 0] : [200, 1]);
    for (const { headers } of seen.sent) expect(Object.keys(headers)).not.toContain(name.toLowerCase());
  });

  it.each(["gzip, br", "identity;q=0, gzip", "*", "compress"])(
    "L40 Accept-Encoding: %s asks the server for nothing but identity",
    async (value) => {
      const seen = await attempt({ more: [`Accept-Encoding: ${value}`] });
      expect(seen.sent.map(({ headers }) => headers["accept-encoding"])).toEqual([["identity"]]);
      expect(seen.text).not.toMatch(/content-encoding/i);
    },
  );

  it.each([
    ["/acme/bearer/mcp?url=ELSEWHERE", 200],
    ["/acme/bearer/mcp?tenant=2", 200],
    ["/acme/bearer/mcp/../../admin", 404],
    ["/acme/bearer/mcp/%2e%2e/admin", 404],
    ["/acme/bearer/mcp%2fadmin", 404],
    ["/acme/bearer/mcp/admin", 404],
    ["/acme/bearer/mcp;x=1", 404],
    ["/acme/bearer/mcp#/admin", 404],
    ["/acme/bearer/ELSEWHERE", 404],
    ["/acme/..%2f..%2f/mcp", 404],
    ["/acme/bearer/mcp\\admin", 404],
  ])("L41 the target %s chooses neither path nor query", async (target, status) => {
    const seen = await attempt({ target: target.replace("ELSEWHERE", encodeURIComponent(elsewhere.origin)) });
    // Whatever was sent went to the configured URL, byte for byte, which `attempt` has checked.
    expect([seen.status, seen.sent.length]).toEqual([status, status === 200 ? 1 : 0]);
  });

  it("nothing that either process wrote holds any of it", () => {
    const all = { ...secrets, agentKey: stack.agentKey, tunnelToken: stack.tunnelToken, smuggled };
    expect(findLeaks(stack.outputs(), all)).toEqual([]);
    // Nor did the last defence of the log (L62) have to cut it out.
    expect(stack.outputs().filter(({ text }) => text.includes("[secret]"))).toEqual([]);
  });
});
