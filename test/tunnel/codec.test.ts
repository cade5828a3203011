import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { decodeMessage } from "../../src/tunnel/decode.ts";
import {
  encodeAdvert,
  encodeGoAway,
  encodeHead,
  encodeHello,
  encodeOpaque,
  encodeOpen,
  encodeReset,
  encodeWelcome,
  writeEnd,
  writeHeader,
  writeWindow,
} from "../../src/tunnel/encode.ts";
import { type FaultName, ProtocolFault } from "../../src/tunnel/errors.ts";
import { type FrameHandler, frameTypes } from "../../src/tunnel/frame.ts";
import type { Head, Open } from "../../src/tunnel/types.ts";

/** One call of the decoder: its name and arguments, with bytes copied. */
type Heard = readonly [string, ...unknown[]];

function collect(message: Buffer): Heard[] {
  const heard: Heard[] = [];
  const note =
    (name: string) =>
    (...args: readonly unknown[]): void => {
      heard.push([name, ...args.map((arg) => (Buffer.isBuffer(arg) ? arg.toString("hex") : arg))]);
    };
  const handler: FrameHandler = {
    onHello: note("hello"),
    onWelcome: note("welcome"),
    onPing: note("ping"),
    onPong: note("pong"),
    onGoAway: note("goAway"),
    onAdvert: note("advert"),
    onOpen: note("open"),
    onHead: note("head"),
    onBadHead: note("badHead"),
    onData: note("data"),
    onEnd: note("end"),
    onReset: note("reset"),
    onWindow: note("window"),
  };
  decodeMessage(message, handler);
  return heard;
}

function faultOf(message: Buffer): FaultName | undefined {
  try {
    collect(message);
    return undefined;
  } catch (error) {
    if (error instanceof ProtocolFault) return error.fault;
    throw error;
  }
}

const frame = (bytes: number, write: (target: Buffer) => void): Buffer => {
  const target = Buffer.alloc(bytes);
  write(target);
  return target;
};

const data = (stream: number, body: Buffer): Buffer =>
  frame(10 + body.length, (target) =>
    body.copy(target, writeHeader(target, 0, frameTypes.DATA, 0, stream, body.length)),
  );

const json = (type: number, stream: number, text: string): string => {
  const payload = Buffer.from(text);
  const header = Buffer.alloc(10);
  header[0] = type;
  header.writeUInt32BE(stream, 2);
  header.writeUInt32BE(payload.length, 6);
  return Buffer.concat([header, payload]).toString("hex");
};

const limits = { streamWindowBytes: 262_144, tunnelWindowBytes: 1_048_576, maxStreams: 2_048 };
const advert = { rev: 7, draining: false, servers: ["tickets", "crm"] };
const hello = {
  versions: [1, 2],
  features: ["x"],
  gateway: { id: "edge-1", instance: "i", slot: 0, software: "s" },
  limits,
  servers: advert.servers,
  advert,
};
const welcome = {
  version: 1,
  features: [],
  node: { id: "n", instance: "i", software: "s" },
  connId: "c",
  limits,
  heartbeatMs: 15_000,
};

const streamIds = fc.integer({ min: 0, max: 0x3fff_ffff }).map((n) => n * 2 + 1);
const headerNames = fc.stringMatching(/^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,20}$/);
const headerValues = fc.stringMatching(/^[\t\x20-\x7e\x80-\xff]{0,40}$/);
const headers = fc.array(fc.tuple(headerNames, headerValues), { maxLength: 20 }).map((pairs) => pairs.flat());
const opens: fc.Arbitrary<Open> = fc.record({
  server: fc.stringMatching(/^[a-z0-9][a-z0-9-]{0,62}$/),
  method: fc.constantFrom("POST", "GET", "DELETE"),
  headers,
  hasBody: fc.boolean(),
  deadlineMs: fc.integer({ min: 0, max: 0x7fff_ffff }),
  requestId: fc.stringMatching(/^[\x21-\x7e]{1,128}$/),
  principal: fc.record({
    id: fc.string({ minLength: 1, maxLength: 100, unit: "binary" }),
    kind: fc.constantFrom("key", "oauth"),
    claims: fc
      .dictionary(fc.string({ unit: "binary" }), fc.jsonValue())
      .map((claims) => JSON.parse(JSON.stringify(claims))),
  }),
});
const heads: fc.Arbitrary<Head> = fc.oneof(
  fc.record({ status: fc.integer({ min: 200, max: 599 }), headers, by: fc.constantFrom("upstream", "gateway") }),
  fc.record({
    status: fc.integer({ min: 200, max: 599 }),
    headers,
    by: fc.constantFrom("upstream", "gateway"),
    rpcId: fc.string({ maxLength: 4_096, unit: "binary" }),
  }),
);

