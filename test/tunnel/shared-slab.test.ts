import { createServer as createHttp } from "node:http";
import { createServer as createHttps } from "node:https";
import { type AddressInfo, connect, createServer as createTcp, type Socket } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { acceptTunnel } from "../../src/tunnel/accept.ts";
import { dialTunnel } from "../../src/tunnel/dial.ts";
import { Session } from "../../src/tunnel/session.ts";
import type { StreamHandler } from "../../src/tunnel/types.ts";
import { until } from "../support/until.ts";
import { context, dialOptions, listen, openWith, pour, Recorder, welcomeOptions } from "./ends.ts";
import { loopbackCertificate, loopbackKey } from "./loopback-cert.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** More than the kernel holds for a peer that does not read. */
const windows = { streamWindowBytes: 4_000_000, tunnelWindowBytes: 16_000_000 };
const bodyBytes = 300_000;

interface Line {
  readonly name: string;
  readonly relay: Session;
  /** What came in, by the request id of its stream. */
  readonly arrived: Map<string, Recorder>;
  /** Whether the gateway's side reads. */
  setReading(isReading: boolean): void;
}

async function connectLine(name: string, isTls: boolean): Promise<Line> {
  const server = isTls ? createHttps({ cert: loopbackCertificate, key: loopbackKey }) : createHttp();
  const behind = await listen(server as ReturnType<typeof createHttp>);
  const relay = new Promise<Session>((resolve) => {
    behind.server.on("upgrade", (req, socket, head) => {
      const accept = { ...welcomeOptions({ limits: windows }), req, socket, head, ...context() };
      void acceptTunnel(accept).then((outcome) => {
        if (outcome.kind === "session" && outcome.session instanceof Session) resolve(outcome.session);
      });
    });
  });
  const hops: Socket[] = [];
  const hop = createTcp((near) => {
    const far = connect((behind.server.address() as AddressInfo).port, "127.0.0.1");
    near.pipe(far).pipe(near);
    for (const socket of [near, far]) socket.on("error", () => undefined);
    hops.push(near, far);
  });
  await new Promise<void>((resolve) => hop.listen(0, "127.0.0.1", resolve));
  const arrived = new Map<string, Recorder>();
  const onStream: StreamHandler = ({ requestId }, stream) => {
    const recorder = new Recorder();
    recorder.stream = stream;
    arrived.set(requestId, recorder);
    return recorder;
  };
  const url = `${isTls ? "wss" : "ws"}://127.0.0.1:${(hop.address() as AddressInfo).port}`;
  const dialled = await dialTunnel(dialOptions(url, onStream, { limits: windows, ca: loopbackCertificate }));
  if (dialled.kind !== "session") throw new Error(JSON.stringify(dialled));
  const session = await relay;
  cleanups.push(async () => {
    session.terminate("SHUTDOWN", "the test is over");
    for (const socket of hops) socket.destroy();
    await dialled.session.ended;
    hop.close();
    await behind.close();
  });
  const setReading = (isReading: boolean): void => {
    const [near, far] = hops;
    if (near === undefined || far === undefined) return;
    if (isReading) far.pipe(near);
    else far.unpipe(near).pause();
  };
  return { name, relay: session, arrived, setReading };
}

/** What only this stream of this session sends. */
function bodyOf(id: string, bytes: number): Buffer<ArrayBuffer> {
  return Buffer.alloc(bytes, `<${id}>`);
}

let nextId = 0;

function send({ name, relay }: Line, count: number, bytes: number): string[] {
  return Array.from({ length: count }, () => {
    const id = `${name}-${bytes}-${nextId++}`;
    const recorder = new Recorder();
    const stream = openWith(relay, recorder, { requestId: id });
    const source = pour(stream, bytes, bodyOf(id, bytes));
    Object.assign(recorder, { onDrain: () => source.pump() });
    source.pump();
    return id;
  });
}

function sizeOf(id: string): number {
  return Number(id.split("-")[1]);
}

async function expectWhole(line: Line, ids: readonly string[]): Promise<void> {
  const isThere = (): boolean => ids.every((id) => line.arrived.get(id)?.isOver === true);
  await until(isThere, `all of ${line.name} has come`, 15_000);
  for (const id of ids) {
    const recorder = line.arrived.get(id);
    expect(recorder?.reset).toBeUndefined();
    // Not by toEqual, which would print both.
    expect(recorder?.body.equals(bodyOf(id, sizeOf(id)))).toBe(true);
  }
}

describe("sessions that pack their messages into one memory", () => {
  it("C33 keep each other's bytes, while some peers do not read and one is lost, with and without TLS", async () => {
    const [still, stillTls, quick, quickTls, lost] = await Promise.all([
      connectLine("still", false),
      connectLine("stilltls", true),
      connectLine("quick", false),
      connectLine("quicktls", true),
      connectLine("lost", false),
    ]);
    const slow = [still, stillTls];
    for (const line of [...slow, lost]) line.setReading(false);
    const sent = new Map<Line, string[]>(slow.map((line) => [line, send(line, 30, bodyBytes)]));
    send(lost, 30, bodyBytes);
    for (let round = 0; round < 30; round += 1) {
      const ids = [quick, quickTls].map((line) => [line, [...send(line, 3, 40), ...send(line, 1, 90_000)]] as const);
      for (const line of slow) sent.get(line)?.push(...send(line, 1, 40));
      if (round === 10) lost.relay.terminate("LOST", "as told");
      for (const [line, own] of ids) await expectWhole(line, own);
    }
    // Else nothing was held back.
    for (const line of slow) expect(line.arrived.size).toBeLessThan(60);
    for (const line of slow) line.setReading(true);
    for (const [line, ids] of sent) await expectWhole(line, ids);
  });
});
