import { isAbsolute, join } from "node:path";
import { readCertificates } from "../lib/index.ts";
import { type Fault, patternOf } from "./cures.ts";
import { grantTypes } from "./issued-cures.ts";
import type { Problem } from "./problem.ts";
import { readText } from "./read-text.ts";
import { formatPath, type MapTree, nodeAt, type Path, type Tree, walk } from "./tree.ts";

/** Where `ca` names a file for what stands beside it. */
const places: ReadonlySet<string> = new Set([
  "servers.*.ca",
  "servers.*.credential.ca",
  "servers.*.credential.as.ca",
  "agents.issuers[].ca",
  "tunnels.*.agents[].oauth.ca",
  "tunnels.*.gateways[].jwt.ca",
]);

/** What a `ca` may stand beside, the first that is there being what is dialled. */
const addressKeys = ["url", "jwks", "tokenEndpoint", "apiUrl", "issuer"] as const;

/**
 * Files of certificates that are not there or hold none, and those that nothing would read. `base`: the directory that relative
 * paths start from; undefined where the files are on another machine.
 */
export function findCaFaults(tree: Tree, base: string | undefined): Problem[] {
  const problems: Problem[] = [];
  walk(tree, (node, path) => {
    if (node.kind !== "scalar" || typeof node.value !== "string" || !places.has(patternOf(path))) return;
    const parent = nodeAt(tree, path.slice(0, -1));
    if (parent?.kind !== "map" || (patternOf(path).includes(".credential.") && !isGrant(parent))) return;
    const unread = unreadFault(parent, path);
    const fault = unread ?? (base === undefined ? undefined : fileFault(fileAt(base, node.value), path));
    if (fault !== undefined) problems.push({ at: node.at, ...fault });
  });
  return problems;
}

/** Other credentials have no such key, which is said already, or a source there. */
function isGrant(credential: MapTree): boolean {
  return grantTypes.has(textOf(credential, "type") ?? "");
}

function unreadFault(parent: MapTree, path: Path): Fault | undefined {
  const label = `\`${formatPath(path)}\``;
  if (textOf(parent, "credential", "type") === "mtls" && nodeAt(parent, ["credential", "ca"]) !== undefined) {
    const message = `${label} stands beside \`ca\` of the credential`;
    return { message, cure: "keep that of the credential, which alone is trusted then" };
  }
  const key = addressKeys.find((name) => parent.entries.has(name));
  const address = key === undefined ? undefined : textOf(parent, key);
  if (address === undefined) return undefined;
  if (/^http:/i.test(address)) {
    const message = `${label}: \`${key}\` is http://, where there is no certificate`;
    // The address is not shown: people write passwords and tokens into it.
    return { message, cure: `${key}: https://…, or the file without \`ca\`` };
  }
  if (key !== "jwks" || /^https:/i.test(address)) return undefined;
  return { message: `${label} is not read: the keys come from a file`, cure: "the file without it" };
}

function textOf(map: MapTree, ...path: readonly string[]): string | undefined {
  const node = nodeAt(map, path);
  return node?.kind === "scalar" && typeof node.value === "string" ? node.value : undefined;
}

/** Named in messages as the author would look for it: beside the file as it was given. */
function fileAt(base: string, path: string): string {
  return isAbsolute(path) ? path : join(base, path);
}

const noPem = "a file of -----BEGIN CERTIFICATE----- blocks (DER: openssl x509 -inform der -in FILE -out FILE.pem)";

function fileFault(file: string, path: Path): Fault | undefined {
  const names = `\`${formatPath(path)}\` names ${file}`;
  const read = readText(file);
  if ("text" in read && readCertificates(read.text) !== undefined) return undefined;
  const isUnread = "problem" in read && read.problem.message.startsWith("this file ");
  if (isUnread) return { message: `${names}: ${read.problem.message}`, cure: "a PEM file that is mounted here" };
  return { message: `${names}, which holds no PEM certificate`, cure: noPem };
}
