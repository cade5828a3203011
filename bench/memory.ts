import { randomBytes } from "node:crypto";
import { Agent, createServer, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { initialize, modernRequest } from "../test/support/agent-requests.ts";
import { dialScripted, frame, frameTypes, helloFrame, type ScriptedGateway } from "../test/support/scripted-gateway.ts";
import { freePort, type MintedToken, mintToken, type Stack, startStack } from "../test/support/stack.ts";
import { until } from "../test/support/until.ts";

/**
 * `npm run bench -- memory`: what a relay and a gateway process hold above idle, after a full garbage collection, under five loads.
 * Heap and external memory count; RSS is shown beside, since it keeps what was once needed. Exits 1 when a limit is broken.
 */
const kibibyte = 1_024;
const mebibyte = 1_024 * 1_024;

interface Sample {
  readonly rss: number;
  /** Heap and external memory in use. */
  readonly held: number;
}

interface Line {
  readonly what: string;
  readonly value: number;
  readonly limit: number;
  readonly unit: "KiB" | "MiB" | "";
  readonly rss?: number;
}

interface Pace {
  readonly tunnels: number;
  readonly streams: number;
  readonly bigBytes: number;
  readonly sessions: number;
  readonly strangers: number;
}

const full: Pace = { tunnels: 100, streams: 1_000, bigBytes: 100 * mebibyte, sessions: 10_000, strangers: 10_000 };
const short: Pace = { tunnels: 40, streams: 200, bigBytes: 24 * mebibyte, sessions: 1_500, strangers: 2_000 };
const parallel = 32;
const warmups = 400;
/** How fast the slow reader reads. */
const slowBytesPerTick = 512 * kibibyte;
const slowTickMs = 40;

const resultHead = '{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"';
const resultTail = '"}]}}';
const progress =
  'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}\n\n';

/** An MCP server of a few lines: sessions, a stream that stays open, and a large result. */
class Upstream {
  readonly #server: Server;
  readonly #bigBytes: number;
  requests = 0;
  sessions = 0;
  open = 0;

  constructor(bigBytes: number) {
    this.#bigBytes = bigBytes;
    this.#server = createServer({ keepAliveTimeout: 120_000 }, (req, res) => {
      this.requests += 1;
      req.on("end", () => this.#answer(req, res));
      req.resume();
    });
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/mcp`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  #answer(req: IncomingMessage, res: ServerResponse): void {
    const name = req.headers["mcp-name"];
    if (req.method === "DELETE") {
      this.sessions -= 1;
      res.writeHead(200).end();
    } else if (name === "get_open") {
      this.#stream(res);
    } else if (name === "get_big") {
      this.#big(res);
    } else if (req.headers["mcp-session-id"] === undefined && name === undefined) {
      this.#session(res);
    } else {
      res.writeHead(200, { "content-type": "application/json" }).end(resultHead + resultTail);
    }
  }

  #session(res: ServerResponse): void {
    this.sessions += 1;
    const result = { protocolVersion: "2025-11-25", capabilities: {}, serverInfo: { name: "bench", version: "1" } };
    res.writeHead(200, { "content-type": "application/json", "mcp-session-id": randomBytes(16).toString("hex") });
    res.end(JSON.stringify({ jsonrpc: "2.0", id: 1, result }));
  }

  #stream(res: ServerResponse): void {
    this.open += 1;
    res.on("close", () => {
      this.open -= 1;
    });
    res.writeHead(200, { "content-type": "text/event-stream" });
    res.write(progress);
  }

  #big(res: ServerResponse): void {
    const chunk = Buffer.alloc(64 * kibibyte, "x");
    let left = this.#bigBytes;
    res.writeHead(200, { "content-type": "application/json" });
    res.write(resultHead);
    const pump = (): void => {
      while (left > 0) {
        left -= chunk.length;
        if (!res.write(chunk)) {
          res.once("drain", pump);
          return;
        }
      }
      res.end(resultTail);
    };
    pump();
  }
}

/** Both processes and what asks them. */
class Rig {
  readonly stack: Stack;
  readonly upstream: Upstream;
  readonly #probes: { readonly relay: number; readonly gateway: number };
  readonly #agent = new Agent({ keepAlive: true, maxSockets: parallel });

  constructor(stack: Stack, upstream: Upstream, probes: { readonly relay: number; readonly gateway: number }) {
    this.stack = stack;
    this.upstream = upstream;
    this.#probes = probes;
  }

  async sample(part: "relay" | "gateway"): Promise<Sample> {
    const answer = await fetch(`http://127.0.0.1:${this.#probes[part]}/`);
    return (await answer.json()) as Sample;
  }

  /** What an agent sends; resolves with the answer when its head is here. */
  send(options: {
    readonly path?: string;
    readonly method?: string;
    readonly headers?: Readonly<Record<string, string>>;
    readonly body?: string;
    readonly ownConnection?: boolean;
    readonly stranger?: boolean;
  }): Promise<IncomingMessage> {
    const { path = "/acme/tickets/mcp", method = "POST", body = "" } = options;
    return new Promise((resolve, reject) => {
      const req = request(
        {
          host: "127.0.0.1",
          port: this.stack.relayPort,
          path,
          method,
          agent: options.ownConnection === true ? false : this.#agent,
          headers: {
            accept: "application/json, text/event-stream",
            ...(method === "POST" ? { "content-type": "application/json", "content-length": String(body.length) } : {}),
            ...(options.stranger === true ? {} : { authorization: `Bearer ${this.stack.agentKey}` }),
            ...options.headers,
          },
        },
        resolve,
      );
      req.on("error", reject);
      req.end(body);
    });
  }

  /** As `send`, to the end of the answer; rejects on another status. */
  async ask(options: Parameters<Rig["send"]>[0], status = 200): Promise<IncomingMessage> {
    const answer = await this.send(options);
    let text = "";
    answer.setEncoding("utf8");
    answer.on("data", (part: string) => {
      text += part;
    });
    await new Promise((resolve) => answer.on("end", resolve));
    if (answer.statusCode !== status) throw new Error(`${answer.statusCode} instead of ${status}: ${text}`);
    return answer;
  }

  call(name: string, ownConnection: boolean): Promise<IncomingMessage> {
    const { body, headers } = modernRequest(1, "tools/call", { name, arguments: {} });
    return this.send({ headers, body: JSON.stringify(body), ownConnection });
  }

  async stop(): Promise<void> {
    this.#agent.destroy();
    await this.stack.stop();
    this.upstream.close();
  }
}

