import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type FixtureServer, startFixtureServer } from "../fixtures/fixture-server/server.ts";
import { modernRequest } from "../support/agent-requests.ts";
import { frame, frameTypes } from "../support/scripted-gateway.ts";
import {
  endPayload,
  goAwayTo,
  openPayload,
  type RelaySession,
  type ScriptedRelay,
  startScriptedRelay,
  welcome,
} from "../support/scripted-relay.ts";
import { type Stack, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { mintSecret } from "../support/vault-backed.ts";

/**
 * A relay that lies and breaks the protocol, against a real gateway process. What is wrong with one stream costs that stream;
 * what is wrong with the session costs the session, and the gateway dials again. Policy, paths and credentials hold whatever it says.
 */
const upstreamToken = mintSecret("upstream");
const { HELLO, WELCOME, OPEN, HEAD, DATA, END, WINDOW } = frameTypes;
const maxStreams = 12;
const codes = { REFUSED: 1, OVERLOADED: 3, NO_SERVER: 4, FORBIDDEN: 6, EXPIRED: 7, INTEGRITY: 39 } as const;

const u32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
};

/** Body and headers of a modern call, as a relay sends them. */
function toolCall(name: string, args: Record<string, unknown> = {}): { readonly body: string; readonly open: object } {
  const { body, headers } = modernRequest(1, "tools/call", { name, arguments: args });
  return {
    body: JSON.stringify(body),
    open: { headers: [...openPayload.headers, ...Object.entries(headers).flat()] },
  };
}

