import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { dataOf, type EventFacts, EventSplitter, replaceData, withoutData } from "../../src/mcp/index.ts";

interface Seen {
  /** Every byte that came out, in order. */
  readonly bytes: Buffer;
  readonly events: { readonly data: string; readonly facts: EventFacts; readonly dataOf: string }[];
  readonly loose: string[];
}

function split(text: string | Buffer, sizes: readonly number[] = []): Seen {
  const stream = Buffer.isBuffer(text) ? text : Buffer.from(text);
  const out: Buffer[] = [];
  const events: Seen["events"] = [];
  const loose: string[] = [];
  let data: Buffer[] = [];
  let parts: Buffer[] = [];
  const splitter = new EventSplitter({
    onData: (piece) => data.push(Buffer.from(piece)),
    onPart: (bytes) => {
      parts.push(bytes);
      out.push(bytes);
    },
    onEvent: (bytes, facts) => {
      out.push(bytes);
      const event = Buffer.concat([...parts, bytes]);
      events.push({ data: Buffer.concat(data).toString(), facts, dataOf: dataOf(event).toString() });
      data = [];
      parts = [];
    },
    onLoose: (bytes) => {
      out.push(bytes);
      loose.push(bytes.toString());
    },
  });
  let at = 0;
  for (const size of sizes) {
    splitter.push(stream.subarray(at, at + size));
    at += size;
  }
  splitter.push(stream.subarray(at));
  return { bytes: Buffer.concat(out), events, loose };
}

const dataAndType = (seen: Seen): unknown => seen.events.map(({ data, facts }) => [data, facts.isMessage]);

const message = { hasData: true, id: "absent", isMessage: true, isCertain: true };

describe("EventSplitter", () => {
  it("reads every kind of line", () => {
    const text =
      ': hello\n\nid: 1\nretry: 50\ndata: \n\nevent: message\ndata: {"a":\ndata:1}\ndata\n\nevent: ping\ndata:  x\n\ndata\n\nevent:\ndatas: no\nid\ndata:y:z\n\n\n';
    expect(split(text).events.map(({ data, facts }) => [data, facts])).toEqual([
      ["", { ...message, hasData: false }],
      ["", { ...message, id: "given" }],
      ['{"a":\n1}\n', message],
      [" x", { ...message, isMessage: false }],
      ["", message],
      ["y:z", { ...message, id: "empty" }],
    ]);
  });

  it.each([
    ["id: 1", "given"],
    ["id:1", "given"],
    ["id:  ", "given"],
    ["id", "empty"],
    ["id:", "empty"],
    ["id: ", "empty"],
    ["id: 1\nid", "empty"],
    ["id\nid: 1", "given"],
    ["id: 1\nid: a\0b", "given"],
    ["id: \0", "absent"],
    ["idx: 1", "absent"],
  ])("C08 of an event with %j it says that the id is %s, whatever the stream is cut into", (lines, id) => {
    const stream = Buffer.from(`${lines}\ndata: x\n\ndata: y\n\n`);
    for (let size = 1; size <= stream.length; size += 1) {
      const sizes = Array.from({ length: Math.floor(stream.length / size) }, () => size);
      expect(split(stream, sizes).events.map(({ facts }) => facts.id)).toEqual([id, "absent"]);
    }
  });

  it("takes the last type of an event, and none from the event before", () => {
    const text = "event: message\nevent: other\ndata: 1\n\ndata: 2\n\nevent: a\nevent\ndata: 3\n\n";
    expect(dataAndType(split(text))).toEqual([
      ["1", false],
      ["2", true],
      ["3", true],
    ]);
    expect(dataAndType(split(`event: message${"x".repeat(200)}\ndata: 1\n\n`))).toEqual([["1", false]]);
  });

  it.each(["\n", "\r", "\r\n"])("C13 C05 ends events at %j, whatever the stream is cut into", (end) => {
    const lines = [
      ": c é",
      "",
      "id: 7\u{1F600}",
      "event: message",
      'data: {"t":"e\u0301 \u{1F600} 漢"}',
      "data:x",
      "",
      "data: 2",
      "",
      "",
    ];
    const stream = Buffer.from(`\ufeff${lines.join(end)}`);
    const whole = split(stream);
    expect(whole.events.map(({ data }) => data)).toEqual(["", '{"t":"e\u0301 \u{1F600} 漢"}\nx', "2"]);
    const expected = whole.events;
    for (let at = 0; at <= stream.length; at += 1) {
      const cut = split(stream, [at]);
      expect(cut.events).toEqual(expected);
      expect(cut.bytes.equals(stream)).toBe(true);
    }
    const single = split(stream, Array(stream.length).fill(1));
    expect(single.events).toEqual(expected);
    expect(single.bytes.equals(stream)).toBe(true);
  });

  it("C13 gives back every byte of any stream, and the same events however it is cut", () => {
    const pieces = [
      "\n",
      "\r",
      "\r\n",
      "data",
      ":",
      " ",
      "event",
      "id",
      "x",
      "é",
      "\ufeff",
      "message",
      "\n\n",
      "data: {}",
      "\u0000",
    ];
    const streams = fc.array(fc.constantFrom(...pieces), { maxLength: 30 }).map((parts) => Buffer.from(parts.join("")));
    fc.assert(
      fc.property(streams, fc.array(fc.nat(4), { maxLength: 60 }), (stream, sizes) => {
        const whole = split(stream);
        const cut = split(stream, sizes);
        expect(whole.bytes.equals(stream)).toBe(true);
        expect(cut.bytes.equals(stream)).toBe(true);
        expect(cut.events.map(({ data, facts }) => [data, facts])).toEqual(
          whole.events.map(({ data, facts }) => [data, facts]),
        );
        for (const event of cut.events) expect(event.dataOf).toBe(event.data);
      }),
      { numRuns: 5_000 },
    );
  });

  it("passes empty lines that end nothing on together, however many there are", () => {
    for (const end of ["\n", "\r", "\r\n"]) {
      const seen = split(`data: 1${end}${end}${end.repeat(100_000)}data: 2${end}${end}`);
      expect(seen.events.map(({ data }) => data)).toEqual(["1", "2"]);
      expect(seen.loose).toEqual([end.repeat(100_000)]);
    }
    expect(split("\r\n\r\ndata: 1\n\n", [1, 1, 1]).events.map(({ data }) => data)).toEqual(["1"]);
    expect(split("data: 1\r\n\r\n\r\n", [10, 1, 1]).loose).toEqual(["\n", "\r", "\n"]);
  });

  it("C05 gives an event out with its last byte", () => {
    const at = (text: string): number => split(text).events.length;
    expect(at("data: 1\n")).toBe(0);
    expect(at("data: 1\n\n")).toBe(1);
    expect(at("data: 1\r\n\r")).toBe(1);
    const late = split("data: 1\r\n\r\ndata: 2\r\n\r\n", [10]);
    expect(late.loose).toEqual(["\n"]);
    expect(late.events.map(({ data }) => data)).toEqual(["1", "2"]);
  });

  it("takes a mark for a mark only at the start", () => {
    expect(split("\ufeffdata: 1\n\n")).toMatchObject({ loose: ["\ufeff"], events: [{ data: "1" }] });
    expect(split("data: 1\n\n\ufeffdata: 2\n\n").events.map(({ facts }) => facts.hasData)).toEqual([true, false]);
    expect(split(Buffer.from([0xef, 0xbb, 0x64]), [1, 1]).bytes).toEqual(Buffer.from([0xef, 0xbb, 0x64]));
  });

  it.each(["\ufeff\ufeff", "\u00ef\u00bb\u00bf", "\ufeff\u00ef\u00bb\u00bf"])(
    "C15 says that parsers differ over a line behind %j, which some cut off as a mark",
    (mark) => {
      for (const size of [1, 2, 100]) {
        const seen = split(`${mark}data: {}\n\nid: ${mark}\n\n: c\n${mark}data\n\n`, Array(12).fill(size));
        expect(seen.events.map(({ facts }) => facts.isCertain)).toEqual([false, true, false]);
      }
    },
  );
});