async function inParallel(count: number, once: (i: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) {
      next += 1;
      await once(next);
    }
  };
  await Promise.all(Array.from({ length: parallel }, worker));
}

const tunnelNames = ["idle-0", "idle-1", "idle-2", "idle-3"] as const;

async function startRig(pace: Pace, tunnels: Readonly<Record<string, MintedToken>>): Promise<Rig> {
  const upstream = new Upstream(pace.bigBytes);
  const url = await upstream.listen();
  const probes = { relay: await freePort(), gateway: await freePort() };
  const probe = fileURLToPath(new URL("./memory-probe.mjs", import.meta.url));
  const env = (port: number): Readonly<Record<string, string>> => ({
    NODE_OPTIONS: `--expose-gc --import=${probe}`,
    MEMORY_PROBE_PORT: String(port),
  });
  const stack = await startStack({
    withoutSearch: true,
    secretFiles: { "upstream-token": randomBytes(32).toString("base64url") },
    servers: { tickets: { url, credential: { type: "bearer", token: { file: "./upstream-token" } } } },
    policy: { tickets: { tools: ["get_*"], resources: ["ticket://open/*"] } },
    env: env(probes.gateway),
    relayEnv: env(probes.relay),
    extraTunnels: tunnels,
    relayYaml: { limits: { streamsPerAgent: 4_096, upgradesPerMinute: 10_000 } },
  });
  return new Rig(stack, upstream, probes);
}

async function dialIdle(
  rig: Rig,
  tunnels: Readonly<Record<string, MintedToken>>,
  count: number,
): Promise<ScriptedGateway[]> {
  const gateways: ScriptedGateway[] = [];
  for (let i = 0; i < count; i += 1) {
    const tunnel = tunnelNames[i % tunnelNames.length] ?? "idle-0";
    const gateway = await dialScripted({ port: rig.stack.relayPort, tunnel, token: tunnels[tunnel]?.token ?? "" });
    const identity = { id: `edge-${i}`, instance: `i-${i}`, slot: 0, software: "bench/1" };
    gateway.send(helloFrame(["tickets"], { gateway: identity }));
    // An idle tunnel has said something: what the first answer needs belongs to its cost.
    gateway.send(frame(frameTypes.PING, 0, Buffer.alloc(8)));
    gateways.push(gateway);
  }
  await until(
    () => gateways.every(({ frames }) => frames.some(({ type }) => type === frameTypes.PONG)),
    "all stand",
    20_000,
  );
  return gateways;
}

