import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { FakeSession } from "../support/fake-tunnel.ts";
import { until } from "../support/until.ts";
import { Rig } from "./rig.ts";

let rig: Rig;
let session: FakeSession;
const events = ["content-type", "text/event-stream"];

async function use(options: ConstructorParameters<typeof Rig>[0] = {}): Promise<void> {
  await rig?.close();
  rig = await new Rig(options).listen();
  session = rig.connect();
}

beforeEach(() => use());

afterEach(async () => {
  await until(() => rig.leftovers === 0, "no exchange is left");
  await rig.close();
});

async function opened(count = 1): Promise<void> {
  await until(() => session.streams.length >= count, "the stream is open");
}

const post = "POST /acme/tickets/mcp HTTP/1.1";

describe("event streams", () => {
  it.each([
    ["POST", "text/event-stream"],
    ["POST", "text/event-stream; charset=utf-8"],
    ["POST", "Text/Event-Stream;charset=UTF-8"],
    ["GET", "text/event-stream"],
    ["GET", "text/event-stream; charset=utf-8"],
    ["GET", "Text/Event-Stream;charset=UTF-8"],
  ])("C05 each event of a %s answer of type %s is out before the next exists", async (method, type) => {
    const pending = rig.fetch({ method });
    await opened();
    session.last.head(200, ["content-type", type, "cache-control", "max-age=9", "x-accel-buffering", "yes"]);
    const answer = await pending;
    expect(answer.headers.get("content-type")).toBe(type);
    expect(answer.headers.get("cache-control")).toBe("no-cache, no-transform");
    expect(answer.headers.get("x-accel-buffering")).toBe("no");
    expect(answer.headers.has("content-encoding")).toBe(false);
    const reader = answer.body?.getReader();
    for (const event of ["id: e/1\nretry: 10\ndata:\n\n", ": c\n\n", "data: 1\n", "data: 2\n\n"]) {
      session.last.data(event);
      expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe(event);
    }
    session.last.finish();
    expect((await reader?.read())?.done).toBe(true);
  });

  it("C05 a body of another type is not held back either", async () => {
    const pending = rig.fetch();
    await opened();
    session.last.head(200);
    const reader = (await pending).body?.getReader();
    session.last.data('{"a":');
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe('{"a":');
    session.last.data("1}");
    session.last.finish();
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe("1}");
  });

  it("an answer that is whole in one tick has a length and is no chunked body", async () => {
    session.onStream = (stream) => {
      stream.head(200, events);
      for (const text of ["data: 1\n\n", "data: 2\n\n", "data: é\n\n"]) stream.data(text);
      stream.finish();
    };
    const client = rig.raw();
    client.send(rig.request(post, [], "{}"));
    await client.has("data: 2");
    expect(client.text).toContain("Content-Length: 28\r\n");
    expect(client.text).not.toContain("chunked");
    session.onStream = (stream) => {
      stream.head(202, []);
      stream.finish();
    };
    client.send(rig.request(post, [], "{}"));
    await client.has("HTTP/1.1 202 Accepted");
    await client.has("Content-Length: 0");
    session.onStream = (stream) => {
      stream.head(204, []);
      stream.finish();
    };
    client.send(rig.request("DELETE /acme/tickets/mcp HTTP/1.1"));
    await client.has("HTTP/1.1 204 No Content");
  });

  it("C04 a silent stream gets a comment, between events only", async () => {
    await use({ timeouts: { keepAliveMs: 50 } });
    const client = rig.raw();
    client.send(rig.request(post, [], "{}"));
    await opened();
    session.last.head(200, events);
    await client.has("d\r\n: keepalive\n\n\r\n");
    session.last.data("data: half");
    await client.has("half");
    const seen = client.text.length;
    rig.passMs(150);
    session.last.data("\n\n");
    await until(() => client.text.slice(seen).includes(": keepalive"), "a comment after the event");
    expect(client.text.slice(seen)).toMatch(/^2\r\n\n\n\r\nd\r\n: keepalive/);
    session.last.finish();
  });

  it("C04 no other body gets one", async () => {
    await use({ timeouts: { keepAliveMs: 20 } });
    const client = rig.raw();
    client.send(rig.request(post, [], "{}"));
    await opened();
    session.last.head(200);
    session.last.data("[1,");
    await client.has("[1,");
    rig.passMs(100);
    session.last.data("2]");
    session.last.finish();
    await client.has("0\r\n\r\n");
    expect(client.text).not.toContain("keepalive");
  });
});

