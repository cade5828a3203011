import { afterEach, describe, expect, it } from "vitest";
import { until } from "../support/until.ts";
import { canary, errorOf, Harness, header, noCredential, toolCall } from "./harness.ts";
import { type Behaviour, echoResult, idOf, json } from "./scripted-upstream.ts";

let harness: Harness | undefined;
afterEach(async () => {
  await harness?.stop();
  harness = undefined;
});

async function start(behave: Behaviour, options?: Parameters<typeof Harness.start>[1]): Promise<Harness> {
  harness = await Harness.start(behave, options);
  return harness;
}

describe("an allowed call", () => {
  it("goes through with the injected credential, and comes back as the upstream said it", async () => {
    const h = await start(echoResult);
    const stream = await h.call({ body: toolCall("get_ticket", "a-1") });
    expect(stream.head).toMatchObject({ status: 200, by: "upstream", rpcId: '"a-1"' });
    expect(stream.text).toBe('{"jsonrpc":"2.0","id":"a-1","result":{"content":[]}}');
    expect(stream.ended).toEqual({ closeDelimited: false });
    const [seen] = h.upstream.seen;
    expect(seen?.headers.authorization).toBe(`Bearer ${canary}`);
    expect(seen?.url).toBe("/mcp");
    expect(seen?.body.toString()).toBe(toolCall("get_ticket", "a-1"));
  });

  it("C14 the bytes that were judged are the bytes that arrive, and the answer's bytes the bytes that come back", async () => {
    const answer =
      '{"jsonrpc":"2.0", "id":1,"result":{"structuredContent":{"id":1915883588174806058,"x":1.0,"y":1e400,"z":-0,"z":1},"content":[],"_meta":{"a/b":[1.0]}}}\n';
    const h = await start((_request, response) => json(response, answer));
    const body = `{"jsonrpc":"2.0","id":1 ,"method":"tools/call","params":{"name":"get_x","arguments":{"n":9007199254740993,"f":1.0,"e":1e400,"z":-0,"u":"\\ud83d\\ude00é"},"_meta":{"deep":{"er":[1.0]}}},"unknown":{"a":0.10}}`;
    const stream = await h.call({ body });
    expect(h.upstream.seen[0]?.body.toString()).toBe(body);
    expect(stream.text).toBe(answer);
  });

  it("C13 a body in pieces of one byte arrives whole", async () => {
    const h = await start(echoResult);
    const body = toolCall("get_ticket", 1, ',"_meta":{"t":"é€😀e\u0301"}');
    const stream = await h.call({ body, pieces: 1 });
    expect(stream.head?.status).toBe(200);
    expect(h.upstream.seen[0]?.body.toString()).toBe(body);
    expect(stream.consumedBytes).toBe(Buffer.byteLength(body));
  });

  it("is recorded before it leaves, with the rule and its line, and its outcome after", async () => {
    let linesAtUpstream = -1;
    const h: Harness = await start((request, response) => {
      linesAtUpstream = h.audit.length;
      echoResult(request, response);
    });
    await h.call({ body: toolCall("get_ticket", 1, ',"x":"argument-canary"') });
    expect(linesAtUpstream).toBe(1);
    await until(() => h.audit.length === 2, "both records");
    const [decision, outcome] = h.audit;
    expect(decision).toMatchObject({
      event: "decision",
      position: 1,
      tunnel: "acme",
      gateway: "edge-1",
      requestId: "req-1",
      principal: "key:claude",
      server: "tickets",
      verb: "POST",
      method: "tools/call",
      name: "get_ticket",
      decision: "allow",
      at: "policy.yaml:7:9",
    });
    expect(decision?.["rule"]).toContain("tools[0]");
    expect(outcome).toMatchObject({ event: "outcome", position: 2, status: 200, by: "upstream", end: "complete" });
    expect(outcome?.["exchangeId"]).toBe(decision?.["exchangeId"]);
    expect(outcome?.["bytesOut"]).toBe(Buffer.byteLength('{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'));
    expect(JSON.stringify(h.audit)).not.toContain("argument-canary");
  });
});

