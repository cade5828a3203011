import { dirname, isAbsolute, join, resolve } from "node:path";
import type { Position } from "../lib/index.ts";
import { findCaFaults } from "./ca-files.ts";
import { casesSchema, type PolicyCase, placeCases } from "./cases.ts";
import { checkShape } from "./check-shape.ts";
import {
  findHeaderFaults,
  findMixedGrants,
  findSharedHashes,
  findSharedKeys,
  findSharedPort,
  findUnknownServers,
  findUnruledServers,
  findUnverifiedCallers,
  findVaultless,
  findVaultSlips,
} from "./cross-checks.ts";
import { type DocumentKind, expectationAt } from "./cures.ts";
import { freezeConfig } from "./freeze.ts";
import { createGatewaySchema, type GatewaySettings } from "./gateway-schema.ts";
import { parseYaml } from "./parse-yaml.ts";
import { policySchema } from "./policy-schema.ts";
import { buildPolicySource, type PolicySource } from "./policy-source.ts";
import { findPolicyWarnings } from "./policy-warnings.ts";
import { type Loaded, makePrintable, type Problem, sortProblems } from "./problem.ts";
import { readText } from "./read-text.ts";
import { createRelaySchema, type RelayConfig } from "./relay-schema.ts";
import { nodeAt, type Tree } from "./tree.ts";

/** gateway.yaml with the policy that it holds or names. Deeply frozen, as is all that the loaders return. */
export interface GatewayConfig extends GatewaySettings {
  readonly policy: PolicySource;
  /** Absolute path of the policy's own file; undefined when it stands in the gateway's. */
  readonly policyFile: string | undefined;
}

/**
 * Reads and checks gateway.yaml (DESIGN 4.2) and its policy (4.3). Every problem of both files is reported, each with
 * its place. Nothing is connected to and no secret is read. `file` is shown in messages as given. `isElsewhere`: it is the file of
 * another machine, where the certificates lie that it names.
 */
export function loadGatewayConfig(file: string, { isElsewhere = false } = {}): Loaded<GatewayConfig> {
  return withTree(file, (tree, problems) => loadGatewayTree(tree, problems, file, isElsewhere));
}

/** Reads and checks relay.yaml (DESIGN 4.4). */
export function loadRelayConfig(file: string): Loaded<RelayConfig> {
  return withTree(file, loadRelayTree);
}

/** Reads and checks a policy file by itself (DESIGN 4.3): which servers there are it cannot know. */
export function loadPolicy(file: string): Loaded<PolicySource> {
  return withTree(file, (tree, problems) => {
    const policy = readPolicy(tree);
    return settle(policy.source, [...problems, ...policy.problems], policy.warnings);
  });
}

/** Reads a table of expectations (see `PolicyCase`), YAML or JSON. */
export function loadCases(file: string): Loaded<readonly PolicyCase[]> {
  return withTree(file, (tree, problems) => {
    const shape = checkShape("cases", tree, casesSchema);
    const cases = shape.value === undefined ? undefined : placeCases(tree, shape.value);
    return settle(cases, [...problems, ...shape.problems], []);
  });
}

/** Which of the three files it is, by what it says. */
export function loadAny(file: string): {
  readonly document: DocumentKind | undefined;
  readonly loaded: Loaded<unknown>;
} {
  let document: DocumentKind | undefined;
  const loaded = withTree<unknown>(file, (tree, problems) => {
    document = recognise(tree);
    if (document === "gateway") return loadGatewayTree(tree, problems, file);
    if (document === "relay") return loadRelayTree(tree, problems, file);
    if (document === "policy") {
      const policy = readPolicy(tree);
      return settle(policy.source, [...problems, ...policy.problems], policy.warnings);
    }
    const message = "this may be a gateway, a relay or a policy file: none of the keys that tell them apart is here";
    const cure = "relay and servers (gateway), publicUrl and tunnels (relay), or version and servers (policy)";
    return settle(undefined, [...problems, { at: tree.at, message, cure }], []);
  });
  return { document, loaded };
}

const markers = {
  gateway: ["relay", "vault", "policy", "audit", "timeouts", "agents", "gateway"],
  relay: ["publicUrl", "tunnels", "allowedHosts", "allowedOrigins", "trustedProxies", "listen", "tls"],
  policy: ["version", "mode", "onDeny"],
};

/** The kind with the most keys of its own; undefined when two have as many, or none any. */
function recognise(tree: Tree): DocumentKind | undefined {
  if (tree.kind !== "map") return undefined;
  const kinds = ["gateway", "relay", "policy"] as const;
  const ranked = kinds
    .map((kind) => ({ kind, count: markers[kind].filter((key) => tree.entries.has(key)).length }))
    .toSorted((a, b) => b.count - a.count);
  const [first, second] = ranked;
  if (first === undefined || first.count === 0 || first.count === second?.count) return undefined;
  return first.kind;
}

/** One of the other files, without a key that belongs to the wanted one alone: a problem for each of its keys would say less. */
function findMistaken(tree: Tree, wanted: "gateway" | "relay"): Problem | undefined {
  const kind = recognise(tree);
  if (kind === undefined || kind === wanted || tree.kind !== "map") return undefined;
  if (markers[wanted].some((key) => tree.entries.has(key))) return undefined;
  const cure =
    kind === "policy" ? "the gateway's file, which names it" : `the ${wanted}'s file, or \`postern ${kind}\``;
  return { at: tree.at, message: `this is a ${kind} file, not a ${wanted}'s`, cure };
}

type Load<T> = (tree: Tree, problems: readonly Problem[], file: string) => Loaded<T>;