describe("what breaks after the headers", () => {
  async function begin(rpcId: string | undefined, text: string, line = post): Promise<ReturnType<Rig["raw"]>> {
    const client = rig.raw();
    client.send(rig.request(line, [], "{}"));
    await opened();
    session.last.head(200, events, rpcId);
    session.last.data(text);
    await client.has(text.trimEnd().split("\n").at(-1) ?? "");
    return client;
  }

  it("C30 is a JSON-RPC error for that id, and then the end", async () => {
    for (const rpcId of ["7", '"7"', "9007199254740993", "1.0"]) {
      const client = await begin(rpcId, "data: 1\n\n");
      session.last.fail("TUNNEL_LOST");
      await client.has("0\r\n\r\n");
      expect(client.text).toContain(`event: message\ndata: {"jsonrpc":"2.0","id":${rpcId},"error":{"code":-33010,`);
      expect(client.text).toContain(`"requestId":"${session.last.open.requestId}"`);
      expect(client.text).not.toContain("truncated");
      session.streams.length = 0;
    }
  });

  it("C30 names the other failures by their codes", async () => {
    for (const [code, rpcCode] of [
      ["UPSTREAM_FAILED", -33021],
      ["UPSTREAM_TIMEOUT", -33022],
      ["INTEGRITY", -33021],
    ] as const) {
      const client = await begin("1", "data: 1\n\n");
      session.last.fail(code);
      await client.has(`"code":${rpcCode}`);
      session.streams.length = 0;
    }
  });

  it("closes the half of an event as one that no client reads", async () => {
    const client = await begin("7", 'data: 1\n\ndata: {"jsonrpc":"2.0","id":7,"result":{"x":');
    session.last.fail("UPSTREAM_FAILED");
    await client.has("0\r\n\r\n");
    expect(client.text).toContain("\nevent: truncated\n\n");
    expect(client.text.indexOf("truncated")).toBeLessThan(client.text.indexOf("event: message"));
  });

  it("C08 only closes a stream that carried an event id, so that the client resumes", async () => {
    const client = await begin("7", "id: e1\ndata: 1\n\n");
    session.last.fail("TUNNEL_LOST");
    await client.has("0\r\n\r\n");
    expect(client.text).not.toContain("error");
    session.streams.length = 0;
    const cut = await begin("7", "id: e1\ndata: 1\n\ndata: half");
    session.last.fail("TUNNEL_LOST");
    await cut.closed();
    expect(cut.text).not.toContain("0\r\n\r\n");
  });

  it("C08 says so in a stream whose last event id was empty: the client has none to resume by", async () => {
    const client = await begin("7", "id: e1\ndata: 1\n\nid:\ndata: 2\n\n");
    session.last.fail("TUNNEL_LOST");
    await client.has("0\r\n\r\n");
    expect(client.text).toContain("-33010");
  });

  it("C08 a byte order mark in front is no part of the first id: the client resumes", async () => {
    const client = await begin("7", "\ufeffid: e1\ndata: 1\n\n");
    session.last.fail("TUNNEL_LOST");
    await client.has("0\r\n\r\n");
    expect(client.text).not.toContain("error");
  });

  it("C08 says so where a byte order mark came too late to lead the stream: the client knows no such field", async () => {
    await use({ timeouts: { keepAliveMs: 20 } });
    const client = rig.raw();
    client.send(rig.request(post, [], "{}"));
    await opened();
    session.last.head(200, events, "7");
    await client.has(": keepalive");
    session.last.data("\ufeffid: e1\ndata: 1\n\n");
    await client.has("data: 1");
    session.last.fail("TUNNEL_LOST");
    await client.has("0\r\n\r\n");
    expect(client.text).toContain('"id":7,"error":{"code":-33010,');
  });

  it("C08 says so to a client of a revision without resumption, whatever ids the server sent", async () => {
    const client = rig.raw();
    client.send(rig.request(post, ["MCP-Protocol-Version: 2026-07-28"], "{}"));
    await opened();
    session.last.head(200, events, "7");
    session.last.data("id: e1\ndata: 1\n\n");
    await client.has("data: 1");
    session.last.fail("TUNNEL_LOST");
    await client.has("0\r\n\r\n");
    expect(client.text).toContain('"id":7,"error":{"code":-33010,');
  });

  it("puts no text into an event that is no id", async () => {
    for (const rpcId of ['"a\n\ndata: x"', "{}", "null", "1,2", `"${"x".repeat(2_000)}"`]) {
      const client = await begin(rpcId, "data: 1\n\n");
      session.last.fail("TUNNEL_LOST");
      await client.has("0\r\n\r\n");
      expect(client.text).not.toContain("error");
      session.streams.length = 0;
    }
  });

  it("never makes a truncated body look complete: chunked", async () => {
    const client = rig.raw();
    client.send(rig.request(post, [], "{}"));
    await opened();
    session.last.head(200);
    session.last.data('{"a":1');
    await client.has('{"a":1');
    session.last.fail("TUNNEL_LOST");
    await client.closed();
    expect(client.text).not.toContain("0\r\n\r\n");
    const whole = rig.fetch();
    await opened(2);
    session.last.head(200);
    const answer = await whole;
    session.last.data('{"a":1');
    session.last.fail("INTEGRITY");
    await expect(answer.text()).rejects.toThrow();
  });

  it("never makes a truncated body look complete: HTTP/1.0 ends with a reset, not with FIN", async () => {
    for (const [headers, text] of [
      [undefined, '{"a":1'],
      [events, "id: 1\ndata: half"],
    ] as const) {
      const client = rig.raw();
      client.send(rig.request("POST /acme/tickets/mcp HTTP/1.0", [], "{}"));
      await until(() => session.streams.length === 1, "open");
      session.last.head(200, headers);
      session.last.data(text);
      await client.has(text);
      session.last.fail("TUNNEL_LOST");
      await until(() => client.isClosed, "closed");
      expect(client.error?.code).toBe("ECONNRESET");
      expect(client.isEnded).toBe(false);
      session.streams.length = 0;
    }
  });

  it("an HTTP/1.0 answer that is complete ends with FIN", async () => {
    const client = rig.raw();
    client.send(rig.request("POST /acme/tickets/mcp HTTP/1.0", [], "{}"));
    await opened();
    session.last.head(200);
    session.last.data('{"a":');
    await client.has('{"a":');
    session.last.data("1}");
    session.last.finish();
    await until(() => client.isClosed, "closed");
    expect(client.error).toBeUndefined();
    expect(client.text.endsWith('{"a":1}')).toBe(true);
    expect(client.text).not.toContain("chunked");
  });

  it("a failure in the tick of the head is still a status", async () => {
    session.onStream = (stream) => {
      stream.head(200, events);
      stream.data("data: 1\n\n");
      stream.fail("UPSTREAM_FAILED");
    };
    expect((await rig.fetch()).status).toBe(502);
  });
});

