import type { Fault } from "./cures.ts";
import type { Listen } from "./fields.ts";
import { headerNameFault } from "./header-fields.ts";
import { nearest } from "./nearest.ts";
import type { Problem } from "./problem.ts";
import { formatPath, type MapEntry, type MapTree, nodeAt, type Path, type Tree, walk } from "./tree.ts";

/**
 * What no single field can tell. These look at trees, not at checked values, so that they find their faults beside
 * whatever else is wrong in the file.
 */

/** A Vault source needs a Vault. */
export function findVaultless(gateway: Tree): Problem[] {
  if (nodeAt(gateway, ["vault"]) !== undefined) return [];
  const problems: Problem[] = [];
  walk(gateway, (node, path) => {
    const at = node.kind === "map" ? vaultKeyOf(node)?.keyAt : undefined;
    if (at === undefined || path.length === 0) return;
    const cure = "vault: { address: https://vault.internal:8200, auth: { … } } at the top of the file";
    problems.push({ at, message: `\`${formatPath(path)}\` reads from Vault, but the file names none`, cure });
  });
  return problems;
}

/** The key of `node` by which it needs a Vault. */
function vaultKeyOf({ entries }: MapTree): MapEntry | undefined {
  const type = entries.get("type");
  const isIdentity = type?.value.kind === "scalar" && type.value.value === "vaultIdentity";
  return entries.get("vault") ?? entries.get("pki") ?? (isIdentity ? type : undefined);
}

const edge = "agents: { verify: edge, issuers: [ … ] }, so that the gateway itself knows who calls";
const edgeOrKeys = "agents: { verify: edge, keys or issuers: [ … ] }, so that the gateway itself knows who calls";