describe("a denied call", () => {
  it("C16 gets one answer whether the tool exists or not, and nothing reaches the upstream", async () => {
    const h = await start(echoResult);
    for (const name of ["del_x", "GET_X", "get_secret", "get_x\n"]) {
      const stream = await h.call({ body: toolCall(name) });
      expect(stream.head).toMatchObject({ status: 200, by: "gateway" });
      expect(errorOf(stream)).toMatchObject({ id: 1, code: -32602, message: `Unknown tool: ${name}` });
    }
    expect(h.upstream.seen).toHaveLength(0);
    await until(() => h.audit.length === 8, "records");
    expect(h.audit.filter(({ event }) => event === "decision").map((line) => line["decision"])).toEqual(
      Array.from({ length: 4 }, () => "deny"),
    );
  });

  it("a denied notification is answered 202 and goes nowhere", async () => {
    const h = await start(echoResult);
    const stream = await h.call({ body: '{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}' });
    expect([stream.head?.status, stream.text]).toEqual([202, ""]);
    expect(h.upstream.seen).toHaveLength(0);
  });

  it("an unknown method is denied, in the words of the era", async () => {
    const h = await start(echoResult);
    const legacy = await h.call({ body: '{"jsonrpc":"2.0","id":5,"method":"tasks/get","params":{}}' });
    expect([legacy.head?.status, errorOf(legacy).code, errorOf(legacy).id]).toEqual([200, -32601, 5]);
    const modern = await h.call({
      body: '{"jsonrpc":"2.0","id":5,"method":"tasks/get","params":{}}',
      headers: ["MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tasks/get"],
    });
    expect([modern.head?.status, errorOf(modern).code]).toEqual([404, -32601]);
    expect(h.upstream.seen).toHaveLength(0);
  });

  it("a server without a grant, and one that is not configured, are reset before any body is read", async () => {
    const h = await start(echoResult);
    expect((await h.call({ server: "ungranted", body: toolCall("get_x") })).resetBy?.code).toBe("FORBIDDEN");
    expect((await h.call({ server: "nowhere", body: toolCall("get_x") })).resetBy?.code).toBe("NO_SERVER");
    expect((await h.call({ server: "ungranted", method: "GET" })).resetBy?.code).toBe("FORBIDDEN");
    expect(h.upstream.seen).toHaveLength(0);
    await until(() => h.audit.length === 6, "records");
    expect(h.audit.filter(({ event }) => event === "decision").map((line) => line["reason"])).toEqual([
      "FORBIDDEN",
      "NO_SERVER",
      "FORBIDDEN",
    ]);
  });
});

