/** A first-in-first-out queue whose operations cost the same at any length. */
export class Fifo<T> {
  #items: T[] = [];
  #at = 0;

  get length(): number {
    return this.#items.length - this.#at;
  }

  push(item: T): void {
    this.#items.push(item);
  }

  peek(): T | undefined {
    return this.#items[this.#at];
  }

  shift(): T | undefined {
    const item = this.#items[this.#at];
    if (item === undefined) return undefined;
    this.#at += 1;
    if (this.#at === this.#items.length) {
      this.#items.length = 0;
      this.#at = 0;
    } else if (this.#at >= 1024 && this.#at * 2 >= this.#items.length) {
      this.#items.splice(0, this.#at);
      this.#at = 0;
    }
    return item;
  }

  /** Keeps, in order, what `isWanted`. */
  retain(isWanted: (item: T) => boolean): void {
    this.#items = this.#items.slice(this.#at).filter(isWanted);
    this.#at = 0;
  }

  clear(): void {
    this.#items.length = 0;
    this.#at = 0;
  }
}
