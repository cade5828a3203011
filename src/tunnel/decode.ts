import { isUtf8 } from "node:buffer";
import { ProtocolFault } from "./errors.ts";
import {
  closeDelimitedFlag,
  type FrameHandler,
  type FrameRule,
  frameRules,
  frameTypes,
  headerBytes,
  ignorableBit,
  maxCredit,
  maxIgnorableBytes,
  maxStreamId,
} from "./frame.ts";
import { faultOfHead, faultOfOpen } from "./heads.ts";
import { parseObject, readAdvert, readGoAway, readHead, readHello, readOpen, readWelcome } from "./payload.ts";

/** Bytes in, frames out (docs/protocol.md section 2). Pure; throws `ProtocolFault` and nothing else of its own. */

/** Calls `handler` for every frame of `message` from `start` on. */
export function decodeMessage(message: Buffer, handler: FrameHandler, start = 0): void {
  if (message.length === 0) throw new ProtocolFault("empty-message");
  let at = start;
  while (at < message.length) at = decodeFrame(message, at, handler);
}

/** Calls `handler` for the frame at `at`; returns where the next one starts. */
export function decodeFrame(message: Buffer, at: number, handler: FrameHandler): number {
  const start = at + headerBytes;
  if (start > message.length) throw new ProtocolFault("short-header");
  const type = message.readUInt8(at);
  const stream = message.readUInt32BE(at + 2);
  const length = message.readUInt32BE(at + 6);
  const rule = frameRules[type];
  // Before anything is sliced or parsed: a claimed length costs nothing.
  if (rule === undefined) checkIgnorable(type, length);
  else checkRule(rule, stream, length);
  const end = start + length;
  if (end > message.length) throw new ProtocolFault("frame-overruns-message");
  if (rule !== undefined) dispatch(message, at, end, stream, handler);
  return end;
}

function checkIgnorable(type: number, length: number): void {
  if ((type & ignorableBit) === 0) throw new ProtocolFault("unknown-type");
  if (length > maxIgnorableBytes) throw new ProtocolFault("bad-length");
}

function checkRule(rule: FrameRule, stream: number, length: number): void {
  if (length < rule.minBytes || length > rule.maxBytes) throw new ProtocolFault("bad-length");
  if (stream === 0) {
    if (rule.on === "stream") throw new ProtocolFault("wrong-stream");
    return;
  }
  if (rule.on === "session") throw new ProtocolFault("wrong-stream");
  if (stream % 2 === 0 || stream > maxStreamId) throw new ProtocolFault("bad-stream-id");
}

/** The one switch of the codec: as long as the table of frames. */
function dispatch(message: Buffer, at: number, end: number, stream: number, handler: FrameHandler): void {
  const start = at + headerBytes;
  switch (message.readUInt8(at)) {
    case frameTypes.DATA:
      handler.onData(stream, message.subarray(start, end));
      return;
    case frameTypes.END:
      handler.onEnd(stream, readTotal(message, start), (message.readUInt8(at + 1) & closeDelimitedFlag) !== 0);
      return;
    case frameTypes.WINDOW:
      handler.onWindow(stream, readIncrement(message, start));
      return;
    case frameTypes.OPEN:
      dispatchOpen(message.subarray(start, end), stream, handler);
      return;
    case frameTypes.HEAD:
      dispatchHead(message.subarray(start, end), stream, handler);
      return;
    case frameTypes.RESET:
      handler.onReset(stream, message.readUInt16BE(start), readText(message.subarray(start + 2, end)));
      return;
    case frameTypes.PING:
      handler.onPing(message.subarray(start, end));
      return;
    case frameTypes.PONG:
      handler.onPong(message.subarray(start, end));
      return;
    case frameTypes.GOAWAY:
      handler.onGoAway(readGoAway(parseObject(message.subarray(start, end))));
      return;
    case frameTypes.ADVERT:
      handler.onAdvert(readAdvert(parseObject(message.subarray(start, end))));
      return;
    case frameTypes.HELLO:
      handler.onHello(readHello(parseObject(message.subarray(start, end))));
      return;
    case frameTypes.WELCOME:
      handler.onWelcome(readWelcome(parseObject(message.subarray(start, end))));
      return;
    default:
      throw new ProtocolFault("unknown-type");
  }
}

function dispatchOpen(payload: Buffer, stream: number, handler: FrameHandler): void {
  const open = readOpen(parseObject(payload));
  const why = faultOfOpen(open);
  if (why === undefined) handler.onOpen(stream, open);
  else handler.onBadHead(stream, "OPEN", why);
}

function dispatchHead(payload: Buffer, stream: number, handler: FrameHandler): void {
  const head = readHead(parseObject(payload));
  const why = faultOfHead(head);
  if (why === undefined) handler.onHead(stream, head);
  else handler.onBadHead(stream, "HEAD", why);
}

/** Exact up to 2^53; above it the sum is rounded, and can equal no count of bytes that were received. */
function readTotal(message: Buffer, at: number): number {
  return message.readUInt32BE(at) * 0x1_0000_0000 + message.readUInt32BE(at + 4);
}

function readIncrement(message: Buffer, at: number): number {
  const increment = message.readUInt32BE(at);
  if (increment === 0 || increment > maxCredit) throw new ProtocolFault("bad-increment");
  return increment;
}

function readText(payload: Buffer): string {
  if (!isUtf8(payload)) throw new ProtocolFault("bad-utf8");
  return payload.toString("utf8");
}