async function measureTunnels(rig: Rig, tunnels: Readonly<Record<string, MintedToken>>, pace: Pace): Promise<Line[]> {
  for (const gateway of await dialIdle(rig, tunnels, 8)) gateway.terminate();
  const before = await rig.sample("relay");
  const gateways = await dialIdle(rig, tunnels, pace.tunnels);
  const after = await rig.sample("relay");
  for (const gateway of gateways) gateway.terminate();
  const value = (after.held - before.held) / pace.tunnels / kibibyte;
  const rss = (after.rss - before.rss) / pace.tunnels / kibibyte;
  return [{ what: `an idle tunnel at the relay (of ${pace.tunnels})`, value, limit: 100, unit: "KiB", rss }];
}

/** The least of some samples: sockets that were just closed are let go in their own time. */
async function settled(rig: Rig, part: "relay" | "gateway"): Promise<Sample> {
  let least = await rig.sample(part);
  for (let i = 0; i < 10; i += 1) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    const next = await rig.sample(part);
    if (next.held < least.held) least = next;
  }
  return least;
}

async function measureStreams(rig: Rig, pace: Pace): Promise<Line[]> {
  const before = [await rig.sample("relay"), await rig.sample("gateway")] as const;
  const answers: IncomingMessage[] = [];
  await inParallel(pace.streams, async () => {
    const answer = await rig.call("get_open", true);
    answer.on("error", () => undefined);
    await new Promise((resolve) => answer.once("data", resolve));
    answers.push(answer);
  });
  if (rig.upstream.open !== pace.streams) throw new Error(`${rig.upstream.open} streams are open`);
  const after = [await rig.sample("relay"), await rig.sample("gateway")] as const;
  for (const answer of answers) answer.destroy();
  await until(() => rig.upstream.open === 0, "every stream is released", 20_000);
  const left = [await settled(rig, "relay"), await settled(rig, "gateway")] as const;
  const growth = (to: readonly [Sample, Sample], of: "held" | "rss"): number =>
    (to[0][of] + to[1][of] - before[0][of] - before[1][of]) / mebibyte;
  return [
    {
      what: `${pace.streams} open event streams, both parts`,
      value: growth(after, "held"),
      limit: (150 * pace.streams) / full.streams,
      unit: "MiB",
      rss: growth(after, "rss"),
    },
    {
      what: "  left when they have gone",
      value: growth(left, "held"),
      limit: 8,
      unit: "MiB",
      rss: growth(left, "rss"),
    },
  ];
}

