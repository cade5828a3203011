import { type Clock, Secret } from "../lib/index.ts";
import { CredentialError } from "./errors.ts";
import type { TokenManager } from "./vault-auth.ts";
import { explainFailure, VaultFailure } from "./vault-failure.ts";
import { encodePath } from "./vault-path.ts";
import { asObject, type VaultAnswer, type VaultTransport } from "./vault-transport.ts";

const inconsistentRetryMs = 200;

/** One version of a KV v2 entry. The fields stay inside; what comes out is wrapped. */
export class KvRecord {
  readonly #fields: Readonly<Record<string, unknown>>;
  readonly #place: string;
  readonly #secrets = new Map<string, Secret>();

  constructor(fields: Readonly<Record<string, unknown>>, place: string) {
    this.#fields = fields;
    this.#place = place;
  }

  /** The same `Secret` for the same field each time. Throws `field-missing`, `field-empty` or `field-not-string`. */
  field(name: string): Secret {
    const known = this.#secrets.get(name);
    if (known !== undefined) return known;
    const value = Object.hasOwn(this.#fields, name) ? this.#fields[name] : undefined;
    const what = `field ${name} of ${this.#place}`;
    if (value === undefined || value === null) {
      throw new CredentialError(
        "field-missing",
        `${what} is missing`,
        `write the field ${name}, or correct its name in the configuration`,
      );
    }
    if (typeof value !== "string") {
      throw new CredentialError("field-not-string", `${what} is not a string`, `write ${name} as a string`);
    }
    if (value === "") throw new CredentialError("field-empty", `${what} is empty`, `write a value into ${name}`);
    const secret = new Secret(value);
    this.#secrets.set(name, secret);
    return secret;
  }
}

export interface KvReaderOptions {
  readonly transport: VaultTransport;
  readonly tokens: TokenManager;
  readonly clock: Clock;
}

/** Reads KV version 2; never caches. */
export class KvReader {
  readonly #options: KvReaderOptions;

  constructor(options: KvReaderOptions) {
    this.#options = options;
  }

  /** The latest version of `path` in `mount`. Rejects with `CredentialError`. */
  async read(mount: string, path: string): Promise<KvRecord> {
    const place = new KvPlace(mount, path);
    try {
      return recordOf(await this.#fetch(place), place);
    } catch (error) {
      if (error instanceof VaultFailure && (error.status === 403 || error.status === 404 || error.status === 405)) {
        throw place.explain(error, await this.#mountOf(place));
      }
      throw explainFailure(error, this.#options.transport.address);
    }
  }

  /** A refusal is tried again once, if the token was to blame; so is a node that lags behind, or a connection gone stale. */
  async #fetch(place: KvPlace): Promise<VaultAnswer> {
    const { transport, tokens, clock } = this.#options;
    const token = await tokens.current();
    try {
      return await transport.read(place.apiPath, token);
    } catch (error) {
      if (!(error instanceof VaultFailure)) throw error;
      if (error.status === 403 && (await tokens.judgeDenial(token)) === "denied") throw error;
      if (error.status === 412) await new Promise<void>((resolve) => clock.after(inconsistentRetryMs, resolve));
      if (error.status !== 403 && error.status !== 412 && !isLostConnection(error)) throw error;
      return await transport.read(place.apiPath, await tokens.current());
    }
  }

  /** What the store itself says of the mount, to explain a failure; undefined when it does not tell. */
  async #mountOf(place: KvPlace): Promise<MountInfo | undefined> {
    const { transport, tokens } = this.#options;
    try {
      const answer = await transport.read(`sys/internal/ui/mounts/${place.encodedMount}`, await tokens.current());
      const data = asObject(answer?.["data"]);
      const path = data?.["path"];
      // Only what is part of the configured path is repeated in a message.
      if (typeof path !== "string" || !place.isBelow(path)) return undefined;
      const isKv = data?.["type"] === "kv" || data?.["type"] === "generic";
      const version = asObject(data?.["options"])?.["version"] === "2" ? "2" : "1";
      return { path: path.replace(/\/$/, ""), version: isKv ? version : "other" };
    } catch {
      return undefined;
    }
  }
}

interface MountInfo {
  readonly path: string;
  readonly version: "1" | "2" | "other";
}

/** Where an entry lies, in the words of the configuration and of the API. */
class KvPlace {
  readonly encodedMount: string;
  readonly apiPath: string;
  readonly #mount: string;
  readonly #path: string;

