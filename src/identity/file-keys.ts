import { readFileSync, statSync } from "node:fs";
import type { Clock } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { type KeyRing, type KeySet, maxKeySetBytes, noKeys, readKeySet, saysNoKeys } from "./key-set.ts";

const lookEveryMs = 1_000;
/** As long as an issuer's keys that cannot be fetched. */
const staleMs = 6 * 3_600_000;
/** The same complaint is not repeated before. */
const complainEveryMs = 60_000;

/**
 * Keys in a local JWK set, which is read again when the file has changed. A set without any key ends the old ones at once. A
 * file that is gone, or holds no JWK set, is taken for a mistake: the last good keys serve for six hours more.
 */
export class FileKeys implements KeyRing {
  readonly #file: string;
  readonly #clock: Clock;
  readonly #logger: Logger;
  #keys: KeySet | undefined = undefined;
  #lookedAt = Number.NEGATIVE_INFINITY;
  /** When the file last said what `#keys` holds. */
  #goodAt = Number.NEGATIVE_INFINITY;
  /** Of the file as it was last read; undefined: it was not, or held nothing of use. */
  #goodStamp: string | undefined = undefined;
  #badStamp: string | undefined = undefined;
  #complaint = "";
  #complainedAt = Number.NEGATIVE_INFINITY;

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
    const fault = this.#readIfChanged();
    if (fault === undefined) {
      this.#goodAt = now;
      this.#complaint = "";
      return;
    }
    if (now - this.#goodAt > staleMs) {
      this.#keys = undefined;
      this.#goodStamp = undefined;
    }
    this.#complain(fault);
  }

  /** Why the file says nothing, if it does not. */
  #readIfChanged(): string | undefined {
    try {
      // Kubernetes swaps a link to the folder: the same path is then another inode.
      const { mtimeMs, size, ino } = statSync(this.#file);
      const stamp = `${mtimeMs} ${size} ${ino}`;
      if (stamp === this.#goodStamp) return undefined;
      // Only what was read is not read again: a right that is given, or a descriptor that is free, changes no stamp.
      const keys = stamp === this.#badStamp || size > maxKeySetBytes ? undefined : this.#read();
      this.#badStamp = keys === undefined ? stamp : undefined;
      if (keys === undefined) return "no JWK set with public keys, or too large";
      this.#goodStamp = stamp;
      this.#keys = keys;
      if (keys === noKeys) this.#logger.warn("a file of keys holds none", { file: this.#file, cure: noKeysCure });
      else this.#logger.info("keys read", { file: this.#file });
      return undefined;
    } catch (error) {
      return error instanceof Error && "code" in error ? String(error.code) : "not readable";
    }
  }

  #read(): KeySet | undefined {
    const document = parse(readFileSync(this.#file, "utf8"));
    return saysNoKeys(document) ? noKeys : readKeySet(document);
  }

  #complain(reason: string): void {
    const now = this.#clock.now();
    const isInUse = this.#keys !== undefined;
    const complaint = `${reason} ${isInUse}`;
    if (complaint === this.#complaint && now - this.#complainedAt < complainEveryMs) return;
    this.#complaint = complaint;
    this.#complainedAt = now;
    const cure = isInUse ? "a readable JWK set; the last good keys serve for 6 h" : "a readable JWK set";
    this.#logger.error("keys not read", { file: this.#file, reason, cure });
  }
}

const noKeysCure = "tokens of this issuer are refused; put a public key into the set if that is not meant";

function parse(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
