import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { FakeSession } from "../support/fake-tunnel.ts";
import { until } from "../support/until.ts";
import { Rig } from "./rig.ts";

let rig: Rig;
let session: FakeSession;

beforeEach(async () => {
  rig = await new Rig({ allowedOrigins: ["https://app.example.com"] }).listen();
  session = rig.connect();
  session.onStream = (stream) => stream.answer('{"jsonrpc":"2.0","id":1,"result":{}}');
});

afterEach(async () => {
  await until(() => rig.leftovers === 0, "no exchange is left");
  await rig.close();
});

interface ErrorBody {
  jsonrpc: string;
  id: unknown;
  error: { code: number; message: string; data: { requestId: string } };
}

async function expectError(answer: Response, status: number, code: number): Promise<ErrorBody> {
  const text = await answer.text();
  expect([answer.status, text]).toEqual([status, expect.stringContaining(`"code":${code}`)]);
  const body = JSON.parse(text) as ErrorBody;
  expect(body).toMatchObject({ jsonrpc: "2.0", id: null });
  expect(body.error.data.requestId).toBe(answer.headers.get("x-request-id"));
  expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
  expect(text).not.toMatch(/127\.0\.0\.1|:\d{4,5}\//);
  return body;
}

/** Status line of the first answer on a raw connection. */
async function statusOf(text: string): Promise<string> {
  const client = rig.raw();
  client.send(text);
  await client.has("\r\n\r\n");
  return client.text.split("\r\n", 1)[0] ?? "";
}

describe("who may pass", () => {
  it("passes a request with a key, its answer and a request id", async () => {
    const answer = await rig.fetch({ body: '{"jsonrpc":"2.0","id":1,"method":"ping"}' });
    expect(answer.status).toBe(200);
    expect(await answer.text()).toBe('{"jsonrpc":"2.0","id":1,"result":{}}');
    expect(answer.headers.get("x-request-id")).toBe(session.last.open.requestId);
    expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
    expect(session.last.body).toBe('{"jsonrpc":"2.0","id":1,"method":"ping"}');
    expect(session.last.isRequestEnded).toBe(true);
    expect(session.last.open).toMatchObject({
      server: "tickets",
      method: "POST",
      hasBody: true,
      principal: { id: "key:claude", kind: "key", claims: {} },
    });
  });

  it("answers the same 401 for no tunnel, no token, a wrong token and a token of another form", async () => {
    const wrong = `pak_${"A".repeat(43)}`;
    const answers = await Promise.all([
      rig.fetch({ path: "/nobody/tickets/mcp" }),
      rig.fetch({ headers: { authorization: "" } }),
      rig.fetch({ headers: { authorization: `Bearer ${wrong}` } }),
      rig.fetch({ headers: { authorization: `Bearer ptk_${"A".repeat(43)}` } }),
      rig.fetch({ headers: { authorization: `Basic ${rig.key.token.reveal()}` } }),
      rig.fetch({ path: "/acme/", headers: { authorization: "" } }),
      rig.fetch({ path: "/acme/other/deep/path", headers: { authorization: "" } }),
      rig.fetch({ method: "OPTIONS", headers: { authorization: "" } }),
    ]);
    const seen = new Set<string>();
    for (const answer of answers) {
      const body = await expectError(answer, 401, -33002);
      expect(answer.headers.get("www-authenticate")).toBe("Bearer");
      const headers = [...answer.headers].filter(([name]) => name !== "x-request-id" && name !== "date");
      seen.add(JSON.stringify([headers, { ...body.error, data: null }]));
    }
    expect(seen.size).toBe(1);
    expect(session.streams).toHaveLength(0);
  });

  it("answers 401 before the body is there", async () => {
    const client = rig.raw();
    client.send(rig.request("POST /acme/tickets/mcp HTTP/1.1", ["Authorization: Bearer x", "Content-Length: 1000"]));
    await client.has("HTTP/1.1 401 Unauthorized");
    client.destroy();
  });

  it("answers 403 without a challenge for a server that is not granted or cannot exist", async () => {
    for (const path of ["/acme/crm/mcp", "/acme/My_Server/mcp", "/acme/crm/other"]) {
      const answer = await rig.fetch({ path });
      await expectError(answer, 403, -33002);
      expect(answer.headers.has("www-authenticate")).toBe(false);
    }
    const authorization = `Bearer ${rig.wildcardKey.token.reveal()}`;
    await expectError(await rig.fetch({ path: "/acme/My_Server/mcp", headers: { authorization } }), 403, -33002);
    expect(session.streams).toHaveLength(0);
  });

  it("refuses a Host that is not its own, and two of them", async () => {
    const line = "GET /acme/tickets/mcp HTTP/1.1";
    expect(await statusOf(rig.request(line, ["Host: evil.example.com"]))).toContain("403");
    expect(await statusOf(rig.request(line, ["Host: relay.example.com.evil.test"]))).toContain("403");
    expect(await statusOf(rig.request(line, ["Host: relay.example.com", "Host: relay.example.com"]))).toContain("400");
    expect(await statusOf(rig.request(line, ["Host: RELAY.example.com:443"]))).toContain("200");
    expect(await statusOf("GET /acme/tickets/mcp HTTP/1.1\r\n\r\n")).toContain("403");
  });

  it("refuses an Origin that is not allowed, before it looks at the token", async () => {
    for (const origin of ["https://evil.example.com", "null", "http://app.example.com"]) {
      await expectError(await rig.fetch({ headers: { origin, authorization: "" } }), 403, -33002);
    }
  });

  it("answers a preflight of an allowed origin before authentication, and lets pages read what they need", async () => {
    const origin = "https://app.example.com";
    const headers = { origin, authorization: "", "access-control-request-headers": "mcp-param-project, x-evil" };
    const preflight = await rig.fetch({ method: "OPTIONS", headers });
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get("access-control-allow-origin")).toBe(origin);
    expect(preflight.headers.get("access-control-allow-headers")).toContain("mcp-param-project");
    expect(preflight.headers.get("access-control-allow-headers")).not.toContain("x-evil");
    const answer = await rig.fetch({ headers: { origin } });
    expect(answer.headers.get("access-control-allow-origin")).toBe(origin);
    expect(answer.headers.get("access-control-expose-headers")).toBe("Mcp-Session-Id, X-Request-Id, WWW-Authenticate");
    const refused = await rig.fetch({ headers: { origin, authorization: "" } });
    expect(refused.headers.get("access-control-allow-origin")).toBe(origin);
  });
});

