import type { AddressInfo } from "node:net";
import { createServer as createTcpServer, type Server, type Socket } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { systemClock } from "../../src/lib/index.ts";
import { silentLogger } from "../../src/telemetry/index.ts";
import {
  createUpstream,
  type Upstream,
  type UpstreamCall,
  type UpstreamError,
  type UpstreamOptions,
} from "../../src/upstream/index.ts";
import { until } from "../support/until.ts";

/** A TCP peer that says exactly the bytes of the test. */
class RawPeer {
  readonly requests: string[] = [];
  readonly sockets = new Set<Socket>();
  readonly #server: Server;

  constructor(onRequest: (socket: Socket, text: string) => void) {
    this.#server = createTcpServer((socket) => {
      this.sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => this.sockets.delete(socket));
      socket.on("data", (bytes) => {
        const text = bytes.toString("latin1");
        this.requests.push(text);
        onRequest(socket, text);
      });
    });
  }

  async url(path = "/mcp"): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}${path}`;
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

class Recorder {
  status = 0;
  headers: readonly string[] = [];
  heads = 0;
  body = "";
  end: boolean | undefined;
  error: UpstreamError | undefined;
  onChunk: (() => void) | undefined;

  onHead(status: number, headers: readonly string[]): void {
    this.heads += 1;
    this.status = status;
    this.headers = headers;
  }
  onData(chunk: Buffer): void {
    this.body += chunk.toString("latin1");
    this.onChunk?.();
  }
  onEnd(closeDelimited: boolean): void {
    this.end = closeDelimited;
  }
  onError(error: UpstreamError): void {
    this.error = error;
  }
  get isOver(): boolean {
    return this.end !== undefined || this.error !== undefined;
  }
}

const cleanups: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

function open(url: string, options: Partial<UpstreamOptions> = {}): Upstream {
  const upstream = createUpstream({ url, clock: systemClock, logger: silentLogger, ...options });
  cleanups.push(() => upstream.close());
  return upstream;
}

async function against(
  onRequest: (socket: Socket, text: string) => void,
  options: Partial<UpstreamOptions> = {},
  path?: string,
): Promise<{ peer: RawPeer; upstream: Upstream; recorder: Recorder; post: () => UpstreamCall }> {
  const peer = new RawPeer(onRequest);
  cleanups.push(() => peer.stop());
  const upstream = open(await peer.url(path), options);
  const recorder = new Recorder();
  const post = (): UpstreamCall =>
    upstream.request(
      { method: "POST", headers: ["content-type", "application/json"], body: Buffer.from("{}") },
      recorder,
    );
  return { peer, upstream, recorder, post };
}

const ok = (body: string, headers = ""): string =>
  `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n${headers}content-length: ${body.length}\r\n\r\n${body}`;

describe("an upstream", () => {
  it("sends exactly the configured path and query, the given headers in order, and asks for identity", async () => {
    const { peer, recorder, post } = await against((socket) => socket.write(ok("{}")), {}, "/a/b?x=1&y");
    post();
    await until(() => recorder.isOver, "end");
    expect(recorder.error).toBeUndefined();
    const [request = ""] = peer.requests;
    expect(request).toMatch(/^POST \/a\/b\?x=1&y HTTP\/1\.1\r\nhost: 127\.0\.0\.1:\d+\r\n/);
    expect(request).toContain("content-type: application/json\r\naccept-encoding: identity\r\n");
    expect(request).toMatch(/content-length: 2\r\n\r\n\{\}$/);
    expect(request.match(/accept-encoding/g)).toHaveLength(1);
  });

  it("gives raw headers, repeats and all, and never follows a redirect", async () => {
    const { peer, recorder, post } = await against((socket) =>
      socket.write("HTTP/1.1 307 R\r\nLocation: http://127.0.0.1:1/\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 0\r\n\r\n"),
    );
    post();
    await until(() => recorder.isOver, "end");
    expect(recorder.status).toBe(307);
    expect(recorder.headers).toEqual([
      "Location",
      "http://127.0.0.1:1/",
      "X-A",
      "1",
      "X-A",
      "2",
      "Content-Length",
      "0",
    ]);
    expect(peer.requests).toHaveLength(1);
  });

  it.each(["http://169.254.169.254/mcp", "http://[::ffff:a9fe:a9fe]/mcp", "http://metadata.google.internal/mcp"])(
    "L63 never calls %s",
    async (url) => {
      const recorder = new Recorder();
      open(url).request({ method: "GET", headers: [] }, recorder);
      await until(() => recorder.isOver, "end");
      expect(recorder.error).toEqual({ code: "address", sent: false, detail: "ADDRESS_REFUSED" });
    },
  );

  it("ignores informational heads", async () => {
    const { recorder, post } = await against((socket) =>
      socket.write(`HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 102 P\r\n\r\n${ok("{}")}`),
    );
    post();
    await until(() => recorder.isOver, "end");
    expect([recorder.heads, recorder.status, recorder.body, recorder.end]).toEqual([1, 200, "{}", false]);
  });

  it("drops trailers", async () => {
    const { recorder, post } = await against((socket) =>
      socket.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx-late: 1\r\n\r\n"),
    );
    post();
    await until(() => recorder.isOver, "end");
    expect([recorder.body, recorder.end]).toEqual(["{}", false]);
    expect(recorder.headers).not.toContain("x-late");
  });

  it("says of a body without a length that its end proves nothing", async () => {
    const { recorder, post } = await against((socket) => socket.end("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}"));
    post();
    await until(() => recorder.isOver, "end");
    expect([recorder.body, recorder.end]).toEqual(["{}", true]);
  });

  it.each([
    ["sized", "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{}"],
    ["chunked", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"],
  ])("a %s body that breaks off is an error, not an end", async (_what, bytes) => {
    const { recorder, post } = await against((socket) => socket.end(bytes));
    post();
    await until(() => recorder.isOver, "error");
    expect(recorder.end).toBeUndefined();
    expect(recorder.error?.sent).toBe(true);
  });

  it("C33 a head of 90 kB is an error of that call alone; one of 60 kB passes", async () => {
    let size = 90_000;
    const { recorder, post, upstream } = await against((socket) =>
      socket.write(ok("{}", `x-big: ${"a".repeat(size)}\r\n`)),
    );
    post();
    await until(() => recorder.isOver, "error");
    expect(recorder.error).toMatchObject({ code: "bad-answer", detail: "UND_ERR_HEADERS_OVERFLOW" });
    size = 60_000;
    const second = new Recorder();
    upstream.request({ method: "GET", headers: [] }, second);
    await until(() => second.isOver, "end");
    expect(second.end).toBe(false);
  });

  it("no first byte in time is an error, and the connection is closed", async () => {
    const { peer, recorder, post, upstream } = await against(() => undefined, { timeouts: { firstByteMs: 60 } });
    post();
    await until(() => recorder.isOver, "error");
    expect(recorder.error).toEqual({ code: "first-byte", sent: true, detail: "deadline" });
    await until(() => peer.sockets.size === 0, "socket closed");
    expect(upstream.openCount).toBe(0);
  });

  it("a call may shorten the first-byte deadline, not lengthen it", async () => {
    const { upstream } = await against(() => undefined, { timeouts: { firstByteMs: 100 } });
    const startedAt = performance.now();
    const short = new Recorder();
    const long = new Recorder();
    upstream.request({ method: "POST", headers: [], firstByteMs: 20 }, short);
    upstream.request({ method: "POST", headers: [], firstByteMs: 60_000 }, long);
    await until(() => short.isOver && long.isOver, "both");
    expect(performance.now() - startedAt).toBeLessThan(3_000);
  });

  it("C04 silence ends a JSON body but never an event stream", async () => {
    const { upstream } = await against(
      (socket, text) =>
        socket.write(
          `HTTP/1.1 200 OK\r\ncontent-type: ${text.startsWith("GET") ? "Text/Event-Stream;charset=utf-8" : "application/json"}\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n`,
        ),
      { timeouts: { idleMs: 50 } },
    );
    const json = new Recorder();
    const events = new Recorder();
    const call = upstream.request({ method: "GET", headers: [] }, events);
    await until(() => events.body === "{", "first byte");
    upstream.request({ method: "POST", headers: [] }, json);
    await until(() => json.isOver, "idle");
    expect(json.error?.code).toBe("idle");
    expect(events.isOver).toBe(false);
    call.abort();
  });

  it("a paused answer stops the upstream, and ends when nobody reads on", async () => {
    const chunk = "x".repeat(64 * 1024);
    let written = 0;
    const { recorder, upstream } = await against(
      (socket) => {
        socket.write("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 268435456\r\n\r\n");
        const more = (): void => {
          while (written < 4096 && socket.write(chunk)) written += 1;
        };
        socket.on("drain", more);
        more();
      },
      { timeouts: { stalledMs: 300 } },
    );
    let call: UpstreamCall | undefined;
    recorder.onChunk = () => call?.pause();
    call = upstream.request({ method: "POST", headers: [] }, recorder);
    await until(() => recorder.isOver, "stalled");
    expect(recorder.error?.code).toBe("stalled");
    expect(written).toBeLessThan(2048);
    expect(recorder.body.length).toBeLessThan(1024 * 1024);
  });

  it("a resumed answer goes on where it stopped", async () => {
    const body = "0123456789".repeat(50_000);
    const { recorder, upstream } = await against((socket) => socket.write(ok(body)));
    let call: UpstreamCall | undefined;
    let pauses = 0;
    recorder.onChunk = () => {
      pauses += 1;
      call?.pause();
      setImmediate(() => call?.resume());
    };
    call = upstream.request({ method: "POST", headers: [] }, recorder);
    await until(() => recorder.isOver, "end");
    expect(recorder.body === body).toBe(true);
    expect(pauses).toBeGreaterThan(1);
  });

  it("C11 abort closes the connection at once and silences the sink", async () => {
    let carrier: Socket | undefined;
    const { recorder, post, upstream } = await against((socket) => {
      carrier = socket;
    });
    const call = post();
    await until(() => carrier !== undefined, "request");
    call.abort();
    call.abort();
    await until(() => carrier?.destroyed === true, "socket closed", 100);
    expect(recorder.isOver).toBe(false);
    expect(upstream.openCount).toBe(0);
  });

  it("a call that is aborted before it was connected is never sent", async () => {
    const { peer, recorder, post } = await against((socket) => socket.write(ok("{}")));
    post().abort();
    const second = post();
    await until(() => recorder.isOver, "second call");
    expect(peer.requests).toHaveLength(1);
    second.abort();
  });

  it("C32 a storm of aborts leaves nothing behind, and other calls go on", async () => {
    const { upstream } = await against((socket, text) => {
      if (text.includes("x-slow")) return;
      socket.write(ok("{}"));
    });
    const calls = Array.from({ length: 500 }, () =>
      upstream.request({ method: "POST", headers: ["x-slow", "1"] }, new Recorder()),
    );
    const good = Array.from({ length: 20 }, () => new Recorder());
    for (const recorder of good) upstream.request({ method: "POST", headers: [] }, recorder);
    for (const call of calls) call.abort();
    await until(() => good.every((recorder) => recorder.isOver), "small calls");
    expect(good.every((recorder) => recorder.end === false)).toBe(true);
    expect(upstream.openCount).toBe(0);
  });

  it("slow calls do not hold up others", async () => {
    const { upstream } = await against((socket, text) => {
      if (!text.includes("x-slow")) socket.write(ok("{}"));
    });
    for (let i = 0; i < 300; i += 1) upstream.request({ method: "POST", headers: ["x-slow", "1"] }, new Recorder());
    const quick = new Recorder();
    upstream.request({ method: "POST", headers: [] }, quick);
    await until(() => quick.isOver, "quick call");
    expect(quick.end).toBe(false);
  });
});

describe("upstream errors", () => {
  async function failing(
    url: string,
    options: Partial<UpstreamOptions> = {},
    headers: string[] = [],
  ): Promise<UpstreamError> {
    const recorder = new Recorder();
    open(url, options).request({ method: "POST", headers }, recorder);
    expect(recorder.isOver).toBe(false);
    await until(() => recorder.isOver, "error");
    return recorder.error ?? { code: "closed", sent: false, detail: "no error" };
  }

  async function freePort(): Promise<number> {
    const peer = new RawPeer(() => undefined);
    const url = new URL(await peer.url());
    await peer.stop();
    return Number(url.port);
  }

  it("nobody listens", async () => {
    expect(await failing(`http://127.0.0.1:${await freePort()}/`)).toEqual({
      code: "refused",
      sent: false,
      detail: "ECONNREFUSED",
    });
  });

  it("no such name", async () => {
    expect((await failing("http://no-such-host.invalid/")).code).toBe("dns");
  });

  it("TLS to a plain peer", async () => {
    const { peer } = await against((socket) => socket.write("HTTP/1.1 400 Bad Request\r\n\r\n"));
    const url = `https://127.0.0.1:${new URL(await portOf(peer)).port}/`;
    expect((await failing(url)).code).toBe("tls");
  });

  async function portOf(_peer: RawPeer): Promise<string> {
    const peer = new RawPeer((socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
    cleanups.push(() => peer.stop());
    return await peer.url();
  }

  it("a peer that is no HTTP server", async () => {
    const { recorder, post } = await against((socket) => socket.write("SSH-2.0-OpenSSH\r\n"));
    post();
    await until(() => recorder.isOver, "error");
    expect(recorder.error?.code).toBe("bad-answer");
  });

  it("a peer that hangs up", async () => {
    const { recorder, post } = await against((socket) => socket.destroy());
    post();
    await until(() => recorder.isOver, "error");
    expect(recorder.error).toMatchObject({ code: "reset", sent: true });
  });

  it("a header that cannot be written never reaches the wire", async () => {
    const { peer, upstream } = await against((socket) => socket.write(ok("{}")));
    const recorder = new Recorder();
    upstream.request({ method: "POST", headers: ["x-a", "b\r\nx-c: d"] }, recorder);
    expect(recorder.isOver).toBe(false);
    await until(() => recorder.isOver, "error");
    expect(recorder.error).toMatchObject({ code: "bad-request", sent: false });
    expect(peer.requests).toHaveLength(0);
    expect(upstream.openCount).toBe(0);
  });

  it("close ends the calls in progress", async () => {
    const { recorder, post, upstream, peer } = await against(() => undefined);
    post();
    await until(() => peer.requests.length === 1, "request");
    await upstream.close();
    await until(() => recorder.isOver, "error");
    expect(recorder.error?.code).toBe("closed");
  });
});
