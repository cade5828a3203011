import { type Clock, Secret } from "../lib/index.ts";
import { CredentialError } from "./errors.ts";
import type { WatchedTransport } from "./store-health.ts";
import { askStore } from "./vault-ask.ts";
import type { TokenManager } from "./vault-auth.ts";
import { explainFailure, VaultFailure } from "./vault-failure.ts";
import { encodePath } from "./vault-path.ts";
import { asObject, type VaultAnswer } from "./vault-transport.ts";

/** One entry of a KV engine, in one version. The fields stay inside; what comes out is wrapped. */
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
  readonly transport: WatchedTransport;
  readonly tokens: TokenManager;
  readonly clock: Clock;
}

/** Reads KV version 1 and 2; remembers which one a mount has, and nothing else. */
export class KvReader {
  readonly #options: KvReaderOptions;
  readonly #versions = new Map<string, KvVersion>();

  constructor(options: KvReaderOptions) {
    this.#options = options;
  }

  /** The entry at `path` in `mount`, in its latest version. Rejects with `CredentialError`. */
  async read(mount: string, path: string): Promise<KvRecord> {
    return await this.#readWith(mount, path, recordOf, this.#transportTo(mount));
  }

  /** The same, to be written back: a mount of version 1 is refused. `insists`: also while the store is known to be down. */
  async readVersion(mount: string, path: string, insists: boolean): Promise<KvVersioned> {
    const transport = this.#transportTo(mount);
    return await this.#readWith(mount, path, versionedOf, insists ? transport.insistent() : transport);
  }

  #transportTo(mount: string): WatchedTransport {
    return this.#options.transport.part(folderOf(mount));
  }

  async #readWith<T>(mount: string, path: string, convert: Convert<T>, transport: WatchedTransport): Promise<T> {
    const place = await this.place(mount, path);
    try {
      return convert(await this.#fetch(place, transport), place);
    } catch (error) {
      if (!isMisplaced(error)) throw explainFailure(error, transport.address);
      const info = await this.#mountOf(place);
      const version = versionOf(info, mount);
      if (version === undefined || version === place.version) throw place.explain(error, info);
      this.#versions.set(mount, version);
      return await this.#readAs(new KvPlace(mount, path, version), info, convert, transport);
    }
  }

  /**
   * Where the entry lies in the API. A mount that the store does not tell of is taken for version 2. Rejects with
   * `CredentialError` when there is no token or no answer in time.
   */
  async place(mount: string, path: string): Promise<KvPlace> {
    const known = this.#versions.get(mount);
    if (known !== undefined) return new KvPlace(mount, path, known);
    const assumed = new KvPlace(mount, path, "2", true);
    const version = versionOf(await this.#mountOf(assumed), mount);
    if (version === undefined) return assumed;
    this.#versions.set(mount, version);
    return new KvPlace(mount, path, version);
  }

  /** The mount is of another version than it was, or than we took it for. */
  async #readAs<T>(
    place: KvPlace,
    info: MountInfo | undefined,
    convert: Convert<T>,
    transport: WatchedTransport,
  ): Promise<T> {
    try {
      return convert(await this.#fetch(place, transport), place);
    } catch (error) {
      if (isMisplaced(error)) throw place.explain(error, info);
      throw explainFailure(error, transport.address);
    }
  }

  async #fetch(place: KvPlace, transport: WatchedTransport): Promise<VaultAnswer> {
    const { tokens, clock } = this.#options;
    const deps = { transport, tokens, clock };
    return (await askStore(deps, (_, token) => transport.read(place.apiPath, token))).answer;
  }

  /** What the store itself says of the mount; undefined when it does not tell. */
  async #mountOf(place: KvPlace): Promise<MountInfo | undefined> {
    const { transport, tokens } = this.#options;
    const token = await tokens.current();
    try {
      const answer = await transport.read(`sys/internal/ui/mounts/${place.encodedMount}`, token);
      const data = asObject(answer?.["data"]);
      const path = data?.["path"];
      // Only what is part of the configured path is repeated in a message.
      if (typeof path !== "string" || !place.isBelow(path)) return undefined;
      const isKv = data?.["type"] === "kv" || data?.["type"] === "generic";
      const version = asObject(data?.["options"])?.["version"] === "2" ? "2" : "1";
      return { path: path.replace(/\/$/, ""), version: isKv ? version : "other" };
    } catch (error) {
      // Whoever waited once should not wait again for the read itself.
      if (error instanceof VaultFailure && error.kind === "timeout") throw explainFailure(error, transport.address);
      return undefined;
    }
  }
}

type KvVersion = "1" | "2";
type Convert<T> = (answer: VaultAnswer, place: KvPlace) => T;

/** An entry as it stands, with the number that a check-and-set is compared with. */
export interface KvVersioned {
  readonly place: KvPlace;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly version: number;
}