describe("edits of an event", () => {
  const replaced = (event: string, data: string): string =>
    replaceData(Buffer.from(event), Buffer.from(data)).toString();
  const rest = (event: string): string | undefined => withoutData(Buffer.from(event))?.toString();

  it("replaces the data and keeps every other line", () => {
    expect(replaced(": c\nid: 1\ndata: {\ndata: }\nretry: 5\nother: x\n\n", "{}")).toBe(
      ": c\nid: 1\ndata: {}\nretry: 5\nother: x\n\n",
    );
    expect(replaced("id:1\r\ndata:a\r\ndata:b\r\n\r\n", "1\n2")).toBe("id:1\r\ndata: 1\r\ndata: 2\r\n\r\n");
    expect(replaced("data:a\r\r", "b")).toBe("data: b\r\r");
  });

  it("an event of millions of lines does not hold up the process", () => {
    const bytes = 16 * 1024 * 1024;
    const startedAt = performance.now();
    expect(withoutData(Buffer.from(`${":\n".repeat(bytes / 2)}data: {}\n\n`))?.length).toBe(bytes + 1);
    expect(replaceData(Buffer.from(`${"x\n".repeat(bytes / 2)}data: 1\n\n`), Buffer.from("{}")).length).toBe(
      bytes + 10,
    );
    expect(dataOf(Buffer.from(`${"data:\n".repeat(bytes / 8)}\n`)).length).toBe(bytes / 8 - 1);
    expect(performance.now() - startedAt).toBeLessThan(4_000);
  });

  it("leaves of a dropped event what a client resumes by", () => {
    expect(rest("event: message\nid: 7\nretry: 5\ndata: x\ndata: y\n\n")).toBe("id: 7\nretry: 5\ndata:\n\n");
    expect(rest("data: x\r\nid: 7\r\n\r\n")).toBe("id: 7\r\ndata:\r\n\r\n");
    expect(rest(": c\ndata: x\n\n")).toBe(": c\n\n");
    expect(rest("event: message\ndata: x\n\n")).toBeUndefined();
  });
});
