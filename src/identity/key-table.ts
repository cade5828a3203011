import { hashToken, parseToken, type TokenKind } from "./token.ts";

/** What stands behind some tokens, of which only the hashes are known. */
export interface KeyEntry<T> {
  /** Lower-case hex; several while a key is rotated. */
  readonly sha256: readonly string[];
  readonly value: T;
}

const hashPattern = /^[0-9a-f]{64}$/;

/**
 * Finds what a token stands for. The look-up is by hash, so its timing tells nothing about any stored hash's preimage.
 * Throws when a hash is malformed or stands twice: two owners of one token cannot be told apart.
 */
export class KeyTable<T> {
  readonly #kind: TokenKind;
  readonly #byHash = new Map<string, T>();

  constructor(kind: TokenKind, entries: Iterable<KeyEntry<T>>) {
    this.#kind = kind;
    for (const { sha256, value } of entries) {
      for (const hash of sha256) this.#add(hash, value);
    }
  }

  #add(hash: string, value: T): void {
    if (!hashPattern.test(hash)) throw new Error("a key hash must be 64 lower-case hex digits");
    if (this.#byHash.has(hash)) throw new Error("a key hash stands twice in one table");
    this.#byHash.set(hash, value);
  }

  /** `text` as a caller sent it; undefined when it is no token of this kind or nobody's. */
  find(text: string | undefined): T | undefined {
    const token = parseToken(text, this.#kind);
    return token === undefined ? undefined : this.#byHash.get(hashToken(token));
  }
}