  constructor(mount: string, path: string) {
    this.#mount = mount;
    this.#path = path;
    this.encodedMount = encodePath(mount, "mount");
    this.apiPath = `${this.encodedMount}/data/${encodePath(path, "path")}`;
  }

  /** Whether `mountPath`, which ends in a slash, is where this entry would be looked for. */
  isBelow(mountPath: string): boolean {
    return mountPath !== "" && `${this.#mount}/data/${this.#path}`.startsWith(mountPath);
  }

  toString(): string {
    return `${this.#mount}/data/${this.#path} (mount ${this.#mount}, KV version 2, path ${this.#path})`;
  }

  /** The meaning of 403, 404 and 405 on a read. */
  explain(failure: VaultFailure, mount: MountInfo | undefined): CredentialError {
    const { status, hint } = failure;
    if (mount?.version === "1" || mount?.version === "other" || status === 405) {
      return this.wrongVersion(mount?.version, status);
    }
    if (hint === "version-deleted" || hint === "version-destroyed") {
      const word = hint === "version-destroyed" ? "destroyed" : "deleted";
      const message = `the latest version of ${this} is ${word}`;
      return new CredentialError("deleted", message, "write a new version, or undelete this one", { status });
    }
    if (mount !== undefined && mount.path !== this.#mount) {
      const rest = `${this.#mount}/${this.#path}`.slice(mount.path.length + 1).replace(/^data\//, "");
      const cure = `write mount: ${mount.path} and path: ${rest}`;
      return new CredentialError("not-found", `the store mounts ${mount.path}; there is nothing at ${this}`, cure, {
        status,
      });
    }
    if (hint === "kv-v2-path") return this.wrongVersion(undefined, status);
    const doubled = this.#path.startsWith("data/") ? "; the path is written without data/" : "";
    if (status === 403) {
      const stanza = `path "${this.#mount}/data/${this.#path}" { capabilities = ["read"] }`;
      const cure = `grant ${stanza}, and check that the mount exists${doubled}`;
      return new CredentialError("denied", `the store denies ${this}`, cure, { status });
    }
    const where = hint === "no-mount" ? `no mount answers for ${this}` : `there is nothing at ${this}`;
    return new CredentialError("not-found", where, `write the secret there, or correct mount and path${doubled}`, {
      status,
    });
  }

  wrongVersion(version: MountInfo["version"] | undefined, status?: number): CredentialError {
    const found = version === "1" ? "is KV version 1" : "is no KV version 2 mount at this path";
    return new CredentialError(
      "wrong-kv-version",
      `mount ${this.#mount} ${found}; tried ${this}`,
      `name the mount alone in mount, without data/, and enable version 2: bao kv enable-versioning ${this.#mount}`,
      { status },
    );
  }
}

function recordOf(answer: VaultAnswer, place: KvPlace): KvRecord {
  const outer = asObject(answer?.["data"]);
  const fields = asObject(outer?.["data"]);
  if (outer === undefined) {
    throw new VaultFailure("bad-answer", "it has no data");
  }
  // Version 1 keeps the fields one level higher and has no metadata.
  if (fields === undefined || asObject(outer["metadata"]) === undefined) throw place.wrongVersion(undefined);
  return new KvRecord(fields, String(place));
}

function isLostConnection(error: VaultFailure): boolean {
  return error.kind === "unreachable" && /^(?:ECONNRESET|EPIPE|UND_ERR_SOCKET)$/.test(error.message);
}
