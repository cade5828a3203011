import { eachMember, elementsOf, type Span, skipSpace, stringAt } from "./json-walk.ts";
import { JudgedKeys } from "./judged-keys.ts";
import type { ListKind } from "./types.ts";

/** Edits of a response that keep every byte of what stays, and readings of the few values an edit depends on. */

/** The member that names an entry of a list. */
const nameKeys: Readonly<Record<ListKind, string>> = {
  tools: "name",
  prompts: "name",
  resources: "uri",
  resourceTemplates: "uriTemplate",
};
const listKinds = ["tools", "prompts", "resources", "resourceTemplates"] as const satisfies readonly ListKind[];

const judgedOf = new Map(
  [...Object.values(nameKeys), "result", "params", "method", "inputRequests"].map((k) => [k, new JudgedKeys([k])]),
);
const judgedLists = new JudgedKeys(listKinds);

export type ListEdit =
  /** Nothing to remove: send the original. */
  | { readonly kind: "same" }
  | { readonly kind: "edited"; readonly bytes: Buffer; readonly removedCount: number }
  | { readonly kind: "refused"; readonly reason: string };

/**
 * Removes from every list in the message's result the entries that `shows` rejects. An entry that is no object, whose
 * name is missing, no string, no UTF-8 or stands there twice goes too. `message` is one valid JSON object without
 * repeated judged keys, as a `MessageSkimmer` has found.
 */
export function editLists(message: Buffer, shows: (kind: ListKind, name: string) => boolean): ListEdit {
  const lists = findLists(message);
  if (typeof lists === "string") return { kind: "refused", reason: lists };
  const pieces: Buffer[] = [];
  let copied = 0;
  let removedCount = 0;
  for (const list of lists) {
    const removed = list.elements.map((element) => !isShown(message, list.kind, element, shows));
    const count = removed.filter(Boolean).length;
    if (count === 0) continue;
    removedCount += count;
    const isEmptied = count === list.elements.length;
    const first = isEmptied ? list.start + 1 : (list.elements[0]?.start ?? list.start + 1);
    pieces.push(message.subarray(copied, first), ...keptOf(message, list.elements, removed));
    copied = isEmptied ? list.end - 1 : (list.elements.at(-1)?.end ?? first);
  }
  if (removedCount === 0) return { kind: "same" };
  pieces.push(message.subarray(copied));
  return { kind: "edited", bytes: Buffer.concat(pieces), removedCount };
}

interface FoundList extends Span {
  readonly kind: ListKind;
  readonly elements: readonly Span[];
}

/** The lists of the result in the order of their places, or why they cannot be told for certain. */
function findLists(message: Buffer): FoundList[] | string {
  const result = memberOf(message, skipSpace(message, 0), "result");
  if (result === "repeated") return "result repeats";
  const lists: FoundList[] = [];
  let wrong: string | undefined;
  let seen = 0;
  if (result === undefined) return lists;
  eachMember(message, result.start, (key, value) => {
    const bit = judgedLists.bitOf(key);
    if (bit === 0) return;
    const kind = listKinds.find((name) => name === key);
    const elements = elementsOf(message, value.start);
    if (kind === undefined || (seen & bit) !== 0) wrong = "a list repeats";
    else if (elements === undefined) wrong = "a list is no array, or too long";
    else lists.push({ kind, elements, ...value });
    seen |= bit;
  });
  return wrong ?? lists;
}

function isShown(
  message: Buffer,
  kind: ListKind,
  element: Span,
  shows: (kind: ListKind, name: string) => boolean,
): boolean {
  const name = stringMember(message, element.start, nameKeys[kind]);
  return name !== undefined && shows(kind, name);
}

/** The first kept element keeps the blanks after the bracket, every later one the bytes in front of it. */
function keptOf(message: Buffer, elements: readonly Span[], removed: readonly boolean[]): Buffer[] {
  const kept: Buffer[] = [];
  elements.forEach((element, index) => {
    if (removed[index]) return;
    const before = elements[index - 1];
    const isFirst = kept.length === 0;
    kept.push(message.subarray(isFirst || before === undefined ? element.start : before.end, element.end));
  });
  return kept;
}

/** The member `key` of the object at `at`; `repeated` also if another key differs from it by case only. */
function memberOf(bytes: Buffer, at: number, key: string): Span | "repeated" | undefined {
  const judged = judgedOf.get(key) ?? new JudgedKeys([key]);
  let found: Span | "repeated" | undefined;
  eachMember(bytes, at, (name, value) => {
    const bit = judged.bitOf(name);
    if (bit !== 0) found = bit < 0 || found !== undefined ? "repeated" : value;
  });
  return found;
}

/** The text of the member `key` of the object at `at`; undefined if it is missing, repeated or no string. */
function stringMember(bytes: Buffer, at: number, key: string): string | undefined {
  const member = memberOf(bytes, at, key);
  return member === undefined || member === "repeated" ? undefined : stringAt(bytes, member);
}

/** `params.uri` of a message; undefined if it cannot be told for certain. */
export function readUpdatedUri(message: Buffer): string | undefined {
  const params = memberOf(message, skipSpace(message, 0), "params");
  return params === undefined || params === "repeated" ? undefined : stringMember(message, params.start, "uri");
}

/**
 * The methods in `result.inputRequests` of a message, in order; an entry without a certain method gives undefined.
 * Undefined as a whole: `inputRequests` is no object, or stands there twice.
 */
export function readInputMethods(message: Buffer): (string | undefined)[] | undefined {
  const result = memberOf(message, skipSpace(message, 0), "result");
  if (result === undefined || result === "repeated") return undefined;
  const requests = memberOf(message, result.start, "inputRequests");
  if (requests === undefined || requests === "repeated" || message[requests.start] !== 0x7b) return undefined;
  const methods: (string | undefined)[] = [];
  eachMember(message, requests.start, (_key, value) => {
    methods.push(stringMember(message, value.start, "method"));
  });
  return methods;
}