interface MountInfo {
  readonly path: string;
  readonly version: KvVersion | "other";
}

function versionOf(info: MountInfo | undefined, mount: string): KvVersion | undefined {
  return info?.path === mount && info.version !== "other" ? info.version : undefined;
}

/** What `mount` begins with: it may be another namespace. */
export function folderOf(mount: string): string {
  return mount.slice(0, Math.max(0, mount.lastIndexOf("/")));
}

function isMisplaced(error: unknown): error is VaultFailure {
  return error instanceof VaultFailure && (error.status === 403 || error.status === 404 || error.status === 405);
}

/** Where an entry lies, in the words of the configuration and of the API. */
export class KvPlace {
  readonly version: KvVersion;
  readonly encodedMount: string;
  readonly apiPath: string;
  /** As a policy names it. */
  readonly policyPath: string;
  readonly #mount: string;
  readonly #path: string;
  readonly #isAssumed: boolean;

  /** `isAssumed`: the store did not tell the version. */
  constructor(mount: string, path: string, version: KvVersion, isAssumed = false) {
    this.#isAssumed = isAssumed;
    this.#mount = mount;
    this.#path = path;
    this.version = version;
    const between = version === "2" ? "/data/" : "/";
    this.encodedMount = encodePath(mount, "mount");
    this.apiPath = `${this.encodedMount}${between}${encodePath(path, "path")}`;
    this.policyPath = `${mount}${between}${path}`;
  }

  /** Whether `mountPath`, which ends in a slash, is where this entry would be looked for. */
  isBelow(mountPath: string): boolean {
    return mountPath !== "" && `${this.#mount}/data/${this.#path}`.startsWith(mountPath);
  }

  toString(): string {
    return `${this.policyPath} (mount ${this.#mount}, KV version ${this.version}, path ${this.#path})`;
  }

  /** What a policy needs so that the entry may be read. */
  get stanza(): string {
    return this.stanzaFor(["read"]);
  }

  stanzaFor(capabilities: readonly string[]): string {
    const list = capabilities.map((name) => `"${name}"`).join(", ");
    const stanza = `path "${this.policyPath}" { capabilities = [${list}] }`;
    return this.#isAssumed ? `${stanza} (or ${this.#mount}/${this.#path}, if that is KV version 1)` : stanza;
  }

  /** The meaning of 403, 404 and 405 on a read. */
  explain(failure: VaultFailure, mount: MountInfo | undefined): CredentialError {
    const { status, hint } = failure;
    if (mount?.version === "other" || status === 405) return this.wrongVersion(status);
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
    if (hint === "kv-v2-path") return this.wrongVersion(status);
    const isDoubled = this.version === "2" && this.#path.startsWith("data/");
    const doubled = isDoubled ? "; the path is written without data/" : "";
    if (status === 403) {
      const cure = `grant ${this.stanza}, and check that the mount exists${doubled}`;
      return new CredentialError("denied", `the store denies ${this}`, cure, { status });
    }
    const where = hint === "no-mount" ? `no mount answers for ${this}` : `there is nothing at ${this}`;
    return new CredentialError("not-found", where, `write the secret there, or correct mount and path${doubled}`, {
      status,
    });
  }

  /** Without check-and-set two gateways would spend one refresh token. */
  noCheckAndSet(): CredentialError {
    const message = `mount ${this.#mount} is KV version 1, which cannot check and set: ${this} must not be written`;
    const cure = `move the record to KV version 2, or run \`vault kv enable-versioning ${this.#mount}\``;
    return new CredentialError("wrong-kv-version", message, cure);
  }

  wrongVersion(status?: number): CredentialError {
    return new CredentialError(
      "wrong-kv-version",
      `mount ${this.#mount} is no KV mount of version ${this.version} at this path; tried ${this}`,
      "name the mount of a KV engine alone in mount, without data/",
      { status },
    );
  }
}

function recordOf(answer: VaultAnswer, place: KvPlace): KvRecord {
  const outer = asObject(answer?.["data"]);
  if (outer === undefined) throw new VaultFailure("bad-answer", "it has no data");
  return new KvRecord(place.version === "1" ? outer : versionedOf(answer, place).fields, String(place));
}

/** Version 1 keeps the fields one level higher and has no metadata. */
function versionedOf(answer: VaultAnswer, place: KvPlace): KvVersioned {
  if (place.version === "1") throw place.noCheckAndSet();
  const outer = asObject(answer?.["data"]);
  if (outer === undefined) throw new VaultFailure("bad-answer", "it has no data");
  const fields = asObject(outer["data"]);
  const metadata = asObject(outer["metadata"]);
  if (fields === undefined || metadata === undefined) throw place.wrongVersion();
  return { place, fields, version: Number(metadata["version"]) };
}
