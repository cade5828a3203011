/**
 * The last line of defence of the log: every secret that lives in this process, wherever it was made, is cut out of a line
 * before it is written. What lets no secret into a line at all is elsewhere; this is for the mistake that nobody foresaw,
 * and therefore depends on nobody's handing a list around: `Secret` itself tells this module that it exists.
 *
 * 1. Secrets are held weakly: one that was replaced is not kept alive, and is forgotten once it is gone.
 * 2. Making a secret costs next to nothing; forms are worked out when a line is written, whose cost is that of the line's
 *    length and not of the number of secrets: each form stands under its first characters.
 */
import { logFormsOf } from "./secret-forms.ts";

interface Revealing {
  reveal(): string;
}

type Held = WeakRef<Revealing>;

const redaction = "[secret]";
/** Shorter texts stand in lines where nobody put a secret. */
const minLength = 8;
const sweepEvery = 1024;

/** Made since the last line was written. */
let fresh: Held[] = [];
/** By the first `minLength` characters of each form. */
const byStart = new Map<string, Held[]>();
let indexed = 0;
let sweepAt = sweepEvery;

/** Called by `Secret` alone. */
export function watchFor(secret: Revealing): void {
  fresh.push(new WeakRef(secret));
  // Where nothing is logged for a long time.
  if (fresh.length % sweepEvery === 0) fresh = fresh.filter((held) => held.deref() !== undefined);
}

/** `text` with `[secret]` where a living secret of 8 characters or more stood, plain or encoded. */
export function concealSecrets(text: string): string {
  learn();
  let out = "";
  let from = 0;
  for (let at = 0; at + minLength <= text.length; ) {
    const length = formAt(text, at);
    if (length === 0) at += 1;
    else {
      out += text.slice(from, at) + redaction;
      at += length;
      from = at;
    }
  }
  return from === 0 ? text : out + text.slice(from);
}

function learn(): void {
  if (fresh.length === 0) return;
  for (const held of fresh) {
    const secret = held.deref();
    if (secret !== undefined) index(held, formsToFind(secret));
  }
  fresh = [];
  if (indexed > sweepAt) sweep();
}

function index(held: Held, forms: readonly string[]): void {
  for (const start of new Set(forms.map((form) => form.slice(0, minLength)))) {
    const known = byStart.get(start);
    if (known === undefined) byStart.set(start, [held]);
    else known.push(held);
    indexed += 1;
  }
}

function sweep(): void {
  indexed = 0;
  for (const [start, held] of byStart) {
    const living = held.filter((one) => one.deref() !== undefined);
    indexed += living.length;
    if (living.length === 0) byStart.delete(start);
    else byStart.set(start, living);
  }
  sweepAt = 2 * indexed + sweepEvery;
}

/** The length of the longest form of a living secret that stands at `at`; 0 without one. */
function formAt(text: string, at: number): number {
  const held = byStart.get(text.slice(at, at + minLength));
  if (held === undefined) return 0;
  const forms = held.flatMap((one) => {
    const secret = one.deref();
    return secret === undefined ? [] : formsToFind(secret);
  });
  return Math.max(0, ...forms.filter((form) => text.startsWith(form, at)).map(({ length }) => length));
}

/** A file or a store may add a newline, which is cut before a secret is used. */
function formsToFind(secret: Revealing): string[] {
  const text = secret.reveal().replace(/\r?\n$/, "");
  return text.length < minLength ? [] : logFormsOf(text).filter(({ length }) => length >= minLength);
}
