import type { Clock, Secret } from "../lib/index.ts";
import type { LogFields, Logger } from "../telemetry/index.ts";
import { type AccessCheckDeps, checkAccess, type Entry } from "./access-check.ts";
import { Cached } from "./cache.ts";
import { CallerCredential } from "./caller-credential.ts";
import { fillPath, globOf } from "./caller-path.ts";
import { CredentialError } from "./errors.ts";
import { GrantHttp, isSafeAddress } from "./grant-http.ts";
import { isIssued, issuedBy } from "./issued.ts";
import { KvRecordFile, type SharedRecord } from "./kv-write.ts";
import type { LeaseRequest } from "./lease.ts";
import { LeaseReader } from "./lease-reader.ts";
import {
  type AnySource,
  type CredentialOptions,
  describeSource,
  type Source,
  type VaultOptions,
  type VaultSource,
} from "./options.ts";
import { isTemplated, type OpenReader, type Plan, planOf } from "./plan.ts";
import { createProbe, type StoreProbe } from "./probe.ts";
import { refreshGrant } from "./refresh-grant.ts";
import { RefreshReader } from "./refresh-reader.ts";
import {
  type Caller,
  noCredential,
  type SecretReader,
  type ServerCredential,
  ShapedCredential,
} from "./server-credential.ts";
import { tokenShape } from "./shapes.ts";
import { type Environment, LocalReader } from "./sources.ts";
import { type CredentialStates, joinStates, type StoreState } from "./states.ts";
import { TokenManager } from "./vault-auth.ts";
import { KvReader, type KvRecord } from "./vault-kv.ts";
import { createLogin } from "./vault-login.ts";
import { encodePath } from "./vault-path.ts";
import {
  type ClientCertificate,
  createVaultTransport,
  type VaultTransport,
  type VaultTransportOptions,
} from "./vault-transport.ts";

export interface CredentialsOptions {
  readonly vault?: VaultOptions | undefined;
  /** Every configured server; undefined for one that needs no credential. */
  readonly servers: Readonly<Record<string, CredentialOptions | undefined>>;
  /** Who calls was verified here, and is not a relay's claim; without it no secret may depend on who calls. */
  readonly areCallersVerified?: boolean | undefined;
  readonly clock: Clock;
  /** Numbers in [0, 1). */
  readonly random: () => number;
  readonly logger: Logger;
  /** Variables that are read as secrets are removed from it. */
  readonly env: Environment;
}

export interface Credentials {
  /** Throws `not-configured` for a server that was not among the options. */
  forServer(server: string): ServerCredential;
  /** Any one secret of the configuration, such as the tunnel token. Rejects with `CredentialError`. */
  read(source: Source): Promise<Secret>;
  /**
   * Logs in to the store and logs as warnings which of the configured paths its policy withholds, with the stanza that is
   * missing. Never rejects; without a store it does nothing. Call it once, when every source has been named.
   */
  checkAccess(): Promise<void>;
  /** How every credential is, and the store. Cheap; connects to nothing. */
  states(): CredentialStates;
  /** For a diagnosis; undefined without a store. */
  probeStore(): StoreProbe | undefined;
  /** Ends requests and timers; revokes leases, and a token that we logged in for, if the store answers within 2 s each. */
  close(): Promise<void>;
}

/** How long a file is not read again. */
const fileFreshMs = 1_000;
const defaultTtlMs = 60_000;
const defaultStaleForMs = 2 * 3_600_000;
/** How long a caller's secrets are kept at least when he makes no calls. */
const minIdleMs = 3_600_000;

/**
 * The credentials of all servers. Connects to nothing until the first `inject()`. Throws `not-configured` for options
 * that cannot work: a vault source without `vault`, a plain `http` address that is not loopback, a header that may not be set.
 */
export function createCredentials(options: CredentialsOptions): Credentials {
  const reader = new LocalReader(options);
  const store = options.vault === undefined ? undefined : new Store(options.vault, options, reader);
  const http = new GrantHttp(options.clock);
  const known = new Map<string, ServerCredential>();
  const refreshers: RefreshReader[] = [];
  for (const [server, credential] of Object.entries(options.servers)) {
    known.set(
      server,
      credential === undefined
        ? noCredential
        : openCredential(server, credential, options, reader, store, http, refreshers),
    );
  }
  return {
    forServer(server) {
      const found = known.get(server);
      if (found !== undefined) return found;
      throw new CredentialError("not-configured", `server ${server} is not configured`, "name it under servers");
    },
    read: async (source) => ("vault" in source ? await readerOf(store, source).read() : await reader.read(source)),
    checkAccess: async () => await store?.checkAccess(),
    states: () => ({
      servers: [...known].map(([server, credential]) => ({
        server,
        type: options.servers[server]?.type,
        ...(credential.state?.() ?? joinStates([])),
      })),
      store: store?.state(),
    }),
    probeStore: () => store?.probe(),
    close: async () => {
      // Before what they need ends.
      await Promise.all(refreshers.map((refresher) => refresher.close()));
      await http.close();
      await store?.close();
    },
  };
}

