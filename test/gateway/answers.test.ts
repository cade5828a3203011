import type { ServerResponse } from "node:http";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { afterEach, describe, expect, it } from "vitest";
import { until } from "../support/until.ts";
import { canary, errorOf, Harness, header, openPolicy, toolCall } from "./harness.ts";
import type { ScriptedStream } from "./scripted-stream.ts";
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

function events(response: ServerResponse, contentType = "text/event-stream"): (text: string) => void {
  response.writeHead(200, { "content-type": contentType });
  response.flushHeaders();
  return (text) => response.write(text);
}

const result = (id: string | number, body = "{}"): string =>
  `event: message\ndata: {"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${body}}\n\n`;

/** A legacy session as the agent sees it. */
async function openSession(h: Harness, principal = "key:claude"): Promise<string> {
  const stream = await h.call({ body: '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}', principal });
  return header(stream, "mcp-session-id") ?? "";
}

/** An upstream with sessions: ids in a map, 404 for those it does not know. */
function sessionServer(): { behave: Behaviour; sessions: Map<string, number>; ended: string[] } {
  const sessions = new Map<string, number>();
  const ended: string[] = [];
  const behave: Behaviour = (request, response) => {
    const session = request.headers["mcp-session-id"];
    const method = request.method === "POST" ? (JSON.parse(request.body.toString()) as { method?: string }).method : "";
    if (method === "initialize") {
      const id = `s-${sessions.size + 1}`;
      sessions.set(id, 0);
      json(response, `{"jsonrpc":"2.0","id":${idOf(request.body)},"result":{}}`, 200, { "mcp-session-id": id });
    } else if (typeof session !== "string") {
      json(response, '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}', 400);
    } else if (!sessions.has(session)) {
      json(response, '{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}', 404);
    } else if (request.method === "DELETE") {
      sessions.delete(session);
      ended.push(session);
      response.writeHead(200).end();
    } else if (method === "notifications/initialized") {
      response.writeHead(202).end();
    } else {
      const count = (sessions.get(session) ?? 0) + 1;
      sessions.set(session, count);
      json(response, `{"jsonrpc":"2.0","id":${idOf(request.body)},"result":{"content":[],"n":${count}}}`, 200, {
        "mcp-session-id": session,
      });
    }
  };
  return { behave, sessions, ended };
}

