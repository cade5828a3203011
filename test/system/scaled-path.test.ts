import { afterEach, describe, expect, it } from "vitest";
import { type Behaviour, ScriptedUpstream } from "../gateway/scripted-upstream.ts";
import { eventData, modernRequest, open, send } from "../support/agent-requests.ts";
import { type Path, startPath } from "../support/path-in-process.ts";
import { RawClient } from "../support/raw-client.ts";
import type { Hole } from "../support/shim.ts";
import { until } from "../support/until.ts";

/** The whole path with deadlines that no file sets, shortened: real sockets, real relay and gateway, in this process. */
const keepalive = { intervalMs: 80, deadAfterMs: 400 };

let cleanups: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.toReversed()) await cleanup();
  cleanups = [];
});

async function start(
  behave: Behaviour,
  options: Omit<Parameters<typeof startPath>[0], "upstreamUrl"> = {},
): Promise<Path & { readonly upstream: ScriptedUpstream }> {
  const upstream = await ScriptedUpstream.start(behave);
  const path = await startPath({ upstreamUrl: upstream.url, ...options });
  cleanups.push(
    () => upstream.stop(),
    () => path.stop(),
  );
  return { ...path, upstream };
}

const result = '{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}';
const json: Behaviour = (_request, res) => res.writeHead(200, { "content-type": "application/json" }).end(result);
const call = (path: Path, name = "get_x"): ReturnType<typeof send> =>
  send(path.url, { bearer: path.agentKey, ...modernRequest(1, "tools/call", { name, arguments: {} }) });

describe("a quiet event stream", () => {
  it.each(["POST", "GET"])(
    "C04 of a %s outlives idle limits on the way, by comments between its events",
    async (method) => {
      const silentMs = 3_000;
      const path = await start(
        (_request, res) => {
          res.writeHead(200, { "content-type": "text/event-stream" });
          res.flushHeaders();
          setTimeout(() => res.end(method === "POST" ? `id: 7\ndata: ${result}\n\n` : "id: 7\n\n"), silentMs);
        },
        // Both would end a body that is no event stream long before.
        {
          relayTimeouts: { keepAliveMs: 200, idleMs: 400, stalledMs: 400 },
          gatewayTimeouts: { idleMs: 300, firstByteMs: 1_000 },
        },
      );
      const request =
        method === "POST"
          ? modernRequest(1, "tools/call", { name: "get_x", arguments: {} })
          : { method, headers: { accept: "text/event-stream" } };
      const stream = await open(path.url, { bearer: path.agentKey, ...request });
      let longestMs = 0;
      let [seen, at] = [0, performance.now()];
      await until(
        () => {
          const { length } = stream.text();
          if (length > seen) {
            longestMs = Math.max(longestMs, performance.now() - at);
            [seen, at] = [length, performance.now()];
          }
          return stream.complete() !== undefined;
        },
        "the stream ends",
        10_000,
      );
      expect(stream.complete()).toBe(true);
      // An idle limit of one second on the way would not have cut it.
      expect(longestMs).toBeLessThan(1_000);
      const [comments = "", event = ""] = stream.text().split(/(?=id: 7)/);
      expect(comments).toMatch(/^(?:: ?keepalive\n\n)+$/);
      expect(comments.match(/keepalive/g)?.length).toBeGreaterThan(4);
      expect(event).toBe(method === "POST" ? `id: 7\ndata: ${result}\n\n` : "id: 7\n\n");
      expect(eventData(stream.text())).toHaveLength(method === "POST" ? 1 : 0);
    },
  );
});

describe("a half-open tunnel", () => {
  const holes: readonly Hole[] = ["forth", "back", "both"];

  it.each(holes)("C31 black hole %s: its calls fail, the gateway dials again and is taken at once", async (hole) => {
    const path = await start(
      (request, res) => {
        if (request.body.includes("get_hang")) res.flushHeaders();
        else json(request, res);
      },
      { keepalive, relayTimeouts: { holdMs: 50 } },
    );
    expect((await call(path)).status).toBe(200);
    const hanging = call(path, "get_hang");
    await until(() => path.upstream.seen.length === 2, "the call hangs at the server");
    const before = path.gateway.status().tunnel.connId;
    path.shim.blackHole(hole);
    const holedAt = performance.now();
    const failed = await hanging;
    expect(failed.status).toBe(503);
    expect(failed.json().error?.code).toBe(-33010);
    // Silence for `deadAfterMs`, a random wait of up to half a second, the dial; and a busy machine.
    expect(performance.now() - holedAt).toBeLessThan(5_000);
    await until(() => path.gateway.ready() && path.gateway.status().tunnel.connId !== before, "another tunnel stands");
    expect((await call(path)).status).toBe(200);
    await until(() => path.upstream.seen[1]?.isAborted() === true, "the server is released");
    const { tunnels } = path.relay.status();
    expect(tunnels[0]?.sessions).toHaveLength(1);
    expect(tunnels[0]?.sessions[0]?.streams).toBe(0);
    expect(path.gateway.status().openExchanges).toBe(0);
  });
});

describe("a slow-loris", () => {
  const clientCount = 100;

  it("of headers is cut, many at a time, while others are served", async () => {
    const path = await start(json, { relayTimeouts: { headersMs: 500, requestMs: 1_500 } });
    const clients = Array.from({ length: clientCount }, () => new RawClient(path.port));
    for (const client of clients) client.send("POST /acme/tickets/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n");
    const dribble = setInterval(() => {
      for (const client of clients) if (!client.isClosed) client.send("X-A: b\r\n");
    }, 100);
    cleanups.push(async () => clearInterval(dribble));
    expect((await call(path)).status).toBe(200);
    await until(() => clients.every(({ isClosed, isEnded }) => isClosed || isEnded), "all are cut", 8_000);
    for (const { text } of clients) expect(text === "" || text.startsWith("HTTP/1.1 408")).toBe(true);
    await until(() => path.relay.status().connections <= 1, "no connection is left", 8_000);
    expect((await call(path)).status).toBe(200);
  });

  it("of a body is cut, and nothing of it reaches the server", async () => {
    const path = await start(json, { relayTimeouts: { headersMs: 500, requestMs: 1_000 } });
    const clients = Array.from({ length: clientCount }, () => new RawClient(path.port));
    const head = `POST /acme/tickets/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${path.agentKey}\r\nContent-Type: application/json\r\n`;
    for (const client of clients) client.send(`${head}Content-Length: 1000\r\n\r\n{`);
    const dribble = setInterval(() => {
      for (const client of clients) if (!client.isClosed) client.send(" ");
    }, 100);
    cleanups.push(async () => clearInterval(dribble));
    expect((await call(path)).status).toBe(200);
    await until(() => clients.every(({ isClosed, isEnded }) => isClosed || isEnded), "all are cut", 8_000);
    for (const { text } of clients) expect(text).toMatch(/^HTTP\/1\.1 408/);
    expect(path.upstream.seen).toHaveLength(1);
    await until(() => path.relay.status().exchanges === 0, "no exchange is left");
    expect((await call(path)).status).toBe(200);
  });
});