describe("paths and verbs", () => {
  it("C23 serves both spellings and a query directly, and never redirects", async () => {
    for (const path of [
      "/acme/tickets/mcp",
      "/acme/tickets/mcp/",
      "/acme/tickets/mcp?x=1",
      "/acme/tickets/mcp/?x=/../y",
    ]) {
      const answer = await rig.fetch({ path, headers: { "mcp-session-id": "s-1" } });
      expect([path, answer.status]).toEqual([path, 200]);
      expect(answer.headers.has("location")).toBe(false);
      await answer.text();
      expect(JSON.stringify(session.last.open)).not.toContain("x=");
      expect(session.last.open.headers).toContain("s-1");
    }
  });

  it("C23 knows no other spelling", async () => {
    const paths = ["//acme/tickets/mcp", "/MCP", "/mcp", "/", "/acme", "/ACME/tickets/mcp", "/acme%2Ftickets/mcp"];
    paths.push("/.well-known/oauth-protected-resource/acme/tickets/mcp", "http://127.0.0.1/acme/tickets/mcp");
    for (const path of paths) {
      for (const auth of [[], ["Authorization: Bearer x"]]) {
        const status = await statusOf(rig.request(`POST ${path} HTTP/1.1`, auth, "{}"));
        expect([path, status]).toEqual([path, "HTTP/1.1 404 Not Found"]);
      }
    }
    for (const path of [
      "/acme/tickets/MCP",
      "/acme//tickets/mcp",
      "/acme/tickets%2Fmcp",
      "/acme/tickets/mcp/x",
      "/acme/tickets",
    ]) {
      const status = await statusOf(rig.request(`POST ${path} HTTP/1.1`, [], "{}"));
      expect([path, status]).toEqual([path, "HTTP/1.1 404 Not Found"]);
    }
    expect(session.streams).toHaveLength(0);
  });

  it("C22 answers 405 with Allow to other verbs, and passes the server's own 405", async () => {
    for (const method of ["PUT", "PATCH", "HEAD", "OPTIONS"]) {
      const answer = await rig.fetch({ method });
      expect([method, answer.status, answer.headers.get("allow")]).toEqual([method, 405, "POST, GET, DELETE"]);
      await answer.text();
    }
    session.onStream = (stream) => {
      stream.head(405, ["content-type", "application/json", "allow", "POST"]);
      stream.data("{}");
      stream.finish();
    };
    const answer = await rig.fetch({ method: "GET" });
    expect([answer.status, answer.headers.get("allow"), await answer.text()]).toEqual([405, "POST", "{}"]);
    expect(session.streams).toHaveLength(1);
  });

  it("asks for an upgrade where only gateways call", async () => {
    expect(await statusOf(rig.request("GET /_postern/v1/tunnel HTTP/1.1"))).toContain("426");
  });

  it("passes GET and DELETE without a body, and refuses one that has", async () => {
    for (const method of ["GET", "DELETE"]) {
      expect((await rig.fetch({ method })).status).toBe(200);
      expect(session.last.open).toMatchObject({ method, hasBody: false });
      expect(session.last.received).toHaveLength(0);
      const status = await statusOf(rig.request(`${method} /acme/tickets/mcp HTTP/1.1`, ["Content-Length: 2"], "{}"));
      expect(status).toBe("HTTP/1.1 400 Bad Request");
    }
  });
});

