/**
 * Event streams as the HTML standard frames them (section 9.2.6): lines end in LF, CR or CRLF, an empty line ends an
 * event, a byte order mark may stand in front of everything.
 */

const lf = 0x0a;
const cr = 0x0d;
const lineBreak = Buffer.from("\n");
const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf]);

/** The longest field name is `event` or `retry`. */
const maxNameBytes = 5;
/** An event type longer than this is as good as any unknown type. */
const maxTypeBytes = 64;

/** What the lines of an event said, beside its data. */
export interface EventFacts {
  /** Has a `data` line, empty or not. */
  readonly hasData: boolean;
  readonly hasId: boolean;
  /** Clients read the data as a message: the type is absent, empty or `message`. */
  readonly isMessage: boolean;
}

/** Called synchronously from `EventSplitter.push`, in the order of the bytes. */
export interface EventSink {
  /** A piece of the data of the event in progress; a LF stands between its lines. */
  onData(piece: Buffer): void;
  /** Bytes of an event that goes on in the next chunk. */
  onPart(bytes: Buffer): void;
  /** The event is complete; `bytes` are its last ones, the empty line included. */
  onEvent(bytes: Buffer, facts: EventFacts): void;
  /** Bytes that belong to no event: a byte order mark, or the LF of a CRLF whose CR ended an event. */
  onLoose(bytes: Buffer): void;
}

/**
 * Cuts a stream into events that keep their bytes: everything pushed comes out of `onPart`, `onEvent` and `onLoose`
 * once, in order, whatever it is cut into. An event comes out with its last byte. Comments alone are an event without
 * data. Holds a few bytes of the line in progress, never an event.
 */
export class EventSplitter {
  readonly #sink: EventSink;
  #markLeft: number = byteOrderMark.length;
  /** The last byte was a CR that ended a line: a LF now belongs to it. */
  #isAfterCr = false;
  /** Nothing of the event in progress has come. */
  #isFresh = true;

  /** The line in progress: its name until the colon, then its value. */
  #isLineEmpty = true;
  #name = "";
  #phase: "name" | "blank" | "value" = "name";
  #field: "data" | "event" | "id" | "other" = "other";
  #type = "";
  #lineType = "";

  #hasData = false;
  #hasId = false;

  constructor(sink: EventSink) {
    this.#sink = sink;
  }

  /** No event is in progress. */
  get isAtBoundary(): boolean {
    return this.#isFresh;
  }

  push(chunk: Buffer): void {
    let at = this.#markLeft > 0 ? this.#skipMark(chunk) : 0;
    let eventStart = at;
    if (this.#isAfterCr && at < chunk.length) {
      this.#isAfterCr = false;
      if (chunk[at] === lf) {
        at += 1;
        if (this.#isFresh) {
          this.#sink.onLoose(chunk.subarray(eventStart, at));
          eventStart = at;
        }
      }
    }
    const breaks = new LineBreaks(chunk);
    while (at < chunk.length) {
      const end = breaks.next(at);
      if (end > at) this.#readLine(chunk, at, end);
      this.#isFresh = false;
      if (end === chunk.length) break;
      at = end + 1;
      if (chunk[end] === cr) {
        if (at === chunk.length) this.#isAfterCr = true;
        else if (chunk[at] === lf) at += 1;
      }
      if (this.#isLineEmpty) {
        this.#endEvent(chunk.subarray(eventStart, at));
        eventStart = at;
      } else this.#endLine();
    }
    if (eventStart < chunk.length) this.#sink.onPart(chunk.subarray(eventStart));
  }

  /** Passes a byte order mark on by itself; returns where the stream proper begins. */
  #skipMark(chunk: Buffer): number {
    let at = 0;
    while (this.#markLeft > 0 && at < chunk.length) {
      if (chunk[at] !== byteOrderMark[byteOrderMark.length - this.#markLeft]) {
        this.#replayMark();
        return at;
      }
      at += 1;
      this.#markLeft -= 1;
    }
    if (this.#markLeft === 0) this.#sink.onLoose(byteOrderMark);
    return at;
  }

  /** What began like a mark was none: it is the beginning of the first line. */
  #replayMark(): void {
    const begun = byteOrderMark.subarray(0, byteOrderMark.length - this.#markLeft);
    this.#markLeft = 0;
    if (begun.length > 0) this.push(begun);
  }

  #readLine(chunk: Buffer, start: number, end: number): void {
    let at = start;
    this.#isLineEmpty = false;
    if (this.#phase === "name") {
      const colon = chunk.indexOf(0x3a, at);
      const nameEnd = colon < 0 || colon > end ? end : colon;
      if (this.#name.length <= maxNameBytes) {
        this.#name += chunk.toString("latin1", at, Math.min(nameEnd, at + maxNameBytes + 1));
      }
      if (nameEnd === end) return;
      this.#beginValue();
      at = nameEnd + 1;
    }
    if (at < end && this.#phase === "blank") {
      this.#phase = "value";
      if (chunk[at] === 0x20) at += 1;
    }
    if (at < end) this.#readValue(chunk, at, end);
  }