describe("requests that are refused", () => {
  it.each([
    ["one element", "[%]"],
    ["two", "[%,%]"],
    ["none", "[]"],
    ["nested", "[[%]]"],
    ["after blanks", " \n\t[%]"],
  ])("C15 a batch with %s never reaches the upstream", async (_what, shape) => {
    const h = await start(echoResult);
    const stream = await h.call({ body: shape.replaceAll("%", toolCall("get_x")) });
    expect(stream.head?.status).toBe(400);
    expect(errorOf(stream)).toMatchObject({ id: null, code: -32600, data: { requestId: "req-1" } });
    expect(h.upstream.seen).toHaveLength(0);
    await until(() => h.audit.length === 2, "records");
    expect(h.audit[0]).toMatchObject({ event: "decision", decision: "deny" });
  });

  it("C15 a byte order mark, no JSON, and bytes that are no UTF-8 are -32700", async () => {
    const h = await start(echoResult);
    for (const body of [Buffer.from(`\ufeff${toolCall("get_x")}`), "{", Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d])]) {
      const stream = await h.call({ body });
      expect([stream.head?.status, errorOf(stream).code]).toEqual([400, -32700]);
    }
    expect(h.upstream.seen).toHaveLength(0);
  });

  it("C16 a key that repeats is refused", async () => {
    const h = await start(echoResult);
    const stream = await h.call({
      body: '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"del_x","n\\u0061me":"get_x"}}',
    });
    expect([stream.head?.status, errorOf(stream).code]).toEqual([400, -32600]);
    expect(h.upstream.seen).toHaveLength(0);
  });

  it.each([
    ["a form", ["content-type", "application/x-www-form-urlencoded"]],
    ["another charset", ["content-type", "application/json; charset=utf-16"]],
    ["C15 an encoding", ["content-type", "application/json", "content-encoding", "gzip"]],
    ["no content type", []],
  ])("%s is 415", async (_what, headers) => {
    const h = await start(echoResult);
    const stream = await h.call({ body: toolCall("get_x"), plainHeaders: headers });
    expect(stream.head?.status).toBe(415);
    expect(h.upstream.seen).toHaveLength(0);
  });

  it.each(["content-type", "MCP-Protocol-Version", "Mcp-Session-Id", "Mcp-Name", "Mcp-Param-Region", "Last-Event-ID"])(
    "C20 %s given twice is 400",
    async (name) => {
      const h = await start(echoResult);
      const value = name === "content-type" ? "application/json" : "x";
      const stream = await h.call({ body: toolCall("get_x"), headers: [name, value, name.toLowerCase(), value] });
      expect([stream.head?.status, errorOf(stream).code]).toEqual([400, -32600]);
      expect(h.upstream.seen).toHaveLength(0);
    },
  );

  it("C20 a version that is no version is 400; a missing one is passed on as missing", async () => {
    const h = await start(echoResult);
    const garbage = await h.call({ body: toolCall("get_x"), headers: ["MCP-Protocol-Version", "latest"] });
    expect(garbage.head?.status).toBe(400);
    await h.call({ body: toolCall("get_x") });
    await h.call({ body: toolCall("get_x"), headers: ["MCP-Protocol-Version", "2025-06-18"] });
    expect(h.upstream.seen.map((seen) => seen.headers["mcp-protocol-version"])).toEqual([undefined, "2025-06-18"]);
  });

  it("C24 no header of the agent comes back in an error", async () => {
    const h = await start(echoResult);
    const call = { headers: ["X-Agent", "agent-canary"], body: "[]" };
    for (const more of [{}, { plainHeaders: ["X-Agent", "agent-canary"] }, { method: "GET" }] as const) {
      const stream = await h.call({ ...call, ...more });
      expect(stream.head?.status).toBeGreaterThanOrEqual(400);
      expect(JSON.stringify(stream.head)).not.toContain("agent-canary");
    }
  });

  it("headers that contradict the body are -32020", async () => {
    const h = await start(echoResult);
    const stream = await h.call({ body: toolCall("del_x"), headers: ["Mcp-Name", "get_x"] });
    expect([stream.head?.status, errorOf(stream).code]).toEqual([400, -32020]);
    expect(h.upstream.seen).toHaveLength(0);
  });

  it("a body over the limit is 413, one at the limit passes", async () => {
    const body = toolCall("get_x");
    const h = await start(echoResult, { gateway: { limits: { requestBytes: body.length } } });
    expect((await h.call({ body, pieces: 10 })).head?.status).toBe(200);
    const over = await h.call({ body: `${body} `, pieces: 10 });
    expect(over.head?.status).toBe(413);
    expect(over.consumedBytes).toBe(body.length + 1);
    expect(h.upstream.seen).toHaveLength(1);
  });

  it("bodies beyond the memory of the process are 503, and the others go on", async () => {
    const body = toolCall("get_x");
    const h = await start(echoResult, { gateway: { limits: { bodyBudgetBytes: body.length + 5 } } });
    const first = h.begin({ body });
    const second = await h.call({ body });
    expect([second.head?.status, errorOf(second).code, header(second, "retry-after")]).toEqual([503, -33011, "1"]);
    await until(() => first.isOver, "first call");
    expect(first.head?.status).toBe(200);
    expect((await h.call({ body })).head?.status).toBe(200);
  });

  it("one principal's bodies leave room for those of others", async () => {
    const body = toolCall("get_x");
    const limits = { requestBytes: body.length, bodyBudgetBytes: 4 * body.length };
    const h = await start(() => undefined, { gateway: { limits } });
    const held = ["key:a", "key:a", "key:b"].map((principal) => h.begin({ body, principal }));
    const third = await h.call({ body, principal: "key:a" });
    expect([third.head?.status, errorOf(third).code]).toEqual([503, -33011]);
    await until(() => h.upstream.seen.length === 3, "the others are called");
    held[0]?.cancel();
    const fourth = h.begin({ body, principal: "key:a" });
    await until(() => h.upstream.seen.length === 4, "its room is given back");
    for (const stream of [...held.slice(1), fourth]) stream.cancel();
  });

  it("GET and DELETE with a body are 400", async () => {
    const h = await start(echoResult);
    expect((await h.call({ method: "GET", body: "{}" })).head?.status).toBe(400);
    expect((await h.call({ method: "DELETE", body: "{}" })).head?.status).toBe(400);
    expect(h.upstream.seen).toHaveLength(0);
  });

  it("a call whose deadline has passed is never made", async () => {
    const h = await start(echoResult);
    expect((await h.call({ body: toolCall("get_x"), deadlineMs: 0 })).resetBy?.code).toBe("EXPIRED");
    expect(h.upstream.seen).toHaveLength(0);
  });
});

