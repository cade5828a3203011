import type { GatewayIdentity, Hello } from "./hello.ts";
import type { TunnelLimits } from "./options.ts";
import type { GoAwayReason, Head, Open } from "./types.ts";

/** Layout and limits of docs/protocol.md section 2. Pure: no I/O. */

export const headerBytes = 10;
export const maxDataBytes = 16_384;
export const maxHeadBytes = 98_304;
export const maxPackedBytes = 32_768;
export const maxMessageBytes = 131_072;
export const maxResetTextBytes = 1_024;
export const maxStreamId = 0x7fff_ffff;
export const maxCredit = 0x7fff_ffff;
export const endFrameBytes = headerBytes + 8;
export const windowFrameBytes = headerBytes + 4;

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
export type FrameType = (typeof frameTypes)[keyof typeof frameTypes];

export const ignorableBit = 0x80;
export const maxIgnorableBytes = 16_384;
/** END: the upstream's body had no length of its own. */
export const closeDelimitedFlag = 0x01;

export interface FrameRule {
  readonly minBytes: number;
  readonly maxBytes: number;
  readonly on: "session" | "stream" | "either";
}

const json = (maxBytes: number, on: "session" | "stream"): FrameRule => ({ minBytes: 2, maxBytes, on });
const fixed = (bytes: number, on: FrameRule["on"]): FrameRule => ({ minBytes: bytes, maxBytes: bytes, on });

const rules: Readonly<Record<FrameType, FrameRule>> = {
  [frameTypes.HELLO]: json(65_536, "session"),
  [frameTypes.WELCOME]: json(65_536, "session"),
  [frameTypes.PING]: fixed(8, "session"),
  [frameTypes.PONG]: fixed(8, "session"),
  [frameTypes.GOAWAY]: json(4_096, "session"),
  [frameTypes.ADVERT]: json(65_536, "session"),
  [frameTypes.OPEN]: json(maxHeadBytes, "stream"),
  [frameTypes.HEAD]: json(maxHeadBytes, "stream"),
  [frameTypes.DATA]: { minBytes: 1, maxBytes: maxDataBytes, on: "stream" },
  [frameTypes.END]: fixed(8, "stream"),
  [frameTypes.RESET]: { minBytes: 2, maxBytes: 2 + maxResetTextBytes, on: "stream" },
  [frameTypes.WINDOW]: fixed(4, "either"),
};

/** By type byte; undefined where this version knows no such frame. */
export const frameRules: readonly (FrameRule | undefined)[] = Array.from(
  { length: ignorableBit },
  (_, type) => (rules as Readonly<Record<number, FrameRule | undefined>>)[type],
);

export interface Welcome {
  readonly version: number;
  readonly features: readonly string[];
  readonly node: { readonly id: string; readonly instance: string; readonly software: string };
  readonly connId: string;
  readonly limits: TunnelLimits;
  readonly heartbeatMs: number;
}

export interface Advert {
  readonly rev: number;
  readonly draining: boolean;
  readonly servers: readonly string[];
}

export interface GoAway {
  readonly reason: GoAwayReason;
  readonly lastStream: number;
  readonly drainMs: number;
  readonly reconnectInMs: number;
  /** The name of a fault; only names of this version survive decoding. */
  readonly fault: string | undefined;
}

export interface HelloFrame extends Hello {
  readonly gateway: GatewayIdentity;
  readonly advert: Advert;
}

/** What the decoder found, one call per frame, in wire order. A handler may throw `ProtocolFault` for what breaks its state. */
export interface FrameHandler {
  onHello(hello: HelloFrame): void;
  onWelcome(welcome: Welcome): void;
  /** `opaque` shares memory with the message. */
  onPing(opaque: Buffer): void;
  onPong(opaque: Buffer): void;
  onGoAway(goAway: GoAway): void;
  onAdvert(advert: Advert): void;
  onOpen(stream: number, open: Open): void;
  onHead(stream: number, head: Head): void;
  /** An OPEN or HEAD whose values break a rule: costs the stream, not the session. `why` holds no input. */
  onBadHead(stream: number, of: "OPEN" | "HEAD", why: string): void;
  /** `chunk` shares memory with the message. */
  onData(stream: number, chunk: Buffer): void;
  onEnd(stream: number, totalBytes: number, closeDelimited: boolean): void;
  onReset(stream: number, code: number, message: string): void;
  /** Stream 0 is the tunnel's credit. */
  onWindow(stream: number, increment: number): void;
}