describe("headers", () => {
  it("C24 lets no credential, cookie or forwarding header pass", async () => {
    const secret = "canary-0123456789";
    const dropped = [
      "Cookie",
      "Proxy-Authorization",
      "X-Api-Key",
      "X-Forwarded-For",
      "Forwarded",
      "X-Request-Id",
      "Te",
    ];
    const client = rig.raw();
    client.send(
      rig.request(
        "POST /acme/tickets/mcp HTTP/1.1",
        [...dropped.map((name) => `${name}: ${secret}`), "Mcp-Method: ping"],
        "{}",
      ),
    );
    await client.has("200 OK");
    expect(session.last.open.headers).toEqual(["Mcp-Method", "ping"]);
    expect(JSON.stringify(session.last.open)).not.toMatch(/canary|pak_/);
  });

  it("C20 passes what MCP needs, spelled as sent", async () => {
    const sent = [
      ["content-type", "application/json"],
      ["accept", "application/json"],
      ["accept", "text/event-stream"],
      ["mcp-protocol-version", "garbage"],
      ["Mcp-Method", "tools/call"],
      ["MCP-NAME", "=?base64?w6k=?="],
      ["Mcp-Param-Project", "OPS"],
      ["mcp-param-b", "1"],
      ["mcp-session-id", "s"],
      ["last-event-id", "e/1"],
      ["traceparent", "00-1"],
      ["tracestate", "a=1"],
    ] as const;
    const client = rig.raw();
    client.send(
      rig.request(
        "POST /acme/tickets/mcp HTTP/1.1",
        sent.map(([name, value]) => `${name}: ${value}`),
        "{}",
      ),
    );
    await client.has("200 OK");
    expect(session.last.open.headers).toEqual(sent.flat());
  });

  it("C20 refuses a single-value header that repeats", async () => {
    for (const name of [
      "MCP-Protocol-Version",
      "Mcp-Name",
      "Mcp-Session-Id",
      "Last-Event-ID",
      "Content-Type",
      "Mcp-Param-X",
    ]) {
      const headers = [`${name}: a`, `${name.toLowerCase()}: a`];
      expect([name, await statusOf(rig.request("POST /acme/tickets/mcp HTTP/1.1", headers, "{}"))]).toEqual([
        name,
        "HTTP/1.1 400 Bad Request",
      ]);
    }
    const twice = [
      `Authorization: Bearer ${rig.key.token.reveal()}`,
      `Authorization: Bearer ${rig.key.token.reveal()}`,
    ];
    expect(await statusOf(rig.request("POST /acme/tickets/mcp HTTP/1.1", twice, "{}"))).toContain("400");
    expect(session.streams).toHaveLength(0);
  });

  it("answers 431 in the contract's form to a block of 70 or 90 kB, and to 1,000 small headers, and goes on", async () => {
    const blocks = [
      [`X-Big: ${"x".repeat(70_000)}`],
      [`X-Big: ${"x".repeat(90_000)}`],
      [`X-Big: ${"x".repeat(900_000)}`],
      Array.from({ length: 1_000 }, (_, i) => `X-${i}: y`),
    ];
    for (const block of blocks) {
      const client = rig.raw();
      client.send(rig.request("POST /acme/tickets/mcp HTTP/1.1", block, "{}"));
      await client.has("HTTP/1.1 431 Request Header Fields Too Large");
      await client.has('"requestId"');
      expect(client.text.toLowerCase()).toContain("x-request-id:");
    }
    const passing = [`X-Big: ${"x".repeat(60_000)}`];
    expect(await statusOf(rig.request("POST /acme/tickets/mcp HTTP/1.1", passing, "{}"))).toContain("200");
  });

  it("passes only what an agent may see of the server's headers", async () => {
    session.onStream = (stream) => {
      stream.head(200, [
        ...["Content-Type", "application/json", "Set-Cookie", "a=b", "WWW-Authenticate", "Bearer", "Server", "x"],
        ...[
          "Mcp-Session-Id",
          "s-9",
          "Location",
          "http://inner/",
          "Retry-After",
          "3",
          "Allow",
          "GET",
          "X-Powered-By",
          "y",
        ],
      ]);
      stream.data("{}");
      stream.finish();
    };
    const answer = await rig.fetch();
    const names = [...answer.headers].map(([name]) => name).sort();
    expect(names).toEqual(
      [
        "cache-control",
        "connection",
        "content-length",
        "content-type",
        "date",
        "keep-alive",
        "mcp-session-id",
        "retry-after",
        "x-content-type-options",
        "x-request-id",
      ].sort(),
    );
    expect(answer.headers.get("cache-control")).toBe("no-store");
    expect(answer.headers.get("mcp-session-id")).toBe("s-9");
  });

  it("answers 502 to a head that no honest gateway sends", async () => {
    const heads: [number, string[]][] = [
      [101, []],
      [1000, []],
      [200.5, []],
      [200, ["content-type", "a/b", "Content-Type", "application/json"]],
      [200, ["mcp-session-id", "a\r\nset-cookie: x"]],
    ];
    for (const [status, headers] of heads) {
      session.onStream = (stream) => stream.head(status, headers);
      await expectError(await rig.fetch(), 502, -33021);
      await until(() => session.last.resetBy?.code === "INTERNAL", "the stream is reset");
    }
  });
});