describe("ids in flight", () => {
  it("C12 one id twice in one session is refused, and the first call gets its own answer", async () => {
    const release: (() => void)[] = [];
    const h = await start((request, response) => {
      if (request.body.includes("initialize")) {
        json(response, '{"jsonrpc":"2.0","id":0,"result":{}}', 200, { "mcp-session-id": "s1" });
      } else {
        release.push(() => echoResult(request, response));
      }
    });
    const opened = await h.call({ body: '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}' });
    const session = ["Mcp-Session-Id", header(opened, "mcp-session-id") ?? ""];
    const first = h.begin({ body: toolCall("get_a", 7), headers: session });
    await until(() => release.length === 1, "first call at the upstream");
    const twin = await h.call({ body: toolCall("get_b", 7), headers: session });
    expect([twin.head?.status, errorOf(twin).code, errorOf(twin).id]).toEqual([400, -32600, 7]);
    const written = await h.call({ body: toolCall("get_b").replace('"id":1', '"id":7.0'), headers: session });
    expect(errorOf(written).code).toBe(-32600);
    const text = h.begin({ body: toolCall("get_b", "7"), headers: session });
    await until(() => release.length === 2, "the id as text is another");
    for (const go of release) go();
    await until(() => first.isOver && text.isOver, "both end");
    expect([first.text, text.text].map((body) => JSON.parse(body).id)).toEqual([7, "7"]);
    release.length = 0;
    const again = h.begin({ body: toolCall("get_a", 7), headers: session });
    await until(() => release.length === 1, "the id is free again");
    again.cancel();
    const after = h.begin({ body: toolCall("get_a", 7), headers: session });
    await until(() => release.length === 2, "and after a cancel");
    after.cancel();
  });

  it("C12 twelve calls with one id and no session each get their own answer", async () => {
    const h = await start((request, response) => {
      const { name } = (JSON.parse(request.body.toString()) as { params: { name: string } }).params;
      setImmediate(() => json(response, `{"jsonrpc":"2.0","id":1,"result":{"content":["${name}"]}}`));
    });
    const names = Array.from({ length: 12 }, (_, i) => `get_${i}`);
    const streams = await Promise.all(names.map((name) => h.call({ body: toolCall(name) })));
    expect(streams.map((stream) => JSON.parse(stream.text).result.content)).toEqual(names.map((name) => [name]));
  });
});

describe("audit", () => {
  it("when no record can be written, nothing is sent: 503 and -33012", async () => {
    const h = await start(echoResult, {
      gateway: { audit: { target: { file: "/dev/full" }, onError: "deny" } },
    });
    const stream = await h.call({ body: toolCall("get_x") });
    expect([stream.head?.status, errorOf(stream).code, errorOf(stream).id]).toEqual([503, -33012, 1]);
    expect(header(stream, "retry-after")).toBeDefined();
    expect(h.upstream.seen).toHaveLength(0);
    expect(h.log).toContain("ENOSPC");
    expect(h.gateway.status().audit.isWritable).toBe(false);
    expect(h.gateway.ready()).toBe(false);
  });

  it("with onError: continue the call goes on", async () => {
    const h = await start(echoResult, {
      gateway: { audit: { target: { file: "/dev/full" }, onError: "continue" } },
    });
    expect((await h.call({ body: toolCall("get_x") })).head?.status).toBe(200);
  });
});

