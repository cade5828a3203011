import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { type WebSocket, WebSocketServer } from "ws";
import { type Frame, frame, frameTypes, parseFrames } from "./scripted-gateway.ts";
import { until } from "./until.ts";

/**
 * A relay that says what it is told to, byte by byte: it shares no code with the tunnel room. Only PINGs are answered by
 * themselves, so that the gateway becomes ready.
 */
export interface ScriptedRelay {
  readonly port: number;
  /** What the next connections hear instead of WELCOME, one each. */
  readonly greetings: (Buffer | string)[];
  /** Every tunnel session so far, the newest last; each has had its WELCOME. */
  readonly sessions: readonly RelaySession[];
  close(): Promise<void>;
}

export interface RelaySession {
  readonly frames: readonly Frame[];
  readonly send: (...frames: Buffer[]) => void;
  readonly isClosed: () => boolean;
  /** Opens a stream with all that belongs to a POST, with `changes` in its OPEN. */
  readonly call: (id: number, body: string, changes?: object) => void;
  /** What came back on a stream so far. */
  readonly answer: (id: number) => StreamAnswer;
}

export interface StreamAnswer {
  readonly head: Record<string, unknown> | undefined;
  readonly text: string;
  readonly isEnded: boolean;
  /** The code of a RESET. */
  readonly reset: number | undefined;
}

export const openPayload = {
  server: "fixture",
  method: "POST",
  headers: ["content-type", "application/json", "accept", "application/json, text/event-stream"],
  body: true,
  deadlineMs: 30_000,
  requestId: "r-1",
  principal: { id: "key:tester", kind: "key", claims: {} },
};

export function endPayload(total: number): Buffer {
  const payload = Buffer.alloc(8);
  payload.writeUInt32BE(total, 4);
  return payload;
}

export const welcome = {
  version: 1,
  features: [],
  node: { id: "scripted", instance: "i", software: "scripted/1" },
  connId: "scripted-1",
  limits: { streamWindow: 1_048_576, tunnelWindow: 8_388_608, maxStreams: 1_024 },
  heartbeatMs: 15_000,
};

function answerOf(frames: readonly Frame[], id: number): StreamAnswer {
  const mine = frames.filter(({ stream }) => stream === id);
  const head = mine.find(({ type }) => type === frameTypes.HEAD);
  const reset = mine.find(({ type }) => type === frameTypes.RESET);
  const data = mine.filter(({ type }) => type === frameTypes.DATA).map(({ payload }) => payload);
  return {
    head: head === undefined ? undefined : (JSON.parse(head.payload.toString("utf8")) as Record<string, unknown>),
    text: Buffer.concat(data).toString("utf8"),
    isEnded: mine.some(({ type }) => type === frameTypes.END),
    reset: reset?.payload.readUInt16BE(0),
  };
}

function serve(socket: WebSocket): RelaySession {
  const frames: Frame[] = [];
  let isClosed = false;
  const send = (...out: Buffer[]): void => socket.send(Buffer.concat(out));
  socket.on("error", () => undefined);
  socket.on("close", () => {
    isClosed = true;
  });
  socket.on("message", (message: Buffer) => {
    for (const one of parseFrames(message)) {
      frames.push(one);
      if (one.type === frameTypes.HELLO) send(frame(frameTypes.WELCOME, 0, welcome));
      if (one.type === frameTypes.PING) send(frame(frameTypes.PONG, 0, one.payload));
    }
  });
  return {
    frames,
    send,
    isClosed: () => isClosed,
    call: (id, body, changes = {}) => {
      const bytes = Buffer.from(body);
      const open = frame(frameTypes.OPEN, id, { ...openPayload, ...changes });
      send(open, frame(frameTypes.DATA, id, bytes), frame(frameTypes.END, id, endPayload(bytes.length)));
    },
    answer: (id) => answerOf(frames, id),
  };
}

export async function startScriptedRelay(): Promise<ScriptedRelay> {
  const server: Server = createServer();
  const sockets = new WebSocketServer({
    server,
    perMessageDeflate: false,
    handleProtocols: () => "postern.v1",
  });
  const sessions: RelaySession[] = [];
  const greetings: (Buffer | string)[] = [];
  sockets.on("connection", (socket) => {
    const greeting = greetings.shift();
    if (greeting === undefined) {
      sessions.push(serve(socket));
      return;
    }
    socket.on("error", () => undefined);
    socket.once("message", () => socket.send(greeting));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    greetings,
    sessions,
    close: async () => {
      for (const socket of sockets.clients) socket.terminate();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

/** Waits for the GOAWAY of a session and gives its payload. */
export async function goAwayTo(session: RelaySession): Promise<Record<string, unknown>> {
  const find = (): Frame | undefined => session.frames.find(({ type }) => type === frameTypes.GOAWAY);
  await until(() => find() !== undefined, "the gateway says GOAWAY");
  return JSON.parse(find()?.payload.toString("utf8") ?? "{}") as Record<string, unknown>;
}
