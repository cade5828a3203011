import {
  type Advert,
  closeDelimitedFlag,
  endFrameBytes,
  type FrameType,
  frameTypes,
  type GoAway,
  type HelloFrame,
  headerBytes,
  maxResetTextBytes,
  type Welcome,
  windowFrameBytes,
} from "./frame.ts";
import type { TunnelLimits } from "./options.ts";
import type { Head, Open } from "./types.ts";

/**
 * Frames to bytes (docs/protocol.md section 2). Pure. `encodeX` returns one whole frame in a buffer of its own; `writeX` writes into
 * `target` at `at`, where the caller has made room, and returns the end.
 */

export function writeHeader(
  target: Buffer,
  at: number,
  type: FrameType,
  flags: number,
  stream: number,
  length: number,
): number {
  target[at] = type;
  target[at + 1] = flags;
  target.writeUInt32BE(stream, at + 2);
  return target.writeUInt32BE(length, at + 6);
}

function encodeJson(type: FrameType, stream: number, value: object): Buffer {
  const text = JSON.stringify(value);
  const length = Buffer.byteLength(text);
  const frame = Buffer.allocUnsafe(headerBytes + length);
  frame.write(text, writeHeader(frame, 0, type, 0, stream, length));
  return frame;
}

function wireLimits(limits: TunnelLimits): object {
  return {
    streamWindow: limits.streamWindowBytes,
    tunnelWindow: limits.tunnelWindowBytes,
    maxStreams: limits.maxStreams,
  };
}

function wireAdvert(advert: Advert): object {
  return { rev: advert.rev, draining: advert.draining, servers: advert.servers.map((name) => ({ name })) };
}

export function encodeHello(hello: HelloFrame): Buffer {
  const { versions, features, gateway, limits, advert } = hello;
  const { id, instance, slot, software } = gateway;
  return encodeJson(frameTypes.HELLO, 0, {
    versions,
    features,
    gateway: { id, instance, slot, software },
    limits: wireLimits(limits),
    advert: wireAdvert(advert),
  });
}

export function encodeWelcome(welcome: Welcome): Buffer {
  const { version, features, node, connId, limits, heartbeatMs } = welcome;
  const { id, instance, software } = node;
  return encodeJson(frameTypes.WELCOME, 0, {
    version,
    features,
    node: { id, instance, software },
    connId,
    limits: wireLimits(limits),
    heartbeatMs,
  });
}

export function encodeAdvert(advert: Advert): Buffer {
  return encodeJson(frameTypes.ADVERT, 0, wireAdvert(advert));
}

export function encodeGoAway(goAway: GoAway): Buffer {
  return encodeJson(frameTypes.GOAWAY, 0, goAway);
}

/** Longer than `maxHeadBytes` is possible: the caller compares. */
export function encodeOpen(stream: number, open: Open): Buffer {
  const { id, kind, claims } = open.principal;
  const agentToken = open.agentToken?.reveal();
  return encodeJson(frameTypes.OPEN, stream, {
    server: open.server,
    method: open.method,
    headers: open.headers,
    body: open.hasBody,
    deadlineMs: open.deadlineMs,
    requestId: open.requestId,
    principal: { id, kind, claims },
    agentToken,
  });
}

/** Longer than `maxHeadBytes` is possible: the caller compares. */
export function encodeHead(stream: number, head: Head): Buffer {
  return encodeJson(frameTypes.HEAD, stream, {
    status: head.status,
    headers: head.headers,
    by: head.by,
    rpcId: head.rpcId,
  });
}

/** `message` is cut, at a character, to what the frame may hold. */
export function encodeReset(stream: number, code: number, message: string): Buffer {
  const frame = Buffer.allocUnsafe(headerBytes + 2 + Math.min(message.length * 3, maxResetTextBytes));
  // Buffer.write never writes part of a character.
  const length = 2 + frame.write(message, headerBytes + 2);
  writeHeader(frame, 0, frameTypes.RESET, 0, stream, length);
  frame.writeUInt16BE(code, headerBytes);
  return frame.subarray(0, headerBytes + length);
}

export function encodeOpaque(type: typeof frameTypes.PING | typeof frameTypes.PONG, opaque: Buffer): Buffer {
  const frame = Buffer.allocUnsafe(headerBytes + 8);
  opaque.copy(frame, writeHeader(frame, 0, type, 0, 0, 8), 0, 8);
  return frame;
}

export function writeWindow(target: Buffer, at: number, stream: number, increment: number): number {
  writeHeader(target, at, frameTypes.WINDOW, 0, stream, 4);
  target.writeUInt32BE(increment, at + headerBytes);
  return at + windowFrameBytes;
}

export function writeEnd(
  target: Buffer,
  at: number,
  stream: number,
  totalBytes: number,
  closeDelimited: boolean,
): number {
  const start = writeHeader(target, at, frameTypes.END, closeDelimited ? closeDelimitedFlag : 0, stream, 8);
  target.writeUInt32BE(Math.floor(totalBytes / 0x1_0000_0000), start);
  target.writeUInt32BE(totalBytes % 0x1_0000_0000, start + 4);
  return at + endFrameBytes;
}
