import { request as httpRequest } from "node:http";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type AgentAnswer, eventData, initialize, modernRequest, open, send } from "../support/agent-requests.ts";
import { json, type ScriptedUpstream, startScriptedUpstream, writeBytewise } from "../support/scripted-upstream.ts";
import { mintToken, type Stack, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { mintSecret } from "../support/vault-backed.ts";

/** What an upstream says reaches the agent byte for byte and at once; what must not pass becomes a clear error. */
const token = mintSecret("upstream");
/** Two, three and four bytes, a combining mark, and an escaped pair. */
const text = "é € \u{1f600} e\u0301";
const escaped = "\\ud83d\\ude00";
const names = ["one", "two", "three"] as const;
const complete = (id: unknown, rest = '"content":[]'): string =>
  `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":{"resultType":"complete",${rest}}}`;

describe("the path is transparent", () => {
  const other = mintToken("pak_");
  let upstream: ScriptedUpstream;
  let stack: Stack;

  beforeAll(async () => {
    upstream = await startScriptedUpstream();
    const credential = { type: "bearer", token: { file: "./token" } };
    stack = await startStack({
      extraAgents: { other },
      secretFiles: { token },
      servers: Object.fromEntries(names.map((name) => [name, { url: upstream.url(name), credential }])),
      policy: Object.fromEntries(names.map((name) => [name, { tools: ["get_*", "tool_3", "tool_75", "tool_119"] }])),
    });
  });

  afterAll(async () => {
    await stack?.stop();
    await upstream?.close();
  });

  const url = (): string => stack.agentUrl("one");
  const call = (args: object = {}, id: number | string = 1): Promise<AgentAnswer> =>
    send(url(), { bearer: stack.agentKey, ...modernRequest(id, "tools/call", { name: "get_x", arguments: args }) });
  const seenLast = () => upstream.seen("one").at(-1);

  const contentTypes = ["text/event-stream", "text/event-stream; charset=utf-8", "Text/Event-Stream;charset=UTF-8"];
  const streams = contentTypes.flatMap((type) => [["POST", type] as const, ["GET", type] as const]);

  it.each(streams)("C05 %s as %s: each event is with the agent before the next exists", async (method, type) => {
    let hasFirst = (): void => undefined;
    const first = new Promise<void>((resolve) => {
      hasFirst = resolve;
    });
    const note = 'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"one"}}\n\n';
    const last = method === "POST" ? `data: ${complete(1)}\n\n` : note.replace("one", "two");
    upstream.answer("one", async (res) => {
      res.writeHead(200, { "content-type": type });
      res.write(note);
      await first;
      res.end(last);
    });
    const stream =
      method === "POST"
        ? await open(url(), { bearer: stack.agentKey, ...modernRequest(1, "tools/call", { name: "get_x" }) })
        : await open(url(), { bearer: stack.agentKey, method, headers: { accept: "text/event-stream" } });
    expect(stream.headers.get("x-accel-buffering")).toBe("no");
    expect(stream.headers.get("cache-control")).toBe("no-cache, no-transform");
    await until(() => stream.text().includes('"one"'), "the first event");
    hasFirst();
    await until(() => stream.complete() !== undefined, "the end");
    expect(stream.complete()).toBe(true);
    expect(stream.text()).toBe(note + last);
  });

  it("C13 text is exact however its bytes are cut on the way to the agent", async () => {
    const body = complete(1, `"content":[{"type":"text","text":"${text} ${escaped}"}]`);
    upstream.answer("one", async (res) => {
      res.writeHead(200, { "content-type": "application/json" });
      await writeBytewise(res, body);
    });
    expect((await call()).text).toBe(body);
    upstream.answer("one", async (res) => {
      res.writeHead(200, { "content-type": "text/event-stream" });
      await writeBytewise(res, `: ${text}\r\nid: 1\ndata: ${body}\n\n`);
    });
    expect((await call()).text).toBe(`: ${text}\r\nid: 1\ndata: ${body}\n\n`);
  });

  it("C13 text is exact however its bytes are cut on the way to the server", async () => {
    upstream.answer("one", (res) => json(res, complete(1)));
    const { body, headers } = modernRequest(1, "tools/call", { name: "get_x", arguments: { text } });
    const bytes = Buffer.from(JSON.stringify(body).replace(`"${text}"`, `"${text} ${escaped}"`));
    await new Promise<void>((resolve, reject) => {
      const authorization = `Bearer ${stack.agentKey}`;
      const options = { method: "POST", headers: { "content-type": "application/json", authorization, ...headers } };
      const req = httpRequest(url(), options, (res) => res.resume().once("end", resolve));
      req.once("error", reject);
      req.setNoDelay(true);
      const next = (at: number): void => {
        if (at === bytes.length) req.end();
        else req.write(bytes.subarray(at, at + 1), () => next(at + 1));
      };
      next(0);
    });
    expect(seenLast()?.body).toBe(bytes.toString("utf8"));
  });

  it("C14 numbers, unknown members and repeated keys of an answer keep their bytes", async () => {
    const body = complete(
      1,
      '"structuredContent":{"id":1915883588174806058,"x":1.0,"y":1e400,"z":-0,"a":1,"a":2},"later":[ 1 ,2],"_meta":{"deep":{"n":9007199254740993}}',
    );
    upstream.answer("one", (res) => json(res, body));
    expect((await call()).text).toBe(body);
  });

  it("C14 arguments reach the server as they were sent", async () => {
    upstream.answer("one", (res) => json(res, complete(1)));
    const { body, headers } = modernRequest(1, "tools/call", { name: "get_x", arguments: { n: "N" } });
    const sent = JSON.stringify(body)
      .replace('"N"', "9007199254740993.50")
      .replace('"jsonrpc"', ' "x-later": [1.0, -0] , "jsonrpc"');
    await send(url(), { bearer: stack.agentKey, headers, body: sent });
    expect(seenLast()?.body).toBe(sent);
  });

  it("C14 a filtered list keeps the bytes, the order and the members of what stays", async () => {
    const keep = '{ "name" : "get_a", "inputSchema":{"type":"object","maximum":1e400}, "x": 9007199254740993 }';
    const drop = '{"name":"drop_b","inputSchema":{"type":"object"}}';
    const list = (tools: string): string => complete(1, `"tools":[${tools}],"nextCursor":"c","later":{"n":1.0}`);
    upstream.answer("one", (res) => json(res, list(`${keep},${drop},${keep.replace("get_a", "get_c")}`)));
    const answer = await send(url(), { bearer: stack.agentKey, ...modernRequest(1, "tools/list") });
    expect(answer.text).not.toContain("drop_b");
    for (const part of [keep, keep.replace("get_a", "get_c"), '"nextCursor":"c"', '"later":{"n":1.0}']) {
      expect(answer.text).toContain(part);
    }
    expect(answer.text.indexOf("get_a")).toBeLessThan(answer.text.indexOf("get_c"));
  });

  it("C19 every page is filtered, keeps its cursor, and a tool of the last page can be called unlisted", async () => {
    const pageOf = (cursor: number): string => {
      const tools = Array.from({ length: Math.min(50, 120 - cursor) }, (_, i) => ({
        name: `tool_${cursor + i + 1}`,
        inputSchema: { type: "object" },
      }));
      const next = cursor + 50 < 120 ? `,"nextCursor":"${cursor + 50}"` : "";
      return complete(1, `"tools":${JSON.stringify(tools)}${next}`);
    };
    upstream.answer("one", (res, { body }) => {
      const { method, params } = JSON.parse(body) as { method: string; params: { cursor?: string } };
      json(res, method === "tools/list" ? pageOf(Number(params.cursor ?? 0)) : complete(1));
    });
    const last = { name: "tool_119", arguments: {} };
    const unlisted = await send(url(), { bearer: stack.agentKey, ...modernRequest(1, "tools/call", last) });
    expect(unlisted.json().result).toBeDefined();
    const found: string[] = [];
    const cursors: unknown[] = [];
    for (let cursor: unknown = "0"; cursor !== undefined; ) {
      const answer = await send(url(), { bearer: stack.agentKey, ...modernRequest(1, "tools/list", { cursor }) });
      const result = answer.json().result as { tools: { name: string }[]; nextCursor?: string };
      found.push(...result.tools.map(({ name }) => name));
      cursor = result.nextCursor;
      cursors.push(cursor);
    }
    expect(found).toEqual(["tool_3", "tool_75", "tool_119"]);
    expect(cursors).toEqual(["50", "100", undefined]);
  });

  it.each([0, 7, "a", "7"])("C10 progress carries the agent's own token %j in its own type", async (progressToken) => {
    upstream.answer("one", (res, { body }) => {
      const { params } = JSON.parse(body) as { params: { _meta: { progressToken: unknown } } };
      const progress = { progressToken: params._meta.progressToken, progress: 1 };
      const note = { jsonrpc: "2.0", method: "notifications/progress", params: progress };
      res.writeHead(200, { "content-type": "text/event-stream" });
      res.end(`data: ${JSON.stringify(note)}\n\ndata: ${complete(1)}\n\n`);
    });
    const { body, headers } = modernRequest(1, "tools/call", { name: "get_x" });
    const message = body as { params: { _meta: object } };
    const tokened = { ...message, params: { ...message.params, _meta: { ...message.params._meta, progressToken } } };
    const answer = await send(url(), { bearer: stack.agentKey, headers, body: tokened });
    const [note] = eventData(answer.text) as unknown as { params: { progressToken: unknown } }[];
    expect(note?.params.progressToken).toBe(progressToken);
  });

  it("C20 the version header passes as it is, absent or present; one that is twice there is refused", async () => {
    upstream.answer("one", (res) => json(res, complete(2)));
    const list = { jsonrpc: "2.0", id: 2, method: "tools/list" };
    for (const version of ["2025-03-26", "2025-11-25"]) {
      await send(url(), { bearer: stack.agentKey, headers: { "mcp-protocol-version": version }, body: list });
      expect(seenLast()?.headers["mcp-protocol-version"]).toBe(version);
    }
    await send(url(), { bearer: stack.agentKey, body: list });
    expect(seenLast()?.headers["mcp-protocol-version"]).toBeUndefined();
    const count = upstream.seen("one").length;
    const status = await new Promise((resolve, reject) => {
      const headers = ["authorization", `Bearer ${stack.agentKey}`, "content-type", "application/json"];
      const twice = ["mcp-protocol-version", "2025-11-25", "mcp-protocol-version", "2025-06-18"];
      const host = ["host", `127.0.0.1:${stack.relayPort}`];
      const options = { method: "POST", headers: [...host, ...headers, ...twice] as never };
      const req = httpRequest(url(), options, (res) => {
        res.resume();
        resolve(res.statusCode);
      });
      req.once("error", reject);
      req.end(JSON.stringify(list));
    });
    expect(status).toBe(400);
    expect(upstream.seen("one").length).toBe(count);
  });

  it.each([
    ["both", "application/json, text/event-stream"],
    ["anything", "*/*"],
    ["JSON only", "application/json"],
    ["events only", "text/event-stream"],
    ["with weights", "application/json;q=0.9, text/event-stream;q=0.1"],
    ["in upper case", "APPLICATION/JSON, TEXT/EVENT-STREAM"],
    ["none", undefined],
  ])(
    "C21 the agent's Accept passes as it was sent (%s), beside the injected header, and so does a 406",
    async (_, accept) => {
      upstream.answer("one", (res, { headers }) => {
        const { accept: asked = "" } = headers;
        const takesBoth = asked.includes("application/json") && asked.includes("text/event-stream");
        if (takesBoth) json(res, complete(7));
        else
          res
            .writeHead(406, { "content-type": "application/json" })
            .end('{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Not Acceptable"}}');
      });
      const { body, headers } = modernRequest(7, "tools/call", { name: "get_x" });
      const answer = await new Promise<{ status: number | undefined; text: string }>((resolve, reject) => {
        const own = { authorization: `Bearer ${stack.agentKey}`, "content-type": "application/json", ...headers };
        const req = httpRequest(
          url(),
          { method: "POST", headers: accept === undefined ? own : { ...own, accept } },
          (res) => {
            let text = "";
            res.setEncoding("utf8").on("data", (part: string) => {
              text += part;
            });
            res.once("end", () => resolve({ status: res.statusCode, text }));
          },
        );
        req.once("error", reject);
        req.end(JSON.stringify(body));
      });
      expect(seenLast()?.headers.accept).toBe(accept);
      expect(seenLast()?.headers.authorization).toBe(`Bearer ${token}`);
      const isTaken = accept?.includes("json") === true && accept.includes("event-stream");
      expect(answer.status).toBe(isTaken ? 200 : 406);
      expect(answer.text).toContain(isTaken ? '"id":7' : "Not Acceptable");
    },
  );

  it("C07 a resume asks the server with the very id, and its replay passes byte for byte, again after a second drop", async () => {
    const ids = ["_GET_stream_1", "a/b:c-d", "=_=", "caf\u00e9"];
    upstream.answer("one", (res, { headers }) => {
      const from = Buffer.from(String(headers["last-event-id"]), "latin1").toString("latin1");
      const next = ids[ids.indexOf(from) + 1];
      const note = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}';
      res.writeHead(200, { "content-type": "text/event-stream" });
      res.end(Buffer.from(next === undefined ? ": nothing more\n\n" : `id: ${next}\ndata: ${note}\n\n`, "utf8"));
    });
    const bearer = stack.agentKey;
    for (const [i, id] of ids.entries()) {
      const headers = { accept: "text/event-stream", "last-event-id": id };
      const answer = await send(url(), { bearer, method: "GET", headers });
      expect(seenLast()?.headers["last-event-id"]).toBe(id);
      expect(answer.text).toContain(i + 1 < ids.length ? `id: ${ids[i + 1]}\n` : ": nothing more");
    }
  });

  it.each([405, 404, 400, 501])(
    "C22 a GET that the server answers %i is asked once, and its answer passes",
    async (status) => {
      const before = upstream.seen("two").length;
      upstream.answer("two", (res, { method }) => {
        if (method === "GET") res.writeHead(status, status === 405 ? { allow: "POST" } : {}).end();
        else json(res, complete(1));
      });
      const target = stack.agentUrl("two");
      const answer = await send(target, { bearer: stack.agentKey, method: "GET" });
      expect(answer.status).toBe(status);
      if (status === 405) expect(answer.headers.get("allow")).toBe("POST");
      const posted = await send(target, {
        bearer: stack.agentKey,
        ...modernRequest(1, "tools/call", { name: "get_x" }),
      });
      expect(posted.status).toBe(200);
      expect(upstream.seen("two").length).toBe(before + 2);
    },
  );

  it.each([301, 302, 307, 308])("C23 a redirect (%i) is never followed and never shown", async (status) => {
    upstream.answer("three", (res) => json(res, complete(1)));
    upstream.answer("one", (res) => res.writeHead(status, { location: upstream.url("three") }).end());
    const before = upstream.seen("three").length;
    const answer = await call();
    expect(answer.status).toBe(502);
    expect(answer.json().error?.code).toBe(-33021);
    expect(answer.headers.get("location")).toBeNull();
    expect(answer.text).not.toContain("127.0.0.1");
    expect(upstream.seen("three").length).toBe(before);
    expect(stack.gateway()?.stderr()).toContain(upstream.url("three"));
  });

  it("C02 a success without a result is an error with the caller's id", async () => {
    const empty = [
      (): void => upstream.answer("one", (res) => res.writeHead(200, { "content-type": "application/json" }).end()),
      (): void => upstream.answer("one", (res) => res.writeHead(202).end()),
      (): void => upstream.answer("one", (res) => res.writeHead(200, { "content-type": "text/html" }).end("<p>hi</p>")),
    ];
    for (const [i, prepare] of empty.entries()) {
      prepare();
      const logged = stack.gateway()?.stderr().length ?? 0;
      const answer = await call({}, `call ${i}`);
      const lines = (): string => stack.gateway()?.stderr().slice(logged) ?? "";
      await until(() => lines().includes('"server":"one"'), "one line that names the server");
      expect(answer.status).toBe(502);
      expect(answer.json()).toMatchObject({ id: `call ${i}`, error: { code: -33021 } });
    }
    upstream.answer("one", (res) => res.writeHead(200, { "content-type": "text/event-stream" }).end(": nothing\n\n"));
    const streamed = await call({}, "streamed");
    expect(streamed.json()).toMatchObject({ id: "streamed", error: { code: -33021 } });
  });

  it("an answer that breaks off never looks complete", async () => {
    upstream.answer("one", (res) => {
      res.writeHead(200, { "content-type": "text/event-stream" });
      res.write(": begun\n\n");
      setTimeout(() => res.destroy(), 50);
    });
    const streamed = await call({}, 5);
    expect(streamed.json()).toMatchObject({ id: 5, error: { code: -33021 } });
    upstream.answer("one", (res) => {
      res.writeHead(200, { "content-type": "application/json", "content-length": "200000" });
      res.write(complete(6).slice(0, -1).padEnd(100_000, " "));
      setTimeout(() => res.destroy(), 50);
    });
    const cut = await call({}, 6).catch(() => "broken off" as const);
    if (cut !== "broken off") expect(cut.json()).toMatchObject({ error: { code: -33021 } });
  });

  it("C06 the server is asked for plain answers; one that compresses all the same is a loud error", async () => {
    upstream.answer("one", (res) => {
      res.writeHead(200, { "content-type": "application/json", "content-encoding": "gzip" });
      res.end(gzipSync(complete(1)));
    });
    const answer = await send(url(), {
      bearer: stack.agentKey,
      ...modernRequest(1, "tools/list"),
      headers: { ...modernRequest(1, "tools/list").headers, "accept-encoding": "gzip, br" },
    });
    expect(answer.status).toBe(502);
    expect(seenLast()?.headers["accept-encoding"] ?? "identity").toBe("identity");
  });

  it("C08 a session belongs to who opened it: for others, or altered, its id is unknown", async () => {
    upstream.answer("one", (res, { method }) => {
      if (method === "GET") {
        res.writeHead(200, { "content-type": "text/event-stream" });
        res.end('id: 2\ndata: {"jsonrpc":"2.0","method":"notifications/message","params":{"data":"mine"}}\n\n');
      } else {
        res.setHeader("mcp-session-id", "upstream-session");
        json(
          res,
          '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}',
        );
      }
    });
    const opened = await send(url(), { bearer: stack.agentKey, body: initialize });
    const id = opened.headers.get("mcp-session-id") ?? "";
    expect(id).not.toBe("upstream-session");
    const resume = (bearer: string, sessionId: string, server = "one"): Promise<AgentAnswer> =>
      send(stack.agentUrl(server), {
        bearer,
        method: "GET",
        headers: {
          accept: "text/event-stream",
          "mcp-session-id": sessionId,
          "last-event-id": "e/1:u",
        },
      });
    const before = upstream.seen("one").length;
    const altered = `${id.slice(0, -1)}${id.endsWith("A") ? "B" : "A"}`;
    const refusals = [
      await resume(other.token, id),
      await resume(stack.agentKey, altered),
      await resume(stack.agentKey, "upstream-session"),
      await resume(stack.agentKey, id, "two"),
    ];
    for (const refusal of refusals) {
      expect(refusal.status).toBe(404);
      expect(refusal.json().error?.code).toBe(-32001);
    }
    expect(upstream.seen("one").length).toBe(before);
    const resumed = await resume(stack.agentKey, id);
    expect(resumed.text).toContain("mine");
    expect(seenLast()?.headers["mcp-session-id"]).toBe("upstream-session");
    expect(seenLast()?.headers["last-event-id"]).toBe("e/1:u");
  });

  it("C11 an agent that leaves releases the server's request at once", async () => {
    upstream.answer("one", (res) => {
      res.writeHead(200, { "content-type": "text/event-stream" });
      res.write(": waiting\n\n");
    });
    const stream = await open(url(), { bearer: stack.agentKey, ...modernRequest(1, "tools/call", { name: "get_x" }) });
    await until(() => stream.text().includes("waiting"), "the stream stands");
    const request = seenLast();
    expect(request?.isOpen()).toBe(true);
    stream.leave();
    await until(() => request?.isOpen() === false, "the server's request is closed", 1_000);
  });
});