/** Any valid frame, with what the decoder must say about it. */
const frames: fc.Arbitrary<readonly [Buffer, Heard]> = fc.oneof(
  fc.tuple(streamIds, opens).map(([id, open]) => [encodeOpen(id, open), ["open", id, open]] as const),
  fc.tuple(streamIds, heads).map(([id, head]) => [encodeHead(id, head), ["head", id, head]] as const),
  fc
    .tuple(streamIds, fc.uint8Array({ minLength: 1, maxLength: 16_384 }))
    .map(([id, body]) => [data(id, Buffer.from(body)), ["data", id, Buffer.from(body).toString("hex")]] as const),
  fc
    .tuple(streamIds, fc.maxSafeNat(), fc.boolean())
    .map(
      ([id, total, cut]) => [frame(18, (t) => void writeEnd(t, 0, id, total, cut)), ["end", id, total, cut]] as const,
    ),
  fc
    .tuple(streamIds, fc.integer({ min: 0, max: 65_535 }), fc.string({ maxLength: 300, unit: "grapheme" }))
    .map(([id, code, text]) => [encodeReset(id, code, text), ["reset", id, code, text]] as const),
  fc
    .tuple(fc.oneof(fc.constant(0), streamIds), fc.integer({ min: 1, max: 0x7fff_ffff }))
    .map(([id, n]) => [frame(14, (t) => void writeWindow(t, 0, id, n)), ["window", id, n]] as const),
  fc.tuple(fc.constantFrom("ping", "pong"), fc.uint8Array({ minLength: 8, maxLength: 8 })).map(([name, bytes]) => {
    const opaque = Buffer.from(bytes);
    const type = name === "ping" ? frameTypes.PING : frameTypes.PONG;
    return [encodeOpaque(type, opaque), [name, opaque.toString("hex")]] as const;
  }),
  fc.constant([encodeHello(hello), ["hello", hello]] as const),
  fc.constant([encodeWelcome(welcome), ["welcome", welcome]] as const),
  fc.constant([encodeAdvert(advert), ["advert", advert]] as const),
  fc
    .record({
      reason: fc.constantFrom("SHUTDOWN", "REPLACED", "PROTOCOL_ERROR"),
      lastStream: fc.nat(),
      drainMs: fc.nat(),
      reconnectInMs: fc.nat(),
      fault: fc.constantFrom(undefined, "unknown-type"),
    })
    .map((goAway) => [encodeGoAway(goAway), ["goAway", goAway]] as const),
);