/** Where a credential is the same for everybody. */
const nobody: Caller = { id: "" };

function openCredential(
  server: string,
  credential: CredentialOptions,
  options: CredentialsOptions,
  reader: LocalReader,
  store: Store | undefined,
  http: GrantHttp,
  refreshers: RefreshReader[],
): ServerCredential {
  const logger = options.logger.with({ server });
  const { clock, random } = options;
  const openSource = (source: AnySource, lease?: LeaseReader): SecretReader => {
    if ("lease" in source) return fieldOf(lease, source.lease);
    return "vault" in source ? readerOf(store, source) : localReaderOf(source, options, reader);
  };
  if (credential.type === "oauthRefreshToken") {
    const record = recordOf(store, credential.record.vault);
    const grant = refreshGrant(credential, http, clock);
    const { claimMs } = credential;
    const token = new RefreshReader(grant, { record, claimMs, openReader: openSource, clock, random, logger });
    refreshers.push(token);
    return new ShapedCredential(tokenShape(token), [token], { clock, logger });
  }
  const deps = { http, clock, random };
  if (isIssued(credential)) {
    const { request, way } = issuedBy(credential, clock);
    const lease = request === undefined ? undefined : storeOf(store, "what is issued").openLease(request, logger);
    return planOf(way, deps).open((source) => openSource(source, lease), logger, nobody);
  }
  const plan = planOf(credential, deps);
  const isShared = plan.keyOf === undefined && !plan.sources.some(isTemplated);
  if (isShared) return plan.open((source) => openSource(source), logger, nobody);
  if (options.areCallersVerified !== true) {
    const message = `the credential of ${server} depends on who calls, which is not verified here`;
    throw new CredentialError("not-configured", message, "agents: { verify: edge, … }");
  }
  const readersFor = callerReaders(plan, (source) => openSource(source), store);
  return new CallerCredential({
    headerNames: plan.names.map((name) => name.toLowerCase()),
    keyOf: plan.keyOf ?? (({ id }) => id),
    open: (caller, callerLogger) => plan.open(readersFor(caller.id, callerLogger), callerLogger, caller),
    idleMs: Math.max(minIdleMs, store?.keptMs ?? 0),
    clock,
    logger,
  });
}

/** What is the same for all callers is read once for them all; what is not, once for each. */
function callerReaders(
  plan: Plan,
  openReader: OpenReader,
  store: Store | undefined,
): (callerId: string, logger: Logger) => OpenReader {
  const shared = new Map<AnySource, SecretReader>();
  for (const source of plan.sources) {
    if (isTemplated(source)) storeOf(store, describeSource(source)).expect(source);
    else shared.set(source, openReader(source));
  }
  return (callerId, logger) => {
    // Fields of one entry share one read.
    const records = new Map<string, Cached<KvRecord>>();
    return (source) => {
      const known = shared.get(source);
      return known === undefined && isTemplated(source)
        ? storeOf(store, describeSource(source)).openFor(callerId, source, records, logger)
        : (known ?? openReader(source));
    };
  };
}

function fieldOf(lease: LeaseReader | undefined, name: string): SecretReader {
  if (lease !== undefined) return lease.field(name);
  throw new CredentialError("not-configured", "a source reads from a lease where none is", "name a file, env or vault");
}

function readerOf(store: Store | undefined, source: VaultSource): SecretReader {
  if (!isTemplated(source)) return storeOf(store, describeSource(source)).open(source);
  const message = `${describeSource(source)} depends on who calls`;
  throw new CredentialError("not-configured", message, "a path without {principal.id}");
}

function storeOf(store: Store | undefined, what: string): Store {
  if (store !== undefined) return store;
  throw new CredentialError("not-configured", `${what} needs a store`, "write the section vault");
}

function recordOf(store: Store | undefined, { mount, path }: Entry): SharedRecord {
  if (store !== undefined) return store.openRecord(mount, path);
  throw new CredentialError("not-configured", `${mount}/${path} needs a store`, "write the section vault");
}

