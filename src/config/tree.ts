import type { Position } from "../lib/index.ts";

/**
 * A document as its author wrote it, every node with its place. Three shapes are all that a configuration needs; what
 * else YAML offers (tags, anchors, merge keys, keys that are no text) was refused on the way here.
 */
export type Tree = MapTree | ListTree | ScalarTree | RefusedTree;

export interface MapTree {
  readonly kind: "map";
  readonly at: Position;
  readonly entries: ReadonlyMap<string, MapEntry>;
}

export interface MapEntry {
  readonly keyAt: Position;
  readonly value: Tree;
}

export interface ListTree {
  readonly kind: "list";
  readonly at: Position;
  readonly items: readonly Tree[];
}

export interface ScalarTree {
  readonly kind: "scalar";
  readonly at: Position;
  readonly value: string | number | boolean | null;
  /** As it stands in the file: `1.0`, where `value` is 1. */
  readonly source: string;
}

/** Something was written here that is refused whatever it means; the problem is reported already. */
export interface RefusedTree {
  readonly kind: "refused";
  readonly at: Position;
}

export type Path = readonly (string | number)[];

/** The node at `path`, or undefined where the author wrote none. */
export function nodeAt(tree: Tree, path: Path): Tree | undefined {
  let node: Tree | undefined = tree;
  for (const step of path) {
    if (node?.kind === "map") node = node.entries.get(String(step))?.value;
    else if (node?.kind === "list") node = typeof step === "number" ? node.items[step] : undefined;
    else return undefined;
  }
  return node;
}

/** The place of the value at `path`; where there is none, of its nearest parent. A null has no place of its own: its key. */
export function positionOf(tree: Tree, path: Path): Position {
  const node = nodeAt(tree, path);
  const isNull = node?.kind === "scalar" && node.value === null;
  if (node !== undefined && !isNull) return node.at;
  return isNull ? keyPositionOf(tree, path) : positionOf(tree, path.slice(0, -1));
}

/** The place of the key that `path` ends with; of the item, in a list. */
export function keyPositionOf(tree: Tree, path: Path): Position {
  const last = path.at(-1);
  if (last === undefined) return tree.at;
  const parentPath = path.slice(0, -1);
  const parent = nodeAt(tree, parentPath);
  if (parent?.kind === "map") return parent.entries.get(String(last))?.keyAt ?? positionOf(tree, parentPath);
  return nodeAt(tree, path)?.at ?? positionOf(tree, parentPath);
}

/** Plain data for the schemas. Maps have no prototype, so that no key of the author's can meet one of JavaScript's. */
export function toValue(tree: Tree): unknown {
  if (tree.kind === "refused") return undefined;
  if (tree.kind === "scalar") return tree.value;
  if (tree.kind === "list") return tree.items.map(toValue);
  const value: Record<string, unknown> = Object.create(null);
  for (const [key, entry] of tree.entries) value[key] = toValue(entry.value);
  return value;
}

/** `servers.tickets.tools[1]`; empty for the document itself. */
export function formatPath(path: Path): string {
  return path
    .map((step) => (typeof step === "number" ? `[${step}]` : `.${step}`))
    .join("")
    .replace(/^\./, "");
}

/** Calls `visit` for every node, parents first. */
export function walk(tree: Tree, visit: (node: Tree, path: Path) => void, path: Path = []): void {
  visit(tree, path);
  if (tree.kind === "list") for (const [i, item] of tree.items.entries()) walk(item, visit, [...path, i]);
  if (tree.kind === "map") for (const [key, entry] of tree.entries) walk(entry.value, visit, [...path, key]);
}
