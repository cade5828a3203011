import type { z } from "zod";
import { type DocumentKind, expectationAt, type Fault, patternOf } from "./cures.ts";
import { laterKeys, laterValues } from "./later.ts";
import { nearest } from "./nearest.ts";
import type { Problem } from "./problem.ts";
import { formatPath, keyPositionOf, nodeAt, type Path, positionOf, toValue, type Tree, walk } from "./tree.ts";

type Issue = z.core.$ZodIssue;

/**
 * Holds a tree against a schema. Every finding gets the place where its author wrote it and a cure: the schema says
 * what is wrong, the tree where, the tables of cures.ts and later.ts what to write instead.
 */
export function checkShape<T>(
  kind: DocumentKind,
  tree: Tree,
  schema: z.ZodType<T>,
): { readonly value: T | undefined; readonly problems: Problem[] } {
  const check = new ShapeCheck(kind, tree);
  check.findNulls();
  check.findRepeats();
  const result = schema.safeParse(toValue(tree));
  if (!result.success) check.takeIssues(result.error.issues);
  return { value: result.success ? result.data : undefined, problems: check.problems };
}

class ShapeCheck {
  readonly problems: Problem[] = [];
  readonly #kind: DocumentKind;
  readonly #tree: Tree;
  /** Paths about which something was said already; nothing more is said of them. */
  readonly #settled = new Set<string>();
  /** Maps with a key of a feature that is not there: what they lack belongs to that feature. */
  readonly #excused = new Set<string>();

  constructor(kind: DocumentKind, tree: Tree) {
    this.#kind = kind;
    this.#tree = tree;
  }

