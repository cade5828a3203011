import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { EventBoundary } from "../../src/relay/event-boundary.ts";

function follow(chunks: readonly (string | Buffer)[]): EventBoundary {
  const boundary = new EventBoundary();
  for (const chunk of chunks) boundary.push(Buffer.from(chunk as string));
  return boundary;
}

/** Whether the last event id is set, by a plain reading of the standard. */
function readPlainly(stream: string): boolean {
  let buffer = "";
  let lastId = "";
  for (const line of stream
    .replace(/^\ufeff/, "")
    .split(/\r\n|\n|\r/)
    .slice(0, -1)) {
    if (line === "") lastId = buffer;
    const isId = line === "id" || line.startsWith("id:");
    if (isId && !line.includes("\0")) buffer = line.replace(/^id(: ?)?/, "");
  }
  return lastId !== "";
}

describe("event boundaries", () => {
  it("are the start and after every blank line, in each spelling", () => {
    const between = [
      "",
      "data: x\n\n",
      "data: x\r\n\r\n",
      "data: x\r\r",
      ": c\n\n",
      "data: x\n\r\n",
      "\n",
      "data: x\n\n\n",
    ];
    for (const text of between) expect([text, follow([text]).isAtBoundary]).toEqual([text, true]);
    const inside = ["d", "data: x", "data: x\n", "data: x\r\n", ": c\n", "data: x\n\nd", "data: x\r", "\n\n "];
    for (const text of inside) expect([text, follow([text]).isAtBoundary]).toEqual([text, false]);
  });

  it("C08 tells whether the client has an event id: the last of the complete events counts, an empty one takes it back", () => {
    const withId = [
      "id: 1\n\n",
      "data: x\nid:2\n\n",
      "data: x\r\nid: 2\r\n\r\n",
      "id: 1\n\ndata: x\n\n",
      "id\nid: 1\n\n",
      "id:  \n\n",
      "id: 1\nid: a\0\n\n",
      "id: 1\n\nid: \n",
    ];
    for (const text of withId) expect([text, follow([text]).hasId]).toEqual([text, true]);
    const without = [
      "data: id: 1\n\n",
      "idx: 1\n\n",
      ": id: 1\n\n",
      "ID: 1\n\n",
      "data: {\\nid: 1}\n\n",
      " id: 1\n\n",
      "id\n\n",
      "data:x\rid:\r\r",
      "id: \n\n",
      "id: \0\n\n",
      "id: 1\n",
      "id: 1\n\nid:\n\n",
      "id: 1\n\ndata: x\nid\n\n",
    ];
    for (const text of without) expect([text, follow([text]).hasId]).toEqual([text, false]);
  });

  it("C08 one byte order mark in front of everything is no part of the first line, wherever it is cut", () => {
    const mark = Buffer.from("\ufeff");
    const marked = (text: string) => Buffer.concat([mark, Buffer.from(text)]);
    for (const cut of [0, 1, 2, 3]) {
      const see = (text: string) => follow([marked(text).subarray(0, cut), marked(text).subarray(cut)]);
      expect([see("id: 1\n\n").hasId, see("id: 1\n\n").isAtBoundary]).toEqual([true, true]);
      expect([see("id\n\n").hasId, see("").isAtBoundary, see("\n").isAtBoundary]).toEqual([false, true, true]);
      expect(see("d").isAtBoundary).toBe(false);
      // A second one, and one that is no longer in front, belong to the name of a field that nobody knows.
      expect(see("\ufeffid: 1\n\n").hasId).toBe(false);
      expect(see("data: 1\n\n\ufeffid: 1\n\n").hasId).toBe(false);
      expect(follow([marked("").subarray(0, cut)]).isAtBoundary).toBe(cut === 0 || cut === 3);
      expect(follow([marked("").subarray(0, cut)]).nextIn(marked("\n").subarray(cut))).toBe(cut === 3 ? 1 : 3 - cut);
    }
    expect(follow(["\n", "\ufeffid: 1\n\n"]).hasId).toBe(false);
    expect(follow(["data: 1\n\n", "\ufeffid: 1\n\n"]).hasId).toBe(false);
  });

  it("what began like a byte order mark and was none is a line of its own", () => {
    for (const begun of [[0xef], [0xef, 0xbb]]) {
      for (const chunks of [[Buffer.from(begun)], begun.map((byte) => Buffer.from([byte]))]) {
        const see = (text: string) => follow([...chunks, text]);
        expect([see("\n").isAtBoundary, see("\n\n").isAtBoundary]).toEqual([false, true]);
        expect([see("\r\n").isAtBoundary, see("\r\r").isAtBoundary]).toEqual([false, true]);
        expect([see("id: 1\n\n").hasId, see("\nid: 1\n\n").hasId]).toEqual([false, true]);
        expect(follow(chunks).nextIn(Buffer.from("\n\nx"))).toBe(2);
      }
    }
  });

  it("C08 an id with a NUL anywhere counts as no line at all, wherever it is cut", () => {
    for (const line of ["id: \0", "id:\0", "id: 12345\0", "id: \x001", "id:1\0\x002"]) {
      const text = `${line}\r\n\r\n`;
      for (let cut = 0; cut <= text.length; cut += 1) {
        const cutUp = (before: string) => follow([before, text.slice(0, cut), text.slice(cut)]).hasId;
        expect([line, cut, cutUp(""), cutUp("id: 1\n"), cutUp("id: 1\n\n")]).toEqual([line, cut, false, true, true]);
      }
    }
    // In any other line it is nothing special, and the next `id` is not tainted.
    expect(follow(["data: \0\nid: 1\n\n"]).hasId).toBe(true);
    expect(follow(["id: \0\nid: 1\n\n"]).hasId).toBe(true);
  });

  it("a CRLF that is cut in two is one line end", () => {
    const see = (...chunks: string[]) => [follow(chunks).isAtBoundary, follow(chunks).hasId];
    expect(see("id: 1\r", "\n")).toEqual([false, false]);
    expect(see("id: 1\r", "\r")).toEqual([true, true]);
    expect(see("id: 1\r", "\n\r")).toEqual([true, true]);
    expect(see("id: 1\r\n\r", "\nid: \n")).toEqual([false, true]);
    expect(see("id: 1\r", "", "\n")).toEqual([false, false]);
    expect(see("id: 1\r\n", "\n")).toEqual([true, true]);
    expect(see("\ufeff\r", "\nid: 1\r", "\n\r", "\n")).toEqual([true, true]);
  });

  it("the next one in a chunk is the first place where a stream that ended there would stand between events", () => {
    const piece = fc.constantFrom("data: x", "id: 1", "\n", "\r\n", "\r", ": c", "é", "\n\n", "\ufeff");
    const text = fc.array(piece, { maxLength: 8 }).map((parts) => parts.join(""));
    fc.assert(
      fc.property(text, text, (before, chunk) => {
        const bytes = Buffer.from(chunk);
        const next = follow([before]).nextIn(bytes);
        const places = Array.from({ length: bytes.length }, (_, i) => i + 1);
        // Half of a CRLF that began before, or that goes on behind, is no place of its own.
        const isHalf = (i: number) => bytes[i - 1] === 0x0d && bytes[i] === 0x0a;
        const isTail = (i: number) => i === 1 && bytes[0] === 0x0a && before.endsWith("\r");
        const first = places.find(
          (i) => follow([before, bytes.subarray(0, i)]).isAtBoundary && !isHalf(i) && !isTail(i),
        );
        expect(next).toBe(first);
      }),
      { numRuns: 3_000 },
    );
  });

  it("are the same wherever the bytes are cut", () => {
    const piece = fc.constantFrom(
      "data: x",
      "id: 1",
      "id",
      "id: ",
      "\0",
      "idx",
      "\n",
      "\r\n",
      "\r",
      ": c",
      "retry: 3",
      "é",
      "\n\n",
      "\ufeff",
    );
    fc.assert(
      fc.property(
        fc.array(piece, { maxLength: 12 }),
        fc.infiniteStream(fc.integer({ min: 1, max: 5 })),
        (parts, sizes) => {
          const bytes = Buffer.from(parts.join(""));
          const chunks: Buffer[] = [];
          for (let at = 0; at < bytes.length; ) {
            const size = sizes.next().value;
            chunks.push(bytes.subarray(at, at + size));
            at += size;
          }
          const whole = follow([bytes]);
          const cut = follow(chunks);
          expect([cut.isAtBoundary, cut.hasId]).toEqual([whole.isAtBoundary, whole.hasId]);
          expect(whole.hasId).toBe(readPlainly(bytes.toString()));
        },
      ),
      { numRuns: 2_000 },
    );
  });
});
