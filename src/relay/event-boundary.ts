/** Follows the bytes of an event stream just closely enough to know where something may be put between two events. */

const lf = 0x0a;
const cr = 0x0d;
const colon = 0x3a;
const tailBytes = 4;
/** A stream begins as if a line had just ended. */
const streamStart = Buffer.from("\n");

export class EventBoundary {
  /** The last bytes of the stream so far: enough for a blank line in any spelling (CRLFCRLF), or a cut `\nid`. */
  #tail: Buffer = streamStart;
  #hasId = false;

  /** Whether any line so far was an `id` field: the client can resume what it lost. */
  get hasId(): boolean {
    return this.#hasId;
  }

  /** Whether the stream stands between two events: at its start, or after a blank line. */
  get isAtBoundary(): boolean {
    const tail = this.#tail;
    let end = tail.length;
    if (tail[end - 1] === lf) {
      end -= 1;
      if (end > 0 && tail[end - 1] === cr) end -= 1;
    } else if (tail[end - 1] === cr) {
      end -= 1;
    } else {
      return false;
    }
    return end === 0 || tail[end - 1] === lf || tail[end - 1] === cr;
  }

  /** How many bytes of `chunk`, which comes next, lead to the first place between two events; undefined: there is none in it. */
  nextIn(chunk: Buffer): number | undefined {
    const last = this.#tail[this.#tail.length - 1];
    let isLineStart = last === lf || last === cr;
    let isAfterCr = last === cr;
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

  /** Takes note of `chunk`; keeps a copy of its last bytes only. */
  push(chunk: Buffer): void {
    if (!this.#hasId) this.#findId(chunk);
    if (chunk.length >= tailBytes) this.#tail = Buffer.from(chunk.subarray(chunk.length - tailBytes));
    else this.#tail = Buffer.concat([this.#tail, chunk]).subarray(-tailBytes);
  }

  #findId(chunk: Buffer): void {
    // A field name may be cut by the chunk's edge: look at the seam as one piece.
    this.#hasId =
      hasIdLine(Buffer.concat([this.#tail, chunk.subarray(0, tailBytes)])) ||
      (chunk.length > tailBytes && hasIdLine(chunk));
  }
}

/** An `id` field with or without a value (HTML standard, "interpreting an event stream"). */
function hasIdLine(bytes: Buffer): boolean {
  return hasAfter(bytes, "\nid") || hasAfter(bytes, "\rid");
}

function hasAfter(bytes: Buffer, needle: string): boolean {
  for (let at = bytes.indexOf(needle, 0, "latin1"); at >= 0; at = bytes.indexOf(needle, at + 1, "latin1")) {
    const next = bytes[at + needle.length];
    if (next === colon || next === lf || next === cr) return true;
  }
  return false;
}
