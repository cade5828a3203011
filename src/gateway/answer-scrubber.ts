import { ByteScrubber, findAll, redact, type Scrubbed } from "./byte-scrubber.ts";
import { findEscaped, merge } from "./escaped-matches.ts";
import type { Match, NeedleMatcher } from "./needle-matcher.ts";

/** What becomes of an answer that holds its server's credential. */
export type OnReflect = "redact" | "block";

/** What the scrubber says of bytes that must not pass at all. */
export const reflectedReason = "the answer holds the server's credential";

const none: readonly Match[] = [];

export interface ScrubOptions {
  /** Of now: on a long stream the credential may change, and the server may say the new one. */
  matcher(): NeedleMatcher | undefined;
  readonly onReflect: OnReflect;
  /** Where each caller has secrets of his own: the places of any of theirs, in the form it came in. */
  readonly findAnybodys?: ((bytes: Buffer) => readonly Match[]) | undefined;
  /** Told as soon as it is found, with the number of places. */
  onHits(count: number, isOwn: boolean): void;
}

/**
 * The credential out of one answer. A whole body or event is searched in the form it came in and in what its JSON escapes
 * mean, and for the credentials of other callers; one that is too large to be held, in the form it came in alone.
 * Undefined stands for: nothing of it may pass.
 */
export class AnswerScrubber {
  readonly #options: ScrubOptions;
  /** Of the body or event that is streaming through. */
  #stream: ByteScrubber | undefined;
  /** Places where something was found. */
  hitCount = 0;

  constructor(options: ScrubOptions) {
    this.#options = options;
  }

  /** False: a header's value holds it. Nothing is cut out of a header, whatever the server's `onReflect` says. */
  admitsHeaders(values: readonly string[]): boolean {
    const matcher = this.#options.matcher();
    const all = Buffer.from(values.join("\n"), "latin1");
    if (matcher?.find(all) === undefined) return this.#admitsForeign(all);
    // No value holds a line end, but a secret of several lines does: what was found across two values is none.
    const hits = values.filter((value) => matcher.find(Buffer.from(value, "latin1")) !== undefined).length;
    this.#count(hits, true);
    return hits === 0;
  }

  #admitsForeign(values: Buffer): boolean {
    const foreign = this.#options.findAnybodys?.(values);
    if (foreign === undefined || foreign.length === 0) return true;
    this.#count(merge(foreign).length, false);
    return false;
  }

  /** The same object where nothing was found. `jsonOf`: the part that a client parses, if it is to stay JSON. */
  whole(bytes: Buffer, jsonOf: (bytes: Buffer) => Buffer): Buffer | undefined {
    const matcher = this.#options.matcher();
    const plain = matcher === undefined ? none : findAll(matcher, bytes);
    const escaped = matcher === undefined ? none : findEscaped(matcher, bytes);
    const anybodys = this.#options.findAnybodys?.(bytes) ?? none;
    if (plain.length + escaped.length + anybodys.length === 0) return bytes;
    const own = merge([...plain, ...escaped]);
    // The secret of another may be longer than what of it is the caller's own as well: all of it goes.
    const matches = merge([...own, ...anybodys]);
    this.#count(countWithout(matches, own), false);
    const result = this.#admit({ bytes: redact(bytes, matches), hits: matches.length }, own.length);
    // A number may have been the secret, or an escape in front of it: then nothing readable is left.
    return result !== undefined && (isParsed(jsonOf(result)) || !isParsed(jsonOf(bytes))) ? result : undefined;
  }

  /** A piece of what streams through; a few bytes of it may come out with the next one. */
  part(bytes: Buffer): Buffer | undefined {
    const matcher = this.#options.matcher();
    if (this.#stream === undefined && matcher !== undefined) this.#stream = new ByteScrubber(matcher);
    return this.#stream === undefined ? bytes : this.#admit(this.#stream.push(bytes));
  }

  /** The last piece of a body or an event: nothing of it is held back. */
  lastPart(bytes: Buffer): Buffer | undefined {
    const passed = this.part(bytes);
    const held = this.#stream?.end();
    this.#stream = undefined;
    const rest = held === undefined ? undefined : this.#admit(held);
    if (passed === undefined || (held !== undefined && rest === undefined)) return undefined;
    return rest === undefined || rest.length === 0 ? passed : Buffer.concat([passed, rest]);
  }

  #admit({ bytes, hits }: Scrubbed, ownHits = hits): Buffer | undefined {
    if (hits === 0) return bytes;
    this.#count(ownHits, true);
    return this.#options.onReflect === "block" ? undefined : bytes;
  }

  #count(hits: number, isOwn: boolean): void {
    this.hitCount += hits;
    if (hits > 0) this.#options.onHits(hits, isOwn);
  }
}

/** How many of `all` hold none of `some`. Both are in order, and each of `some` is within one of `all`. */
function countWithout(all: readonly Match[], some: readonly Match[]): number {
  let count = 0;
  let at = 0;
  for (const { end } of all) {
    const first = at;
    while ((some[at]?.start ?? end) < end) at += 1;
    if (at === first) count += 1;
  }
  return count;
}

function isParsed(bytes: Buffer): boolean {
  try {
    JSON.parse(bytes.toString("utf8"));
    return true;
  } catch {
    return false;
  }
}