describe("codec", () => {
  it("what was encoded is decoded, packed or single", () => {
    fc.assert(
      fc.property(fc.array(frames, { minLength: 1, maxLength: 12 }), (list) => {
        const single = list.flatMap(([bytes]) => collect(bytes));
        expect(single).toEqual(list.map(([, heard]) => heard));
        expect(collect(Buffer.concat(list.map(([bytes]) => bytes)))).toEqual(single);
      }),
    );
  });

  it("hostile bytes give a fault and nothing else", () => {
    const mutated = fc
      .tuple(
        fc.array(frames, { minLength: 1, maxLength: 4 }),
        fc.array(fc.tuple(fc.nat(), fc.integer({ min: 0, max: 255 })), { maxLength: 6 }),
      )
      .map(([list, edits]) => {
        const message = Buffer.concat(list.map(([bytes]) => bytes));
        for (const [at, byte] of edits) message[at % message.length] = byte;
        return message;
      });
    let faults = 0;
    const check = (message: Buffer): void => {
      // `faultOf` rethrows whatever is no ProtocolFault.
      if (faultOf(message) !== undefined) faults += 1;
    };
    fc.assert(fc.property(mutated, check), { numRuns: 2_000 });
    fc.assert(
      fc.property(
        fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
        check,
      ),
      { numRuns: 2_000 },
    );
    expect(faults).toBeGreaterThan(1_000);
  });

  it("a message cut at any byte is a fault, unless the cut is between two frames", () => {
    const first = encodeOpen(1, {
      server: "a",
      method: "POST",
      headers: [],
      hasBody: true,
      deadlineMs: 1,
      requestId: "r",
      principal: { id: "key:a", kind: "key", claims: {} },
    });
    const whole = Buffer.concat([first, data(1, Buffer.from("body")), encodeReset(1, 32, "gone")]);
    const cuts = Array.from({ length: whole.length + 1 }, (_, at) => faultOf(whole.subarray(0, at)));
    const good = cuts.flatMap((fault, at) => (fault === undefined ? [at] : []));
    expect(good).toEqual([first.length, first.length + 14, whole.length]);
  });

  it("a claimed length costs nothing", () => {
    const header = Buffer.from("1200000000010000ffff", "hex");
    expect(faultOf(header)).toBe("bad-length");
    expect(faultOf(Buffer.from("1000000000ffffffffff", "hex"))).toBe("bad-length");
  });

  it("a type with bit 7 is skipped, whatever it holds", () => {
    const unknown = Buffer.from("ff77123456780000000301ff02", "hex");
    expect(collect(Buffer.concat([unknown, data(1, Buffer.from("x"))]))).toEqual([["data", 1, "78"]]);
  });

  it("unknown flags and members are ignored", () => {
    const flagged = data(1, Buffer.from("x"));
    flagged[1] = 0xff;
    expect(collect(flagged)).toEqual([["data", 1, "78"]]);
    const head = Buffer.from(
      json(0x11, 1, '{"status":200,"headers":[],"by":"upstream","__proto__":{"rpcId":"7"},"new":1}'),
      "hex",
    );
    expect(collect(head)).toEqual([["head", 1, { status: 200, headers: [], by: "upstream" }]]);
  });

  it("a reset text is cut at a character", () => {
    expect(collect(encodeReset(1, 32, `x${"€".repeat(400)}`))).toEqual([["reset", 1, 32, `x${"€".repeat(341)}`]]);
    expect(collect(encodeReset(1, 32, "\ud800"))).toEqual([["reset", 1, 32, "\ufffd"]]);
  });

  it("the exchange in docs/protocol.md is what the encoder writes", () => {
    expect(data(1, Buffer.from("7b2269", "hex")).toString("hex")).toBe("12000000000100000003" + "7b2269");
    expect(frame(18, (t) => void writeEnd(t, 0, 1, 7, false)).toString("hex")).toBe(
      "13000000000100000008" + "0000000000000007",
    );
  });

  const openText = (changes: Record<string, unknown>): string =>
    JSON.stringify({
      server: "a",
      method: "POST",
      headers: [],
      body: true,
      deadlineMs: 1,
      requestId: "r",
      principal: { id: "key:a", kind: "key", claims: {} },
      ...changes,
    });
  const helloText = (changes: Record<string, unknown>): string =>
    JSON.stringify({
      versions: [1],
      features: [],
      gateway: { id: "g", instance: "i", slot: 0, software: "s" },
      limits: { streamWindow: 65_536, tunnelWindow: 65_536, maxStreams: 1 },
      advert: { rev: 1, draining: false, servers: [] },
      ...changes,
    });

  const malformed: readonly [string, string, FaultName][] = [
    ["an empty message", "", "empty-message"],
    ["one byte", "12", "short-header"],
    ["nine bytes", "120000000001000000", "short-header"],
    ["a rest that is no header", "1200000000010000000178" + "1200", "short-header"],
    ["a body that is not there", "12000000000100000002" + "78", "frame-overruns-message"],
    ["type 0", "00000000000000000000", "unknown-type"],
    ["a type between the known", "09000000000000000000", "unknown-type"],
    ["AUTH, which nobody asked for", "0600000000000000000" + "27b7d", "unknown-type"],
    ["RAW, which nobody asked for", "2000000000010000000178", "unknown-type"],
    ["an ignorable frame that is too long", "80000000000000004001", "bad-length"],
    ["DATA without a byte", "12000000000100000000", "bad-length"],
    ["DATA of 16,385 bytes", "12000000000100004001", "bad-length"],
    ["END of 7 bytes", "13000000000100000007" + "00000000000000", "bad-length"],
    ["END of 9 bytes", "13000000000100000009" + "000000000000000000", "bad-length"],
    ["RESET of one byte", "14000000000100000001" + "00", "bad-length"],
    ["RESET with a text of 1,025 bytes", "14000000000100000403", "bad-length"],
    ["WINDOW of 3 bytes", "15000000000100000003" + "000001", "bad-length"],
    ["PING of 7 bytes", "03000000000000000007" + "00000000000000", "bad-length"],
    ["OPEN of 98,305 bytes", "10000000000100018001", "bad-length"],
    ["HELLO of 65,537 bytes", "01000000000000010001", "bad-length"],
    ["GOAWAY of 4,097 bytes", "05000000000000001001", "bad-length"],
    ["DATA on the session", "12000000000000000001" + "78", "wrong-stream"],
    ["OPEN on the session", json(0x10, 0, "{}"), "wrong-stream"],
    ["PING on a stream", "03000000000100000008" + "0000000000000000", "wrong-stream"],
    ["GOAWAY on a stream", json(0x05, 1, "{}"), "wrong-stream"],
    ["an even stream", "12000000000200000001" + "78", "bad-stream-id"],
    ["a stream above 2^31 − 1", "12008000000100000001" + "78", "bad-stream-id"],
    ["WINDOW of 0", "15000000000000000004" + "00000000", "bad-increment"],
    ["WINDOW of 2^31", "15000000000000000004" + "80000000", "bad-increment"],
    ["a reset text that is not UTF-8", "14000000000100000003" + "0020ff", "bad-utf8"],
    ["an OPEN that is not UTF-8", "10000000000100000003" + "7bff7d", "bad-utf8"],
    ["an OPEN that is no JSON", json(0x10, 1, "{x}"), "bad-payload"],
    ["an OPEN with a byte order mark", json(0x10, 1, `\ufeff${openText({})}`), "bad-payload"],
    ["an OPEN that is an array", json(0x10, 1, "[]"), "bad-payload"],
    ["an OPEN that is null", json(0x10, 1, "null"), "bad-payload"],
    ["an OPEN without members", json(0x10, 1, "{}"), "bad-payload"],
    ["an OPEN whose headers are pairs", json(0x10, 1, openText({ headers: [["a", "b"]] })), "bad-payload"],
    ["an OPEN whose headers are an object", json(0x10, 1, openText({ headers: {} })), "bad-payload"],
    ["an OPEN whose body is a number", json(0x10, 1, openText({ body: 1 })), "bad-payload"],
    ["an OPEN whose agent token is a number", json(0x10, 1, openText({ agentToken: 7 })), "bad-payload"],
    ["an OPEN without a principal", json(0x10, 1, openText({ principal: null })), "bad-payload"],
    [
      "an OPEN whose claims are an array",
      json(0x10, 1, openText({ principal: { id: "a", kind: "key", claims: [] } })),
      "bad-payload",
    ],
    ["a HEAD whose status is text", json(0x11, 1, '{"status":"200","headers":[],"by":"upstream"}'), "bad-payload"],
    [
      "a HEAD whose rpcId is a number",
      json(0x11, 1, '{"status":200,"headers":[],"by":"upstream","rpcId":7}'),
      "bad-payload",
    ],
    ["a GOAWAY without drainMs", json(0x05, 0, '{"reason":"SHUTDOWN","lastStream":0}'), "bad-payload"],
    [
      "a GOAWAY with a negative time",
      json(0x05, 0, '{"reason":"SHUTDOWN","lastStream":0,"drainMs":-1}'),
      "bad-payload",
    ],
    ["an ADVERT whose servers are names", json(0x08, 0, '{"rev":1,"draining":false,"servers":["a"]}'), "bad-payload"],
    [
      "a HELLO with a window of 0",
      json(0x01, 0, helloText({ limits: { streamWindow: 0, tunnelWindow: 1, maxStreams: 1 } })),
      "bad-payload",
    ],
    ["a HELLO with a version of 1.5", json(0x01, 0, helloText({ versions: [1.5] })), "bad-payload"],
    [
      "a HELLO whose id holds a line break",
      json(0x01, 0, helloText({ gateway: { id: "a\nb", instance: "i", slot: 0, software: "s" } })),
      "bad-payload",
    ],
    ["a HELLO with 65 features", json(0x01, 0, helloText({ features: Array(65).fill("x") })), "bad-payload"],
    ["a WELCOME without an id", json(0x02, 0, '{"version":1}'), "bad-payload"],
  ];
  for (const [what, hex, fault] of malformed) {
    it(`${what}: ${fault}`, () => {
      expect(faultOf(Buffer.from(hex, "hex"))).toBe(fault);
    });
  }

  const badHeads: readonly [string, Record<string, unknown>][] = [
    ["a method that is not carried", { method: "PUT" }],
    ["a URL for a server", { server: "http://10.0.0.1/" }],
    ["an odd number of header strings", { headers: ["a"] }],
    ["a line break in a value", { headers: ["a", "b\r\nc: d"] }],
    ["a NUL in a value", { headers: ["a", "\0"] }],
    ["a value beyond latin1", { headers: ["a", "€"] }],
    ["a name that is no token", { headers: ["a b", "c"] }],
    ["an empty name", { headers: ["", "c"] }],
    ["a name that is a token only in lower case (the Kelvin sign)", { headers: ["\u212aey", "c"] }],
    ["a bad value behind good ones", { headers: ["a", "b", "c", "d", "e", "f\u007f"] }],
    ["a bad name behind good ones", { headers: ["a", "b", "c", "d", "e:", "f"] }],
    ["a negative deadline", { deadlineMs: -1 }],
    ["an unknown kind of principal", { principal: { id: "x", kind: "root", claims: {} } }],
    ["a request id with a space", { requestId: "a b" }],
    ["an agent token with a space", { agentToken: "a b" }],
    ["an agent token of no characters", { agentToken: "" }],
  ];
  for (const [what, change] of badHeads) {
    it(`${what} costs the stream, not the session`, () => {
      const heard = collect(Buffer.from(json(0x10, 1, openText(change)), "hex"));
      expect(heard).toEqual([["badHead", 1, "OPEN", expect.any(String)]]);
    });
  }

  it("names in an advert that are no server names are dropped", () => {
    const text = '{"rev":1,"draining":true,"servers":[{"name":"ok"},{"name":"Not"},{"name":"a/b"},{"name":""}]}';
    expect(collect(Buffer.from(json(0x08, 0, text), "hex"))).toEqual([
      ["advert", { rev: 1, draining: true, servers: ["ok"] }],
    ]);
  });

  it("a reason and a fault that this version does not know", () => {
    const text = '{"reason":"COFFEE","lastStream":0,"drainMs":0,"fault":"<script>"}';
    const goAway = { reason: "INTERNAL", lastStream: 0, drainMs: 0, reconnectInMs: 0, fault: undefined };
    expect(collect(Buffer.from(json(0x05, 0, text), "hex"))).toEqual([["goAway", goAway]]);
  });
});
