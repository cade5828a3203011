import type { Clock } from "../lib/index.ts";
import type { LogFields, Logger } from "../telemetry/index.ts";
import { type AccessCheckDeps, checkAccess, type Entry } from "./access-check.ts";
import { Cached } from "./cache.ts";
import { fillPath, globOf } from "./caller-path.ts";
import { CredentialError } from "./errors.ts";
import { isSafeAddress } from "./grant-http.ts";
import { KvRecordFile, type SharedRecord } from "./kv-write.ts";
import type { LeaseRequest } from "./lease.ts";
import { LeaseReader } from "./lease-reader.ts";
import type { VaultOptions, VaultSource } from "./options.ts";
import { createProbe, type StoreProbe } from "./probe.ts";
import type { SecretReader } from "./server-credential.ts";
import type { LocalReader } from "./sources.ts";
import type { StoreState } from "./states.ts";
import { StoreHealth, type WatchedTransport } from "./store-health.ts";
import { TokenManager } from "./vault-auth.ts";
import { KvReader, type KvRecord } from "./vault-kv.ts";
import { createLogin } from "./vault-login.ts";
import { encodePath } from "./vault-path.ts";
import { type ClientCertificate, createVaultTransport, type VaultTransportOptions } from "./vault-transport.ts";

export interface StoreDeps {
  /** Of what the store's own login takes. */
  readonly reader: LocalReader;
  readonly clock: Clock;
  /** Numbers in [0, 1). */
  readonly random: () => number;
  readonly logger: Logger;
}

const defaultTtlMs = 60_000;
const defaultStaleForMs = 2 * 3_600_000;

/** One Vault or OpenBao server, and what was read from it. */
export class Store {
  readonly #options: VaultOptions;
  readonly #deps: StoreDeps;
  readonly #transport: WatchedTransport;
  readonly #health: StoreHealth;
  readonly #tokens: TokenManager;
  readonly #kv: KvReader;
  /** By `keyOf`, as the two after it. */
  readonly #records = new Map<string, Cached<KvRecord>>();
  readonly #entries = new Map<string, Entry>();
  readonly #written = new Map<string, Entry>();
  readonly #leases: LeaseReader[] = [];
  #reads = 0;
  #readFailures = 0;

