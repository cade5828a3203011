/**
 * The last line of defence of the log: every secret that lives in this process, wherever it was made, is cut out of a line
 * before it is written. What lets no secret into a line at all is elsewhere; this is for the mistake that nobody foresaw,
 * and therefore depends on nobody's handing a list around: `Secret` itself tells this module that it exists.
 *
 * 1. Secrets are held weakly: one that was replaced is not kept alive, and is forgotten once it is gone.
 * 2. Making a secret costs next to nothing; forms are worked out when a line is written, whose cost is that of the line's
 *    length and not of the number of secrets: each form stands under its last characters, since tokens of one issuer
 *    begin alike, and whoever gets such a beginning into a line would have us compare them all.
 */
import { logEndsOf, logFormsOf } from "./secret-forms.ts";

interface Revealing {
  reveal(): string;
}

type Held = WeakRef<Revealing>;

const redaction = "[secret]";
/** Shorter texts stand in lines where nobody put a secret. */
const minLength = 8;
const sweepEvery = 1024;
/** Those whose forms wait to be worked out: more of them would hold up the call that makes the next line. */
const maxFresh = 256;

/** Made of late, mostly since the last line was written. */
let fresh: Held[] = [];
/** By the last `minLength` characters of each form; a list only where there are several, as memory counts here. */
const byEnd = new Map<string, Held | Held[]>();
let indexed = 0;
let sweepAt = sweepEvery;

/** Called by `Secret` alone. */
export function watchFor(secret: Revealing): void {
  fresh.push(new WeakRef(secret));
  // Where nothing is logged for a long time.
  if (fresh.length >= maxFresh) learn();
}

/** `text` with `[secret]` where a living secret of 8 characters or more stood, plain or encoded. */
export function concealSecrets(text: string): string {
  learn();
  const found: Place[] = [];
  for (let end = minLength; end <= text.length; end += 1) {
    const held = byEnd.get(text.slice(end - minLength, end));
    if (held !== undefined) addPlaces(found, listOf(held), text, end);
  }
  if (found.length === 0) return text;
  let out = "";
  let from = 0;
  for (const { start, end } of joinPlaces(found)) {
    out += text.slice(from, start) + redaction;
    from = end;
  }
  return out + text.slice(from);
}

interface Place {
  readonly start: number;
  readonly end: number;
}

/** Those of `held` of which a form ends at `end`. */
function addPlaces(found: Place[], held: readonly Held[], text: string, end: number): void {
  for (const one of held) {
    const secret = one.deref();
    if (secret === undefined) continue;
    for (const form of formsToFind(secret)) {
      const start = end - form.length;
      if (start >= 0 && text.startsWith(form, start)) found.push({ start, end });
    }
  }
}

/** From left to right, without those that lie within others; what overlaps is one. */
function joinPlaces(found: readonly Place[]): Place[] {
  const joined: Place[] = [];
  for (const place of found.toSorted((a, b) => a.start - b.start)) {
    const last = joined.at(-1);
    if (last === undefined || place.start >= last.end) joined.push(place);
    else joined[joined.length - 1] = { start: last.start, end: Math.max(last.end, place.end) };
  }
  return joined;
}

function listOf(held: Held | Held[]): readonly Held[] {
  return Array.isArray(held) ? held : [held];
}

function learn(): void {
  if (fresh.length === 0) return;
  for (const held of fresh) {
    const secret = held.deref();
    if (secret !== undefined) index(held, secret);
  }
  fresh = [];
  if (indexed > sweepAt) sweep();
}

function index(held: Held, secret: Revealing): void {
  const text = textOf(secret);
  if (text.length < minLength) return;
  for (const end of new Set(logEndsOf(text))) {
    if (end.length < minLength) continue;
    const known = byEnd.get(end);
    if (known === undefined) byEnd.set(end, held);
    else if (Array.isArray(known)) known.push(held);
    else byEnd.set(end, [known, held]);
    indexed += 1;
  }
}

function sweep(): void {
  indexed = 0;
  for (const [end, held] of byEnd) {
    const living = listOf(held).filter((one) => one.deref() !== undefined);
    indexed += living.length;
    const [first] = living;
    if (first === undefined) byEnd.delete(end);
    else byEnd.set(end, living.length === 1 ? first : living);
  }
  sweepAt = 2 * indexed + sweepEvery;
}

function formsToFind(secret: Revealing): string[] {
  const text = textOf(secret);
  return text.length < minLength ? [] : logFormsOf(text).filter(({ length }) => length >= minLength);
}

/** A file or a store may add a newline, which is cut before a secret is used. */
function textOf(secret: Revealing): string {
  return secret.reveal().replace(/\r?\n$/, "");
}