describe("agents that leave or stall", () => {
  it("C29 an agent that resets its socket cancels its stream at once; the others get their answers", async () => {
    const unhandled: unknown[] = [];
    const note = (error: unknown): void => void unhandled.push(error);
    process.on("unhandledRejection", note);
    process.on("uncaughtException", note);
    try {
      const clients = Array.from({ length: 20 }, () => rig.raw());
      for (const client of clients) client.send(rig.request(post, [], "{}"));
      await opened(20);
      const streams = [...session.streams];
      for (const [i, stream] of streams.entries()) if (i % 2 === 0) stream.head(200, events);
      await until(() => clients.filter(({ text }) => text.includes("event-stream")).length === 10, "ten heads");
      const leavers = clients.slice(0, 10);
      for (const client of leavers) client.socket.resetAndDestroy();
      await until(() => streams.filter(({ resetBy }) => resetBy?.code === "CANCEL").length === 10, "ten cancels");
      for (const stream of streams) {
        // A gateway that has not seen the reset yet goes on for a moment.
        if (stream.resetBy === undefined) {
          if (streams.indexOf(stream) % 2 === 1) stream.head(200);
          stream.data("data: late\n\n");
          stream.finish();
        }
      }
      for (const client of clients.slice(10)) await client.has("late");
      await until(() => rig.leftovers === 0, "nothing is left");
      expect(unhandled).toEqual([]);
    } finally {
      process.off("unhandledRejection", note);
      process.off("uncaughtException", note);
    }
  });

  it("C29 an agent that leaves amid its upload, or while another answer is in front of its own", async () => {
    const uploading = rig.raw();
    uploading.send(rig.request(post, ["Content-Length: 1000000"], "x".repeat(100_000)));
    await opened();
    uploading.destroy();
    await until(() => session.last.resetBy?.code === "CANCEL", "the upload is cancelled");
    const pipelining = rig.raw();
    pipelining.send(rig.request(post, [], "{}") + rig.request(post, [], "{}"));
    await opened(3);
    pipelining.destroy();
    await until(
      () => session.streams.filter(({ resetBy }) => resetBy?.code === "CANCEL").length === 3,
      "both cancelled",
    );
  });

  it("a slow reader gets no credit until it reads, and stops nobody else", async () => {
    const slow = rig.raw();
    slow.send(rig.request(post, [], "{}"));
    await opened();
    const stream = session.last;
    stream.head(200, events);
    await slow.has("event-stream");
    slow.socket.pause();
    const chunk = Buffer.concat([Buffer.from("data: "), Buffer.alloc(64 * 1024, "x"), Buffer.from("\n\n")]);
    let sent = 0;
    // The kernel takes megabytes before anything piles up here.
    while (sent - stream.creditBytes < 4 * chunk.length) {
      stream.data(chunk);
      sent += chunk.length;
      await new Promise((resolve) => setImmediate(resolve));
    }
    const credit = stream.creditBytes;
    session.onStream = (other) => other.answer('"other"');
    expect(await (await rig.fetch()).text()).toBe('"other"');
    expect(stream.creditBytes).toBe(credit);
    slow.socket.resume();
    await until(() => stream.creditBytes === sent, "all credit is back");
    stream.finish();
  });

  it("an agent that takes nothing for too long is cut, and its stream with it", async () => {
    await use({ timeouts: { stalledMs: 100 } });
    const slow = rig.raw();
    slow.send(rig.request(post, [], "{}"));
    await opened();
    const stream = session.last;
    stream.head(200);
    await slow.has("200 OK");
    slow.socket.pause();
    const queued = (): number => [...rig.ingress.connections][0]?.socket.writableLength ?? 0;
    await until(() => {
      stream.data(Buffer.alloc(32 * 1024));
      return stream.resetBy !== undefined || queued() > 200_000;
    }, "the buffers are full");
    await until(() => stream.resetBy?.code === "STALLED", "the stream is reset");
    await until(() => rig.ingress.connections.size === 0, "the connection is gone");
  });
});