  /** Throws `not-configured` for an address that cannot be used. Connects to nothing. */
  constructor(options: VaultOptions, deps: StoreDeps) {
    const { reader, clock, random, logger } = deps;
    this.#options = options;
    this.#deps = deps;
    const connection = transportOptions(options, clock, reader);
    const health = new StoreHealth({ address: connection.address, clock, random, logger });
    const connect = (): WatchedTransport => health.watch(createVaultTransport(connection));
    this.#transport = connect();
    this.#health = health;
    // One login at a time, with pauses of its own: what is refused here need not be refused to reads with the token in hand.
    const transport = this.#transport.aside();
    const reconnect = (): WatchedTransport => connect().aside();
    this.#tokens = new TokenManager({
      login: createLogin(options.auth, { transport, reconnect, reader, logger }),
      transport,
      clock,
      random,
      logger,
    });
    this.#kv = new KvReader({ transport: this.#transport, tokens: this.#tokens, clock });
  }

  /** Sources that name the same entry share one read. */
  open(source: VaultSource): SecretReader {
    const { mount, path, field } = source.vault;
    const key = keyOf(mount, path);
    const record = this.#records.get(key) ?? this.#cache(mount, path);
    this.#records.set(key, record);
    this.#entries.set(key, { mount, path });
    return fieldReader(record, field);
  }

  /** An entry that is written back, and never cached: others write it as well. */
  openRecord(mount: string, path: string): SharedRecord {
    const key = keyOf(mount, path);
    this.#written.set(key, { mount, path, isWritten: true });
    return new KvRecordFile(mount, path, { transport: this.#transport, tokens: this.#tokens, kv: this.#kv });
  }

  /** The entry of one caller; `records` are those of his that were opened already. */
  openFor(callerId: string, source: VaultSource, records: Map<string, Cached<KvRecord>>, logger: Logger): SecretReader {
    const { mount, field } = source.vault;
    const path = fillPath(source.vault.path, callerId);
    const key = keyOf(mount, path);
    const record = records.get(key) ?? this.#cache(mount, path, logger);
    records.set(key, record);
    return fieldReader(record, field);
  }

  /** What the store issues at one place; it ends with the store. */
  openLease(request: LeaseRequest, logger: Logger): LeaseReader {
    const { clock, random } = this.#deps;
    const { ttlMs = defaultTtlMs, staleForMs = defaultStaleForMs } = this.#options;
    const transport = this.#transport.part(request.policyPath);
    const deps = { transport, tokens: this.#tokens, clock, random, logger, ttlMs, staleForMs };
    const lease = new LeaseReader(request, deps);
    this.#leases.push(lease);
    return lease;
  }

  /** A place that only calls will tell; the policy must grant it for all of them. */
  expect({ vault: { mount, path } }: VaultSource): void {
    const glob = globOf(path);
    this.#entries.set(keyOf(mount, glob), { mount, path: glob });
  }

  /** How long a value may serve after it was read. */
  get keptMs(): number {
    return (this.#options.ttlMs ?? defaultTtlMs) + (this.#options.staleForMs ?? defaultStaleForMs);
  }

  #cache(mount: string, path: string, logger = this.#deps.logger): Cached<KvRecord> {
    const { clock, random } = this.#deps;
    const where = (): LogFields => ({ store: this.#transport.address, path: `${mount}/${path}` });
    return new Cached({
      load: () => this.#read(mount, path),
      freshMs: this.#options.ttlMs ?? defaultTtlMs,
      staleForMs: this.#options.staleForMs ?? defaultStaleForMs,
      clock,
      random,
      onStale: ({ code, cure, message }) =>
        logger.warn("store away, older secret serves", { ...where(), code, cure, reason: message }),
      onRecovered: () => logger.info("store back", where()),
    });
  }

  async #read(mount: string, path: string): Promise<KvRecord> {
    try {
      const record = await this.#kv.read(mount, path);
      this.#reads += 1;
      return record;
    } catch (error) {
      this.#readFailures += 1;
      throw error;
    }
  }

  state(): StoreState {
    const { namespace, auth } = this.#options;
    const [reads, readFailures] = [this.#reads, this.#readFailures];
    const { address } = this.#transport;
    const circuit = this.#health.state();
    return { address, namespace, method: auth.method, circuit, ...this.#tokens.life(), reads, readFailures };
  }

  async checkAccess(): Promise<void> {
    await checkAccess(this.#needed(), this.#checkDeps());
  }

  probe(): StoreProbe {
    const { auth } = this.#options;
    const harm = "wrappedSecretId" in auth ? "a wrapped secret id opens once, and that is for the gateway" : undefined;
    return createProbe({ ...this.#checkDeps(), entries: () => this.#needed(), harm });
  }

  #needed(): Entry[] {
    return [...new Map([...this.#entries, ...this.#written]).values()];
  }

  #checkDeps(): AccessCheckDeps {
    const { logger } = this.#deps;
    const needs = this.#leases.map(({ need }) => need);
    return { transport: this.#transport, tokens: this.#tokens, kv: this.#kv, logger, needs };
  }

  /** The leases first: giving them back takes a living token. */
  async close(): Promise<void> {
    await Promise.all(this.#leases.map((lease) => lease.close()));
    await this.#tokens.close();
    await this.#transport.close();
  }
}

/** An encoded mount and path, in which a space cannot occur. Throws `not-configured` for what is none. */
function keyOf(mount: string, path: string): string {
  return `${encodePath(mount, "mount")} ${encodePath(path, "path")}`;
}

function fieldReader(record: Cached<KvRecord>, field: string): SecretReader {
  return {
    read() {
      const value = record.get();
      return value instanceof Promise ? value.then((found) => found.field(field)) : value.field(field);
    },
    reload: async () => (await record.reload()).field(field),
    state: record.state,
  };
}

function transportOptions(options: VaultOptions, clock: Clock, reader: LocalReader): VaultTransportOptions {
  const { namespace, ca, auth } = options;
  if (auth.method === "agent") {
    const { address } = auth.agent;
    const isSocket = address.startsWith("unix:/");
    return { address: isSocket ? address : checkStoreAddress(address), namespace, ca, clock, sendsTokens: false };
  }
  const plain = { address: checkStoreAddress(options.address), namespace, ca, clock };
  if (auth.method !== "cert") return plain;
  const clientCertificate = async (): Promise<ClientCertificate> => {
    const [certificate, privateKey] = await Promise.all([reader.read(auth.certificate), reader.read(auth.privateKey)]);
    return { cert: certificate.reveal(), key: privateKey.reveal() };
  };
  return { ...plain, clientCertificate };
}

/** The address as node-vault needs it; a token must not cross a network in the clear. */
function checkStoreAddress(address: string): string {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  const isSafe = url !== undefined && isSafeAddress(url);
  if (
    url === undefined ||
    !isSafe ||
    url.username !== "" ||
    url.password !== "" ||
    url.search !== "" ||
    url.hash !== ""
  ) {
    throw new CredentialError(
      "not-configured",
      "vault.address cannot be used",
      "write https://host:port, or http:// on loopback",
    );
  }
  return url.href.replace(/\/$/, "");
}
