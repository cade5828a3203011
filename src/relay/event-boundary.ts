/** Follows the bytes of an event stream just closely enough to know where something may be put between two events. */

const lf = 0x0a;
const cr = 0x0d;
/** As much of a line as tells whether it is an `id`, and an empty one. */
const longestNoted = 5;
const idStart = "i".charCodeAt(0);
const otherLine = "-";
/** Clients leave out one that leads the whole stream (HTML standard, "parsing an event stream"). */
const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf]);

export class EventBoundary {
  /** The first bytes of the line in progress, `otherLine` if it is certainly no `id`. */
  #line = "";
  /** The last byte was a CR: a LF now belongs to it. */
  #isAfterCr = false;
  /** How much of a byte order mark may still come. */
  #markLeft: number = byteOrderMark.length;
  #isAtBoundary = true;
  #hasNul = false;
  /** What the event in progress makes of the last event id; undefined: nothing. */
  #eventHasId: boolean | undefined = undefined;
  #hasId = false;

  /**
   * Whether the events so far left the client with an event id: it can resume what it lost. An empty id takes back the one
   * before, one with a NUL counts as none (HTML standard, "interpreting an event stream").
   */
  get hasId(): boolean {
    return this.#hasId;
  }

  /** Whether the stream stands between two events: at its start, its byte order mark included, or after a blank line. */
  get isAtBoundary(): boolean {
    return this.#isAtBoundary;
  }

  /** How many bytes of `chunk`, which comes next, lead to the first place between two events; undefined: there is none in it. */
  nextIn(chunk: Buffer): number | undefined {
    const markBytes = this.#markIn(chunk);
    if (markBytes > 0 && markBytes === this.#markLeft) return markBytes;
    let isLineStart = this.#line === "" && !this.#isInMark;
    let isAfterCr = this.#isAfterCr;
    for (let i = 0; i < chunk.length; i += 1) {
      const byte = chunk[i];
      const isSecondHalf = byte === lf && isAfterCr;
      isAfterCr = byte === cr;
      if (isSecondHalf) continue;
      const isBreak = byte === lf || byte === cr;
      if (isBreak && isLineStart) return byte === cr && chunk[i + 1] === lf ? i + 2 : i + 1;
      isLineStart = isBreak;
    }
    return undefined;
  }

  /** Takes note of `chunk`; keeps none of it. */
  push(chunk: Buffer): void {
    let at = this.#isAfterCr && chunk[0] === lf ? 1 : 0;
    if (this.#markLeft > 0) at = this.#readMark(chunk);
    if (chunk.length > 0) this.#isAfterCr = false;
    let nextLf = -1;
    let nextCr = -1;
    while (at < chunk.length) {
      // Each kind of break is searched for once: a chunk without any of one kind would be read anew for every line.
      if (nextLf < at) nextLf = positionOf(lf, chunk, at);
      if (nextCr < at) nextCr = positionOf(cr, chunk, at);
      const end = Math.min(nextLf, nextCr);
      if (end > at) this.#readLine(chunk, at, end);
      if (end === chunk.length) return;
      this.#endLine();
      at = end + 1;
      if (end !== nextCr) continue;
      if (at === chunk.length) this.#isAfterCr = true;
      else if (at === nextLf) at += 1;
    }
  }

  get #isInMark(): boolean {
    return this.#markLeft > 0 && this.#markLeft < byteOrderMark.length;
  }

  /** How many bytes of `chunk` go on with the byte order mark. */
  #markIn(chunk: Buffer): number {
    const start = byteOrderMark.length - this.#markLeft;
    let at = 0;
    while (at < chunk.length && at < this.#markLeft && chunk[at] === byteOrderMark[start + at]) at += 1;
    return at;
  }

  /** Returns where the stream proper begins. What began like a mark and was none is the start of a line that is no `id`. */
  #readMark(chunk: Buffer): number {
    const bytes = this.#markIn(chunk);
    this.#markLeft -= bytes;
    this.#isAtBoundary = !this.#isInMark;
    if (bytes === chunk.length) return bytes;
    if (this.#isInMark) this.#line = otherLine;
    this.#markLeft = 0;
    return bytes;
  }

  #readLine(chunk: Buffer, start: number, end: number): void {
    this.#isAtBoundary = false;
    if (this.#line === "" && chunk[start] !== idStart) this.#line = otherLine;
    if (this.#line === otherLine) return;
    const missing = longestNoted - this.#line.length;
    if (missing > 0) this.#line += chunk.toString("latin1", start, Math.min(end, start + missing));
    this.#hasNul ||= chunk.subarray(start, end).includes(0);
  }

  #endLine(): void {
    const line = this.#line;
    if (line === "") {
      this.#isAtBoundary = true;
      this.#hasId = this.#eventHasId ?? this.#hasId;
      this.#eventHasId = undefined;
    } else if ((line === "id" || line.startsWith("id:")) && !this.#hasNul) {
      this.#eventHasId = line !== "id" && line !== "id:" && line !== "id: ";
    }
    this.#line = "";
    this.#hasNul = false;
  }
}

/** Of the first such byte from `at` on; the chunk's length when there is none. */
function positionOf(byte: number, chunk: Buffer, at: number): number {
  const found = chunk.indexOf(byte, at);
  return found < 0 ? chunk.length : found;
}
