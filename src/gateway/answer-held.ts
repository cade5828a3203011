import type { ByteBudget } from "./byte-budget.ts";

/** Chunks from this size on are kept as they are; smaller ones are packed together. */
const packBelowBytes = 1024;
const packBytes = 16 * 1024;

/**
 * Bytes held back until they may leave. A chunk that stays alone is never copied; a dribble of tiny chunks costs about
 * its own size and not an object, or the slab it was read into, per chunk. Counts in a budget that all answers share.
 */
export class HeldBytes {
  #parts: Buffer[] = [];
  #pack: Buffer | undefined;
  #packedBytes = 0;
  #byteLength = 0;
  readonly #budget: ByteBudget;
  /** What the budget gave. */
  #takenBytes = 0;

  constructor(budget: ByteBudget) {
    this.#budget = budget;
  }

  get byteLength(): number {
    return this.#byteLength;
  }

  /** False: it is held all the same, but all answers together hold too much. Take it out at once, or give it up. */
  add(chunk: Buffer): boolean {
    if (this.#byteLength === 0 || chunk.length >= packBelowBytes) {
      this.#closePack();
      this.#parts.push(chunk);
    } else this.#packIn(chunk);
    this.#byteLength += chunk.length;
    if (!this.#budget.take(chunk.length)) return false;
    this.#takenBytes += chunk.length;
    return true;
  }

  /** Everything held, in order; nothing is held afterwards. */
  take(): Buffer[] {
    this.#closePack();
    const parts = this.#parts;
    this.#parts = [];
    this.#byteLength = 0;
    this.#budget.give(this.#takenBytes);
    this.#takenBytes = 0;
    return parts;
  }

  /** Everything held as one buffer; nothing is held afterwards. */
  takeJoined(): Buffer {
    const parts = this.take();
    const [first] = parts;
    return parts.length === 1 && first !== undefined ? first : Buffer.concat(parts);
  }

  #packIn(chunk: Buffer): void {
    if (this.#packedBytes + chunk.length > packBytes) this.#closePack();
    this.#pack ??= Buffer.allocUnsafe(packBytes);
    chunk.copy(this.#pack, this.#packedBytes);
    this.#packedBytes += chunk.length;
  }

  #closePack(): void {
    if (this.#pack === undefined) return;
    this.#parts.push(this.#pack.subarray(0, this.#packedBytes));
    this.#pack = undefined;
    this.#packedBytes = 0;
  }
}