  /** `tools:` with nothing after it is null, which is neither "none" nor "all". */
  findNulls(): void {
    walk(this.#tree, (node, path) => {
      if (node.kind !== "scalar" || node.value !== null) return;
      const { example } = expectationAt(this.#kind, path);
      this.#settle(path);
      this.problems.push({ at: positionOf(this.#tree, path), message: `\`${formatPath(path)}\` has no value`, cure: example });
    });
  }

  /** The same string, or two entries with the same name, in one list: one of them was meant to be something else. */
  findRepeats(): void {
    walk(this.#tree, (node, path) => {
      if (node.kind !== "list") return;
      const seen = new Map<string, number>();
      node.items.forEach((item, i) => {
        const named = item.kind === "map" ? item.entries.get("name")?.value : item;
        if (named?.kind !== "scalar" || typeof named.value !== "string") return;
        const line = seen.get(named.value);
        if (line === undefined) seen.set(named.value, named.at.line);
        else this.#add(named.at, repeatFault([...path, i], line, item.kind === "map"));
      });
    });
  }

  takeIssues(issues: readonly Issue[]): void {
    const flat = issues.flatMap((issue) => flatten(issue, []));
    // Keys first: what is said of a key excuses what its map lacks.
    for (const finding of flat) if (unknownKeyOf(finding.issue) !== undefined) this.#takeUnknownKey(finding);
    for (const finding of flat) if (unknownKeyOf(finding.issue) === undefined) this.#takeIssue(finding);
  }

  #takeUnknownKey({ issue, path }: Finding): void {
    const unknown = unknownKeyOf(issue);
    if (unknown === undefined) return;
    const cure = laterKeys[this.#kind][patternOf(path)];
    this.#settle(path);
    if (cure !== undefined) {
      this.#excused.add(keyOf(path.slice(0, -1)));
      this.#add(keyPositionOf(this.#tree, path), laterFault(unknown.key, cure));
      return;
    }
    const meant = nearest(unknown.key, unknown.known);
    const where = formatPath(path.slice(0, -1));
    const message = where === "" ? `unknown key \`${unknown.key}\`` : `unknown key \`${unknown.key}\` in \`${where}\``;
    const choice = meant === undefined ? `one of: ${unknown.known.join(", ")}` : meant;
    if (meant !== undefined) this.#settle([...path.slice(0, -1), meant]);
    this.#add(keyPositionOf(this.#tree, path), { message, cure: choice });
  }

  #takeIssue({ issue, path }: Finding): void {
    if (this.#isSettled(path)) return;
    this.#settle(path);
    const { expects, example } = expectationAt(this.#kind, path);
    const label = path.length === 0 ? "the document" : `\`${formatPath(path)}\``;
    const node = nodeAt(this.#tree, path);
    if (node === undefined) {
      if (this.#excused.has(keyOf(path.slice(0, -1)))) return;
      this.#add(positionOf(this.#tree, path), { message: `${label} is missing`, cure: example });
      return;
    }
    const isKeyFault = issue.code === "invalid_key";
    const at = isKeyFault ? keyPositionOf(this.#tree, path) : node.at;
    this.#add(at, (isKeyFault ? keyFault(path) : ownFault(issue, label)) ?? this.#valueFault(node, path) ?? {
      message: `${label} must be ${expects}`,
      cure: example,
    });
  }

  /** One of a few words was meant: a word of a later version, or a slip. */
  #valueFault(node: Tree, path: Path): Fault | undefined {
    if (node.kind !== "scalar" || typeof node.value !== "string") return undefined;
    const cure = laterValues[this.#kind][patternOf(path)]?.[node.value];
    return cure === undefined ? undefined : laterFault(`${path.at(-1)}: ${node.value}`, cure);
  }

  #add(at: Problem["at"], fault: Fault): void {
    this.problems.push({ at, ...fault });
  }

  #settle(path: Path): void {
    this.#settled.add(keyOf(path));
  }

  #isSettled(path: Path): boolean {
    return this.#settled.has(keyOf(path));
  }
}

interface Finding {
  readonly issue: Issue;
  readonly path: Path;
}

/** A union reports every branch; only the one that the author was writing says something useful. */
function flatten(issue: Issue, prefix: Path): Finding[] {
  const path: Path = [...prefix, ...(issue.path as (string | number)[])];
  if (issue.code !== "invalid_union") return [{ issue, path }];
  const started = issue.errors.filter((branch) => !branch.some((inner) => inner.path.length === 0));
  const closest = started.toSorted((a, b) => a.length - b.length)[0];
  return closest === undefined ? [{ issue, path }] : closest.flatMap((inner) => flatten(inner, path));
}

function unknownKeyOf(issue: Issue): { readonly key: string; readonly known: readonly string[] } | undefined {
  if (issue.code !== "custom" || issue.params?.["unknown"] === undefined) return undefined;
  return { key: String(issue.params["unknown"]), known: issue.params["known"] as string[] };
}

/** A field that found its own words for what is wrong (fields.ts). */
function ownFault(issue: Issue, label: string): Fault | undefined {
  if (issue.code !== "custom" || issue.params?.["cure"] === undefined) return undefined;
  return { message: issue.message.replace("{}", label), cure: String(issue.params["cure"]) };
}

function keyFault(path: Path): Fault {
  const name = String(path.at(-1));
  const message = `\`${name}\` is no name that can stand in a URL: a-z, 0-9 and -, at most 63, not beginning with -`;
  return { message, cure: urlName(name) };
}

/** `name` bent until it is one. */
export function urlName(name: string): string {
  const bent = name.toLowerCase().replace(/[^a-z0-9-]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 63);
  return bent === "" ? "tickets" : bent;
}

export function laterFault(what: string, cure: string): Fault {
  return { message: `\`${what}\` is not in this version yet`, cure };
}

function repeatFault(path: Path, line: number, isMap: boolean): Fault {
  const what = isMap ? "has the name of an entry" : "repeats an entry";
  return { message: `\`${formatPath(path)}\` ${what} of line ${line}`, cure: "each entry once" };
}

function keyOf(path: Path): string {
  return JSON.stringify(path);
}