/** The highest that either part held while `work` ran, above what it held before. */
async function peaks(rig: Rig, work: () => Promise<void>): Promise<Record<"relay" | "gateway", Sample>> {
  const parts = ["relay", "gateway"] as const;
  const before = { relay: await rig.sample("relay"), gateway: await rig.sample("gateway") };
  const peak = { relay: { rss: 0, held: 0 }, gateway: { rss: 0, held: 0 } };
  let isDone = false;
  const watch = async (): Promise<void> => {
    while (!isDone) {
      for (const part of parts) {
        const { rss, held } = await rig.sample(part);
        peak[part] = {
          rss: Math.max(peak[part].rss, rss - before[part].rss),
          held: Math.max(peak[part].held, held - before[part].held),
        };
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  };
  const watching = watch();
  try {
    await work();
  } finally {
    isDone = true;
    await watching;
  }
  return peak;
}

async function readSlowly(answer: IncomingMessage): Promise<number> {
  let bytes = 0;
  let isOver = false;
  answer.on("end", () => {
    isOver = true;
  });
  answer.on("error", () => {
    isOver = true;
  });
  while (!isOver) {
    for (let taken = 0; taken < slowBytesPerTick; ) {
      const chunk = answer.read() as Buffer | null;
      if (chunk === null) break;
      taken += chunk.length;
      bytes += chunk.length;
    }
    await new Promise((resolve) => setTimeout(resolve, slowTickMs));
  }
  return bytes;
}

async function measureSlowReader(rig: Rig, pace: Pace): Promise<Line[]> {
  const wanted = pace.bigBytes + resultHead.length + resultTail.length;
  const peak = await peaks(rig, async () => {
    const bytes = await readSlowly(await rig.call("get_big", true));
    if (bytes !== wanted) throw new Error(`${bytes} bytes of ${wanted} arrived`);
  });
  const what = `a ${pace.bigBytes / mebibyte} MiB result to a slow reader`;
  return (["relay", "gateway"] as const).map((part) => ({
    what: `${what}, ${part}`,
    value: peak[part].held / mebibyte,
    limit: 8,
    unit: "MiB",
    rss: peak[part].rss / mebibyte,
  }));
}

async function openAndDelete(rig: Rig): Promise<void> {
  const { headers } = await rig.ask({ body: JSON.stringify(initialize) });
  const session = { "mcp-session-id": String(headers["mcp-session-id"]), "mcp-protocol-version": "2025-11-25" };
  await rig.ask({ method: "DELETE", headers: session });
}

async function measureSessions(rig: Rig, pace: Pace): Promise<Line[]> {
  await inParallel(warmups, () => openAndDelete(rig));
  const before = { relay: await rig.sample("relay"), gateway: await rig.sample("gateway") };
  await inParallel(pace.sessions, () => openAndDelete(rig));
  const lines: Line[] = [];
  for (const part of ["relay", "gateway"] as const) {
    const after = await rig.sample(part);
    const value = (after.held - before[part].held) / mebibyte;
    const rss = (after.rss - before[part].rss) / mebibyte;
    lines.push({ what: `${pace.sessions} sessions opened and deleted, ${part}`, value, limit: 3, unit: "MiB", rss });
  }
  lines.push({ what: "  sessions left at the server", value: rig.upstream.sessions, limit: 0, unit: "" });
  return lines;
}

async function measureStrangers(rig: Rig, tunnels: Readonly<Record<string, MintedToken>>, pace: Pace): Promise<Line[]> {
  const [gateway] = await dialIdle(rig, tunnels, 1);
  const knock = (): Promise<unknown> =>
    rig.ask({ path: "/idle-0/tickets/mcp", stranger: true, body: JSON.stringify(initialize) }, 401);
  await inParallel(warmups, knock);
  const frames = gateway?.frames.length ?? 0;
  const { requests } = rig.upstream;
  const before = await rig.sample("relay");
  await inParallel(pace.strangers, knock);
  const after = await rig.sample("relay");
  const value = (after.held - before.held) / mebibyte;
  const rss = (after.rss - before.rss) / mebibyte;
  const traffic = (gateway?.frames.filter(({ type }) => type !== frameTypes.PING).length ?? 0) - frames;
  gateway?.terminate();
  return [
    { what: `${pace.strangers} requests without a token, relay`, value, limit: 3, unit: "MiB", rss },
    { what: "  frames on the tunnel", value: Math.max(0, traffic), limit: 0, unit: "" },
    { what: "  requests at the server", value: rig.upstream.requests - requests, limit: 0, unit: "" },
  ];
}

function printLine({ what, value, limit, unit, rss }: Line): boolean {
  const isGood = value <= limit;
  const number = (n: number): string => (unit === "" ? String(n) : `${n.toFixed(unit === "KiB" ? 1 : 2)} ${unit}`);
  const cells = [number(value).padStart(12), `${number(limit)}`.padStart(12), isGood ? "  PASS" : "  FAIL"];
  console.log(`${what.padEnd(48)}${cells.join("")}${rss === undefined ? "" : `   (RSS ${number(rss)})`}`);
  return isGood;
}

/** True when every limit held. */
export async function measureMemory(isShort: boolean): Promise<boolean> {
  const pace = isShort ? short : full;
  const tunnels = Object.fromEntries(tunnelNames.map((name) => [name, mintToken("ptk_")]));
  const rig = await startRig(pace, tunnels);
  let isGood = true;
  const show = (lines: readonly Line[]): void => {
    for (const line of lines) isGood = printLine(line) && isGood;
  };
  try {
    await inParallel(warmups, () => rig.call("get_small", false).then((answer) => answer.resume()));
    console.log(`Node ${process.version}; growth over idle, after a full collection`);
    console.log(`${"".padEnd(48)}${"measured".padStart(12)}${"limit".padStart(12)}`);
    show(await measureTunnels(rig, tunnels, pace));
    show(await measureStreams(rig, pace));
    show(await measureSlowReader(rig, pace));
    show(await measureSessions(rig, pace));
    show(await measureStrangers(rig, tunnels, pace));
  } catch (error) {
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    for (const { name, text } of rig.stack.outputs()) console.error(`${name}: ${text.slice(-1_000)}`);
    throw error;
  } finally {
    await rig.stop();
  }
  return isGood;
}