describe("MCP sessions", () => {
  it("C01 a session that the upstream lost is 404 with an error body, and nobody initializes for the agent", async () => {
    const { behave, sessions } = sessionServer();
    const h = await start(behave);
    const session = ["Mcp-Session-Id", await openSession(h)];
    expect((await h.call({ body: toolCall("get_x", 1), headers: session })).head?.status).toBe(200);
    sessions.clear();
    const ten = await Promise.all(
      Array.from({ length: 10 }, (_, i) => h.call({ body: toolCall("get_x", i), headers: session })),
    );
    for (const stream of ten) {
      expect([stream.head?.status, errorOf(stream).code]).toEqual([404, -32001]);
      expect(header(stream, "content-type")).toBe("application/json");
    }
    expect(h.upstream.seen).toHaveLength(12);
  });

  it("C01 an id never issued, one ended by DELETE, and a bare upstream id are 404 -32001", async () => {
    const { behave, ended } = sessionServer();
    const h = await start(behave);
    const session = await openSession(h);
    const gone = ["Mcp-Session-Id", session];
    expect((await h.call({ method: "DELETE", headers: gone })).head?.status).toBe(200);
    expect(ended).toEqual(["s-1"]);
    expect((await h.call({ body: toolCall("get_x"), headers: gone })).head?.status).toBe(404);
    const seen = h.upstream.seen.length;
    for (const id of ["never", "s-1", `${session}0`, session.slice(0, -1), ""]) {
      const stream = await h.call({ body: toolCall("get_x", "q"), headers: ["Mcp-Session-Id", id] });
      expect([stream.head?.status, errorOf(stream).code, errorOf(stream).id]).toEqual([404, -32001, "q"]);
      expect((await h.call({ method: "GET", headers: ["Mcp-Session-Id", id] })).head?.status).toBe(404);
    }
    expect(h.upstream.seen).toHaveLength(seen);
  });

  it("C03 each agent keeps its own upstream session, and cannot use another's", async () => {
    const { behave } = sessionServer();
    const h = await start(behave);
    const one = ["Mcp-Session-Id", await openSession(h, "key:one")];
    const two = ["Mcp-Session-Id", await openSession(h, "key:two")];
    const counts: Record<string, number> = {};
    for (const who of ["one", "two", "one", "one", "two", "one", "one"]) {
      const headers = who === "one" ? one : two;
      const stream = await h.call({ body: toolCall("get_n"), headers, principal: `key:${who}` });
      counts[who] = (JSON.parse(stream.text) as { result: { n: number } }).result.n;
      expect(header(stream, "mcp-session-id")).toBe(headers[1]);
    }
    expect(counts).toEqual({ one: 5, two: 2 });
    const seen = h.upstream.seen.length;
    for (const call of [{ body: toolCall("get_n") }, { method: "GET" }, { method: "DELETE" }] as const) {
      const stolen = await h.call({ ...call, headers: one, principal: "key:two" });
      expect([stolen.head?.status, errorOf(stolen).code]).toEqual([404, -32001]);
    }
    expect(h.upstream.seen).toHaveLength(seen);
    const bare = await h.call({ body: '{"jsonrpc":"2.0","method":"notifications/initialized"}' });
    expect(bare.head?.status).toBe(400);
    expect(h.upstream.seen.at(-1)?.headers["mcp-session-id"]).toBeUndefined();
  });

  it("in the modern era no session header passes, in either direction", async () => {
    const h = await start((request, response) =>
      json(response, `{"jsonrpc":"2.0","id":${idOf(request.body)},"result":{}}`, 200, { "mcp-session-id": "s" }),
    );
    const stream = await h.call({
      body: toolCall("get_x"),
      headers: [
        "MCP-Protocol-Version",
        "2026-07-28",
        "Mcp-Method",
        "tools/call",
        "Mcp-Name",
        "get_x",
        "Mcp-Session-Id",
        "x",
      ],
    });
    expect(stream.head?.status).toBe(200);
    expect(header(stream, "mcp-session-id")).toBeUndefined();
    expect(h.upstream.seen[0]?.headers["mcp-session-id"]).toBeUndefined();
    expect(h.upstream.seen[0]?.headers["mcp-name"]).toBe("get_x");
  });

  it.each(["has blank", "x".repeat(5000)])("an upstream session id that cannot be passed on is 502", async (id) => {
    const h = await start((request, response) =>
      json(response, `{"jsonrpc":"2.0","id":${idOf(request.body)},"result":{}}`, 200, { "mcp-session-id": id }),
    );
    expect((await h.call({ body: toolCall("get_x") })).head?.status).toBe(502);
  });
});

