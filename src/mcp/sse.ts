/**
 * Event streams as the HTML standard frames them (section 9.2.6): lines end in LF, CR or CRLF, an empty line ends an
 * event, a byte order mark may stand in front of everything.
 */

const lf = 0x0a;
const cr = 0x0d;
const colon = 0x3a;
const space = 0x20;
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
  /** What it says the last event id is: `empty` takes back the one before, so that a client has none to resume by. */
  readonly id: "absent" | "empty" | "given";
  /** Clients read the data as a message: the type is absent, empty or `message`. */
  readonly isMessage: boolean;
  /**
   * False: a line begins with no ASCII character. Some parsers cut a second byte order mark, or the Latin-1 reading of
   * one, off the first line that reaches them, and so see another field than the standard does.
   */
  readonly isCertain: boolean;
}

/** Called synchronously from `EventSplitter.push`, in the order of the bytes. */
export interface EventSink {
  /** A piece of the data of the event in progress; a LF stands between its lines. */
  onData(piece: Buffer): void;
  /** Bytes of an event that goes on in the next chunk. */
  onPart(bytes: Buffer): void;
  /** The event is complete; `bytes` are its last ones, the empty line included. */
  onEvent(bytes: Buffer, facts: EventFacts): void;
  /** Bytes that belong to no event: a byte order mark, empty lines that end none, the LF of a CRLF whose CR ended one. */
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
  #id: EventFacts["id"] = "absent";
  /** Of the line in progress, if it is an `id`. */
  #isIdEmpty = true;
  #hasNul = false;
  #isCertain = true;

  constructor(sink: EventSink) {
    this.#sink = sink;
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
      if (end === at && this.#isFresh) {
        at = this.#passBlankLines(chunk, at);
        eventStart = at;
        continue;
      }
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

  /** Empty lines that end nothing are passed on together: one by one, a stream of nothing else would hold up all the others. */
  #passBlankLines(chunk: Buffer, start: number): number {
    let at = start;
    while (at < chunk.length && (chunk[at] === lf || chunk[at] === cr)) at += 1;
    this.#isAfterCr = at === chunk.length && chunk[at - 1] === cr;
    this.#sink.onLoose(chunk.subarray(start, at));
    return at;
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
      at = this.#readName(chunk, at, end);
      if (this.#phase === "name") return;
    }
    if (at < end && this.#phase === "blank") {
      this.#phase = "value";
      if (chunk[at] === space) at += 1;
    }
    if (at < end) this.#readValue(chunk, at, end);
  }