describe("a hostile relay", () => {
  let relay: ScriptedRelay;
  let fixture: FixtureServer;
  let stack: Stack;
  let nextId = 1;

  const current = (): RelaySession => {
    const session = relay.sessions.at(-1);
    if (session === undefined) throw new Error("no gateway has dialled");
    return session;
  };
  const newId = (): number => {
    nextId += 2;
    return nextId;
  };
  const call = (name: string, args: Record<string, unknown> = {}, changes: object = {}): number => {
    const { body, open } = toolCall(name, args);
    const id = newId();
    current().call(id, body, { ...open, ...changes });
    return id;
  };
  const over = (id: number): Promise<void> =>
    until(() => current().answer(id).isEnded || current().answer(id).reset !== undefined, `stream ${id} is over`);

  beforeAll(async () => {
    relay = await startScriptedRelay();
    fixture = await startFixtureServer({ bearer: upstreamToken, extras: true });
    stack = await startStack({
      withoutGateway: true,
      secretFiles: { "upstream-token": upstreamToken },
      servers: {
        fixture: { url: fixture.url, credential: { type: "bearer", token: { file: "./upstream-token" } } },
        closed: { url: fixture.url, credential: { type: "bearer", token: { file: "./upstream-token" } } },
      },
      policy: {
        fixture: { tools: [{ name: "*", except: ["drop_*"] }] },
      },
      gatewayYaml: {
        relay: { url: `ws://127.0.0.1:${relay.port}`, tunnel: "acme", token: { file: "./tunnel-token" } },
        limits: { streams: maxStreams },
      },
    });
  });

  const startAnew = async (): Promise<void> => {
    await stack.gateway()?.stop();
    await stack.startGateway();
    nextId = -1;
  };

  beforeEach(async () => {
    if (relay.sessions.at(-1)?.isClosed() ?? true) await startAnew();
  });

  afterEach(async () => {
    expect(stack.gateway()?.exitCode()).toBeUndefined();
    await until(() => relay.sessions.at(-1)?.isClosed() === false, "a session stands");
    const id = call("echo", { value: "after" });
    await over(id);
    expect(current().answer(id).text).toContain("after");
  });

  afterAll(async () => {
    await stack?.stop();
    await relay?.close();
    await fixture?.close();
  });

  describe("loses the stream", () => {
    const principal = { id: "key:tester", kind: "key", claims: {} };
    const bad: readonly (readonly [string, object, number])[] = [
      ["a path as server name", { server: "fixture/../closed" }, codes.REFUSED],
      ["a query in the server name", { server: "fixture?admin=1" }, codes.REFUSED],
      ["a URL as server name", { server: "http://127.0.0.1:1/" }, codes.REFUSED],
      ["a line break in the server name", { server: "fixture\r\nhost: x" }, codes.REFUSED],
      ["a server name of JavaScript", { server: "constructor" }, codes.NO_SERVER],
      ["a server that is not there", { server: "absent" }, codes.NO_SERVER],
      ["the method PUT", { method: "PUT" }, codes.REFUSED],
      ["a method with a path", { method: "POST /admin" }, codes.REFUSED],
      ["a line break in a header", { headers: ["accept", "a\r\nauthorization: x"] }, codes.REFUSED],
      ["a header name with a colon", { headers: [":path", "/admin"] }, codes.REFUSED],
      ["a header without a value", { headers: ["accept"] }, codes.REFUSED],
      ["a NUL in a header", { headers: ["accept", "\0"] }, codes.REFUSED],
      ["a code point above 255", { headers: ["accept", "\u{1f600}"] }, codes.REFUSED],
      ["a negative deadline", { deadlineMs: -1 }, codes.REFUSED],
      ["a deadline that is over", { deadlineMs: 0 }, codes.EXPIRED],
      ["a principal without an id", { principal: { ...principal, id: "" } }, codes.REFUSED],
      ["a principal of another kind", { principal: { ...principal, kind: "root" } }, codes.REFUSED],
      ["a request id with a line break", { requestId: "a\nb" }, codes.REFUSED],
    ];

    it.each(bad)("for %s, and no other", async (_what, changes, code) => {
      const heard = fixture.recorded.length;
      const beside = call("test_tool_with_progress");
      const { body, open } = toolCall("echo", { value: "x" });
      const id = newId();
      current().call(id, body, { ...open, ...changes });
      await over(id);
      expect(current().answer(id)).toMatchObject({ head: undefined, reset: code });
      await over(beside);
      expect(current().answer(beside).text).toContain("Progress reported.");
      expect(fixture.recorded.length).toBe(heard + 1);
    });

    it("for a body that is not as long as its END says", async () => {
      const id = newId();
      current().send(frame(OPEN, id, openPayload), frame(DATA, id, Buffer.from("{}")), frame(END, id, endPayload(3)));
      await over(id);
      expect(current().answer(id).reset).toBe(codes.INTEGRITY);
    });

    it("for a body without end, whatever credit was given", async () => {
      const session = current();
      const id = newId();
      session.send(frame(OPEN, id, { ...openPayload, ...toolCall("echo").open }));
      const chunk = frame(DATA, id, Buffer.alloc(16_384, "x"));
      const isOver = (): boolean =>
        session.isClosed() || session.answer(id).head !== undefined || session.answer(id).reset !== undefined;
      for (let i = 0; i < 4_096 && !isOver(); i += 1) {
        session.send(chunk);
        if (i % 8 === 0) await new Promise((resolve) => setImmediate(resolve));
      }
      // Where grants keep up the limit of a body ends it; where they do not, the credit does.
      await until(isOver, "it is ended");
      if (session.isClosed()) expect(await goAwayTo(session)).toMatchObject({ reason: "FLOW_CONTROL_ERROR" });
      else expect(session.answer(id).head).toMatchObject({ status: 413, by: "gateway" });
      if (!session.isClosed()) session.send(frame(frameTypes.RESET, id, Buffer.from([0, 32])));
      else await startAnew();
    });

    it("for a request that never ends, and with its answer too", async () => {
      const [silent, answered] = [newId(), newId()];
      const { open } = toolCall("echo");
      const never = { ...openPayload, ...open, deadlineMs: 1_000 };
      // The first may be anything yet; the second is refused by its headers, and goes on all the same.
      current().send(frame(OPEN, silent, never), frame(DATA, silent, Buffer.from("{")));
      current().send(frame(OPEN, answered, { ...never, method: "DELETE" }), frame(DATA, answered, Buffer.from("{")));
      await until(() => current().answer(silent).reset === codes.EXPIRED, "the first is given up");
      expect(current().answer(silent).head).toBeUndefined();
      await until(() => current().answer(answered).reset === codes.EXPIRED, "the second is given up");
      expect(current().answer(answered)).toMatchObject({ head: { status: 400 }, isEnded: true });
      const beside = call("echo", { value: "still" });
      await over(beside);
      expect(current().answer(beside).text).toContain("still");
    });

    it("for streams above the limit, while those below it run", async () => {
      const ids = Array.from({ length: maxStreams }, (_, i) => call("wait_for_cancel", { label: `flood ${i}` }));
      await until(() => ids.every((_, i) => fixture.log.started.includes(`flood ${i}`)), "all run");
      const more = Array.from({ length: 500 }, () => call("echo", { value: "more" }));
      await until(() => more.every((id) => current().answer(id).reset === codes.OVERLOADED), "the rest is refused");
      expect(current().isClosed()).toBe(false);
      for (const id of ids) current().send(frame(frameTypes.RESET, id, Buffer.from([0, 32])));
      await until(() => ids.every((_, i) => fixture.log.cancelled.includes(`flood ${i}`)), "the server is released");
    });

    it("for endless headers, within what a frame may hold", async () => {
      const headers = Array.from({ length: 1_400 }, (_, i) => [`mcp-param-${i}`, "v".repeat(40)]).flat();
      const { body, open } = toolCall("echo", { value: "x" });
      const id = newId();
      current().call(id, body, { ...open, headers: [...openPayload.headers, ...headers] });
      await over(id);
      const { head, reset } = current().answer(id);
      expect(reset !== undefined || Number(head?.["status"]) >= 400).toBe(true);
      expect(current().isClosed()).toBe(false);
    });
  });

  describe("does not get past the gateway's own judgement", () => {
    it.each(["key:tester", "key:root", "oauth:https://idp#admin", "*"])(
      "as principal %s a denied tool is unknown",
      async (id) => {
        const heard = fixture.recorded.length;
        const stream = call("drop_everything", {}, { principal: { id, kind: "key", claims: { role: "admin" } } });
        await over(stream);
        expect(current().answer(stream).text).toContain("-32602");
        expect(fixture.recorded.length).toBe(heard);
      },
    );

    it("a server without a grant is closed to every principal", async () => {
      const heard = fixture.recorded.length;
      for (const id of ["key:tester", "key:root", "oauth:https://idp#admin", "key:*"]) {
        const stream = call("echo", { value: "x" }, { server: "closed", principal: { id, kind: "key", claims: {} } });
        await over(stream);
        expect(current().answer(stream)).toMatchObject({ head: undefined, reset: codes.FORBIDDEN });
      }
      expect(fixture.recorded.length).toBe(heard);
    });

    it("headers of its own do not reach the server, and the credential is the gateway's", async () => {
      const { body, open } = toolCall("echo", { value: "x" });
      const sly = ["authorization", "Bearer stolen", "host", "evil", "cookie", "a=b", "x-forwarded-for", "1.2.3.4"];
      const framing = ["content-length", "3", "transfer-encoding", "chunked", "connection", "close", "te", "trailers"];
      const headers = [...(open as { headers: string[] }).headers, ...sly, ...framing];
      const id = newId();
      current().call(id, body, { headers });
      await over(id);
      expect(current().answer(id).head).toMatchObject({ status: 200 });
      const arrived: Readonly<Record<string, string>> = fixture.recorded.at(-1)?.headers ?? {};
      expect(arrived["authorization"]).toBe(`Bearer ${upstreamToken}`);
      expect(arrived["host"]).toMatch(/^127\.0\.0\.1:/);
      for (const name of ["cookie", "x-forwarded-for", "te"]) expect(arrived[name]).toBeUndefined();
      expect(JSON.stringify(current().answer(id))).not.toContain(upstreamToken);
    });

    it("a session id that it makes up is unknown", async () => {
      const id = newId();
      const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list", params: {} });
      const headers = [...openPayload.headers, "mcp-session-id", "forged", "mcp-protocol-version", "2025-11-25"];
      current().call(id, body, { headers });
      await over(id);
      expect(current().answer(id).head).toMatchObject({ status: 404, by: "gateway" });
    });
  });

  it("that greets in other words than WELCOME is dialled again until it does", async () => {
    relay.greetings.push("welcome", Buffer.alloc(128 * 1_024 + 1), frame(WELCOME, 0, { ...welcome, version: 9 }));
    const logged = stack.gateway()?.stderr().length ?? 0;
    await startAnew();
    expect(relay.greetings).toEqual([]);
    expect(stack.gateway()?.stderr().slice(logged)).not.toContain("unhandled");
  });

  describe("loses the session", () => {
    // The wait before a dial grows with every session that ends soon: a new process starts anew.
    beforeEach(startAnew);

    const openGet = { ...openPayload, method: "GET", body: false };
    const attacks: readonly (readonly [string, string, (id: number) => Buffer])[] = [
      [
        "a stream id again",
        "stream-id-not-rising",
        (id) => Buffer.concat([frame(OPEN, id, openGet), frame(OPEN, id, openGet)]),
      ],
      ["an even id", "bad-stream-id", (id) => frame(OPEN, id + 1, openPayload)],
      ["DATA before OPEN", "stream-never-opened", (id) => frame(DATA, id, Buffer.from("x"))],
      [
        "DATA for no body",
        "data-after-end",
        (id) => Buffer.concat([frame(OPEN, id, openGet), frame(DATA, id, Buffer.from("x"))]),
      ],
      ["a HEAD", "wrong-direction", (id) => frame(HEAD, id, { status: 200, headers: [], by: "upstream" })],
      [
        "a second WELCOME",
        "unexpected-hello",
        () =>
          frame(WELCOME, 0, {
            version: 1,
            features: [],
            node: { id: "r", instance: "i", software: "s" },
            connId: "c",
            heartbeatMs: 15_000,
            limits: { streamWindow: 65_536, tunnelWindow: 65_536, maxStreams: 1 },
          }),
      ],
      ["a HELLO", "bad-payload", () => frame(HELLO, 0, {})],
      ["credit above all bounds", "credit-overflow", () => frame(WINDOW, 0, u32(0x7fff_ffff))],
      ["no credit", "bad-increment", () => frame(WINDOW, 0, u32(0))],
      [
        "headers above what a frame may hold",
        "bad-length",
        (id) => frame(OPEN, id, { ...openPayload, headers: ["accept", "a".repeat(99_000)] }),
      ],
    ];

    it.each(attacks)("for %s: %s, and is dialled again", async (_what, fault, message) => {
      const session = current();
      const sessions = relay.sessions.length;
      const label = `beside ${fault}`;
      call("wait_for_cancel", { label });
      await until(() => fixture.log.started.includes(label), "a call runs");
      session.send(message(newId()));
      expect(await goAwayTo(session)).toMatchObject({ drainMs: 0, fault });
      await until(() => fixture.log.cancelled.includes(label), "its call is let go");
      await until(() => relay.sessions.length > sessions, "the gateway dials again", 10_000);
      await until(() => current().frames.some(({ type }) => type === HELLO), "HELLO");
      nextId = -1;
    });
  });
});
