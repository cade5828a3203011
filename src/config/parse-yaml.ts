import {
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  Lexer,
  LineCounter,
  type Node,
  parseAllDocuments,
  type YAMLError,
} from "yaml";
import type { Position } from "../lib/index.ts";
import type { Problem } from "./problem.ts";
import { syntaxFault } from "./syntax-faults.ts";
import type { MapEntry, Tree } from "./tree.ts";

const maxFlowDepth = 32;
const maxMarksPerLine = 16;
const maxIndent = 128;

/**
 * Reads one YAML 1.2 document into a tree, and finds whatever is a trap in a file that decides who may do what: keys
 * that repeat, anchors and aliases, merge keys, tags, directives, several documents, keys that are no text.
 * The tree holds what could be read; with any problem it is only good for finding more of them.
 */
export function parseYaml(
  file: string,
  text: string,
): { readonly tree: Tree | undefined; readonly problems: Problem[] } {
  const start: Position = { file, line: 1, column: 1 };
  const tooDeep = findTooDeep(text);
  if (tooDeep !== undefined) {
    return { tree: undefined, problems: [{ at: { file, line: tooDeep, column: 1 }, ...syntaxFault("too-deep") }] };
  }
  if (/^(?:[ \t]*(?:#[^\n]*)?\r?\n)*%/.test(text)) {
    const line = text.slice(0, text.search(/^%/m)).split("\n").length;
    return { tree: undefined, problems: [{ at: { file, line, column: 1 }, ...syntaxFault("directive") }] };
  }
  const lines = new LineCounter();
  const documents = parseAllDocuments(text, {
    lineCounter: lines,
    // The library's messages quote the source line, which may hold a secret; its duplicate check is quadratic.
    prettyErrors: false,
    uniqueKeys: false,
    version: "1.2",
    schema: "core",
    merge: false,
    logLevel: "silent",
  });
  const reader = new TreeReader(file, lines);
  const [first, second] = documents;
  if (first === undefined || !("contents" in first))
    return { tree: undefined, problems: [{ at: start, ...syntaxFault("empty") }] };
  const errors = documents.flatMap((document) => (document as Document).errors);
  for (const [offset, code] of tellApart(errors, text)) reader.add(offset, code);
  // What the parser made of a broken file is a guess; problems found in a guess would only confuse.
  if (reader.problems.length > 0) return { tree: undefined, problems: reader.problems };
  if (second !== undefined) reader.add(second.range?.[0] ?? 0, "several-documents");
  const contents = first.contents as Node | null;
  if (contents === null || (isScalar(contents) && contents.value === null)) {
    if (reader.problems.length === 0) reader.problems.push({ at: start, ...syntaxFault("empty") });
    return { tree: undefined, problems: reader.problems };
  }
  return { tree: reader.read(contents, contents.range?.[0] ?? 0), problems: reader.problems };
}

/** The parser's errors by what is behind them, without those that only follow from an earlier one. */
function tellApart(errors: readonly YAMLError[], text: string): (readonly [offset: number, code: string])[] {
  for (const { pos } of errors) {
    if (text.startsWith("{principal.", pos[0])) return [[pos[0], "brace"]];
    if (text.startsWith("${", pos[0] - 1)) return [[pos[0] - 1, "variable"]];
  }
  // Where one token is out of place, so is each behind it.
  const first = errors.findIndex(({ code }) => code === "UNEXPECTED_TOKEN");
  const codes = new Map<number, string>();
  for (const { pos, code } of first < 0 ? errors : errors.slice(0, first + 1)) {
    const isContinued = codes.get(pos[0]) === "BLOCK_AS_IMPLICIT_KEY" && code === "MULTILINE_IMPLICIT_KEY";
    if (isContinued) codes.set(pos[0], "continued");
    else if (!codes.has(pos[0])) codes.set(pos[0], code);
  }
  return [...codes];
}

/**
 * The line where the document nests deeper than any configuration does. The parser recurses, and in Node a stack that
 * overflows inside a regular expression ends the process: so this is looked at first, on the flat tokens.
 */
function findTooDeep(text: string): number | undefined {
  let line = 1;
  let flowDepth = 0;
  let marks = 0;
  let isLineStart = true;
  let isScalarNext = false;
  for (const token of new Lexer().lex(text)) {
    if (isScalarNext) isScalarNext = false;
    else if (token === "\x1f") isScalarNext = true;
    else if (token === "[" || token === "{") flowDepth += 1;
    else if (token === "]" || token === "}") flowDepth -= 1;
    else if (token === "-" || token === "?" || (token === ":" && flowDepth <= 0)) marks += 1;
    const isTooIndented = isLineStart && token.length > maxIndent && /^ +$/.test(token);
    if (flowDepth > maxFlowDepth || marks > maxMarksPerLine || isTooIndented) return line;
    const breaks = token.split("\n").length - 1;
    line += breaks;
    if (breaks > 0 && flowDepth <= 0) marks = 0;
    isLineStart = token.endsWith("\n");
  }
  return undefined;
}

class TreeReader {
  readonly problems: Problem[] = [];
  readonly #file: string;
  readonly #lines: LineCounter;

  constructor(file: string, lines: LineCounter) {
    this.#file = file;
    this.#lines = lines;
  }

  add(offset: number, code: string, detail = ""): void {
    this.problems.push({ at: this.#at(offset), ...syntaxFault(code, detail) });
  }

  /** `offset`: the place to name should the node have none of its own. */
  read(node: unknown, offset: number): Tree {
    if (isAlias(node)) return this.#refuse(node.range?.[0] ?? offset, "alias");
    if (isMap(node) || isSeq(node) || isScalar(node)) {
      const start = node.range?.[0] ?? offset;
      if (node.anchor !== undefined) this.add(start, "anchor");
      if (node.tag !== undefined) return this.#refuse(start, "tag");
      if (isMap(node)) return { kind: "map", at: this.#at(start), entries: this.#readEntries(node.items, start) };
      if (isSeq(node)) {
        return { kind: "list", at: this.#at(start), items: node.items.map((item) => this.read(item, start)) };
      }
      return { kind: "scalar", at: this.#at(start), value: scalarValue(node.value), source: node.source ?? "" };
    }
    return { kind: "scalar", at: this.#at(offset), value: null, source: "" };
  }

  #refuse(offset: number, code: string, detail = ""): Tree {
    this.add(offset, code, detail);
    return { kind: "refused", at: this.#at(offset) };
  }

  #readEntries(items: readonly { key: unknown; value: unknown }[], offset: number): Map<string, MapEntry> {
    const entries = new Map<string, MapEntry>();
    for (const item of items) {
      const keyOffset = (item.key as Node | null)?.range?.[0] ?? offset;
      const key = this.#readKey(item.key, keyOffset);
      // The value of a key that is refused is read all the same, for the problems inside it.
      const value = this.read(item.value, keyOffset);
      if (key === undefined) continue;
      const earlier = entries.get(key);
      if (earlier !== undefined) this.add(keyOffset, "repeated-key", `${key}\u0000${earlier.keyAt.line}`);
      else entries.set(key, { keyAt: this.#at(keyOffset), value });
    }
    return entries;
  }

  #readKey(node: unknown, offset: number): string | undefined {
    const { problems } = this;
    const count = problems.length;
    const key = this.read(node, offset);
    if (problems.length > count) return undefined;
    if (key.kind !== "scalar" || typeof key.value !== "string") {
      this.add(offset, "key-not-text", key.kind === "scalar" ? key.source : "");
      return undefined;
    }
    if (key.value === "<<") {
      this.add(offset, "merge-key");
      return undefined;
    }
    if (key.value === "__proto__") {
      this.add(offset, "reserved-key", key.value);
      return undefined;
    }
    return key.value;
  }

  #at(offset: number): Position {
    const { line, col } = this.#lines.linePos(offset);
    return { file: this.#file, line: Math.max(1, line), column: Math.max(1, col) };
  }
}

function scalarValue(value: unknown): string | number | boolean | null {
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") return value;
  return null;
}