/** A variable is read once; a file again for every use that is more than a second after the last. */
function localReaderOf(
  source: Exclude<Source, VaultSource>,
  options: CredentialsOptions,
  reader: LocalReader,
): SecretReader {
  const freshMs = "env" in source ? Number.POSITIVE_INFINITY : fileFreshMs;
  const { clock, random } = options;
  const cached = new Cached({ load: () => reader.read(source), freshMs, staleForMs: 0, clock, random });
  return { read: () => cached.get(), reload: () => cached.reload(), state: cached.state };
}

/** One Vault or OpenBao server, and what was read from it. */
class Store {
  readonly #options: VaultOptions;
  readonly #deps: CredentialsOptions;
  readonly #transport: VaultTransport;
  readonly #tokens: TokenManager;
  readonly #kv: KvReader;
  /** Keyed by encoded mount and path, in which a space cannot occur. */
  readonly #records = new Map<string, Cached<KvRecord>>();
  readonly #entries = new Map<string, Entry>();
  readonly #written = new Map<string, Entry>();
  readonly #leases: LeaseReader[] = [];
  #reads = 0;
  #readFailures = 0;

  constructor(options: VaultOptions, deps: CredentialsOptions, reader: LocalReader) {
    const { clock, random, logger } = deps;
    this.#options = options;
    this.#deps = deps;
    const connect = (): VaultTransport => createVaultTransport(transportOptions(options, clock, reader));
    const transport = connect();
    this.#transport = transport;
    this.#tokens = new TokenManager({
      login: createLogin(options.auth, { transport, reconnect: connect, reader, logger }),
      transport,
      clock,
      random,
      logger,
    });
    this.#kv = new KvReader({ transport, tokens: this.#tokens, clock });
  }

  /** Sources that name the same entry share one read. */
  open(source: VaultSource): SecretReader {
    const { mount, path, field } = source.vault;
    const key = `${encodePath(mount, "mount")} ${encodePath(path, "path")}`;
    const record = this.#records.get(key) ?? this.#cache(mount, path);
    this.#records.set(key, record);
    this.#entries.set(key, { mount, path });
    return fieldReader(record, field);
  }

  /** An entry that is written back, and never cached: others write it as well. */
  openRecord(mount: string, path: string): SharedRecord {
    const key = `${encodePath(mount, "mount")} ${encodePath(path, "path")}`;
    this.#written.set(key, { mount, path, isWritten: true });
    return new KvRecordFile(mount, path, { transport: this.#transport, tokens: this.#tokens, kv: this.#kv });
  }

  /** The entry of one caller; `records` are those of his that were opened already. */
  openFor(callerId: string, source: VaultSource, records: Map<string, Cached<KvRecord>>, logger: Logger): SecretReader {
    const { mount, field } = source.vault;
    const path = fillPath(source.vault.path, callerId);
    const key = `${mount} ${path}`;
    const record = records.get(key) ?? this.#cache(mount, path, logger);
    records.set(key, record);
    return fieldReader(record, field);
  }

  /** A place that only calls will tell; the policy must grant it for all of them. */
  expect({ vault: { mount, path } }: VaultSource): void {
    const glob = globOf(path);
    this.#entries.set(`${encodePath(mount, "mount")} ${encodePath(glob, "path")}`, { mount, path: glob });
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

  openLease(request: LeaseRequest, logger: Logger): LeaseReader {
    const { clock, random } = this.#deps;
    const { ttlMs = defaultTtlMs, staleForMs = defaultStaleForMs } = this.#options;
    const deps = { transport: this.#transport, tokens: this.#tokens, clock, random, logger, ttlMs, staleForMs };
    const lease = new LeaseReader(request, deps);
    this.#leases.push(lease);
    return lease;
  }

  state(): StoreState {
    const { method } = this.#options.auth;
    const [reads, readFailures] = [this.#reads, this.#readFailures];
    return { address: this.#transport.address, method, ...this.#tokens.life(), reads, readFailures };
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
    return { address: isSocket ? address : checkAddress(address), namespace, ca, clock, sendsTokens: false };
  }
  const plain = { address: checkAddress(options.address), namespace, ca, clock };
  if (auth.method !== "cert") return plain;
  const clientCertificate = async (): Promise<ClientCertificate> => {
    const [certificate, privateKey] = await Promise.all([reader.read(auth.certificate), reader.read(auth.privateKey)]);
    return { cert: certificate.reveal(), key: privateKey.reveal() };
  };
  return { ...plain, clientCertificate };
}

/** The address as node-vault needs it; a token must not cross a network in the clear. */
function checkAddress(address: string): string {
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
