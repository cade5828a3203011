import type { Logger } from "../telemetry/index.ts";
import { CredentialError } from "./errors.ts";
import type { TokenManager } from "./vault-auth.ts";
import { explainFailure } from "./vault-failure.ts";
import type { KvReader } from "./vault-kv.ts";
import { asObject, type VaultTransport } from "./vault-transport.ts";

export interface AccessCheckDeps {
  readonly transport: VaultTransport;
  readonly tokens: TokenManager;
  readonly kv: KvReader;
  readonly logger: Logger;
  /** Paths that are no entries. */
  readonly needs?: readonly Need[];
}

/** What a policy must grant: all of the capabilities at the path. */
export interface Need {
  readonly policyPath: string;
  readonly stanza: string;
  readonly capabilities: readonly string[];
  /** Why even all of them will not do. */
  readonly problem?: CredentialError | undefined;
}

/** An entry in the words of the configuration. */
export interface Entry {
  readonly mount: string;
  readonly path: string;
  /** It is written back as well. */
  readonly isWritten?: boolean;
}

const toRead = ["read"];
export const toWriteBack = ["read", "create", "update"];

/**
 * Asks the store whether our token may do what the configuration needs, before an agent needs it, and logs what a policy lacks.
 * Never rejects: a store that is away now may be there when it counts.
 */
export async function checkAccess(entries: readonly Entry[], deps: AccessCheckDeps): Promise<void> {
  const { transport, logger } = deps;
  const store = transport.address;
  const count = entries.length + (deps.needs?.length ?? 0);
  if (count === 0) return;
  try {
    const needs = await findNeeds(entries, deps);
    const denied = await findDenied(needs, deps);
    for (const { policyPath: path, problem } of needs) {
      if (problem === undefined) continue;
      const { code, message: reason, cure } = problem;
      logger.warn("record cannot be written back", { store, path, code, reason, cure });
    }
    for (const { policyPath: path, stanza } of denied) {
      logger.warn("store policy lacks a path", { store, path, cure: `grant ${stanza}` });
    }
    if (denied.length === 0) logger.info("store grants every path", { store, count });
  } catch (error) {
    const { code, message: reason, cure } = explainFailure(error, store);
    if (code === "closed") return;
    logger.warn("store access not checked", { store, code, reason, cure });
  }
}

/** What the configuration needs: `entries`, and what `deps` has beside them. */
export async function findNeeds(
  entries: readonly Entry[],
  { kv, needs: others }: AccessCheckDeps,
): Promise<readonly Need[]> {
  const needs: Need[] = [...(others ?? [])];
  // One after the other, so that a mount is asked about once.
  for (const { mount, path, isWritten } of entries) {
    const place = await kv.place(mount, path);
    const capabilities = isWritten === true ? toWriteBack : toRead;
    const problem = isWritten === true && place.version !== "2" ? place.noCheckAndSet() : undefined;
    needs.push({ policyPath: place.policyPath, stanza: place.stanzaFor(capabilities), capabilities, problem });
  }
  return needs;
}

/** Of `needs`, those that our token lacks. */
export async function findDenied(
  needs: readonly Need[],
  { transport, tokens }: AccessCheckDeps,
): Promise<readonly Need[]> {
  const paths = [...new Set(needs.map(({ policyPath }) => policyPath))];
  const answer = await transport.write("sys/capabilities-self", { paths }, await tokens.current());
  const found = asObject(answer?.["data"]);
  if (found === undefined) {
    throw new CredentialError(
      "store-bad-answer",
      `store ${transport.address} does not tell our capabilities`,
      'grant path "sys/capabilities-self" { capabilities = ["update"] }, as the default policy does',
    );
  }
  return needs.filter(({ policyPath, capabilities }) => !grantsAll(capabilities, found[policyPath]));
}

function grantsAll(wanted: readonly string[], granted: unknown): boolean {
  if (!Array.isArray(granted) || granted.includes("deny")) return false;
  return granted.includes("root") || wanted.every((capability) => granted.includes(capability));
}