describe("deadlines", () => {
  it("answers 504 when a gateway says nothing, even one that forgets the deadline", async () => {
    await use({ timeouts: { firstByteMs: -4_950 } });
    const answer = await rig.fetch();
    expect(answer.status).toBe(504);
    expect(await answer.text()).toContain("-33022");
    expect(session.last.resetBy?.code).toBe("DEADLINE");
  });

  it("cuts a body that is silent for too long, and never an event stream", async () => {
    await use({ timeouts: { idleMs: 60 } });
    const stream = rig.raw();
    stream.send(rig.request(post, [], "{}"));
    await opened();
    session.last.head(200, events);
    const body = rig.raw();
    body.send(rig.request(post, [], "{}"));
    await opened(2);
    session.last.head(200);
    await body.closed();
    expect(session.last.resetBy?.code).toBe("IDLE");
    expect(session.streams[0]?.resetBy).toBeUndefined();
    session.streams[0]?.finish();
  });

  it("cuts a client that trickles its headers or its body", async () => {
    await use({ timeouts: { headersMs: 200, requestMs: 400 } });
    const headers = rig.raw();
    headers.send("POST /acme/tickets/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ");
    const body = rig.raw();
    body.send(rig.request(post, ["Content-Length: 10"], "x"));
    const silent = rig.raw();
    for (const client of [headers, body, silent]) {
      await client.has("HTTP/1.1 408 Request Timeout");
      await client.has('"requestId"');
      await client.closed();
    }
    expect(session.streams).toHaveLength(0);
  });
});
