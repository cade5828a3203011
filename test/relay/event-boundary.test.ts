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
  for (const line of stream.split(/\r\n|\n|\r/).slice(0, -1)) {
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

  it("the next one in a chunk is the first place where a stream that ended there would stand between events", () => {
    const piece = fc.constantFrom("data: x", "id: 1", "\n", "\r\n", "\r", ": c", "é", "\n\n");
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