describe("what a parser refuses", () => {
  it.each(["xchunked", "gzip, chunked", "identity", "chunked\r\nTransfer-Encoding: chunked"])(
    "a body whose end nobody can tell is refused at once, with its connection: %j",
    async (coding) => {
      const client = rig.raw();
      client.send(rig.request("POST /acme/tickets/mcp HTTP/1.1", [`Transfer-Encoding: ${coding}`], "0\r\n\r\n"));
      await client.has("HTTP/1.1 ");
      expect(client.text).toMatch(/^HTTP\/1\.1 (?:400|501) /);
      expect(client.text).toContain("Connection: close");
      await client.closed();
      expect(session.streams).toEqual([]);
    },
  );

  it("refuses what could smuggle a second request", async () => {
    const cases = [
      ["Content-Length: 2", "Content-Length: 3"],
      ["Content-Length: 2", "Transfer-Encoding: chunked"],
      ["Transfer-Encoding: chunked, identity"],
      ["Transfer-Encoding : chunked"],
      ["Content-Length: +2"],
      ["X-A: b\r\n folded", "Content-Length : 2"],
    ];
    for (const headers of cases) {
      const client = rig.raw();
      const inner = "GET /acme/tickets/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
      client.send(rig.request("POST /acme/tickets/mcp HTTP/1.1", headers, `0\r\n\r\n${inner}`));
      await client.closed();
      expect([headers, client.text.match(/HTTP\/1\.1 \d+/g)]).toEqual([headers, ["HTTP/1.1 400"]]);
      expect(client.text).toContain('"requestId"');
    }
    expect(session.streams).toHaveLength(0);
  });

  it("answers pipelined requests in order, each once", async () => {
    const client = rig.raw();
    let answerFirst = (): void => undefined;
    session.onStream = (stream) => {
      const answer = (): void => stream.answer(`"answer to ${stream.body}"`);
      if (stream.body === "1") answerFirst = answer;
      else answer();
      // The last of them to come is answered first.
      if (stream.body === "3") setImmediate(answerFirst);
    };
    client.send(["1", "2", "3"].map((body) => rig.request("POST /acme/tickets/mcp HTTP/1.1", [], body)).join(""));
    await client.has("answer to 3");
    expect(client.text.match(/answer to \d/g)).toEqual(["answer to 1", "answer to 2", "answer to 3"]);
  });

  it("sends 100 Continue only to those who may go on", async () => {
    const client = rig.raw();
    client.send(rig.request("POST /acme/tickets/mcp HTTP/1.1", ["Expect: 100-continue", "Content-Length: 2"]));
    await client.has("HTTP/1.1 100 Continue\r\n\r\n");
    client.send("{}");
    await client.has("HTTP/1.1 200 OK");
    const stranger = rig.raw();
    stranger.send(
      rig.request("POST /acme/tickets/mcp HTTP/1.1", ["Authorization: x", "Expect: 100-continue", "Content-Length: 2"]),
    );
    await stranger.closed();
    expect(stranger.text).toMatch(/^HTTP\/1\.1 401/);
    expect(await statusOf(rig.request("POST /acme/tickets/mcp HTTP/1.1", ["Expect: the-unexpected"], "{}"))).toContain(
      "417",
    );
  });
});

