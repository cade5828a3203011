import { readFileSync, statSync } from "node:fs";
import type { Clock } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { type KeyRing, type KeySet, maxKeySetBytes, readKeySet } from "./key-set.ts";

const lookEveryMs = 1_000;

/** Keys in a local JWK set, which is read again when the file has changed. What cannot be read changes nothing. */
export class FileKeys implements KeyRing {
  readonly #file: string;
  readonly #clock: Clock;
  readonly #logger: Logger;
  #keys: KeySet | undefined = undefined;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #stamp = "";

  constructor(file: string, deps: { readonly clock: Clock; readonly logger: Logger }) {
    this.#file = file;
    this.#clock = deps.clock;
    this.#logger = deps.logger;
  }

  current(): KeySet | undefined {
    this.#look();
    return this.#keys;
  }

  newer(known: KeySet): KeySet | undefined {
    this.#look();
    return this.#keys === known ? undefined : this.#keys;
  }

  #look(): void {
    const now = this.#clock.now();
    if (now - this.#lookedAt < lookEveryMs) return;
    this.#lookedAt = now;
    try {
      // Kubernetes swaps a link to the folder: the same path is then another inode.
      const { mtimeMs, size, ino } = statSync(this.#file);
      const stamp = `${mtimeMs} ${size} ${ino}`;
      if (stamp === this.#stamp) return;
      this.#read(size);
      // Only what was read is not read again: a right that is given, or a descriptor that is free, changes no stamp.
      this.#stamp = stamp;
    } catch (error) {
      this.#complain(error instanceof Error && "code" in error ? String(error.code) : "not readable");
    }
  }

  #read(size: number): void {
    const keys = size > maxKeySetBytes ? undefined : readKeySet(parse(readFileSync(this.#file, "utf8")));
    if (keys === undefined) {
      this.#complain("no JWK set with public keys, or too large");
      return;
    }
    this.#keys = keys;
    this.#logger.info("keys read", { file: this.#file });
  }

  #complain(reason: string): void {
    const cure = this.#keys === undefined ? "a readable JWK set" : "the keys read before are still in use";
    this.#logger.error("keys not read", { file: this.#file, reason, cure });
  }
}

function parse(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
