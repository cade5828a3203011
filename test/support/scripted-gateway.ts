import { WebSocket } from "ws";
import { until } from "./until.ts";

/**
 * A gateway that says what it is told to, byte by byte, written from docs/protocol.md alone: it shares no code with
 * the tunnel room, so that both cannot be wrong in the same way.
 */
export interface ScriptedGateway {
  send(message: Buffer | string): void;
  /** Every frame received so far. */
  readonly frames: readonly Frame[];
  /** The close code, once the carrier is closed. */
  closeCode(): number | undefined;
  /** Waits for the end of the carrier. */
  ended(timeoutMs?: number): Promise<void>;
  /** Reads nothing more. */
  pause(): void;
  terminate(): void;
}

export interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

const headerBytes = 10;

export const frameTypes = {
  HELLO: 0x01,
  WELCOME: 0x02,
  PING: 0x03,
  PONG: 0x04,
  GOAWAY: 0x05,
  ADVERT: 0x08,
  OPEN: 0x10,
  HEAD: 0x11,
  DATA: 0x12,
  END: 0x13,
  RESET: 0x14,
  WINDOW: 0x15,
} as const;

export function frame(type: number, stream: number, payload: Buffer | object | string, length?: number): Buffer {
  const body = Buffer.isBuffer(payload)
    ? payload
    : Buffer.from(typeof payload === "string" ? payload : JSON.stringify(payload));
  const header = Buffer.alloc(headerBytes);
  header.writeUInt8(type, 0);
  header.writeUInt32BE(stream, 2);
  header.writeUInt32BE(length ?? body.length, 6);
  return Buffer.concat([header, body]);
}

export function helloFrame(servers: readonly string[] = ["fixture"], changes: object = {}): Buffer {
  return frame(frameTypes.HELLO, 0, {
    versions: [1],
    features: [],
    gateway: { id: "scripted", instance: crypto.randomUUID(), slot: 0, software: "scripted/1" },
    limits: { streamWindow: 262_144, tunnelWindow: 1_048_576, maxStreams: 16 },
    advert: { rev: 1, draining: false, servers: servers.map((name) => ({ name })) },
    ...changes,
  });
}

export function parseFrames(message: Buffer): Frame[] {
  const frames: Frame[] = [];
  for (let at = 0; at < message.length; ) {
    const end = at + headerBytes + message.readUInt32BE(at + 6);
    frames.push({
      type: message.readUInt8(at),
      flags: message.readUInt8(at + 1),
      stream: message.readUInt32BE(at + 2),
      payload: message.subarray(at + headerBytes, end),
    });
    at = end;
  }
  return frames;
}

export async function dialScripted(options: {
  readonly port: number;
  readonly tunnel: string;
  readonly token: string;
  /** Sends HELLO and waits for WELCOME. */
  readonly hello?: boolean;
}): Promise<ScriptedGateway> {
  const socket = new WebSocket(`ws://127.0.0.1:${options.port}/_postern/v1/tunnel`, ["postern.v1"], {
    headers: { authorization: `Bearer ${options.token}`, "postern-tunnel": options.tunnel },
    perMessageDeflate: false,
  });
  const frames: Frame[] = [];
  let closeCode: number | undefined;
  socket.on("message", (message: Buffer) => frames.push(...parseFrames(message)));
  socket.on("close", (code) => {
    closeCode = code;
  });
  await new Promise<void>((resolve, reject) => {
    socket.once("open", resolve);
    socket.once("error", reject);
  });
  socket.on("error", () => undefined);
  const gateway: ScriptedGateway = {
    send: (message) => socket.send(message),
    frames,
    closeCode: () => closeCode,
    ended: (timeoutMs = 5_000) => until(() => closeCode !== undefined, "the relay ends the carrier", timeoutMs),
    pause: () => socket.pause(),
    terminate: () => socket.terminate(),
  };
  if (options.hello === true) {
    gateway.send(helloFrame());
    await until(() => frames.some(({ type }) => type === frameTypes.WELCOME), "WELCOME");
  }
  return gateway;
}

/** The payload of the last GOAWAY. */
export function goAwayOf(gateway: ScriptedGateway): Record<string, unknown> | undefined {
  const last = gateway.frames.filter(({ type }) => type === frameTypes.GOAWAY).at(-1);
  return last === undefined ? undefined : (JSON.parse(last.payload.toString("utf8")) as Record<string, unknown>);
}