describe("sizes", () => {
  it("C33 refuses a body over the limit, said or not, and serves the next call", async () => {
    await rig.close();
    rig = await new Rig({ limits: { requestBytes: 100_000 } }).listen();
    session = rig.connect();
    session.onStream = (stream) => {
      if (stream.isRequestEnded) stream.answer(`"${stream.body.length}"`);
    };
    await expectError(await rig.fetch({ body: "x".repeat(100_001) }), 413, -32600);
    const announced = rig.raw();
    announced.send(rig.request("POST /acme/tickets/mcp HTTP/1.1", ["Content-Length: 100001"]));
    await announced.has("HTTP/1.1 413");
    announced.destroy();
    expect(session.streams).toHaveLength(0);
    const client = rig.raw();
    client.send(rig.request("POST /acme/tickets/mcp HTTP/1.1", ["Transfer-Encoding: chunked"]));
    for (let i = 0; i < 11; i += 1) client.send(`2710\r\n${"x".repeat(10_000)}\r\n`);
    await client.has("HTTP/1.1 413");
    expect(session.last.resetBy?.code).toBe("TOO_LARGE");
    client.send(`0\r\n\r\n${rig.request("POST /acme/tickets/mcp HTTP/1.1", [], "again")}`);
    await client.has('"5"');
    session.onStream = (stream) => {
      const wait = setInterval(() => {
        if (!stream.isRequestEnded) return;
        clearInterval(wait);
        stream.answer(`"${stream.body.length}"`);
      }, 1);
    };
    expect(await (await rig.fetch({ body: "x".repeat(100_000) })).text()).toBe('"100000"');
  });

  it("pauses an upload that the tunnel cannot take, and goes on when it can", async () => {
    session.hasRoom = false;
    session.onStream = () => undefined;
    const sent = rig.fetch({ body: "y".repeat(3_000_000) });
    await until(() => session.streams.length === 1, "the stream is open");
    // Each drain lets through no more than what one read of the socket brought.
    while (!session.last.isRequestEnded) {
      const before = session.last.body.length;
      await new Promise((resolve) => setTimeout(resolve, 5));
      expect(session.last.body.length).toBe(before);
      session.last.sink.onDrain?.();
      await until(() => session.last.body.length > before || session.last.isRequestEnded, "more of the upload");
      expect(session.last.body.length).toBeLessThanOrEqual(before + 128 * 1024);
    }
    await until(() => session.last.isRequestEnded, "the upload ends");
    expect(session.last.body.length).toBe(3_000_000);
    session.last.answer("{}");
    expect((await sent).status).toBe(200);
  });

  it("reads on what is left of an upload that was answered early, so that the next request gets through", async () => {
    session.hasRoom = false;
    session.onStream = (stream) => stream.answer('"early"', 400);
    const client = rig.raw();
    client.send(rig.request("POST /acme/tickets/mcp HTTP/1.1", ["Content-Length: 1000000"], "y".repeat(1_000_000)));
    await client.has("HTTP/1.1 400");
    expect(session.last.resetBy?.code).toBe("CANCEL");
    session.onStream = (stream) => stream.answer('"next"');
    client.send(rig.request("POST /acme/tickets/mcp HTTP/1.1", [], "{}"));
    await client.has('"next"');
  });

  it("does not read a refused body for ever", async () => {
    const stranger = rig.raw();
    const headers = ["Authorization: Bearer x", "Content-Length: 100000000"];
    stranger.send(rig.request("POST /acme/tickets/mcp HTTP/1.1", headers));
    await stranger.has("HTTP/1.1 401");
    stranger.send(Buffer.alloc(20 * 1024 * 1024));
    await until(() => stranger.isClosed, "the stranger is cut", 3_000);
  });
});
