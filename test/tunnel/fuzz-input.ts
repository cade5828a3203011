import { frameTypes, headerBytes, maxDataBytes } from "../../src/tunnel/frame.ts";

/** Hostile tunnel messages: random bytes, broken copies of valid frames, and frames in an order that a grammar draws. */

/** xorshift32: the same seed gives the same inputs on every machine. */
export class Dice {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0 || 1;
  }

  /** A whole number below `n`. */
  below(n: number): number {
    let x = this.#state;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.#state = x >>> 0;
    return this.#state % n;
  }

  /** True once in `n` throws. */
  once(n: number): boolean {
    return this.below(n) === 0;
  }

  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)] as T;
  }
}

const types: readonly number[] = Object.values(frameTypes);
const sessionTypes: readonly number[] = [frameTypes.PING, frameTypes.PONG, frameTypes.ADVERT, frameTypes.GOAWAY];
const numbers = [0, 1, 2, 7, 255, 256, 1_023, 1_024, 65_535, 65_536, 0x7fff_fffe, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];

export function rawFrame(type: number, stream: number, payload: Buffer, flags = 0, length = payload.length): Buffer {
  const frame = Buffer.allocUnsafe(headerBytes + payload.length);
  frame[0] = type;
  frame[1] = flags;
  frame.writeUInt32BE(stream >>> 0, 2);
  frame.writeUInt32BE(length >>> 0, 6);
  payload.copy(frame, headerBytes);
  return frame;
}

function bytes(dice: Dice, length: number): Buffer {
  const out = Buffer.allocUnsafe(length);
  for (let i = 0; i < length; i += 1) out[i] = dice.below(256);
  return out;
}

const filler = Buffer.alloc(maxDataBytes + 1, "x");

function u32(value: number): Buffer {
  const out = Buffer.allocUnsafe(4);
  out.writeUInt32BE(value >>> 0);
  return out;
}

function u64(high: number, low: number): Buffer {
  return Buffer.concat([u32(high), u32(low)]);
}

const limits = { streamWindow: 65_536, tunnelWindow: 131_072, maxStreams: 16 };
const advert = { rev: 2, draining: false, servers: [{ name: "tickets" }] };

export const goodPayloads: Readonly<Record<number, object>> = {
  [frameTypes.HELLO]: {
    versions: [1],
    features: [],
    gateway: { id: "edge", instance: "i", slot: 0, software: "s" },
    limits,
    advert,
  },
  [frameTypes.WELCOME]: {
    version: 1,
    features: [],
    node: { id: "relay", instance: "i", software: "s" },
    connId: "c",
    limits,
    heartbeatMs: 15_000,
  },
  [frameTypes.GOAWAY]: { reason: "SHUTDOWN", lastStream: 3, drainMs: 50, reconnectInMs: 1, fault: "unknown-type" },
  [frameTypes.ADVERT]: advert,
  [frameTypes.OPEN]: {
    server: "tickets",
    method: "POST",
    headers: ["content-type", "application/json"],
    body: true,
    deadlineMs: 1_000,
    requestId: "r",
    principal: { id: "key:a", kind: "key", claims: {} },
  },
  [frameTypes.HEAD]: { status: 200, headers: ["content-type", "application/json"], by: "upstream", rpcId: "1" },
};

const oddValues: readonly unknown[] = [
  null,
  -1,
  0.5,
  1e308,
  2 ** 53,
  700,
  "",
  "PUT",
  "../../etc",
  "http://10.0.0.1/",
  "a\r\nb: c",
  "\u0000",
  "\ud800",
  "x".repeat(5_000),
  [],
  ["a"],
  [1],
  ["a b", "c"],
  [[[[]]]],
  {},
  { toString: 1, length: -1 },
  true,
];
const oddNames = ["__proto__", "constructor", "length", "toJSON", "extra"] as const;

/** A copy of a good payload with one member changed, dropped or added, at one of its levels. */
function oddObject(dice: Dice, good: object): object {
  const copy: Record<string, unknown> = { ...good };
  const names = Object.keys(copy);
  const name = dice.once(8) ? dice.pick(oddNames) : dice.pick(names);
  const value = copy[name];
  const isNested = typeof value === "object" && value !== null && !Array.isArray(value) && dice.once(2);
  if (isNested && Object.keys(value).length > 0) copy[name] = oddObject(dice, value);
  else if (dice.once(4)) delete copy[name];
  else Object.defineProperty(copy, name, { value: dice.pick(oddValues), enumerable: true, configurable: true });
  return copy;
}

const deepJson = ["[".repeat(20_000), `{"a":${"[".repeat(9_000)}${"]".repeat(9_000)}}`, '{"a":1,"a":2}', "\ufeff{}", "{}x"];

