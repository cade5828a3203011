import type { z } from "zod";
import { type DocumentKind, expectationAt, type Fault, isSourceAt, patternOf } from "./cures.ts";
import type { Expectation } from "./expectation.ts";
import { issuedExpectationAt } from "./issued-cures.ts";
import { laterCure } from "./later.ts";
import { badNameFault, urlNamePattern } from "./names.ts";
import { nearest } from "./nearest.ts";
import type { Problem } from "./problem.ts";
import { meantKey, meantWord } from "./slips.ts";
import { formatPath, keyPositionOf, nodeAt, type Path, positionOf, type Tree, toValue, walk } from "./tree.ts";

const sourceKeys: readonly string[] = ["vault", "file", "env", "lease"];

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
  check.findBadNames();
  const result = schema.safeParse(toValue(tree));
  if (!result.success) check.takeIssues(result.error.issues);
  return { value: result.success ? result.data : undefined, problems: check.problems };
}

/** No key of ours is as long: what is may be a secret that went astray. */
const maxShownKey = 32;

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
      const isInSource = isSourceAt(this.#kind, path.slice(0, -1));
      if (isBarePrincipal(path)) return;
      if (isInSource && !sourceKeys.includes(String(path.at(-1)))) return;
      const { example } = expectationAt(this.#kind, path);
      this.#settle(path);
      this.problems.push({
        at: positionOf(this.#tree, path),
        message: `\`${formatPath(path)}\` has no value`,
        cure: example,
      });
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

  /** Names of servers and tunnels stand in URLs and travel over the tunnel. */
  findBadNames(): void {
    walk(this.#tree, (node, path) => {
      if (node.kind !== "map" || path.length !== 1 || !patternOf([...path, "x"]).endsWith(".*")) return;
      for (const [name, entry] of node.entries) {
        if (!urlNamePattern.test(name)) this.#add(entry.keyAt, badNameFault(`\`${name}\``, name));
      }
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
    const cure = laterCure(this.#kind, patternOf(path));
    this.#settle(path);
    if (cure !== undefined) {
      this.#excused.add(keyOf(path.slice(0, -1)));
      this.#add(keyPositionOf(this.#tree, path), laterFault(unknown.key, cure));
      return;
    }
    const meant = meantKey(patternOf(path), unknown.known) ?? nearest(unknown.key, unknown.known);
    const where = formatPath(path.slice(0, -1));
    const isInSource = isSourceAt(this.#kind, path.slice(0, -1));
    const general = where === "" ? `unknown key \`${unknown.key}\`` : `unknown key \`${unknown.key}\` in \`${where}\``;
    const place = where === "" ? "the document" : `\`${where}\``;
    const message = isInSource || unknown.key.length > maxShownKey ? `${place} has an unknown key` : general;
    const isLocal = expectationAt(this.#kind, path.slice(0, -1)).expects.endsWith("outside Vault");
    const choices = isLocal ? unknown.known.filter((key) => key !== "vault") : unknown.known;
    const choice = meant === undefined ? `one of: ${choices.join(", ")}` : meant;
    if (meant !== undefined) this.#settle([...path.slice(0, -1), meant]);
    this.#add(keyPositionOf(this.#tree, path), { message, cure: choice });
  }

  #takeIssue({ issue, path }: Finding): void {
    if (this.#isSettled(path)) return;
    this.#settle(path);
    const { expects, example } = this.#expectationAt(path);
    const label = path.length === 0 ? "the document" : `\`${formatPath(path)}\``;
    const node = nodeAt(this.#tree, path);
    if (node === undefined) {
      if (this.#excused.has(keyOf(path.slice(0, -1)))) return;
      this.#add(positionOf(this.#tree, path), { message: `${label} is missing`, cure: ownCure(issue) || example });
      return;
    }
    const general: Fault = { message: `${label} must be ${expects}`, cure: example };
    if (node.kind === "refused") return;
    const own = ownFault(issue, label) ?? slipOf(node, path, expects);
    this.#add(node.at, own ?? withNearest(general, issue, node, path));
  }

  /** What `as` may say depends on the type of the credential that it belongs to. */
  #expectationAt(path: Path): Expectation {
    const type = path[2] === "credential" ? nodeAt(this.#tree, [...path.slice(0, 3), "type"]) : undefined;
    const special = type?.kind === "scalar" ? issuedExpectationAt(String(type.value), path.slice(3)) : undefined;
    return special ?? expectationAt(this.#kind, path);
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
  const started = issue.errors.filter(
    (branch) => !branch.some((inner) => inner.path.length === 0 && inner.code !== "custom"),
  );
  const closest = started.toSorted((a, b) => a.length - b.length)[0];
  return closest === undefined ? [{ issue, path }] : closest.flatMap((inner) => flatten(inner, path));
}

function unknownKeyOf(issue: Issue): { readonly key: string; readonly known: readonly string[] } | undefined {
  if (issue.code !== "custom" || issue.params?.["unknown"] === undefined) return undefined;
  return { key: String(issue.params["unknown"]), known: issue.params["known"] as string[] };
}

/** One of a few words was meant: names the one that was nearly written. */
function withNearest(general: Fault, issue: Issue, node: Tree, path: Path): Fault {
  const words = issue.code === "invalid_value" ? issue.values : "options" in issue ? (issue.options as unknown[]) : [];
  const choices = words.filter((word) => typeof word === "string");
  const word = node.kind === "scalar" && typeof node.value === "string" ? node.value : undefined;
  const meant = word === undefined ? undefined : (meantWord(patternOf(path), word) ?? nearest(word, choices));
  if (meant === undefined) return general;
  const key = path.at(-1);
  return { ...general, cure: typeof key === "string" ? `${key}: ${meant}` : meant };
}

/** A field that found its own words for what is wrong (fields.ts). */
function ownFault(issue: Issue, label: string): Fault | undefined {
  const cure = ownCure(issue);
  return cure === undefined ? undefined : { message: issue.message.replace("{}", label), cure };
}

function ownCure(issue: Issue): string | undefined {
  const cure = issue.code === "custom" ? issue.params?.["cure"] : undefined;
  return cure === undefined ? undefined : String(cure);
}

/** Values of the wrong type whose author's intent is plain. Shows the value only where no secret can stand. */
function slipOf(node: Tree, path: Path, expects: string): Fault | undefined {
  if (node.kind === "map" && [...node.entries.keys()].some((key) => isBarePrincipal([...path, key]))) {
    const cure = 'the path in quotes: "mcp/tickets/{principal.id}"';
    return { message: `\`${formatPath(path)}\`: \`{\` begins a map in YAML`, cure };
  }
  if (node.kind !== "scalar") return undefined;
  const label = `\`${formatPath(path)}\``;
  const key = String(path.at(-1));
  if (expects.startsWith("a source of a secret")) {
    const message = `${label}: a secret is never written into this file`;
    if (expects.endsWith("of the lease")) return { message, cure: `${key}: { lease: FIELD }` };
    const local = `${key}: { file: PATH }   or { env: NAME }`;
    return {
      message,
      cure: expects.endsWith("outside Vault") ? local : `${local} or { vault: { mount, path, field } }`,
    };
  }
  if (typeof node.value !== "string") {
    const isText = /^(?:a pattern|a name|the name|a client id|a user name)/.test(expects);
    const type = typeof node.value;
    return isText ? { message: `${label} is read as a ${type}, not as text`, cure: `"${node.source}"` } : undefined;
  }
  if (/^a list of (?:rules|patterns|server names|what)/.test(expects)) {
    return { message: `${label} must be ${expects}`, cure: `${key}: [${JSON.stringify(node.value)}]` };
  }
  return undefined;
}

/** `path: {principal.id}` without quotes is a map with a key that has no value. */
function isBarePrincipal(path: Path): boolean {
  return path.at(-2) === "path" && /^principal\b/.test(String(path.at(-1)));
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