/** Whose secret a call gets must not be a matter of what the relay claims. */
export function findUnverifiedCallers(gateway: Tree): Problem[] {
  const verify = nodeAt(gateway, ["agents", "verify"]);
  const isEdge = verify?.kind === "scalar" && verify.value === "edge";
  const problems: Problem[] = [];
  walk(gateway, (node, path) => {
    if (node.kind !== "scalar" || typeof node.value !== "string") return;
    if (!isVaultPath(path)) {
      if (/\{ *principal\b/.test(node.value)) problems.push({ at: node.at, ...misplacedPrincipal(path) });
      return;
    }
    if (!node.value.includes("{principal.id}")) return;
    const what = `\`${formatPath(path)}\` depends on who calls`;
    if (path[0] !== "servers" || path[2] !== "credential") {
      problems.push({ at: node.at, message: `${what}, but nobody calls here`, cure: "a fixed path" });
    } else if (isSharedType(nodeAt(gateway, [...path.slice(0, 3), "type"]))) {
      problems.push({ at: node.at, message: `${what}, which this type of credential cannot`, cure: "a fixed path" });
    } else if (!isEdge) {
      problems.push({ at: node.at, message: `${what}, which needs \`agents.verify: edge\``, cure: edgeOrKeys });
    }
  });
  return [...problems, ...findTokenless(gateway, isEdge)];
}

function isVaultPath(path: Path): boolean {
  return path.at(-1) === "path" && path.at(-2) === "vault";
}

/** Taken for a text, it would stand literally in a file's name or a header. */
function misplacedPrincipal(path: Path): Fault {
  const message = `\`${formatPath(path)}\`: the principal has a place in \`path\` of a Vault source only`;
  return { message, cure: '{ vault: { mount: secret, path: "mcp/tickets/{principal.id}", field: token } }' };
}

/** Paths that are right for another tool than this one; they may be meant, so these are warnings. */
export function findVaultSlips(gateway: Tree): Problem[] {
  const problems: Problem[] = [];
  walk(gateway, (node, path) => {
    const start = addedStart(gateway, path);
    if (node.kind !== "scalar" || start === undefined || !String(node.value).startsWith(start)) return;
    const where = start === "data/" ? " where the mount is of KV version 2" : "";
    const message = `\`${formatPath(path)}\` begins with ${start}, which is added by itself${where}`;
    problems.push({ at: node.at, message, cure: `${path.at(-1)}: ${String(node.value).slice(start.length)}` });
  });
  return problems;
}

/** What Vault's API has in front of the text at `path`, and this file has not. */
function addedStart(gateway: Tree, path: Path): string | undefined {
  if (path.join(".") === "vault.auth.mount") return "auth/";
  if (!isVaultPath(path)) return undefined;
  return nodeAt(gateway, [...path.slice(0, -1), "mount"]) === undefined ? "v1/" : "data/";
}

/** One lease, certificate or record serves all callers of a server. */
function isSharedType(type: Tree | undefined): boolean {
  const shared: readonly unknown[] = ["mtls", "vaultDynamic", "vaultIdentity", "oauthRefreshToken"];
  return type?.kind === "scalar" && shared.includes(type.value);
}

/** Only who came with a token has one to exchange. */
function findTokenless(gateway: Tree, isEdge: boolean): Problem[] {
  const issuers = nodeAt(gateway, ["agents", "issuers"]);
  const hasIssuers = issuers?.kind === "list" && issuers.items.length > 0;
  if (isEdge && hasIssuers) return [];
  return [...entriesAt(gateway)].flatMap(([, { value: server }]) => {
    const type = nodeAt(server, ["credential", "type"]);
    if (type?.kind !== "scalar" || type.value !== "tokenExchange") return [];
    const needs = isEdge ? "agents with tokens: `agents.issuers`" : "`agents.verify: edge`";
    return [{ at: type.at, message: `\`type: tokenExchange\` needs ${needs}`, cure: edge }];
  });
}

/** Headers that hold a secret by their very name. */
const secretNames = /^authorization$|cookie|token|secret|passw|api-?key/i;

/** HTTP does not tell names by their case: of two spellings of one, a server would take either. */
export function findHeaderFaults(gateway: Tree): Problem[] {
  return [...entriesAt(gateway)].flatMap(([, { value: server }]) => {
    const headers = nodeAt(server, ["credential", "headers"]) ?? nodeAt(server, ["credential", "as", "headers"]);
    if (headers?.kind !== "map") return [];
    const lines = new Map<string, number>();
    return [...headers.entries].flatMap(([name, { keyAt: at, value }]) => {
      const fault = headerNameFault(name);
      if (fault !== undefined) return [{ at, ...fault, message: fault.message.replace("{}", `\`${name}\``) }];
      if (secretNames.test(name) && value.kind === "scalar" && typeof value.value === "string") {
        const message = `\`${name}\`: a secret is never written into this file`;
        return [{ at: value.at, message, cure: `${name}: { file: PATH }   or { env: NAME } or { vault: { … } }` }];
      }
      const line = lines.get(name.toLowerCase());
      lines.set(name.toLowerCase(), line ?? at.line);
      if (line === undefined) return [];
      return [
        { at, message: `\`${name}\` is the header of line ${line} in another spelling`, cure: "each header once" },
      ];
    });
  });
}

/** One key for two agents would make who calls a matter of order. */
export function findSharedKeys(gateway: Tree): Problem[] {
  return findShared(nodeAt(gateway, ["agents", "keys"]), "sha256");
}

/** A policy for a server that does not exist protects nothing: most often it is a slip in the name. */
export function findUnknownServers(policy: Tree, gateway: Tree): Problem[] {
  const configured = namesAt(gateway);
  return [...entriesAt(policy)].flatMap(([name, entry]) => {
    if (configured.includes(name)) return [];
    const meant = nearest(name, configured);
    const cure =
      meant ?? (configured.length === 0 ? "a server of the gateway's file" : `one of: ${configured.join(", ")}`);
    return [{ at: entry.keyAt, message: `there is no server \`${name}\` in the gateway's file`, cure }];
  });
}

export function findUnruledServers(gateway: Tree, policy: Tree): Problem[] {
  const ruled = namesAt(policy);
  return [...entriesAt(gateway)].flatMap(([name, entry]) => {
    if (ruled.includes(name)) return [];
    const message = `the policy has no entry for \`${name}\`: every call to it is denied`;
    return [{ at: entry.keyAt, message, cure: `servers: { ${name}: { tools: [ … ] } } in the policy` }];
  });
}

/** A server has the keys of one grant, or a list of grants: with both, a reader takes one of them for all there is. */
export function findMixedGrants(policy: Tree): Problem[] {
  const grantKeys = ["tools", "prompts", "resources", "resourceTemplates", "client"];
  return [...entriesAt(policy)].flatMap(([name, { value }]) => {
    if (value.kind !== "map" || !value.entries.has("grants")) return [];
    const mixed = grantKeys.find((key) => value.entries.has(key));
    const at = mixed === undefined ? undefined : value.entries.get(mixed)?.keyAt;
    if (at === undefined) return [];
    const message = `\`servers.${name}\` has \`grants\` and beside it \`${mixed}\`, a key of a grant`;
    return [{ at, message, cure: `- ${mixed}: … as one more of the grants` }];
  });
}

/** One key for two agents, or one token for two gateways, would make who it is a matter of order. */
export function findSharedHashes(relay: Tree): Problem[] {
  const lists = [
    ["gateways", "tokenSha256"],
    ["agents", "keySha256"],
  ] as const;
  return [...entriesAt(relay, "tunnels")].flatMap(([, { value: tunnel }]) => [
    ...lists.flatMap(([list, key]) => findShared(nodeAt(tunnel, [list]), key)),
    ...findSwapped(tunnel),
  ]);
}

/** The two kinds of secret differ in their first letters, so no agent's key can have the hash of a gateway's token. */
function findSwapped(tunnel: Tree): Problem[] {
  const ofGateways = new Set(hashesAt(tunnel, "gateways", "tokenSha256").map(({ value }) => value));
  const cure = "the hash that `postern token new --kind agent` prints";
  return hashesAt(tunnel, "agents", "keySha256").flatMap(({ at, value }) =>
    ofGateways.has(value) ? [{ at, message: "this is the hash of a gateway's token, which no agent has", cure }] : [],
  );
}

function hashesAt(tunnel: Tree, list: string, key: string) {
  const entries = nodeAt(tunnel, [list]);
  return (entries?.kind === "list" ? entries.items : []).flatMap((item) => {
    const given = nodeAt(item, [key]);
    return (given?.kind === "list" ? given.items : []).flatMap((hash) =>
      hash.kind === "scalar" && typeof hash.value === "string" ? [{ at: hash.at, value: hash.value }] : [],
    );
  });
}

/** The port for agents and gateways, and the one for probes: the second to listen would find it taken. */
export function findSharedPort(
  relay: Tree,
  config: { readonly listen: Listen; readonly admin: { readonly listen: Listen } } | undefined,
): Problem[] {
  if (config === undefined || config.listen.port === 0 || config.listen.port !== config.admin.listen.port) return [];
  const [host, other] = [config.listen.host, config.admin.listen.host];
  if (host !== other && !isAllOf(host, other) && !isAllOf(other, host)) return [];
  const at = (nodeAt(relay, ["admin", "listen"]) ?? nodeAt(relay, ["listen"]) ?? relay).at;
  const cure = "a port for each, such as 8080 and 9465";
  return [{ at, message: "`listen` and `admin.listen` share a port", cure }];
}

/** Whether to listen on `host` takes the ports of `other` too: `::` is all addresses, `0.0.0.0` those of IPv4. */
function isAllOf(host: string, other: string): boolean {
  return host === "::" || (host === "0.0.0.0" && !other.includes(":"));
}

function findShared(list: Tree | undefined, key: string): Problem[] {
  if (list?.kind !== "list") return [];
  const owners = new Map<unknown, number>();
  return list.items.flatMap((item, i) => {
    const given = nodeAt(item, [key]);
    const hashes = given?.kind === "list" ? given.items : given === undefined ? [] : [given];
    return hashes.flatMap((hash) => {
      const value = hash.kind === "scalar" ? hash.value : undefined;
      const owner = owners.get(value) ?? i;
      owners.set(value, owner);
      if (owner === i || typeof value !== "string") return [];
      return [
        { at: hash.at, message: "this hash belongs to another entry already", cure: "the hash of a secret of its own" },
      ];
    });
  });
}

function entriesAt(tree: Tree, key = "servers"): MapTree["entries"] {
  const node = nodeAt(tree, [key]);
  return node?.kind === "map" ? node.entries : new Map();
}

function namesAt(tree: Tree): string[] {
  return [...entriesAt(tree).keys()];
}
