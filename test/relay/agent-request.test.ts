/** What Node makes of a request by its headers, though `AgentRequest` shows it as few as it needs. */
import { createServer, type IncomingHttpHeaders, IncomingMessage, type Server, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { AgentRequest, AgentResponse } from "../../src/relay/answer.ts";
import { RawClient } from "../support/raw-client.ts";
import { until } from "../support/until.ts";
import { Rig } from "./rig.ts";

const closers: (() => void | Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

interface Seen {
  readonly as: "request" | "checkContinue" | "checkExpectation" | "upgrade";
  readonly url: string | undefined;
  readonly upgradeHeaders?: IncomingHttpHeaders;
}

/** Records which event each request becomes, and answers it. */
async function listen(isAgents: boolean): Promise<{ readonly seen: Seen[]; readonly client: RawClient }> {
  const server: Server = isAgents
    ? (createServer({
        IncomingMessage: AgentRequest,
        ServerResponse: AgentResponse,
        requireHostHeader: false,
      }) as unknown as Server)
    : createServer({ IncomingMessage, ServerResponse });
  const seen: Seen[] = [];
  for (const as of ["request", "checkContinue", "checkExpectation"] as const) {
    server.on(as, (req: IncomingMessage, res: ServerResponse) => {
      seen.push({ as, url: req.url });
      res.writeHead(200, ["X-As", as]);
      res.write("o");
      res.end("k");
    });
  }
  server.on("upgrade", (req, socket) => {
    seen.push({ as: "upgrade", url: req.url, upgradeHeaders: { ...req.headers } });
    socket.destroy();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const client = new RawClient((server.address() as AddressInfo).port);
  closers.push(() => {
    client.destroy();
    server.closeAllConnections();
    server.close();
  });
  return { seen, client };
}

/** The same bytes at Node's own server and at ours. */
async function both(bytes: string, count: number): Promise<readonly [Seen[], Seen[]]> {
  const ends = [await listen(false), await listen(true)] as const;
  for (const { client } of ends) client.send(bytes);
  for (const { seen } of ends) await until(() => seen.length === count, "every request is seen");
  return [ends[0].seen, ends[1].seen];
}

const head = (line: string, ...headers: string[]): string => `${[line, "Host: h", ...headers].join("\r\n")}\r\n\r\n`;

describe("what Node makes of a request", () => {
  const continues = [
    ["Expect: 100-continue"],
    ["expect: 100-continue"],
    ["EXPECT:100-Continue"],
    ["Expect:  \t100-CONTINUE  "],
    ["Expect: 100-continue, x"],
    ["Expect: x, 100-continue"],
    ["Expect: 100-continue", "Expect: 100-continue"],
    ["Expect: 100-continue", "Expect: x"],
    ["Cookie: a=b", "X-Expect: x", "Expect: 100-continue", "Accept: */*"],
  ];
  const expectations = [
    ["Expect: x"],
    ["Expect:"],
    ["Expect: 100-continued"],
    ["Expect: 200-ok"],
    ["Expect: x", "Expect: y"],
  ];
  const nothing = [[], ["X-Expect: 100-continue"], ["Expects: x"], ["Cookie: expect=100-continue"], ["TE: trailers"]];
  it.each([
    ["checkContinue", continues],
    ["checkExpectation", expectations],
    ["request", nothing],
  ] as const)("%s, as for its own server", async (as, cases) => {
    for (const headers of cases) {
      const [plain, ours] = await both(head("GET / HTTP/1.1", ...headers), 1);
      expect([headers, ours]).toEqual([headers, plain]);
      expect([headers, ours[0]?.as]).toEqual([headers, as]);
    }
  });

  it("judges each of several requests on one connection by its own headers", async () => {
    const bytes = [
      head("GET /1 HTTP/1.1"),
      head("POST /2 HTTP/1.1", "Expect: 100-continue", "Content-Length: 2"),
      "{}",
      head("GET /3 HTTP/1.1", "Expect: x"),
      head("GET /4 HTTP/1.1"),
      head("GET /5 HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket", "Expect: 100-continue"),
    ].join("");
    const [plain, ours] = await both(bytes, 5);
    expect(ours).toEqual(plain);
    expect(ours.map(({ as, url }) => `${as} ${url}`)).toEqual([
      "request /1",
      "checkContinue /2",
      "checkExpectation /3",
      "request /4",
      "upgrade /5",
    ]);
  });

  it("an HTTP/1.0 request expects nothing, whatever it says", async () => {
    for (const expectation of ["100-continue", "x"]) {
      const [plain, ours] = await both(head("GET / HTTP/1.0", `Expect: ${expectation}`), 1);
      expect(ours).toEqual(plain);
      expect(ours[0]?.as).toBe("request");
    }
  });

  it("an HTTP/1.0 request gets no chunks, even if it says that it knows them: its answer ends with the connection", async () => {
    const { client } = await listen(true);
    client.send(head("GET / HTTP/1.0", "TE: chunked", "Connection: keep-alive"));
    await client.closed();
    expect(client.text).toMatch(/\r\n\r\nok$/);
    expect(client.text).not.toMatch(/transfer-encoding/i);
  });

  it("an upgrade has all its headers, as from Node itself", async () => {
    const headers = [
      "Connection: keep-alive, Upgrade",
      "Upgrade: websocket",
      "Origin: https://a.test",
      "Cookie: a=1",
      "Cookie: b=2",
      "Authorization: Bearer x",
      "Authorization: Bearer y",
      "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
      "Sec-WebSocket-Version: 13",
      "sec-websocket-protocol: one",
      "SEC-WEBSOCKET-PROTOCOL: two",
      "Sec-WebSocket-Extensions: permessage-deflate",
      "Expect: 100-continue",
    ];
    const [plain, ours] = await both(head("GET / HTTP/1.1", ...headers), 1);
    expect(ours).toEqual(plain);
    expect(ours[0]?.upgradeHeaders).toEqual({
      host: "h",
      connection: "keep-alive, Upgrade",
      upgrade: "websocket",
      origin: "https://a.test",
      cookie: "a=1; b=2",
      authorization: "Bearer x",
      "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
      "sec-websocket-version": "13",
      "sec-websocket-protocol": "one, two",
      "sec-websocket-extensions": "permessage-deflate",
      expect: "100-continue",
    });
  });
});

describe("an agent that expects something of the relay", () => {
  const line = "POST /acme/tickets/mcp HTTP/1.1";
  const body = '{"jsonrpc":"2.0","id":1,"method":"ping"}';

  async function useRig(): Promise<Rig> {
    const rig = await new Rig().listen();
    const session = rig.connect();
    session.onStream = (stream) => {
      if (stream.isRequestEnded) stream.answer(stream.body);
    };
    closers.push(async () => {
      await until(() => rig.leftovers === 0, "no exchange is left");
      await rig.close();
    });
    return rig;
  }

  it.each([[["Expect: 100-continue"]], [["eXPECT: 100-CONTINUE"]], [["Expect: 100-continue", "Expect: 100-continue"]]])(
    "%j gets its 100 before a body is there, each time on one connection",
    async (headers) => {
      const rig = await useRig();
      const client = rig.raw();
      const count = (part: string) => client.text.split(part).length - 1;
      for (let i = 1; i <= 3; i += 1) {
        client.send(rig.request(line, [...headers, `Content-Length: ${body.length}`]));
        await until(() => count("HTTP/1.1 100 Continue\r\n\r\n") === i, "told to go on");
        expect(count("HTTP/1.1 200 OK")).toBe(2 * i - 2);
        client.send(body);
        await until(() => count(body) === 2 * i - 1, "answered");
        client.send(rig.request(line, [], body));
        await until(() => count(body) === 2 * i, "the next one as well");
      }
      expect(count("100 Continue")).toBe(3);
    },
  );

  it("another expectation is refused with 417, and no body waited for; HTTP/1.0 has none", async () => {
    const rig = await useRig();
    for (const value of ["x", "", "100-continued"]) {
      const client = rig.raw();
      client.send(rig.request(line, [`Expect: ${value}`, "Content-Length: 1000"]));
      await client.closed();
      expect([value, client.text.slice(0, 12)]).toEqual([value, "HTTP/1.1 417"]);
    }
    for (const value of ["100-continue", "x"]) {
      const client = rig.raw();
      client.send(rig.request("POST /acme/tickets/mcp HTTP/1.0", [`Expect: ${value}`], body));
      await client.closed();
      expect(client.text).toMatch(/^HTTP\/1\.1 200 OK/);
      expect(client.text).not.toContain("100 Continue");
    }
  });

  it("a pipelined request that expects a 100 is answered after the one before it", async () => {
    const rig = await useRig();
    const client = rig.raw();
    client.send(
      [
        rig.request(line, [], '"first"'),
        rig.request(line, ["Expect: 100-continue"], '"second"'),
        rig.request(line, [], '"third"'),
      ].join(""),
    );
    await client.has('"third"');
    const told = client.text.match(/"first"|100 Continue|"second"|"third"/g);
    expect(told).toEqual(['"first"', "100 Continue", '"second"', '"third"']);
  });
});