function withTree<T>(file: string, load: Load<T>): Loaded<T> {
  const { tree, problems } = readTree(file);
  return tree === undefined ? settle<T>(undefined, problems, []) : load(tree, problems, file);
}

function readTree(file: string): { readonly tree: Tree | undefined; readonly problems: readonly Problem[] } {
  const read = readText(file);
  return "problem" in read ? { tree: undefined, problems: [read.problem] } : parseYaml(file, read.text);
}

function settle<T>(config: T | undefined, problems: readonly Problem[], warnings: readonly Problem[]): Loaded<T> {
  if (problems.length > 0) return { kind: "bad", problems: sortProblems(problems).map(makePrintable) };
  if (config === undefined) throw new TypeError("a document without problems has a value");
  return { kind: "ok", config: freezeConfig(config), warnings: sortProblems(warnings).map(makePrintable) };
}

function loadRelayTree(tree: Tree, problems: readonly Problem[], file: string): Loaded<RelayConfig> {
  const mistaken = findMistaken(tree, "relay");
  if (mistaken !== undefined) return settle<RelayConfig>(undefined, [...problems, mistaken], []);
  const shape = checkShape("relay", tree, createRelaySchema(dirname(resolve(file))));
  const found = [
    ...problems,
    ...shape.problems,
    ...besides(shape.problems, findCaFaults(tree, dirname(file))),
    ...findSharedHashes(tree),
    ...findSharedPort(tree, shape.value),
  ];
  return settle(shape.value, found, []);
}

function loadGatewayTree(
  tree: Tree,
  problems: readonly Problem[],
  file: string,
  isElsewhere = false,
): Loaded<GatewayConfig> {
  const mistaken = findMistaken(tree, "gateway");
  if (mistaken !== undefined) return settle<GatewayConfig>(undefined, [...problems, mistaken], []);
  const base = dirname(resolve(file));
  const own = withoutInlinePolicy(tree);
  const shape = checkShape("gateway", own, createGatewaySchema(base));
  const policy = findPolicy(tree, file);
  const found = [
    ...problems,
    ...shape.problems,
    ...findVaultless(own),
    ...besides(shape.problems, findUnverifiedCallers(own)),
    ...besides(shape.problems, findCaFaults(own, isElsewhere ? undefined : dirname(file))),
    ...findHeaderFaults(own),
    ...findSharedKeys(own),
    ...policy.problems,
  ];
  if (policy.tree !== undefined) found.push(...findUnknownServers(policy.tree, tree));
  const unruled = policy.tree === undefined ? [] : findUnruledServers(tree, policy.tree);
  const isWhole = shape.value !== undefined && policy.source !== undefined;
  const config = isWhole ? { ...shape.value, policy: policy.source, policyFile: policy.file } : undefined;
  return settle(config, found, [...findVaultSlips(own), ...unruled, ...policy.warnings]);
}

/** Those of `found` at whose place nothing was told yet. */
function besides(told: readonly Problem[], found: readonly Problem[]): readonly Problem[] {
  return found.filter(({ at }) => !told.some((one) => isSamePlace(one.at, at)));
}

function isSamePlace(a: Position, b: Position): boolean {
  return a.line === b.line && a.column === b.column;
}

interface ReadPolicy {
  readonly source: PolicySource | undefined;
  readonly problems: readonly Problem[];
  readonly warnings: readonly Problem[];
  /** Undefined when there was nothing to read. */
  readonly tree: Tree | undefined;
  readonly file?: string | undefined;
}

function findPolicy(gateway: Tree, file: string): ReadPolicy {
  const node = nodeAt(gateway, ["policy"]);
  const nothing = { source: undefined, problems: [], warnings: [], tree: undefined };
  // Absent or null: the gateway's own check says so.
  if (node === undefined || (node.kind === "scalar" && node.value === null)) return nothing;
  if (node.kind === "map") return readPolicy(node);
  if (node.kind !== "scalar" || typeof node.value !== "string" || node.value.trim() === "") {
    const { expects, example } = expectationAt("gateway", ["policy"]);
    return { ...nothing, problems: [{ at: node.at, message: `\`policy\` must be ${expects}`, cure: example }] };
  }
  // Named in messages as the author would look for it: beside the file as it was given.
  const path = isAbsolute(node.value) ? node.value : join(dirname(file), node.value);
  const read = readText(path);
  if ("problem" in read) {
    const message = `\`policy\` names ${path}: ${read.problem.message}`;
    return { ...nothing, problems: [{ at: node.at, message, cure: read.problem.cure }] };
  }
  const { tree, problems } = parseYaml(path, read.text);
  if (tree === undefined) return { ...nothing, problems };
  const policy = readPolicy(tree);
  return { ...policy, problems: [...problems, ...policy.problems], file: resolve(path) };
}

function readPolicy(tree: Tree): ReadPolicy {
  const shape = checkShape("policy", tree, policySchema);
  const problems = [...shape.problems, ...findMixedGrants(tree)];
  const source = shape.value === undefined ? undefined : buildPolicySource(tree, shape.value);
  const warnings = source === undefined ? [] : findPolicyWarnings(source, tree);
  return { source, problems, warnings, tree };
}

/** The inline policy is a document of its own kind; the gateway's check only needs to see that it is there. */
function withoutInlinePolicy(tree: Tree): Tree {
  const entry = tree.kind === "map" ? tree.entries.get("policy") : undefined;
  if (tree.kind !== "map" || entry?.value.kind !== "map") return tree;
  const entries = new Map(tree.entries);
  entries.set("policy", { ...entry, value: { kind: "scalar", at: entry.value.at, value: "inline", source: "" } });
  return { ...tree, entries };
}
