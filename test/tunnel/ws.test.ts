import { createHash } from "node:crypto";
import type { createServer, IncomingMessage } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { type AddressInfo, connect as connectTcp, createServer as createTcpServer, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { afterEach, describe, expect, it, vi } from "vitest";
import { WebSocket } from "ws";
import { type AcceptOutcome, acceptTunnel } from "../../src/tunnel/accept.ts";
import { type DialOutcome, dialTunnel } from "../../src/tunnel/dial.ts";
import { encodeGoAway, encodeHello, encodeWelcome } from "../../src/tunnel/encode.ts";
import { refuseUpgrade } from "../../src/tunnel/refuse.ts";
import { Session } from "../../src/tunnel/session.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { until } from "../support/until.ts";
import {
  connectOverLoopback,
  dialOptions,
  echoHandler,
  gatewayIdentity,
  type Listener,
  listen,
  node,
  openWith,
  pour,
  Recorder,
  welcomeOptions,
} from "./ends.ts";
import { loopbackCertificate, loopbackKey } from "./loopback-cert.ts";

const limits = { streamWindowBytes: 262_144, tunnelWindowBytes: 1_048_576, maxStreams: 2_048 };
const advert = { rev: 1, draining: false, servers: ["tickets"] };
const helloFrame = encodeHello({
  versions: [1],
  features: [],
  gateway: gatewayIdentity,
  limits,
  servers: advert.servers,
  advert,
});
const welcomeFrame = encodeWelcome({ version: 1, features: [], node, connId: "c-1", limits, heartbeatMs: 15_000 });

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function relay(): Promise<Listener & { readonly outcomes: AcceptOutcome[]; session(): Promise<Session> }> {
  const outcomes: AcceptOutcome[] = [];
  const listener = await listen();
  listener.server.on("upgrade", (req, socket, head) => {
    acceptTunnel({ ...welcomeOptions(), req, socket, head }).then(
      (outcome) => outcomes.push(outcome),
      expect.unreachable,
    );
  });
  cleanups.push(listener.close, () => {
    for (const outcome of outcomes) if (outcome.kind === "session") outcome.session.terminate("SHUTDOWN", "over");
  });
  return {
    ...listener,
    outcomes,
    session: async () => {
      await until(() => outcomes.length > 0, "an outcome");
      const [outcome] = outcomes;
      if (outcome?.kind !== "session" || !(outcome.session instanceof Session)) throw new Error("no session");
      return outcome.session;
    },
  };
}

/** A ws client that has said HELLO and been welcomed. */
async function rawGateway(url: string, options = {}): Promise<{ ws: WebSocket; closed: Promise<number> }> {
  const ws = new WebSocket(url, ["postern.v1"], { perMessageDeflate: false, ...options });
  cleanups.push(() => ws.terminate());
  ws.on("error", () => undefined);
  const closed = new Promise<number>((resolve) => ws.on("close", resolve));
  const welcomed = new Promise((resolve) => ws.once("message", resolve));
  await new Promise((resolve) => ws.once("open", resolve));
  ws.send(helloFrame);
  await welcomed;
  return { ws, closed };
}

/** A message of exactly `bytes` bytes, of frames that any receiver skips. */
function padding(bytes: number): Buffer {
  const message = Buffer.alloc(bytes);
  for (let at = 0; at < bytes; ) {
    let length = Math.min(16_384, bytes - at - 10);
    const rest = bytes - at - 10 - length;
    if (rest > 0 && rest < 10) length -= 10;
    message[at] = 0x80;
    message.writeUInt32BE(length, at + 6);
    at += 10 + length;
  }
  return message;
}

async function tcp(onSocket: (socket: Socket) => void): Promise<string> {
  const sockets: Socket[] = [];
  const server = createTcpServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => undefined);
    onSocket(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  cleanups.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe("message limits", () => {
  const alive = async (session: Session): Promise<boolean> => (await session.echo(5_000)) >= 0;

  it("C33 messages up to 128 KiB pass, one byte more ends that session and no other", async () => {
    const { url, session, outcomes } = await relay();
    const { ws, closed } = await rawGateway(url);
    const bystander = await dialTunnel(dialOptions(url, echoHandler));
    await until(() => outcomes.length === 2, "both");
    const subject = await session();
    // The raw peer answers no ping, so the streams tell: an exchange needs the session.
    for (const bytes of [131_071, 131_072]) ws.send(padding(bytes));
    const recorder = new Recorder();
    openWith(subject, recorder);
    ws.send(Buffer.concat([padding(500), Buffer.from("14000000000100000002" + "0020", "hex")]));
    await until(() => recorder.reset !== undefined, "the reset");
    expect(recorder.reset?.code).toBe("CANCEL");
    const other = new Recorder();
    openWith(subject, other);
    ws.send(padding(131_073));
    expect(await subject.ended).toEqual({ reason: "PROTOCOL_ERROR", detail: "a message above 128 KiB", by: "local" });
    expect(other.reset?.code).toBe("TUNNEL_LOST");
    expect(await closed).toBe(1009);
    if (bystander.kind !== "session") throw new Error(bystander.kind);
    expect(await bystander.session.echo(5_000)).toBeGreaterThanOrEqual(0);
  });

  it("C33 the limit holds for the whole of a fragmented message", async () => {
    const { url, session } = await relay();
    const { ws, closed } = await rawGateway(url);
    const subject = await session();
    const whole = padding(100_000);
    for (let at = 0; at < whole.length; at += 1_000) {
      ws.send(whole.subarray(at, at + 1_000), { binary: true, fin: at + 1_000 >= whole.length });
    }
    const recorder = new Recorder();
    openWith(subject, recorder);
    ws.send(Buffer.from("14000000000100000002" + "0020", "hex"));
    await until(() => recorder.isOver, "the reset");
    ws.send(padding(70_000), { binary: true, fin: false });
    ws.send(padding(70_000), { binary: true, fin: true });
    expect(await subject.ended).toMatchObject({ reason: "PROTOCOL_ERROR" });
    expect(await closed).toBe(1009);
  });

  it("C33 a text message ends the session by name", async () => {
    const { url, session } = await relay();
    const { ws, closed } = await rawGateway(url);
    const goAway = new Promise<string>((resolve) => ws.once("message", (data) => resolve(String(data))));
    ws.send("hello");
    expect(await (await session()).ended).toEqual({ reason: "PROTOCOL_ERROR", detail: "text-message", by: "local" });
    expect(await goAway).toContain('"fault":"text-message"');
    expect(await closed).toBe(1002);
  });

  it("C33 compression that is offered is not taken, and a compressed frame ends the session", async () => {
    const { url, session } = await relay();
    const { ws } = await rawGateway(url, { perMessageDeflate: true });
    expect(ws.extensions).toBe("");
    const subject = await session();
    // FIN, RSV1, binary, masked with 0, one byte.
    (ws as unknown as { _socket: Socket })._socket.write(Buffer.from("c2810000000000", "hex"));
    expect(await subject.ended).toMatchObject({ reason: "PROTOCOL_ERROR", by: "local" });
  });

  it("C33 bodies around and far above the message limit go through while others run", async () => {
    const ends = await connectOverLoopback({ onStream: echoHandler });
    const limit = 131_072;
    const sizes = [limit - 1, limit, limit + 1, 10 * limit, 1, 2, 3, 4, 5];
    const recorders = sizes.map((size) => {
      const recorder = new Recorder();
      const poured = pour(openWith(ends.relay, recorder), size);
      Object.assign(recorder, { onDrain: poured.pump });
      poured.pump();
      return recorder;
    });
    await until(() => recorders.every((recorder) => recorder.isOver), "all");
    expect(recorders.map((recorder) => recorder.body.length)).toEqual(sizes);
    expect(await alive(ends.relay)).toBe(true);
    await ends.close();
  });
});

describe("the first message", () => {
  const upgrade = [
    "GET /_postern/v1/tunnel HTTP/1.1",
    "Host: x",
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol: postern.v1",
    "",
    "",
  ].join("\r\n");

  const masked = (payload: Buffer): Buffer => {
    const header = Buffer.alloc(8);
    header[0] = 0x82;
    header[1] = 0x80 | 126;
    header.writeUInt16BE(payload.length, 2);
    return Buffer.concat([header, payload]);
  };

  it("a HELLO in the very packet of the upgrade is heard", async () => {
    const { url, session } = await relay();
    const socket = connectTcp(Number(new URL(url).port), "127.0.0.1");
    cleanups.push(() => socket.destroy());
    socket.write(Buffer.concat([Buffer.from(upgrade), masked(helloFrame)]));
    expect((await session()).servers).toEqual(["tickets"]);
  });

  it("a WELCOME in the very packet of the 101 is heard, with what follows it", async () => {
    const opened: string[] = [];
    const url = await tcp((socket) => {
      socket.once("data", (request: Buffer) => {
        const key = /sec-websocket-key: (.*)\r\n/i.exec(request.toString())?.[1] ?? "";
        const open = Buffer.from(
          '{"server":"tickets","method":"GET","headers":[],"body":false,"deadlineMs":1,"requestId":"r","principal":{"id":"key:a","kind":"key","claims":{}}}',
        );
        const frame = Buffer.from(`100000000001${open.length.toString(16).padStart(8, "0")}`, "hex");
        const payload = Buffer.concat([welcomeFrame, frame, open]);
        const header = Buffer.from([0x82, 126, payload.length >> 8, payload.length & 0xff]);
        socket.write(Buffer.concat([Buffer.from(answer101(key)), header, payload]));
      });
    });
    const outcome = await dialTunnel(
      dialOptions(url, (open) => {
        opened.push(open.server);
        return new Recorder();
      }),
    );
    expect(outcome.kind).toBe("session");
    expect(opened).toEqual(["tickets"]);
    if (outcome.kind === "session") outcome.session.terminate("SHUTDOWN", "over");
  });

  it("another frame first is named to the peer", async () => {
    const { url, outcomes } = await relay();
    const ws = new WebSocket(url, ["postern.v1"]);
    const answer = new Promise<string>((resolve) => ws.once("message", (data) => resolve(String(data))));
    ws.on("open", () => ws.send(Buffer.from("03000000000000000008" + "0000000000000000", "hex")));
    expect(await answer).toContain('"fault":"hello-expected"');
    await until(() => outcomes.length > 0, "the outcome");
    expect(outcomes).toEqual([{ kind: "refused", reason: "PROTOCOL_ERROR", detail: "hello-expected" }]);
  });

  it("without a common version the gateway learns why", async () => {
    const { url } = await relay();
    const ws = new WebSocket(url, ["postern.v1"]);
    const answer = new Promise<string>((resolve) => ws.once("message", (data) => resolve(String(data))));
    const hello = { versions: [2, 3], features: [], gateway: gatewayIdentity, limits, servers: [], advert };
    ws.on("open", () => ws.send(encodeHello(hello)));
    expect(await answer).toContain('"fault":"no-common-version"');
  });
});

function answer101(key: string): string {
  // RFC 6455 4.2.2
  const digest = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  return `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${digest}\r\nSec-WebSocket-Protocol: postern.v1\r\n\r\n`;
}

describe("accept", () => {
  it("of several subprotocols the answer names the one that is spoken, wherever it stands", async () => {
    const { url } = await relay();
    const ws = new WebSocket(url, ["postern.v2", "postern.v1"]);
    await new Promise((resolve, reject) => ws.on("open", resolve).on("error", reject));
    expect(ws.protocol).toBe("postern.v1");
    ws.terminate();
  });

  it("an upgrade without the subprotocol is answered 426, a broken one 400", async () => {
    const { url, outcomes } = await relay();
    const ask = async (headers: string): Promise<string> => {
      const socket = connectTcp(Number(new URL(url).port), "127.0.0.1");
      let text = "";
      socket.on("data", (part) => {
        text += part.toString();
      });
      socket.write(
        `GET /_postern/v1/tunnel HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n${headers}\r\n\r\n`,
      );
      await new Promise((resolve) => socket.on("close", resolve));
      return text;
    };
    const plain = await ask("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==");
    expect(plain).toMatch(/^HTTP\/1\.1 426 /);
    expect(plain).toContain("application/problem+json");
    const broken = await ask("Sec-WebSocket-Protocol: postern.v1\r\nSec-WebSocket-Version: 13");
    expect(broken).toMatch(/^HTTP\/1\.1 400 /);
    expect(outcomes.map((outcome) => outcome.kind)).toEqual(["refused", "refused"]);
  });

  it("a socket that is gone before the handshake gives an outcome and no uncaught error", async () => {
    const listener = await listen();
    cleanups.push(listener.close);
    const outcome = new Promise<AcceptOutcome>((resolve) => {
      listener.server.on("upgrade", (req, socket, head) => {
        socket.on("error", () => undefined);
        socket.destroy();
        acceptTunnel({ ...welcomeOptions(), req, socket, head }).then(resolve, expect.unreachable);
      });
    });
    const ws = new WebSocket(listener.url, ["postern.v1"]);
    ws.on("error", () => undefined);
    expect(await outcome).toMatchObject({ kind: "refused", reason: "closed" });
  });

  it("a gateway that hangs up instead of HELLO gives an outcome", async () => {
    const { url, outcomes } = await relay();
    const ws = new WebSocket(url, ["postern.v1"]);
    ws.on("open", () => ws.terminate());
    await until(() => outcomes.length > 0, "the outcome");
    expect(outcomes[0]).toMatchObject({ kind: "refused", reason: "closed" });
  });
});

describe("dial", () => {
  const refuseWith = async (answer: (socket: Duplex, req: IncomingMessage) => void): Promise<string> => {
    const listener = await listen();
    cleanups.push(listener.close);
    listener.server.on("upgrade", (req, socket) => answer(socket, req));
    return listener.url;
  };

  it("says who it is in the upgrade, and offers no compression", async () => {
    const seen: IncomingMessage["headers"][] = [];
    const url = await refuseWith((socket, req) => {
      seen.push({ ...req.headers, path: req.url });
      refuseUpgrade(socket, 503, { title: "draining" }, 7);
    });
    expect(await dialTunnel(dialOptions(`${url}/edge/`, echoHandler))).toEqual({
      kind: "refused",
      status: 503,
      reason: "draining",
      retryAfterMs: 7_000,
    });
    expect(seen[0]).toMatchObject({
      authorization: "Bearer ptk_test",
      "postern-tunnel": "acme",
      "sec-websocket-protocol": "postern.v1",
      path: "/edge/_postern/v1/tunnel",
    });
    expect(seen[0]?.["sec-websocket-extensions"]).toBeUndefined();
  });

  for (const status of [401, 403, 409, 426, 429]) {
    it(`understands ${status}`, async () => {
      const url = await refuseWith((socket) => refuseUpgrade(socket, status, { title: `no: ${status}` }));
      const outcome = await dialTunnel(dialOptions(url, echoHandler));
      expect(outcome).toEqual({ kind: "refused", status, reason: `no: ${status}`, retryAfterMs: undefined });
    });
  }

  it("shows nothing of an answer that could break a log line, and reads no endless one", async () => {
    const page = await refuseWith((socket) => {
      socket.end(`HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n\r\n${"<html>".repeat(10_000)}`);
    });
    expect(await dialTunnel(dialOptions(page, echoHandler))).toMatchObject({ status: 404, reason: "HTTP 404" });
    const dirty = await refuseWith((socket) =>
      refuseUpgrade(socket, 403, { title: `a\nb\u001b[0m${"x".repeat(500)}` }),
    );
    const outcome = await dialTunnel(dialOptions(dirty, echoHandler));
    expect(outcome.kind === "refused" && outcome.reason).toMatch(/^a\?b\?\[0mx+$/);
    expect(outcome.kind === "refused" && outcome.reason.length).toBe(200);
  });

  it("refuses what is neither wss nor loopback before it connects", async () => {
    const urls = [
      "wss://169.254.169.254",
      "http://127.0.0.1",
      "ws://relay.example.com",
      "ws://127.evil.example",
      "nonsense",
      "wss://u:p@x",
      "wss://x/?t=1",
    ];
    const outcomes = await Promise.all(urls.map((url) => dialTunnel(dialOptions(url, echoHandler))));
    expect(outcomes.map((outcome) => outcome.kind === "failed" && outcome.code)).toEqual(urls.map(() => "URL"));
  });

  it("nobody listens: CONNECT", async () => {
    const listener = await listen();
    await listener.close();
    const outcome = await dialTunnel(dialOptions(listener.url, echoHandler));
    expect(outcome).toEqual({ kind: "failed", code: "CONNECT", detail: "ECONNREFUSED" });
  });

  it("an answer that is no relay's: UPGRADE", async () => {
    const wrong = await refuseWith((socket) => {
      socket.end(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: no\r\n\r\n",
      );
    });
    expect(await dialTunnel(dialOptions(wrong, echoHandler))).toMatchObject({ kind: "failed", code: "UPGRADE" });
    const hangsUp = await refuseWith((socket) => socket.destroy());
    expect(await dialTunnel(dialOptions(hangsUp, echoHandler))).toMatchObject({ kind: "failed", code: "UPGRADE" });
  });

  it("the deadlines are overall: a relay that trickles is left after 10 s", async () => {
    const clock = new ManualClock();
    let trickled = 0;
    let dripping: NodeJS.Timeout | undefined;
    const url = await tcp((socket) => {
      socket.write("HTTP/1.1 101 Switching Protocols\r\n");
      dripping = setInterval(() => {
        trickled += 1;
        socket.write(`X-${trickled}: y\r\n`);
      }, 1);
    });
    let outcome: DialOutcome | undefined;
    const dialled = dialTunnel(dialOptions(url, echoHandler, { clock })).then((result) => {
      outcome = result;
    });
    await until(() => trickled > 5, "a few header lines");
    clock.advance(9_999);
    await until(() => trickled > 10, "a few more");
    expect(outcome).toBeUndefined();
    clock.advance(1);
    await dialled;
    clearInterval(dripping);
    expect(outcome).toEqual({ kind: "failed", code: "TIMEOUT", detail: "no answer to the upgrade in time" });
    expect(clock.armed).toBe(0);
  });

  it("a relay that upgrades and then says nothing is left after 5 s", async () => {
    const clock = new ManualClock();
    let upgraded = false;
    const url = await tcp((socket) => {
      socket.once("data", (request: Buffer) => {
        socket.write(answer101(/sec-websocket-key: (.*)\r\n/i.exec(request.toString())?.[1] ?? ""));
        socket.once("data", () => {
          upgraded = true;
        });
      });
    });
    const dialled = dialTunnel(dialOptions(url, echoHandler, { clock }));
    await until(() => upgraded, "the hello");
    clock.advance(5_000);
    expect(await dialled).toEqual({ kind: "failed", code: "TIMEOUT", detail: "no welcome in time" });
  });

  it("a GOAWAY instead of WELCOME is a refusal", async () => {
    const url = await tcp((socket) => {
      socket.once("data", (request: Buffer) => {
        const payload = encodeGoAway({
          reason: "REBALANCE",
          lastStream: 0,
          drainMs: 0,
          reconnectInMs: 250,
          fault: undefined,
        });
        const key = /sec-websocket-key: (.*)\r\n/i.exec(request.toString())?.[1] ?? "";
        socket.write(Buffer.concat([Buffer.from(answer101(key)), Buffer.from([0x82, payload.length]), payload]));
      });
    });
    const outcome = await dialTunnel(dialOptions(url, echoHandler));
    expect(outcome).toEqual({ kind: "refused", status: undefined, reason: "REBALANCE", retryAfterMs: 250 });
  });

  it("a signal ends a dial that hangs", async () => {
    const connected: Socket[] = [];
    const url = await tcp((socket) => connected.push(socket.resume()));
    const controller = new AbortController();
    const dialled = dialTunnel(dialOptions(url, echoHandler, { signal: controller.signal }));
    await until(() => connected.length > 0, "the connection");
    controller.abort();
    expect(await dialled).toEqual({ kind: "failed", code: "ABORTED", detail: "the dial was ended" });
    await until(() => connected[0]?.destroyed === true || connected[0]?.readableEnded === true, "the socket");
    expect(await dialTunnel(dialOptions(url, echoHandler, { signal: controller.signal }))).toMatchObject({
      code: "ABORTED",
    });
  });

  it("C38 trusts a root of its own beside the bundled ones, and names TLS when it does not", async () => {
    const server = createTlsServer({ cert: loopbackCertificate, key: loopbackKey });
    server.on("tlsClientError", () => undefined);
    server.on("upgrade", (_, socket) => refuseUpgrade(socket, 403, { title: "known" }));
    const listener = await listen(server as unknown as ReturnType<typeof createServer>);
    cleanups.push(listener.close);
    const url = listener.url.replace("ws:", "wss:");
    expect(await dialTunnel(dialOptions(url, echoHandler))).toMatchObject({ kind: "failed", code: "TLS" });
    vi.stubEnv("NODE_TLS_REJECT_UNAUTHORIZED", "0");
    cleanups.push(() => vi.unstubAllEnvs());
    expect(await dialTunnel(dialOptions(url, echoHandler))).toMatchObject({ kind: "failed", code: "TLS" });
    const trusted = await dialTunnel(dialOptions(url, echoHandler, { ca: loopbackCertificate }));
    expect(trusted).toMatchObject({ kind: "refused", status: 403 });
  });
});
