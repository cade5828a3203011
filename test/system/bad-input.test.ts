import { request as httpRequest } from "node:http";
import { gzipSync } from "node:zlib";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type FixtureServer, startFixtureServer } from "../fixtures/fixture-server/server.ts";
import {
  type AgentAnswer,
  callTool,
  initialize,
  modernRequest,
  open,
  openSession,
  send,
} from "../support/agent-requests.ts";
import { mintToken, type Stack, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { mintSecret } from "../support/vault-backed.ts";

/** What agents send by mistake or malice: each a clear error of the contract, nothing reaches the server, the rest goes on. */
const upstreamToken = mintSecret("upstream");
const mebibyte = 1_024 * 1_024;

describe("bad input from agents", () => {
  let fixture: FixtureServer;
  let stack: Stack;
  let url: string;
  let heardBefore: number;

  beforeAll(async () => {
    fixture = await startFixtureServer({ bearer: upstreamToken, extras: true });
    stack = await startStack({
      secretFiles: { "upstream-token": upstreamToken },
      servers: { fixture: { url: fixture.url, credential: { type: "bearer", token: { file: "./upstream-token" } } } },
      policy: { fixture: { tools: [{ name: "*", except: ["drop_*"] }] } },
      agentServers: ["fixture"],
    });
    url = stack.agentUrl("fixture");
  });

  beforeEach(() => {
    heardBefore = fixture.recorded.length;
  });

  // Whatever came before: others are served.
  afterEach(async () => {
    const value = `after ${expect.getState().currentTestName}`;
    expect((await callTool(url, stack.agentKey, "echo", { value })).text).toContain("after");
    expect(stack.relay.exitCode()).toBeUndefined();
    expect(stack.gateway()?.exitCode()).toBeUndefined();
  });

  afterAll(async () => {
    await stack?.stop();
    await fixture?.close();
  });

  const post = (body: unknown, headers: Record<string, string> = {}): Promise<AgentAnswer> =>
    send(url, { bearer: stack.agentKey, body, headers });

  function expectRefusal(answer: AgentAnswer, status: number, code?: number): void {
    expect({ status: answer.status, code: code === undefined ? undefined : answer.json().error?.code }).toEqual({
      status,
      code,
    });
    expect(answer.headers.get("x-request-id")).toBeTruthy();
    expect(answer.text).not.toContain("127.0.0.1");
    expect(fixture.recorded.length).toBe(heardBefore);
  }

  it("no token, a wrong one, or no such tunnel: the same 401", async () => {
    const wrong = mintToken("pak_").token;
    const elsewhere = url.replace("/acme/", "/nobody/");
    const answers = await Promise.all([
      send(url, { body: initialize }),
      send(url, { bearer: wrong, body: initialize }),
      send(url, { bearer: stack.tunnelToken, body: initialize }),
      send(url, { bearer: "garbage", body: initialize }),
      send(elsewhere, { bearer: stack.agentKey, body: initialize }),
      send(elsewhere, { body: initialize }),
    ]);
    for (const answer of answers) {
      expectRefusal(answer, 401);
      expect(answer.headers.get("www-authenticate")).toMatch(/^Bearer/);
    }
    const bodies = answers.map(({ text, headers }) => text.replaceAll(headers.get("x-request-id") ?? "-", "<id>"));
    expect(new Set(bodies).size).toBe(1);
  });

  it("a server that is not there or not granted is 403 without a challenge", async () => {
    const answer = await send(stack.agentUrl("secrets"), { bearer: stack.agentKey, body: initialize });
    expectRefusal(answer, 403, -33002);
    expect(answer.headers.get("www-authenticate")).toBeNull();
  });

  it("a foreign Host or Origin is 403", async () => {
    const status = await new Promise<number | undefined>((resolve, reject) => {
      const headers = { host: "evil.example.com", authorization: `Bearer ${stack.agentKey}` };
      const req = httpRequest(url, { method: "POST", headers }, (res) => {
        res.resume();
        resolve(res.statusCode);
      });
      req.once("error", reject);
      req.end(JSON.stringify(initialize));
    });
    expect(status).toBe(403);
    expectRefusal(await post(initialize, { origin: "https://evil.example.com" }), 403, -33002);
  });

  it("C15 a batch is refused, whatever it holds", async () => {
    const call = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "drop_everything" } };
    for (const body of [[call], [initialize, call], [], [[call]]]) expectRefusal(await post(body), 400, -32600);
    expectRefusal(await post(` \n${JSON.stringify([call])}`), 400, -32600);
  });

  it("C16 a key that repeats, plain, escaped or in other case, is refused", async () => {
    const body = (params: string): string => `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${params}}`;
    for (const params of [
      '{"name":"drop_everything","name":"echo"}',
      '{"name":"echo","n\\u0061me":"drop_everything"}',
      '{"name":"echo","Name":"drop_everything"}',
    ]) {
      expectRefusal(await post(body(params)), 400, -32600);
    }
  });

  it("what is not JSON is refused: broken, with a byte order mark, not UTF-8, compressed", async () => {
    expectRefusal(await post("{"), 400, -32700);
    expectRefusal(await post(`\ufeff${JSON.stringify(initialize)}`), 400, -32700);
    const bytes = (body: Buffer, headers: Record<string, string> = {}): Promise<Response> =>
      fetch(url, {
        method: "POST",
        headers: { authorization: `Bearer ${stack.agentKey}`, "content-type": "application/json", ...headers },
        body: new Uint8Array(body),
      });
    expect((await bytes(Buffer.from('{"jsonrpc":"2.0","id":"\xff"}', "latin1"))).status).toBe(400);
    const packed = gzipSync(JSON.stringify(initialize));
    expect((await bytes(packed, { "content-encoding": "gzip" })).status).toBe(415);
    expect((await bytes(Buffer.from("x=1"), { "content-type": "application/x-www-form-urlencoded" })).status).toBe(415);
    expect(fixture.recorded.length).toBe(heardBefore);
  });

  it("C20 headers that say something else than the body are refused", async () => {
    const { body, headers } = modernRequest(1, "tools/call", { name: "drop_everything", arguments: {} });
    expectRefusal(await post(body, { ...headers, "mcp-name": "echo" }), 400, -32020);
    expectRefusal(await post(body, { ...headers, "mcp-method": "tools/list" }), 400, -32020);
    expectRefusal(await post(body, { ...headers, "mcp-protocol-version": "2025-11-25" }), 400, -32020);
  });

  it("a body over the limit is 413", async () => {
    const value = "x".repeat(5 * mebibyte);
    const { body, headers } = modernRequest(1, "tools/call", { name: "echo", arguments: { value } });
    const answer = await post(body, headers);
    expect(answer.status).toBe(413);
    expect(fixture.recorded.length).toBe(heardBefore);
  });

  it("headers of 90 kB are 431", async () => {
    const status = await new Promise<number | string>((resolve) => {
      const headers = { "x-large": "x".repeat(90_000), authorization: `Bearer ${stack.agentKey}` };
      const req = httpRequest(url, { method: "POST", headers }, (res) => {
        res.resume();
        resolve(res.statusCode ?? 0);
      });
      req.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? "error"));
      req.end("{}");
    });
    expect(status).toBe(431);
  });

  it("C23 both spellings of the path serve; others, and other verbs, do not", async () => {
    expect((await send(`${url}/`, { bearer: stack.agentKey, body: initialize })).status).toBe(200);
    heardBefore = fixture.recorded.length;
    expectRefusal(await send(`${url}/more`, { bearer: stack.agentKey, body: initialize }), 404);
    const put = await send(url, { bearer: stack.agentKey, method: "PUT", body: initialize });
    expectRefusal(put, 405);
    expect(put.headers.get("allow")).toBe("POST, GET, DELETE");
  });

  it("C16 variants of a tool's name do not pass for it", async () => {
    for (const name of ["drop_everything", "Echo", "echo ", "echo\u0000", "ech\u043e", "../echo", "%65cho"]) {
      const { body } = modernRequest(1, "tools/call", { name, arguments: { value: "x" } });
      const headers = { "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call" };
      const encoded = /^[\x21-\x7e]+$/.test(name) ? name : `=?base64?${Buffer.from(name).toString("base64")}?=`;
      const answer = await post(body, { ...headers, "mcp-name": encoded });
      // What the policy admits (`*` with an exception) the server may refuse itself; what it denies never gets there.
      const isDenied = name === "drop_everything" || name === "echo\u0000";
      if (isDenied) expect(answer.json().error?.message).toContain("Unknown tool");
      else expect(answer.json().error?.code).toBe(-32602);
    }
    expect(fixture.recorded.slice(heardBefore).some(({ body }) => body.includes("drop_everything"))).toBe(false);
  });

  it("C12 an id that is in flight in the same session is refused; in another session it is not", async () => {
    const bearer = stack.agentKey;
    const [first, second] = [await openSession(url, bearer), await openSession(url, bearer)];
    const call = (label: string): object => ({
      jsonrpc: "2.0",
      id: 7,
      method: "tools/call",
      params: { name: "wait_for_cancel", arguments: { label } },
    });
    const running = await open(url, { bearer, headers: first, body: call("first") });
    await until(() => fixture.log.started.includes("first"), "the first call runs");
    heardBefore = fixture.recorded.length;
    expectRefusal(await post(call("again"), first), 400, -32600);
    const other = await open(url, { bearer, headers: second, body: call("other session") });
    await until(() => fixture.log.started.includes("other session"), "the other session's call runs");
    expect(fixture.log.started).not.toContain("again");
    running.leave();
    other.leave();
  });
});
