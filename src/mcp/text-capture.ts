/** Collects a short stretch of text that may be cut into several chunks; what is too long is forgotten. */
export class TextCapture {
  #capBytes = 0;
  /** Where the text begins in the chunk at hand. */
  #start = 0;
  /** What earlier chunks held of it. */
  #carry: Buffer | undefined;
  #isTooLong = false;

  begin(start: number, capBytes: number): void {
    this.#start = start;
    this.#capBytes = capBytes;
    this.#carry = undefined;
    this.#isTooLong = false;
  }

  /** The text goes on in the next chunk. */
  suspend(chunk: Buffer): void {
    this.#keep(chunk, chunk.length);
    this.#start = 0;
  }

  /** The text that ends in front of `end`; undefined if it has more bytes than the cap. */
  end(chunk: Buffer, end: number): string | undefined {
    if (this.#carry === undefined && !this.#isTooLong) {
      return end - this.#start > this.#capBytes ? undefined : chunk.toString("utf8", this.#start, end);
    }
    this.#keep(chunk, end);
    const text = this.#isTooLong ? undefined : this.#carry?.toString();
    this.#carry = undefined;
    return text;
  }

  #keep(chunk: Buffer, end: number): void {
    const part = chunk.subarray(this.#start, end);
    const carried = this.#carry;
    if (this.#isTooLong || (carried?.length ?? 0) + part.length > this.#capBytes) {
      this.#isTooLong = true;
      this.#carry = undefined;
    } else this.#carry = carried === undefined ? Buffer.from(part) : Buffer.concat([carried, part]);
  }
}