  /** Reads on until the name is over, or too long for any that counts; returns where the value, or the rest, begins. */
  #readName(chunk: Buffer, start: number, end: number): number {
    for (let at = start; at < end; at += 1) {
      const c = chunk[at] as number;
      if (c === colon) {
        this.#beginValue();
        return at + 1;
      }
      this.#name += String.fromCharCode(c);
      if (this.#name.length > maxNameBytes) {
        this.#beginValue();
        this.#phase = "value";
        return end;
      }
    }
    return end;
  }

  #beginValue(): void {
    this.#phase = "blank";
    const name = this.#name;
    if (name.charCodeAt(0) >= 0x80) this.#isCertain = false;
    this.#field = name === "data" || name === "event" || name === "id" ? name : "other";
    if (this.#field === "id") {
      this.#isIdEmpty = true;
      this.#hasNul = false;
    } else if (this.#field === "event") this.#lineType = "";
    else if (this.#field === "data") {
      if (this.#hasData) this.#sink.onData(lineBreak);
      this.#hasData = true;
    }
  }

  #readValue(chunk: Buffer, start: number, end: number): void {
    if (this.#field === "data") this.#sink.onData(chunk.subarray(start, end));
    else if (this.#field === "event" && this.#lineType.length <= maxTypeBytes) {
      this.#lineType += chunk.toString("latin1", start, Math.min(end, start + maxTypeBytes + 1));
    } else if (this.#field === "id") {
      this.#isIdEmpty = false;
      this.#hasNul ||= chunk.subarray(start, end).includes(0);
    }
  }

  #endLine(): void {
    if (this.#phase === "name") this.#beginValue();
    if (this.#field === "event") this.#type = this.#lineType;
    // An id with a NUL counts as no line at all.
    else if (this.#field === "id" && !this.#hasNul) this.#id = this.#isIdEmpty ? "empty" : "given";
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
    const facts = { hasData: this.#hasData, id: this.#id, isMessage, isCertain: this.#isCertain };
    this.#type = "";
    this.#hasData = false;
    this.#id = "absent";
    this.#isCertain = true;
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

const fieldNames = { data: Buffer.from("data"), id: Buffer.from("id"), retry: Buffer.from("retry") } as const;

/** `name` stands at `start` and is all of the line's field name. */
function hasName(event: Buffer, start: number, end: number, name: Buffer): boolean {
  const nameEnd = start + name.length;
  if (nameEnd > end || (nameEnd < end && event[nameEnd] !== colon)) return false;
  for (let i = 0; i < name.length; i += 1) if (event[start + i] !== name[i]) return false;
  return true;
}

/**
 * Visits the lines of a complete event: `end` excludes the line break, `next` includes it. Makes nothing per line: a
 * hostile event has millions of them.
 */
function eachLine(event: Buffer, visit: (start: number, end: number, next: number) => void): void {
  const length = event.length;
  let start = 0;
  for (let at = 0; at < length; at += 1) {
    const c = event[at];
    if (c !== lf && c !== cr) continue;
    const end = at;
    if (c === cr && event[at + 1] === lf) at += 1;
    visit(start, end, at + 1);
    start = at + 1;
  }
  if (start < length) visit(start, length, length);
}

/** A text of known largest size, put together without an object per piece. */
class TextBuilder {
  readonly #bytes: Buffer;
  #length = 0;

  constructor(maxBytes: number) {
    this.#bytes = Buffer.allocUnsafe(maxBytes);
  }

  get length(): number {
    return this.#length;
  }

  add(source: Buffer, start: number, end: number): void {
    this.#length += source.copy(this.#bytes, this.#length, start, end);
  }

  done(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }
}

/** The data of a complete event: its `data` lines, joined by LF. */
export function dataOf(event: Buffer): Buffer {
  const text = new TextBuilder(event.length);
  let isFirst = true;
  eachLine(event, (start, end) => {
    if (!hasName(event, start, end, fieldNames.data)) return;
    if (!isFirst) text.add(lineBreak, 0, 1);
    isFirst = false;
    const value = start + fieldNames.data.length + 1;
    if (value < end) text.add(event, event[value] === space ? value + 1 : value, end);
  });
  return text.done();
}

const dataStart = Buffer.from("data: ");

/** A complete event with other data; every line that is no `data` line stays as it is, in its place. */
export function replaceData(event: Buffer, data: Buffer): Buffer {
  const text = new TextBuilder(event.length + data.length + countLines(data) * (dataStart.length + 2));
  let isPlaced = false;
  /** Where the lines begin that stay and are not copied yet. */
  let from = 0;
  eachLine(event, (start, end, next) => {
    if (!hasName(event, start, end, fieldNames.data)) return;
    text.add(event, from, start);
    from = next;
    if (!isPlaced) addDataLines(text, data, event.subarray(end, next));
    isPlaced = true;
  });
  text.add(event, from, event.length);
  return text.done();
}

function countLines(data: Buffer): number {
  let count = 1;
  for (let at = data.indexOf(lf); at >= 0; at = data.indexOf(lf, at + 1)) count += 1;
  return count;
}

function addDataLines(text: TextBuilder, data: Buffer, end: Buffer): void {
  let start = 0;
  for (;;) {
    const found = data.indexOf(lf, start);
    text.add(dataStart, 0, dataStart.length);
    text.add(data, start, found < 0 ? data.length : found);
    text.add(end, 0, end.length);
    if (found < 0) return;
    start = found + 1;
  }
}

const emptyData = Buffer.from("data:");

/**
 * What is left of a dropped event: its comments and `retry` lines, and its `id` with empty data, so that a client
 * still resumes after it. Undefined: nothing.
 */
export function withoutData(event: Buffer): Buffer | undefined {
  const text = new TextBuilder(event.length + emptyData.length + 4);
  let hasId = false;
  let breakAt = event.length;
  /** Where the run of lines begins that stay and are not copied yet. */
  let from = 0;
  eachLine(event, (start, end, next) => {
    breakAt = end;
    const isId = hasName(event, start, end, fieldNames.id);
    hasId ||= isId;
    const stays = isId || event[start] === colon || hasName(event, start, end, fieldNames.retry);
    if (stays) return;
    text.add(event, from, start);
    from = next;
  });
  text.add(event, from, event.length);
  if (text.length === 0) return undefined;
  const end = breakAt < event.length ? event.subarray(breakAt) : lineBreak;
  if (hasId) {
    text.add(emptyData, 0, emptyData.length);
    text.add(end, 0, end.length);
  }
  text.add(end, 0, end.length);
  return text.done();
}