describe("answers that never pass", () => {
  it.each([
    ["(b) 200 without a body", (response: ServerResponse) => response.writeHead(200).end()],
    ["(b) 200 JSON without a body", (response: ServerResponse) => json(response, "")],
    ["(c) 202", (response: ServerResponse) => response.writeHead(202).end()],
    ["204", (response: ServerResponse) => response.writeHead(204).end()],
  ])("C02 %s to a call is 502 with its id", async (_what, answer) => {
    const h = await start((_request, response) => answer(response));
    const stream = await h.call({ body: toolCall("write", "w-1").replace("write", "get_w") });
    expect([stream.head?.status, errorOf(stream).code, errorOf(stream).id]).toEqual([502, -33021, "w-1"]);
    expect(h.log).toContain('"server":"tickets"');
  });

  it("C02 (a) 404 without a body is a 404 with one", async () => {
    const h = await start((_request, response) => response.writeHead(404).end());
    const stream = await h.call({ body: toolCall("get_x", 3) });
    expect([stream.head?.status, errorOf(stream).id]).toEqual([404, 3]);
  });

  it("C02 (d) an event stream that ends without the response ends in an error event", async () => {
    const h = await start((_request, response) => {
      events(response)(": hello\n\n");
      response.end();
    });
    const stream = await h.call({ body: toolCall("get_x", "d") });
    expect(stream.head?.status).toBe(200);
    expect(stream.text).toMatch(/^: hello\n\nevent: message\ndata: \{"jsonrpc":"2.0","id":"d","error":\{"code":-33021/);
    expect(stream.text).toContain('"requestId":"req-1"');
    expect(stream.ended).toBeDefined();
  });

  it.each([301, 302, 303, 307, 308])("C23 a redirect (%d) is 502; its target shows in the log only", async (status) => {
    const h = await start((request, response) => {
      if (request.url === "/mcp") response.writeHead(status, { location: "https://inner.example:8443/mcp/?t=1" }).end();
      else echoResult(request, response);
    });
    const stream = await h.call({ body: toolCall("get_x") });
    expect([stream.head?.status, errorOf(stream).code]).toEqual([502, -33021]);
    expect(JSON.stringify(stream.head) + stream.text).not.toContain("inner");
    expect(h.upstream.seen).toHaveLength(1);
    expect(h.log).toContain('"url":"https://inner.example:8443/mcp/"');
    expect(h.log).not.toContain("t=1");
  });

  it.each([600, 999])(
    "a status that is none (%d) is 502 with the request's id, and told to the log",
    async (status) => {
      const h = await start((request, response) =>
        json(response, `{"jsonrpc":"2.0","id":${idOf(request.body)}}`, status),
      );
      const stream = await h.call({ body: toolCall("get_x", 7) });
      expect([stream.head?.status, errorOf(stream).code, errorOf(stream).id]).toEqual([502, -33021, 7]);
      expect(h.log).toContain('"reason":"no HTTP status"');
    },
  );

  it("an upstream's 401, and its 403 with a challenge, are 502; a plain 403 passes", async () => {
    const challenge = { "www-authenticate": 'Bearer resource_metadata="http://inner/"' };
    let answer: [number, Record<string, string>] = [401, challenge];
    const h = await start((_request, response) => {
      json(response, '{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m"}}', ...answer);
    });
    for (const refused of [
      [401, challenge],
      [401, {}],
      [403, challenge],
    ] as const) {
      answer = [...refused];
      const stream = await h.call({ body: toolCall("get_x") });
      expect([stream.head?.status, errorOf(stream).code, errorOf(stream).id]).toEqual([502, -33021, 1]);
      expect(JSON.stringify(stream.head) + stream.text).not.toContain("inner");
    }
    answer = [403, {}];
    const plain = await h.call({ body: toolCall("get_x") });
    expect([plain.head?.status, errorOf(plain).code]).toEqual([403, -1]);
  });

  it.each([
    ["success", 200, 502],
    ["error", 500, 500],
    ["not found", 404, 404],
  ])("a page in place of JSON: %s", async (_what, status, expected) => {
    const h = await start((_request, response) =>
      response.writeHead(status, { "content-type": "text/html" }).end("<p>inner-canary</p>"),
    );
    const stream = await h.call({ body: toolCall("get_x", 4) });
    expect([stream.head?.status, errorOf(stream).code, errorOf(stream).id]).toEqual([expected, -33021, 4]);
    expect(stream.text).not.toContain("inner-canary");
  });

  it("a body without a content type is no JSON", async () => {
    const h = await start((_request, response) => response.writeHead(200).end('{"jsonrpc":"2.0","id":1,"result":{}}'));
    expect((await h.call({ body: toolCall("get_x") })).head?.status).toBe(502);
  });

  it.each([
    ["gzip", gzipSync],
    ["br", brotliCompressSync],
  ])("C06 an answer in %s is 502", async (encoding, compress) => {
    const h = await start((_request, response) => {
      response.writeHead(200, { "content-type": "application/json", "content-encoding": encoding });
      response.end(compress('{"jsonrpc":"2.0","id":1,"result":{}}'));
    });
    const stream = await h.call({ body: toolCall("get_x") });
    expect([stream.head?.status, errorOf(stream).code]).toEqual([502, -33021]);
    expect(h.log).toContain("encoded");
  });

  it.each([
    ["content-type", ["application/json", "text/event-stream"]],
    ["mcp-session-id", ["s-1", "s-2"]],
    ["retry-after", ["1", "2"]],
  ])("an answer with two values of %s is 502", async (name, values) => {
    const h = await start((request, response) => {
      response.setHeader("content-type", "application/json");
      response.setHeader(name, values);
      response.writeHead(200);
      response.end(`{"jsonrpc":"2.0","id":${idOf(request.body)},"result":{}}`);
    });
    expect((await h.call({ body: toolCall("get_x") })).head?.status).toBe(502);
    expect(h.log).toContain("repeats");
  });

  it("headers outside the list do not pass", async () => {
    const h = await start((request, response) => {
      json(response, `{"jsonrpc":"2.0","id":${idOf(request.body)},"result":{}}`, 200, {
        server: "inner/1.0",
        "set-cookie": "a=b",
        "x-powered-by": "inner",
        location: "http://inner/",
        "retry-after": "7",
        "access-control-allow-origin": "*",
        "content-disposition": "attachment",
        allow: "POST",
        trailer: "x-t",
      });
    });
    const stream = await h.call({ body: toolCall("get_x") });
    expect(stream.head?.headers).toEqual([
      "content-type",
      "application/json",
      "cache-control",
      "no-store",
      "retry-after",
      "7",
      "x-content-type-options",
      "nosniff",
    ]);
  });
});

describe("GET and DELETE", () => {
  it.each([405, 404, 400, 501])(
    "C22 an upstream's %d to GET is final, and the upstream sees one request",
    async (status) => {
      const h = await start((_request, response) =>
        response.writeHead(status, { "content-type": "text/plain", allow: "POST, DELETE" }).end("no"),
      );
      const stream = await h.call({ method: "GET" });
      expect([stream.head?.status, errorOf(stream).id]).toEqual([status, null]);
      if (status === 405) expect(header(stream, "allow")).toBe("POST, DELETE");
      expect(h.upstream.seen).toHaveLength(1);
    },
  );

  it("C22 a GET stream passes event by event, with its ids, and says that it must not be held back", async () => {
    const { behave } = sessionServer();
    let push: ((text: string) => void) | undefined;
    const h = await start((request, response) => {
      if (request.method === "GET") push = events(response, "Text/Event-Stream;charset=UTF-8");
      else behave(request, response);
    });
    const session = await openSession(h);
    const stream = h.begin({ method: "GET", headers: ["Mcp-Session-Id", session, "Last-Event-ID", "_a/b:é"] });
    await until(() => stream.head !== undefined, "the head, before any event");
    expect(stream.head?.headers).toEqual([
      "content-type",
      "Text/Event-Stream;charset=UTF-8",
      "cache-control",
      "no-cache, no-transform",
      "x-accel-buffering",
      "no",
      "x-content-type-options",
      "nosniff",
    ]);
    const sent = [
      "id: 1\nretry: 500\ndata: \n\n",
      ": comment\n\n",
      'id: 2\ndata: {"jsonrpc":"2.0","method":"notifications/progress"}\n\n',
    ];
    let so = "";
    for (const text of sent) {
      push?.(text);
      so += text;
      await until(() => stream.text === so, "each event before the next");
    }
    expect(h.upstream.seen.at(-1)?.headers["last-event-id"]).toBe("_a/b:é");
    expect(h.upstream.seen.at(-1)?.headers["mcp-session-id"]).toBe("s-1");
    stream.cancel();
    await until(() => h.upstream.seen.at(-1)?.isAborted() === true, "the upstream hears of it", 1000);
  });

  it("lists on a GET stream are filtered by their shape", async () => {
    let push: ((text: string) => void) | undefined;
    const h = await start((_request, response) => {
      push = events(response);
    });
    const stream = h.begin({ method: "GET" });
    await until(() => stream.head !== undefined, "head");
    push?.('id: 9\ndata: {"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"get_a"},{"name":"del_a"}],"x":1.0}}\n\n');
    await until(() => stream.text.includes("get_a"), "the list");
    expect(stream.text).not.toContain("del_a");
    expect(stream.text).toContain('"x":1.0');
    stream.cancel();
  });
});

describe("requests of the server", () => {
  function asker(asks: string[]): { behave: Behaviour; answers: string[]; finish: () => void } {
    const answers: string[] = [];
    let finish = (): void => undefined;
    const { behave } = sessionServer();
    return {
      answers,
      finish: () => finish(),
      behave: (request, response) => {
        const body = request.body.toString();
        if (request.method !== "POST" || body.includes("initialize")) behave(request, response);
        else if (body.includes("tools/call")) {
          const push = events(response);
          for (const ask of asks) push(`event: message\ndata: ${ask}\n\n`);
          finish = () => {
            push(result(1));
            response.end();
          };
        } else {
          answers.push(`${request.headers["mcp-session-id"]} ${request.headers.authorization} ${body}`);
          response.writeHead(202).end();
        }
      },
    };
  }
  const elicit = (id: string): string => `{"jsonrpc":"2.0","id":${id},"method":"elicitation/create","params":{}}`;

  it.each(["1", '"1"', "0"])(
    "C09 the answer to request %s passes once, byte for byte; anything else goes nowhere",
    async (id) => {
      const { behave, answers, finish } = asker([elicit(id)]);
      const h = await start(behave);
      const session = ["Mcp-Session-Id", await openSession(h)];
      const other = ["Mcp-Session-Id", await openSession(h, "key:other")];
      const call = h.begin({ body: toolCall("get_x"), headers: session });
      await until(() => call.text.includes("elicitation/create"), "the request arrives");
      const answer = `{"jsonrpc":"2.0", "id":${id},"result":{"action":"accept","content":{"n":1.0}}}`;
      const wrongType = answer.replace(`"id":${id}`, `"id":${id.startsWith('"') ? "1" : `"${id}"`}`);
      const strays = [
        { body: wrongType, headers: session },
        { body: answer, headers: other, principal: "key:other" },
        { body: answer },
      ];
      for (const stray of strays) expect((await h.call(stray)).head).toMatchObject({ status: 202, by: "gateway" });
      expect(answers).toHaveLength(0);
      expect((await h.call({ body: answer, headers: session })).head).toMatchObject({ status: 202, by: "upstream" });
      expect(answers).toEqual([`s-1 Bearer ${canary} ${answer}`]);
      expect((await h.call({ body: answer, headers: session })).head).toMatchObject({ status: 202, by: "gateway" });
      expect(answers).toHaveLength(1);
      finish();
      await until(() => call.isOver, "the call");
      expect(h.gateway.status().mcpSessions).toBe(0);
    },
  );

  it("C09 an error passes as an answer; one that is never given goes with the call", async () => {
    const { behave, answers, finish } = asker([elicit("1"), elicit("2")]);
    const h = await start(behave);
    const session = ["Mcp-Session-Id", await openSession(h)];
    const call = h.begin({ body: toolCall("get_x"), headers: session });
    await until(() => call.text.includes('"id":2'), "both requests");
    const error = '{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"declined"}}';
    await h.call({ body: error, headers: session });
    expect(answers).toEqual([`s-1 Bearer ${canary} ${error}`]);
    finish();
    await until(() => call.isOver, "the call");
    expect(h.gateway.status().mcpSessions).toBe(0);
    expect((await h.call({ body: error.replace(":2", ":1"), headers: session })).head?.by).toBe("gateway");
  });

  it("C09 a kind that the policy does not admit never reaches the agent; the server hears -32601 at once", async () => {
    const ask = '{"jsonrpc":"2.0","id":"s/1","method":"sampling/createMessage","params":{"messages":["ask-canary"]}}';
    const { behave, answers, finish } = asker([ask]);
    const h = await start(behave);
    const session = ["Mcp-Session-Id", await openSession(h), "MCP-Protocol-Version", "2025-11-25"];
    const call = h.begin({ body: toolCall("get_x"), headers: session });
    await until(() => answers.length === 1, "the server is told");
    expect(answers[0]).toBe(
      `s-1 Bearer ${canary} {"jsonrpc":"2.0","id":"s/1","error":{"code":-32601,"message":"Method not found"}}`,
    );
    expect(h.upstream.seen.at(-1)?.headers["mcp-protocol-version"]).toBe("2025-11-25");
    finish();
    await until(() => call.isOver, "the call");
    expect(call.text).not.toContain("ask-canary");
    expect(call.text).toContain('"id":1,"result"');
  });

  it("what a server makes of a refusal of ours holds nothing of the gateway", async () => {
    const { behave, finish } = asker(['{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}']);
    let isHeld = false;
    const h = await start((request, response) => {
      if (!request.body.includes("-32601")) return behave(request, response);
      isHeld = true;
      events(response)(": never ends\n\n");
    });
    const call = h.begin({ body: toolCall("get_x"), headers: ["Mcp-Session-Id", await openSession(h)] });
    await until(() => isHeld, "the refusal");
    finish();
    await until(() => call.isOver, "the call");
    await until(() => h.gateway.status().openUpstreamCalls === 0, "the refusal is let go");
  });
});

describe("answers that are held", () => {
  const half = "x".repeat(600);
  const mebibyte = 1024 * 1024;

  it("of one server leave room for those of the others", async () => {
    const [grants] = Object.values(openPolicy.servers);
    if (grants === undefined) throw new Error("no policy");
    const list = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}';
    const result = (size: number): string => `{"jsonrpc":"2.0","id":1,"result":{"tools":[],"x":"${"x".repeat(size)}`;
    let isEndless = true;
    const h = await start(
      (_request, response) => {
        if (!isEndless) return json(response, `${result(2 * mebibyte)}"}}`);
        response.writeHead(200, { "content-type": "application/json" });
        response.write(result(13 * mebibyte));
      },
      {
        policy: { servers: { tickets: grants, ungranted: grants } },
        gateway: { limits: { answerBudgetBytes: 40 * mebibyte } },
      },
    );
    const endless = [1, 2, 3].map(() => h.begin({ body: list }));
    await until(
      () => h.gateway.status().answerBytes > 38 * mebibyte || endless.filter(({ isOver }) => isOver).length === 2,
      "it holds what it may",
    );
    isEndless = false;
    const other = await h.call({ body: list, server: "ungranted" });
    expect([other.head?.status, other.body.length > 2 * mebibyte]).toEqual([200, true]);
    for (const stream of endless) if (!stream.isOver) stream.cancel();
    await until(() => h.gateway.status().answerBytes === 0, "given back");
  });

  it("share their memory: one that finds it used up streams if it may, and else fails", async () => {
    const h = await start(
      (request, response) => {
        response.writeHead(200, { "content-type": "application/json" });
        const method = (JSON.parse(request.body.toString()) as { method: string }).method;
        const member = method === "tools/list" ? '"tools":[' : '"content":[';
        response.write(`{"jsonrpc":"2.0","id":${idOf(request.body)},"result":{"_meta":"${half}",${member}`);
      },
      { gateway: { limits: { answerBudgetBytes: 1_000 } } },
    );
    const first = h.begin({ body: toolCall("get_x") });
    await until(() => h.gateway.status().answerBytes > half.length, "the first answer is held");
    const second = h.begin({ body: toolCall("get_x", 2) });
    await until(() => second.text.includes(half), "the second answer is not held");
    const list = await h.call({ body: '{"jsonrpc":"2.0","id":3,"method":"tools/list"}' });
    expect([list.head?.status, errorOf(list).code]).toEqual([502, -33023]);
    expect(first.head).toBeUndefined();
    for (const stream of [first, second]) stream.cancel();
    await until(() => h.gateway.status().answerBytes === 0, "given back");
  });
});

describe("failures", () => {
  it("C09 a server that asks without end has its latest requests remembered, and fills no log", async () => {
    const pings = Array.from({ length: 600 }, (_, id) => `data: {"jsonrpc":"2.0","id":${id},"method":"ping"}\n\n`);
    const answers: string[] = [];
    const h = await start((request, response) => {
      if (request.method === "GET") events(response)(pings.join(""));
      else {
        answers.push(request.body.toString());
        response.writeHead(202).end();
      }
    });
    const stream = h.begin({ method: "GET" });
    await until(() => stream.text === pings.join(""), "all requests");
    stream.cancel();
    const answer = (id: number): string => `{"jsonrpc":"2.0","id":${id},"result":{}}`;
    for (const id of [0, 343, 344, 599]) await h.call({ body: answer(id) });
    expect(answers).toEqual([answer(344), answer(599)]);
    expect(h.log.split("\n").length).toBeLessThan(20);
  });

  it("a server that makes the gateway drop event after event fills no log", async () => {
    const update = '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"ticket://closed/1"}}';
    const h = await start((_request, response) => {
      events(response)(`data: ${update}\n\n`.repeat(1_000) + result(1));
      response.end();
    });
    const stream = await h.call({ body: toolCall("get_x") });
    expect(stream.text).toBe(result(1));
    expect(h.log.split('"code":"dropped"').length - 1).toBeLessThanOrEqual(10);
    expect(h.log).toContain('"code":"dropped"');
  });

  it("C15 the log says what was wrong with an answer, the agent hears only that the server failed", async () => {
    const h = await start((request, response) =>
      json(response, `[{"jsonrpc":"2.0","id":${idOf(request.body)},"result":{}}]`),
    );
    const stream = await h.call({ body: toolCall("get_x") });
    expect([stream.head?.status, errorOf(stream).message]).toEqual([502, "The server failed"]);
    expect(h.log).toContain('"reason":"a batch"');
  });

  it("C30 nobody listens: 502 and -33021, without an address", async () => {
    const h = await start(echoResult, { url: () => "http://127.0.0.1:1/mcp" });
    const stream = await h.call({ body: toolCall("get_x") });
    expect([stream.head?.status, errorOf(stream).code, errorOf(stream).id]).toEqual([502, -33021, 1]);
    expect(stream.text).not.toContain("127.0.0.1");
    expect(h.log).toContain("ECONNREFUSED");
  });

  it("no first byte in time: 504 and -33022, and the upstream is let go", async () => {
    const h = await start(() => undefined, { gateway: { timeouts: { firstByteMs: 50 } } });
    const stream = await h.call({ body: toolCall("get_x") });
    expect([stream.head?.status, errorOf(stream).code]).toEqual([504, -33022]);
    await until(() => h.upstream.seen[0]?.isAborted() === true, "aborted");
  });

  it("the relay's deadline counts where it is the shorter one", async () => {
    const h = await start(() => undefined);
    const stream = await h.call({ body: toolCall("get_x"), deadlineMs: 30 });
    expect(stream.head?.status).toBe(504);
  });

  it("an upstream that dies amid a JSON body: no success, whatever was sent", async () => {
    const h = await start((_request, response) => {
      response.writeHead(200, { "content-type": "application/json", "content-length": "100000" });
      response.write('{"jsonrpc":"2.0","id":1,"result":{');
      setImmediate(() => response.destroy());
    });
    const stream = await h.call({ body: toolCall("get_x") });
    expect([stream.head?.status, errorOf(stream).code]).toEqual([502, -33021]);
  });

  it("C33 an upstream that dies amid a large body: cut, never complete", async () => {
    let die = (): unknown => undefined;
    const h = await start((_request, response) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.write(`{"jsonrpc":"2.0","id":1,"result":{"content":["${"x".repeat(3_000_000)}`);
      die = () => response.destroy();
    });
    const stream = h.begin({ body: toolCall("get_x") });
    await until(() => stream.chunks.length > 0, "the body begins");
    die();
    await until(() => stream.isOver, "the exchange ends");
    expect(stream.ended).toBeUndefined();
    expect(stream.resetBy?.code).toBe("UPSTREAM_FAILED");
    expect(stream.head?.status).toBe(200);
  });

  it("an upstream that dies amid an event stream: one error event for the id, then the end", async () => {
    let die = (): unknown => undefined;
    const h = await start((_request, response) => {
      const push = events(response);
      push('data: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}\n\ndata: {"half');
      die = () => response.destroy();
    });
    const stream = h.begin({ body: toolCall("get_x", 8) });
    await until(() => stream.text !== "", "the first event");
    die();
    await until(() => stream.isOver, "the exchange ends");
    expect(stream.ended).toBeDefined();
    const [, last] = stream.text.split("\n\n");
    expect(last).toMatch(/^event: message\ndata: \{"jsonrpc":"2.0","id":8,"error":\{"code":-33021/);
    expect(stream.text).not.toContain("half");
  });

  it("C33 a response head of 90 kB fails its call alone", async () => {
    let isHuge = true;
    const h = await start((request, response) => {
      if (isHuge) response.setHeader("x-huge", "h".repeat(90_000));
      echoResult(request, response);
    });
    const others = Array.from({ length: 5 }, () => h.begin({ body: toolCall("get_y") }));
    isHuge = true;
    expect((await h.call({ body: toolCall("get_x") })).head?.status).toBe(502);
    await until(() => others.every((stream) => stream.isOver), "others");
    isHuge = false;
    expect((await h.call({ body: toolCall("get_x") })).head?.status).toBe(200);
  });

  it("informational heads and trailers do not reach the agent", async () => {
    const h = await start((request, response) => {
      response.writeEarlyHints({ link: "</x>; rel=preload" });
      response.writeHead(200, { "content-type": "application/json", trailer: "x-late" });
      response.addTrailers({ "x-late": "inner" });
      response.end(`{"jsonrpc":"2.0","id":${idOf(request.body)},"result":{}}`);
    });
    const stream = await h.call({ body: toolCall("get_x") });
    expect(stream.head?.status).toBe(200);
    expect(JSON.stringify(stream.head)).not.toContain("link");
  });
});

describe("agents that leave", () => {
  it("C29 twenty calls: those that are cancelled release the upstream at once, the others get their answers", async () => {
    const unhandled: unknown[] = [];
    const note = (error: unknown): number => unhandled.push(error);
    process.on("unhandledRejection", note);
    const release: (() => void)[] = [];
    const h = await start((request, response) => release.push(() => echoResult(request, response)));
    const streams = Array.from({ length: 20 }, (_, i) => h.begin({ body: toolCall("get_x", i) }));
    await until(() => release.length === 20, "all at the upstream");
    const leaving = streams.filter((_, i) => i % 4 === 0);
    for (const stream of leaving) stream.cancel();
    await until(() => h.upstream.seen.filter((seen) => seen.isAborted()).length === 5, "five aborted", 1000);
    for (const go of release) go();
    const staying = streams.filter((stream) => !leaving.includes(stream));
    await until(() => staying.every((stream) => stream.isOver), "the others");
    expect(staying.every((stream) => stream.head?.status === 200)).toBe(true);
    process.off("unhandledRejection", note);
    expect(unhandled).toEqual([]);
    await until(() => h.audit.filter(({ event }) => event === "outcome").length === 20, "outcomes");
    expect(h.audit.filter((line) => line["end"] === "CANCEL")).toHaveLength(5);
  });

  it("C29 an agent that left before its decision was recorded costs no call", async () => {
    const h = await start(echoResult);
    h.begin({ body: toolCall("get_left") }).cancel();
    await h.call({ body: toolCall("get_stayed") });
    expect(h.upstream.seen.map((seen) => seen.body.toString())).toEqual([toolCall("get_stayed")]);
    await until(() => h.audit.length === 4, "records");
    expect(h.audit.find(({ event }) => event === "outcome")).toMatchObject({ name: "get_left", end: "CANCEL" });
  });

  it("C29 leaving at any moment leaves nothing behind", async () => {
    const h = await start((request, response) => {
      const push = events(response);
      push(": a\n\n");
      setImmediate(() => {
        push(result(Number(idOf(request.body))));
        response.end();
      });
    });
    const moments: ((stream: ScriptedStream) => boolean)[] = [
      () => true,
      (stream) => stream.head !== undefined,
      (stream) => stream.text !== "",
      (stream) => stream.isOver,
    ];
    for (const [i, moment] of moments.entries()) {
      const stream = h.begin({ body: toolCall("get_x", i) });
      await until(() => moment(stream), "the moment");
      stream.cancel("TUNNEL_LOST");
    }
    const half = h.begin();
    half.push(Buffer.from('{"json'));
    half.cancel();
  });

  it("C11 a posted notifications/cancelled waits behind nothing and goes to the same session", async () => {
    const { behave } = sessionServer();
    const h = await start((request, response) => {
      if (request.body.includes("cancelled")) response.writeHead(202).end();
      else if (!request.body.includes("tools/call")) behave(request, response);
    });
    const session = ["Mcp-Session-Id", await openSession(h)];
    const slow = h.begin({ body: toolCall("get_slow", 101), headers: session });
    await until(() => h.upstream.seen.length === 2, "the slow call");
    const body = '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":101}}';
    expect((await h.call({ body, headers: session })).head?.status).toBe(202);
    expect(h.upstream.seen.at(-1)?.headers["mcp-session-id"]).toBe("s-1");
    expect(h.upstream.seen.at(-1)?.body.toString()).toBe(body);
    slow.cancel();
  });
});

describe("slow agents", () => {
  it("a stream without credit stops its upstream, and no other", async () => {
    let written = 0;
    const h = await start((request, response) => {
      if (request.body.includes("get_small")) {
        echoResult(request, response);
        return;
      }
      const push = events(response);
      const event = `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"d":"${"x".repeat(60_000)}"}}\n\n`;
      const more = (): void => {
        while (written < 500) {
          written += 1;
          if (!response.write(event)) return;
        }
        push(result(1));
        response.end();
      };
      response.on("drain", more);
      more();
    });
    const slow = h.begin({ body: toolCall("get_big") });
    slow.isStalled = true;
    await until(() => slow.chunks.length > 0, "first bytes");
    for (let i = 0; i < 20; i += 1) expect((await h.call({ body: toolCall("get_small") })).head?.status).toBe(200);
    expect(written).toBeLessThan(200);
    slow.drain();
    await until(() => slow.isOver, "all of it");
    expect(slow.text.length).toBeGreaterThan(30_000_000);
    expect(slow.text.endsWith(result(1))).toBe(true);
  });
});
