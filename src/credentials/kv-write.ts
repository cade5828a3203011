import { toWriteBack } from "./access-check.ts";
import { CredentialError } from "./errors.ts";
import type { WatchedTransport } from "./store-health.ts";
import type { TokenManager } from "./vault-auth.ts";
import { explainFailure, VaultFailure } from "./vault-failure.ts";
import { folderOf, type KvReader, type KvVersioned } from "./vault-kv.ts";
import { asObject } from "./vault-transport.ts";

/** An entry that several gateways read and write, each knowing which version it has seen. */
export interface SharedRecord {
  /** Names the entry in messages. */
  readonly place: string;
  /**
   * The latest version, from the store itself. Rejects with `CredentialError`. `isUrgent`: also while the store is known to be
   * down, since something is to be saved there.
   */
  read(isUrgent?: boolean): Promise<KvVersioned>;
  /**
   * Is always tried: what is written was bought, and cannot be bought twice. Writes `fields` as the version after `seen`: the new version, or that somebody else wrote meanwhile. Rejects with
   * `CredentialError`; where that is `isAway`, the write may have happened all the same.
   */
  write(fields: Readonly<Record<string, unknown>>, seen: KvVersioned): Promise<KvVersioned | "conflict">;
}

export interface KvRecordFileDeps {
  readonly transport: WatchedTransport;
  readonly tokens: TokenManager;
  readonly kv: KvReader;
}

/** One entry of a mount of KV version 2. */
export class KvRecordFile implements SharedRecord {
  readonly place: string;
  readonly #mount: string;
  readonly #path: string;
  readonly #deps: KvRecordFileDeps;

  constructor(mount: string, path: string, deps: KvRecordFileDeps) {
    this.place = `${mount}/${path}`;
    this.#mount = mount;
    this.#path = path;
    this.#deps = deps;
  }

  async read(isUrgent = false): Promise<KvVersioned> {
    return await this.#deps.kv.readVersion(this.#mount, this.#path, isUrgent);
  }

  async write(fields: Readonly<Record<string, unknown>>, seen: KvVersioned): Promise<KvVersioned | "conflict"> {
    const { place, version: cas } = seen;
    try {
      const answer = await this.#put(place.apiPath, { options: { cas }, data: fields });
      const version = asObject(answer?.["data"])?.["version"];
      if (typeof version !== "number") throw new VaultFailure("bad-answer", "it tells no version");
      return { place, fields, version };
    } catch (error) {
      if (error instanceof VaultFailure && error.hint === "cas-mismatch") return "conflict";
      if (error instanceof VaultFailure && error.status === 403) {
        const cure = `grant ${place.stanzaFor(toWriteBack)}`;
        throw new CredentialError("denied", `the store denies writing ${place}`, cure, { status: 403 });
      }
      throw explainFailure(error, this.#deps.transport.address);
    }
  }

  /** A refused write did not happen: it is tried again once, if the token was to blame. Nothing else is. */
  async #put(path: string, body: Readonly<Record<string, unknown>>) {
    const { tokens } = this.#deps;
    const transport = this.#deps.transport.part(folderOf(this.#mount)).insistent();
    const token = await tokens.current();
    try {
      return await transport.write(path, body, token);
    } catch (error) {
      if (!(error instanceof VaultFailure) || error.status !== 403) throw error;
      if ((await tokens.judgeDenial(token)) === "denied") throw error;
      return await transport.write(path, body, await tokens.current());
    }
  }
}