describe("credentials", () => {
  it("one that is not to be had is 502 without a detail, and nothing is sent", async () => {
    for (const inject of [
      () => {
        throw new Error("vault at 10.0.0.7 sealed");
      },
      () => Promise.reject(new Error("vault at 10.0.0.7 sealed")),
    ]) {
      const h = await start(echoResult, { credential: { ...noCredential, inject } });
      const stream = await h.call({ body: toolCall("get_x") });
      expect([stream.head?.status, errorOf(stream).code]).toEqual([502, -33020]);
      expect(stream.text).not.toContain("10.0.0.7");
      expect(h.upstream.seen).toHaveLength(0);
      await h.stop();
      harness = undefined;
    }
  });

  it("one that comes later is waited for; an agent that left meanwhile costs no call", async () => {
    const waiting: ((value: { headers: string[]; secrets: [] }) => void)[] = [];
    const h = await start(echoResult, {
      credential: { ...noCredential, inject: () => new Promise((resolve) => waiting.push(resolve)) },
    });
    const stays = h.begin({ body: toolCall("get_x") });
    const leaves = h.begin({ body: toolCall("get_x") });
    await until(() => waiting.length === 2, "both wait");
    leaves.cancel();
    for (const resolve of waiting) resolve({ headers: ["authorization", "late"], secrets: [] });
    await until(() => stays.isOver, "the one that stayed");
    expect(h.upstream.seen.map((seen) => seen.headers.authorization)).toEqual(["late"]);
  });

  it("C24 the upstream sees only what it may, on every kind of request", async () => {
    const h = await start((request, response) => {
      if (request.method !== "POST") json(response, "{}", 405, { allow: "POST" });
      else echoResult(request, response);
    });
    const spoofed = [
      "Authorization",
      "Bearer agent-key",
      "Cookie",
      "a=b",
      "Proxy-Authorization",
      "Basic eA==",
      "X-Api-Key",
      "k",
      "X-Forwarded-For",
      "1.2.3.4",
      "Forwarded",
      "for=1.2.3.4",
      "Host",
      "evil.example.com",
      "Origin",
      "https://evil.example.com",
      "Connection",
      "x-y",
      "Transfer-Encoding",
      "chunked",
      "Content-Length",
      "99999",
      "Accept-Encoding",
      "br, zstd",
      "Postern-Tunnel",
      "acme",
      "Mcp-Param-Region",
      "eu",
    ];
    const initialize = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}';
    for (const call of [
      { body: initialize },
      { body: toolCall("get_x") },
      { method: "GET" },
      { method: "DELETE" },
    ] as const) {
      await h.call({ ...call, headers: spoofed });
    }
    expect(h.upstream.seen).toHaveLength(4);
    for (const seen of h.upstream.seen) {
      const names = seen.rawHeaders.filter((_, i) => i % 2 === 0).map((name) => name.toLowerCase());
      const allowed = ["accept", "accept-encoding", "authorization", "connection", "host", "mcp-param-region"];
      if (seen.method === "POST") allowed.push("content-length", "content-type");
      if (seen.method === "DELETE")
        names.splice(names.indexOf("content-length"), names.includes("content-length") ? 1 : 0);
      expect(names.toSorted()).toEqual(allowed.toSorted());
      expect(seen.headers.authorization).toBe(`Bearer ${canary}`);
      expect(seen.headers["accept-encoding"]).toBe("identity");
      expect(seen.headers.host).toBe(new URL(h.upstream.url).host);
      expect(seen.headers.accept).toBe("application/json, text/event-stream");
    }
  });

  it("C24 a server without a credential gets no Authorization at all", async () => {
    const h = await start(echoResult, { credential: noCredential });
    await h.call({ body: toolCall("get_x"), headers: ["Authorization", "Bearer agent-key"] });
    expect(h.upstream.seen[0]?.headers.authorization).toBeUndefined();
  });
});

describe("messages for nobody", () => {
  it("an id of the wrong answer fails the call", async () => {
    const h = await start((_request, response) => json(response, '{"jsonrpc":"2.0","id":2,"result":{}}'));
    const stream = await h.call({ body: toolCall("get_x", 1) });
    expect([stream.head?.status, errorOf(stream).code, errorOf(stream).id]).toEqual([502, -33021, 1]);
    expect(idOf(Buffer.from(stream.body))).toBe("1");
  });
});