function jsonPayload(dice: Dice, type: number): Buffer {
  const good = goodPayloads[type] ?? {};
  const kind = dice.below(16);
  if (kind === 0) return Buffer.from(dice.pick(deepJson));
  if (kind === 1) return bytes(dice, dice.below(64));
  if (kind === 2) return Buffer.from(JSON.stringify(dice.pick(oddValues)));
  return Buffer.from(JSON.stringify(kind < 9 ? oddObject(dice, good) : good));
}

/** Some payload for a frame of `type`, good more often than not. */
function payloadFor(dice: Dice, type: number): Buffer {
  switch (type) {
    case frameTypes.DATA:
      return filler.subarray(0, dice.once(4) ? dice.pick([0, 1, 16_384, 16_385]) : 1 + dice.below(200));
    case frameTypes.END:
      return u64(dice.once(8) ? dice.pick(numbers) : 0, dice.once(2) ? 0 : dice.pick(numbers));
    case frameTypes.RESET:
      return Buffer.concat([u32(dice.below(64)).subarray(2), dice.once(4) ? bytes(dice, 9) : Buffer.from("why")]);
    case frameTypes.WINDOW:
      return u32(dice.once(4) ? dice.pick(numbers) : 1 + dice.below(70_000));
    case frameTypes.PING:
    case frameTypes.PONG:
      return bytes(dice, dice.once(16) ? dice.below(12) : 8);
    default:
      return jsonPayload(dice, type);
  }
}

/** What the sequence knows of the session it attacks. */
export interface Place {
  readonly role: "relay" | "gateway";
  /** The highest id that was opened. */
  lastId: number;
}

function idFor(dice: Dice, type: number, place: Place): number {
  if (sessionTypes.includes(type)) return dice.once(64) ? 1 : 0;
  if (type === frameTypes.WINDOW && dice.once(3)) return 0;
  if (dice.once(48)) return dice.pick(numbers);
  if (type !== frameTypes.OPEN) return 1 + 2 * dice.below((place.lastId + 3) >> 1);
  place.lastId += dice.once(64) ? -2 : 2 * dice.below(3);
  if (place.lastId < 1) place.lastId = 1;
  return place.lastId;
}

const attackTypes = {
  relay: [frameTypes.HEAD, frameTypes.HEAD, frameTypes.DATA, frameTypes.DATA, frameTypes.END, frameTypes.WINDOW],
  gateway: [frameTypes.OPEN, frameTypes.OPEN, frameTypes.DATA, frameTypes.DATA, frameTypes.END, frameTypes.WINDOW],
} as const;

/** A frame that could stand at this place, or nearly could. */
function grammarFrame(dice: Dice, place: Place): Buffer {
  const choice = dice.below(32);
  const mine: readonly number[] = attackTypes[place.role];
  const type =
    choice < 20 ? dice.pick(mine) : choice < 24 ? frameTypes.RESET : choice < 29 ? dice.pick(sessionTypes) : dice.pick(types);
  const isIgnorable = dice.once(64);
  const payload = isIgnorable ? bytes(dice, dice.below(40)) : payloadFor(dice, type);
  const length = dice.once(64) ? dice.pick(numbers) : payload.length;
  return rawFrame(isIgnorable ? 0x80 + dice.below(128) : type, idFor(dice, type, place), payload, dice.below(4), length);
}

function breakBytes(dice: Dice, message: Buffer): Buffer {
  switch (dice.below(4)) {
    case 0:
      return message.subarray(0, dice.below(message.length + 1));
    case 1:
      return Buffer.concat([message, bytes(dice, dice.below(12))]);
    case 2:
      return Buffer.concat([message, message]);
    default: {
      const copy = Buffer.from(message);
      const flips = 1 + dice.below(4);
      for (let i = 0; i < flips && copy.length > 0; i += 1) copy[dice.below(copy.length)] = dice.below(256);
      return copy;
    }
  }
}

/** One hostile message. `calm` in eight of ten is left whole, so that sequences go deep. */
export function hostileMessage(dice: Dice, place: Place, kind: "any" | "calm" = "any"): Buffer {
  const choice = kind === "calm" && !dice.once(12) ? 9 : dice.below(10);
  if (choice === 0) return bytes(dice, dice.below(64));
  const frames = 1 + (dice.once(4) ? dice.below(4) : 0);
  let message = grammarFrame(dice, place);
  for (let i = 1; i < frames; i += 1) message = Buffer.concat([message, grammarFrame(dice, place)]);
  return choice < 4 ? breakBytes(dice, message) : message;
}
