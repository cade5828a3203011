/**
 * How patterns relate (DESIGN 4.3: only `*` is special, and under `deny` and `except` it crosses segments). Both answers
 * are of use for warnings: where they are not sure, they say no.
 */

/** Whether `wide` admits whatever `narrow` does. */
export function covers(wide: string, narrow: string): boolean {
  // A run that may be anything is taken for a sign that no file holds: only a `*` can stand for it.
  return matches(wide, narrow.replace(/\*+/g, "\u0000"));
}

/** Whether no text at all fits both patterns. */
export function areDisjoint(a: string, b: string): boolean {
  if (!a.includes("*")) return !matches(b, a);
  if (!b.includes("*")) return !matches(a, b);
  const [start, otherStart] = [a.slice(0, a.indexOf("*")), b.slice(0, b.indexOf("*"))];
  const [end, otherEnd] = [a.slice(a.lastIndexOf("*") + 1), b.slice(b.lastIndexOf("*") + 1)];
  const isStartShared = start.startsWith(otherStart) || otherStart.startsWith(start);
  return !isStartShared || !(end.endsWith(otherEnd) || otherEnd.endsWith(end));
}

/** Each part at its leftmost place leaves the most room for the rest. */
function matches(pattern: string, text: string): boolean {
  const [first = "", ...rest] = pattern.split("*");
  const last = rest.pop();
  if (last === undefined) return text === first;
  if (!text.startsWith(first) || !text.endsWith(last)) return false;
  let at = first.length;
  for (const part of rest) {
    const found = text.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return at <= text.length - last.length;
}
