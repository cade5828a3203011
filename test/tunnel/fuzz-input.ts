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
const sessionTypes: readonly number[] = [
  frameTypes.HELLO,
  frameTypes.WELCOME,
  frameTypes.PING,
  frameTypes.PONG,
  frameTypes.ADVERT,
  frameTypes.GOAWAY,
];
const numbers = [
  0, 1, 2, 7, 255, 256, 1_023, 1_024, 65_535, 65_536, 0x7fff_fffe, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff,
];

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

const why = Buffer.from("why");
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
  "x".repeat(1_100),
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

const deepJson = ["[".repeat(20_000), `{"a":${"[".repeat(9_000)}${"]".repeat(9_000)}}`].map((text) =>
  Buffer.from(text),
);
const brokenJson = ['{"a":1,"a":2}', "\ufeff{}", "{}x", "{", '"', "[]", "null", " "].map((text) => Buffer.from(text));
const goodJson = new Map(
  Object.entries(goodPayloads).map(([type, good]) => [Number(type), Buffer.from(JSON.stringify(good))]),
);
const empty = Buffer.alloc(0);

function jsonPayload(dice: Dice, type: number, oddness: number): Buffer {
  const kind = dice.once(oddness) ? dice.below(8) : 8;
  if (kind === 0) return dice.once(64) ? dice.pick(deepJson) : dice.pick(brokenJson);
  if (kind === 1) return bytes(dice, dice.below(64));
  if (kind > 7) return goodJson.get(type) ?? empty;
  return Buffer.from(JSON.stringify(oddObject(dice, goodPayloads[type] ?? {})));
}

/** Some payload for a frame of `type`, good more often than not. */
function payloadFor(dice: Dice, type: number, oddness: number): Buffer {
  const isOdd = dice.once(oddness);
  switch (type) {
    case frameTypes.DATA:
      return filler.subarray(0, isOdd ? dice.pick([0, 1, 16_384, 16_385]) : 1 + dice.below(200));
    case frameTypes.END:
      return u64(isOdd ? dice.pick(numbers) : 0, dice.once(2) ? 0 : dice.pick(numbers));
    case frameTypes.RESET:
      return Buffer.concat([u32(dice.below(64)).subarray(2), isOdd ? bytes(dice, 9) : why]);
    case frameTypes.WINDOW:
      return u32(isOdd ? dice.pick(numbers) : 1 + dice.below(70_000));
    case frameTypes.PING:
    case frameTypes.PONG:
      return bytes(dice, isOdd ? dice.below(12) : 8);
    default:
      return jsonPayload(dice, type, oddness);
  }
}

/** What a sequence knows of the session it attacks, so that most of its frames have a place in it. */
export interface Place {
  readonly role: "relay" | "gateway";
  /** The highest id that was opened, 0 for none. */
  lastId: number;
  /** Streams that had a HEAD from this side. */
  readonly headed: Set<number>;
  /** One frame in so many is not what should stand there. */
  readonly oddness: number;
}

export function placeAt(role: Place["role"], lastId: number, oddness: number): Place {
  return { role, lastId, headed: new Set(), oddness };
}

function openId(dice: Dice, place: Place): number {
  if (dice.once(place.oddness * 4)) return Math.max(1, place.lastId - 2);
  place.lastId += place.lastId === 0 ? 1 : 2 + 2 * dice.below(3);
  return place.lastId;
}

/** Type and stream of a frame that could stand here. */
function placed(dice: Dice, type: number, place: Place): readonly [number, number] {
  if (sessionTypes.includes(type)) return [type, 0];
  if (type === frameTypes.WINDOW && dice.once(3)) return [type, 0];
  if (type === frameTypes.OPEN) return [type, openId(dice, place)];
  if (place.lastId === 0)
    return place.role === "gateway" ? [frameTypes.OPEN, openId(dice, place)] : [frameTypes.PING, 0];
  const id = 1 + 2 * dice.below((place.lastId + 1) >> 1);
  if (place.role === "gateway" || type === frameTypes.RESET || type === frameTypes.WINDOW) return [type, id];
  if (!place.headed.has(id)) {
    place.headed.add(id);
    return [frameTypes.HEAD, id];
  }
  return [type === frameTypes.HEAD ? frameTypes.DATA : type, id];
}

const calmTypes = {
  relay: [frameTypes.PING, frameTypes.PONG, frameTypes.PING, frameTypes.PONG, frameTypes.ADVERT],
  gateway: [frameTypes.PING, frameTypes.PONG],
} as const;
const attackTypes = {
  relay: [frameTypes.HEAD, frameTypes.HEAD, frameTypes.DATA, frameTypes.DATA, frameTypes.END, frameTypes.WINDOW],
  gateway: [frameTypes.OPEN, frameTypes.OPEN, frameTypes.DATA, frameTypes.DATA, frameTypes.END, frameTypes.WINDOW],
} as const;

function grammarFrame(dice: Dice, place: Place): Buffer {
  const { oddness } = place;
  const choice = dice.below(32);
  const mine: readonly number[] = attackTypes[place.role];
  const wanted = choice < 26 ? dice.pick(mine) : choice < 28 ? frameTypes.RESET : dice.pick(calmTypes[place.role]);
  let [type, id] = placed(dice, dice.once(oddness * 4) ? dice.pick(types) : wanted, place);
  if (dice.once(oddness * 4)) id = dice.pick(numbers);
  if (dice.once(64)) type = 0x80 + dice.below(128);
  const payload = type >= 0x80 ? bytes(dice, dice.below(40)) : payloadFor(dice, type, oddness);
  const length = dice.once(oddness * 4) ? dice.pick(numbers) : payload.length;
  return rawFrame(type, id, payload, dice.below(4), length);
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

/** One hostile message: one frame or some, in one of eight broken where `oddness` is small, and rarely where it is not. */
export function hostileMessage(dice: Dice, place: Place): Buffer {
  if (dice.once(place.oddness * 5)) return bytes(dice, dice.below(64));
  let message = grammarFrame(dice, place);
  for (let more = dice.once(4) ? dice.below(4) : 0; more > 0; more -= 1) {
    message = Buffer.concat([message, grammarFrame(dice, place)]);
  }
  return dice.once(place.oddness * 2) ? breakBytes(dice, message) : message;
}
