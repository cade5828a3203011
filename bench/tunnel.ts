import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { parseArgs } from "node:util";
import { Secret, systemClock } from "../src/lib/index.ts";
import { silentLogger } from "../src/telemetry/index.ts";
import {
  acceptTunnel,
  dialTunnel,
  isNotProcessed,
  type Open,
  type StreamHandler,
  type TunnelSession,
} from "../src/tunnel/index.ts";

/**
 * Both ends of one tunnel in this process, over a real WebSocket on loopback: small exchanges per second, CPU per exchange
 * (both ends together), and bulk in both directions. For tuning; `bench/main.ts` measures whole paths.
 *
 *   npx tsx bench/tunnel.ts [--seconds 3] [--parallel 1,32,128]
 */

const context = { clock: systemClock, random: Math.random, logger: silentLogger };

const { values } = parseArgs({
  options: { seconds: { type: "string", default: "3" }, parallel: { type: "string", default: "1,32,128" } },
});
const seconds = Number(values.seconds);

const requestHeaders = [
  ["content-type", "application/json"],
  ["accept", "application/json, text/event-stream"],
  ["mcp-protocol-version", "2025-11-25"],
  ["mcp-session-id", "1f0c6f9e-6f0a-4f7e-9f0e-0a0b0c0d0e0f"],
  ["user-agent", "bench/1"],
].flat();
const responseHeaders = [
  "content-type",
  "application/json",
  "content-length",
  "1024",
  "date",
  new Date().toUTCString(),
];
const requestBody = Buffer.alloc(200, "q");
const answerBody = Buffer.alloc(1_024, "a");
const bulkChunk = Buffer.alloc(65_536, "b");

function open(method: Open["method"]): Open {
  return {
    server: method === "GET" ? "bulk" : "small",
    method,
    headers: requestHeaders,
    hasBody: true,
    deadlineMs: 300_000,
    requestId: "9b1f5e0c-0000-4000-8000-000000000000",
    principal: { id: "key:bench", kind: "key", claims: {} },
  };
}

/** `small`: one answer when the request has ended. `bulk`: as many MiB as the request's body says. */
const onStream: StreamHandler = (request, stream) => {
  let left = 0;
  const pump = (): void => {
    while (left > 0) {
      const chunk = left < bulkChunk.length ? bulkChunk.subarray(0, left) : bulkChunk;
      left -= chunk.length;
      if (!stream.write(chunk)) return;
    }
    stream.end();
  };
  return {
    onData(chunk) {
      stream.consumed(chunk.length);
      if (request.server === "bulk") left = Number(chunk.toString()) * 1_048_576;
    },
    onEnd() {
      stream.sendHead({ status: 200, headers: responseHeaders, by: "upstream" });
      if (request.server === "bulk") return pump();
      stream.write(answerBody);
      stream.end();
      return undefined;
    },
    onReset: () => undefined,
    onDrain: pump,
  };
};

function call(session: TunnelSession, done: () => void): void {
  const stream = session.openStream(open("POST"), {
    onData: (chunk) => "id" in stream && stream.consumed(chunk.length),
    onEnd: done,
    onReset: (reset) => {
      throw new Error(`reset: ${reset.code}, not processed: ${isNotProcessed(reset)}`);
    },
  });
  if (!("id" in stream)) throw new Error(stream.code);
  stream.write(requestBody);
  stream.end();
}

async function measureCalls(session: TunnelSession, parallel: number, forMs: number): Promise<string> {
  const until = performance.now() + forMs;
  const cpu = process.cpuUsage();
  const startedAt = performance.now();
  let calls = 0;
  await new Promise<void>((resolve) => {
    let running = parallel;
    const next = (): void =>
      call(session, () => {
        calls += 1;
        if (performance.now() < until) next();
        else if (--running === 0) resolve();
      });
    for (let i = 0; i < parallel; i += 1) next();
  });
  const used = process.cpuUsage(cpu);
  const rate = calls / ((performance.now() - startedAt) / 1_000);
  return `${parallel} in parallel: ${(rate / 1_000).toFixed(1)} k/s, CPU ${((used.user + used.system) / calls).toFixed(1)} µs a call`;
}

async function measureDownload(session: TunnelSession, mebibytes: number): Promise<string> {
  const startedAt = performance.now();
  const cpu = process.cpuUsage();
  await new Promise<void>((resolve) => {
    const stream = session.openStream(open("GET"), {
      onData: (chunk) => "id" in stream && stream.consumed(chunk.length),
      onEnd: () => resolve(),
      onReset: (reset) => {
        throw new Error(reset.code);
      },
    });
    if (!("id" in stream)) throw new Error(stream.code);
    stream.write(Buffer.from(String(mebibytes)));
    stream.end();
  });
  return report("download", mebibytes, startedAt, cpu);
}

async function measureUpload(session: TunnelSession, mebibytes: number): Promise<string> {
  const startedAt = performance.now();
  const cpu = process.cpuUsage();
  await new Promise<void>((resolve) => {
    let left = mebibytes * 1_048_576;
    const pump = (): void => {
      if (!("id" in stream)) throw new Error(stream.code);
      while (left > 0) {
        left -= bulkChunk.length;
        if (!stream.write(bulkChunk)) return;
      }
      stream.end();
    };
    const stream = session.openStream(open("POST"), {
      onData: () => undefined,
      onEnd: () => resolve(),
      onReset: () => undefined,
      onDrain: pump,
    });
    pump();
  });
  return report("upload", mebibytes, startedAt, cpu);
}

function report(what: string, mebibytes: number, startedAt: number, cpu: NodeJS.CpuUsage): string {
  const used = process.cpuUsage(cpu);
  const rate = mebibytes / ((performance.now() - startedAt) / 1_000);
  const perGib = ((used.user + used.system) / 1e6) * (1_024 / mebibytes);
  return `${what}: ${rate.toFixed(0)} MiB/s, CPU ${perGib.toFixed(1)} s a GiB`;
}

const server = createServer();
const accepted = new Promise<TunnelSession>((resolve, reject) => {
  server.on("upgrade", (req, socket, head) => {
    const node = { id: "bench", instance: "0", software: "bench" };
    const options = { ...context, req, socket, head, node, onHello: () => ({ kind: "accept" }) as const };
    acceptTunnel(options).then((outcome) => {
      if (outcome.kind === "session") resolve(outcome.session);
      else reject(new Error(outcome.detail));
    }, reject);
  });
});
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
const dialled = await dialTunnel({
  ...context,
  url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}`,
  tunnel: "bench",
  token: new Secret("bench"),
  gateway: { id: "bench", instance: "0", slot: 0, software: "bench" },
  servers: ["small", "bulk"],
  onStream,
});
if (dialled.kind !== "session") throw new Error(dialled.kind);
const session = await accepted;
await measureCalls(session, 32, 1_000);
for (const parallel of values.parallel.split(",").map(Number)) {
  console.log(await measureCalls(session, parallel, seconds * 1_000));
}
console.log(await measureDownload(session, 512));
console.log(await measureUpload(session, 512));
session.terminate("SHUTDOWN", "done");
server.close();
