import type { Logger } from "../telemetry/index.ts";
import { CredentialError } from "./errors.ts";
import type { TokenManager } from "./vault-auth.ts";
import { explainFailure } from "./vault-failure.ts";
import type { KvPlace, KvReader } from "./vault-kv.ts";
import { asObject, type VaultTransport } from "./vault-transport.ts";

export interface AccessCheckDeps {
  readonly transport: VaultTransport;
  readonly tokens: TokenManager;
  readonly kv: KvReader;
  readonly logger: Logger;
}

interface Need {
  readonly place: KvPlace;
  readonly needs: readonly string[];
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
 * Asks the store whether our token may read `entries`, and write those that are written back, before an agent needs one of them, and logs what a policy lacks.
 * Never rejects: a store that is away now may be there when it counts.
 */
export async function checkAccess(entries: readonly Entry[], deps: AccessCheckDeps): Promise<void> {
  const { transport, logger } = deps;
  const store = transport.address;
  if (entries.length === 0) return;
  try {
    const needed = await findNeeds(entries, deps);
    const denied = await findDenied(needed, deps);
    for (const { place, needs } of needed) {
      if (needs !== toWriteBack || place.version === "2") continue;
      const { code, message: reason, cure } = place.noCheckAndSet();
      logger.warn("record cannot be written back", { store, path: place.policyPath, code, reason, cure });
    }
    for (const { place, needs } of denied) {
      const { policyPath: path } = place;
      logger.warn("store policy lacks a path", { store, path, cure: `grant ${place.stanzaFor(needs)}` });
    }
    if (denied.length === 0) logger.info("store grants every path", { store, count: entries.length });
  } catch (error) {
    const { code, message: reason, cure } = explainFailure(error, store);
    if (code === "closed") return;
    logger.warn("store access not checked", { store, code, reason, cure });
  }
}

async function findNeeds(entries: readonly Entry[], { kv }: AccessCheckDeps): Promise<readonly Need[]> {
  const needed: Need[] = [];
  // One after the other, so that a mount is asked about once.
  for (const { mount, path, isWritten } of entries) {
    needed.push({ place: await kv.place(mount, path), needs: isWritten === true ? toWriteBack : toRead });
  }
  return needed;
}

async function findDenied(needed: readonly Need[], { transport, tokens }: AccessCheckDeps): Promise<readonly Need[]> {
  const paths = [...new Set(needed.map(({ place }) => place.policyPath))];
  const answer = await transport.write("sys/capabilities-self", { paths }, await tokens.current());
  const found = asObject(answer?.["data"]);
  if (found === undefined) {
    throw new CredentialError(
      "store-bad-answer",
      `store ${transport.address} does not tell our capabilities`,
      'grant path "sys/capabilities-self" { capabilities = ["update"] }, as the default policy does',
    );
  }
  return needed.filter(({ place, needs }) => !may(needs, found[place.policyPath]));
}

function may(needs: readonly string[], capabilities: unknown): boolean {
  if (!Array.isArray(capabilities) || capabilities.includes("deny")) return false;
  return capabilities.includes("root") || needs.every((need) => capabilities.includes(need));
}