  #beginValue(): void {
    this.#phase = "blank";
    const name = this.#name;
    this.#field = name === "data" || name === "event" || name === "id" ? name : "other";
    if (this.#field === "id") this.#hasId = true;
    else if (this.#field === "event") this.#lineType = "";
    else if (this.#field === "data") {
      if (this.#hasData) this.#sink.onData(lineBreak);
      this.#hasData = true;
    }
  }

  #readValue(chunk: Buffer, start: number, end: number): void {
    if (this.#field === "data") this.#sink.onData(chunk.subarray(start, end));
    else if (this.#field === "event" && this.#lineType.length <= maxTypeBytes) {
      this.#lineType += chunk.toString("latin1", start, Math.min(end, start + maxTypeBytes + 1));
    }
  }

  #endLine(): void {
    if (this.#phase === "name") this.#beginValue();
    if (this.#field === "event") this.#type = this.#lineType;
    this.#beginLine();
  }

  #beginLine(): void {
    this.#isLineEmpty = true;
    this.#phase = "name";
    this.#name = "";
    this.#field = "other";
  }

  #endEvent(bytes: Buffer): void {
    const isMessage = this.#type === "" || this.#type === "message";
    const facts = { hasData: this.#hasData, hasId: this.#hasId, isMessage };
    this.#type = "";
    this.#hasData = false;
    this.#hasId = false;
    this.#isFresh = true;
    this.#sink.onEvent(bytes, facts);
  }
}

/** Positions of line ends in one chunk, each searched for once. */
class LineBreaks {
  readonly #chunk: Buffer;
  #lf = -1;
  #cr = -1;

  constructor(chunk: Buffer) {
    this.#chunk = chunk;
  }

  /** The first LF or CR from `at` on, or the chunk's length. Positions asked for never decrease. */
  next(at: number): number {
    if (this.#lf < at) this.#lf = this.#find(lf, at);
    if (this.#cr < at) this.#cr = this.#find(cr, at);
    return Math.min(this.#lf, this.#cr);
  }

  #find(byte: number, at: number): number {
    const found = this.#chunk.indexOf(byte, at);
    return found < 0 ? this.#chunk.length : found;
  }
}

/** One line of a complete event: `end` excludes its line break, `next` includes it. */
interface Line {
  readonly start: number;
  readonly end: number;
  readonly next: number;
  readonly field: string;
}

function* linesOf(event: Buffer): Generator<Line> {
  const breaks = new LineBreaks(event);
  let start = 0;
  while (start < event.length) {
    const end = breaks.next(start);
    const isPair = event[end] === cr && event[end + 1] === lf;
    const next = Math.min(event.length, end + (isPair ? 2 : 1));
    const colon = event.subarray(start, Math.min(end, start + maxNameBytes + 1)).indexOf(0x3a);
    const field = event.toString("latin1", start, colon < 0 ? Math.min(end, start + maxNameBytes + 1) : start + colon);
    yield { start, end, next, field };
    start = next;
  }
}

/** The data of a complete event: its `data` lines, joined by LF. */
export function dataOf(event: Buffer): Buffer {
  const pieces: Buffer[] = [];
  for (const line of linesOf(event)) {
    if (line.field !== "data") continue;
    if (pieces.length > 0) pieces.push(lineBreak);
    pieces.push(dataValueOf(event, line));
  }
  const [first] = pieces;
  return pieces.length === 1 && first !== undefined ? first : Buffer.concat(pieces);
}

function dataValueOf(event: Buffer, line: Line): Buffer {
  const afterName = line.start + line.field.length;
  if (afterName >= line.end) return event.subarray(line.end, line.end);
  const start = afterName + 1;
  return event.subarray(event[start] === 0x20 && start < line.end ? start + 1 : start, line.end);
}

/** A complete event with other data; every line that is no `data` line stays as it is, in its place. */
export function replaceData(event: Buffer, data: Buffer): Buffer {
  const pieces: Buffer[] = [];
  let isPlaced = false;
  for (const line of linesOf(event)) {
    if (line.field !== "data") pieces.push(event.subarray(line.start, line.next));
    else if (!isPlaced) {
      isPlaced = true;
      pieces.push(...dataLines(data, event.subarray(line.end, line.next)));
    }
  }
  return Buffer.concat(pieces);
}

function dataLines(data: Buffer, end: Buffer): Buffer[] {
  const pieces: Buffer[] = [];
  let start = 0;
  for (;;) {
    const found = data.indexOf(lf, start);
    pieces.push(Buffer.from("data: "), data.subarray(start, found < 0 ? data.length : found), end);
    if (found < 0) return pieces;
    start = found + 1;
  }
}

/**
 * What is left of a dropped event: its comments and `retry` lines, and its `id` with empty data, so that a client
 * still resumes after it. Undefined: nothing.
 */
export function withoutData(event: Buffer): Buffer | undefined {
  const pieces: Buffer[] = [];
  let hasId = false;
  let end: Buffer = lineBreak;
  for (const line of linesOf(event)) {
    end = event.subarray(line.end, line.next);
    if (line.field !== "id" && line.field !== "retry" && line.field !== "") continue;
    if (line.start === line.end) continue;
    hasId ||= line.field === "id";
    pieces.push(event.subarray(line.start, line.next));
  }
  if (pieces.length === 0) return undefined;
  if (hasId) pieces.push(Buffer.from("data:"), end);
  pieces.push(end);
  return Buffer.concat(pieces);
}
