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
