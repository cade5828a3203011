import type { Position } from "../lib/index.ts";
import {
  type ClientKind,
  type DenyKeys,
  type GrantKeys,
  type PatternKind,
  type PolicyKeys,
  patternKinds,
  type RuleKeys,
} from "./policy-schema.ts";
import type { Problem } from "./problem.ts";
import { formatPath, keyPositionOf, type Path, positionOf, type Tree } from "./tree.ts";

/** The policy document, each rule with its place and its path in it. The policy room declares the same shape. */
export interface PolicySource {
  readonly servers: { readonly [server: string]: ServerPolicySource };
}

export interface ServerPolicySource {
  readonly grants: readonly GrantSource[];
  readonly deny: DenySource;
}

type RuleLists = { readonly [kind in PatternKind]: readonly RuleSource[] };
type PatternLists = { readonly [kind in PatternKind]: readonly PatternSource[] };

export interface GrantSource extends RuleLists {
  readonly at: Position;
  readonly path: string;
  readonly client: readonly ClientKind[];
}

export interface DenySource extends PatternLists {
  readonly client: readonly ClientKind[];
}

export interface PatternSource {
  readonly pattern: string;
  readonly at: Position;
  readonly path: string;
}

export interface RuleSource extends PatternSource {
  readonly except: readonly PatternSource[];
}

/** Joins what was written with where. `tree` is the policy document, which `keys` came from. */
export function buildPolicySource(tree: Tree, keys: PolicyKeys): PolicySource {
  const servers: Record<string, ServerPolicySource> = Object.create(null);
  for (const [name, server] of Object.entries(keys.servers)) {
    const path: Path = ["servers", name];
    const short = isGrant(server) ? [buildGrant(tree, server, path)] : [];
    const long = (server.grants ?? []).map((grant, i) => buildGrant(tree, grant, [...path, "grants", i]));
    servers[name] = { grants: [...short, ...long], deny: buildDeny(tree, server.deny ?? {}, [...path, "deny"]) };
  }
  return { servers };
}

/** Without a key of a grant, an empty entry is no grant: nothing was granted to anybody. */
function isGrant(keys: GrantKeys): boolean {
  return keys.client !== undefined || patternKinds.some((kind) => keys[kind] !== undefined);
}

function buildGrant(tree: Tree, keys: GrantKeys, path: Path): GrantSource {
  const lists = eachKind((kind) => (keys[kind] ?? []).map((rule, i) => buildRule(tree, rule, [...path, kind, i])));
  const at = path.length === 2 ? keyPositionOf(tree, path) : positionOf(tree, path);
  return { at, path: formatPath(path), ...lists, client: keys.client ?? [] };
}

function buildDeny(tree: Tree, keys: DenyKeys, path: Path): DenySource {
  return { ...eachKind((kind) => buildPatterns(tree, keys[kind] ?? [], [...path, kind])), client: keys.client ?? [] };
}

function eachKind<T>(build: (kind: PatternKind) => T): { readonly [kind in PatternKind]: T } {
  return {
    tools: build("tools"),
    prompts: build("prompts"),
    resources: build("resources"),
    resourceTemplates: build("resourceTemplates"),
  };
}

function buildRule(tree: Tree, rule: RuleKeys, path: Path): RuleSource {
  const at = positionOf(tree, path);
  if (typeof rule === "string") return { pattern: rule, at, path: formatPath(path), except: [] };
  const except = buildPatterns(tree, rule.except ?? [], [...path, "except"]);
  return { pattern: rule.name, at, path: formatPath(path), except };
}

function buildPatterns(tree: Tree, patterns: readonly string[], path: Path): PatternSource[] {
  return patterns.map((pattern, i) => {
    const at = [...path, i];
    return { pattern, at: positionOf(tree, at), path: formatPath(at) };
  });
}

/** Entries that are taken as they stand and yet hardly meant so. */
export function findPolicyWarnings(source: PolicySource, tree: Tree): Problem[] {
  const warnings: Problem[] = [];
  for (const [name, server] of Object.entries(source.servers)) {
    if (server.grants.length === 0) {
      const message = `nothing is granted on \`${name}\`: every call is denied`;
      warnings.push({ at: keyPositionOf(tree, ["servers", name]), message, cure: "tools: [ … ]" });
    }
    for (const pattern of patternsOf(server)) {
      const warning = findPatternWarning(pattern);
      if (warning !== undefined) warnings.push(warning);
    }
  }
  return warnings;
}

function patternsOf(server: ServerPolicySource): PatternSource[] {
  return patternKinds.flatMap((kind) => [
    ...server.grants.flatMap((grant) => grant[kind].flatMap((rule) => [rule, ...rule.except])),
    ...server.deny[kind],
  ]);
}

function findPatternWarning({ pattern, at, path }: PatternSource): Problem | undefined {
  if (pattern !== pattern.trim()) {
    const message = `\`${path}\` has a space at its end or beginning, which is compared as written`;
    return { at, message, cure: JSON.stringify(pattern.trim()) };
  }
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
  if (/[\u0000-\u001f\u007f-\u009f]/.test(pattern)) {
    return {
      at,
      message: `\`${path}\` holds a control character; such names are always denied`,
      cure: "the name without it",
    };
  }
  if (/[?[\]]|\{[^{}]*,[^{}]*\}/.test(pattern) && !pattern.includes("://")) {
    return {
      at,
      message: `\`${path}\`: only * is special, other signs stand for themselves`,
      cure: "one entry for each name, or *",
    };
  }
  return undefined;
}
