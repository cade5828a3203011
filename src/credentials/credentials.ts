import type { Clock, Secret } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import type { Entry } from "./access-check.ts";
import { Cached } from "./cache.ts";
import { CallerCredential } from "./caller-credential.ts";
import { CredentialError } from "./errors.ts";
import { GrantHttp } from "./grant-http.ts";
import { isIssued, issuedBy } from "./issued.ts";
import type { SharedRecord } from "./kv-write.ts";
import type { LeaseReader } from "./lease-reader.ts";
import {
  type AnySource,
  type CredentialOptions,
  describeSource,
  type Source,
  type VaultOptions,
  type VaultSource,
} from "./options.ts";
import { isTemplated, type OpenReader, type Plan, planOf } from "./plan.ts";
import type { StoreProbe } from "./probe.ts";
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
import { type CredentialStates, joinStates } from "./states.ts";
import { Store } from "./store.ts";
import type { KvRecord } from "./vault-kv.ts";

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
/** How long a caller's secrets are kept at least when he makes no calls. */
const minIdleMs = 3_600_000;

/**
 * The credentials of all servers. Connects to nothing until the first `inject()`. Throws `not-configured` for options
 * that cannot work: a vault source without `vault`, a plain `http` address that is not loopback, a header that may not be set.
 */
export function createCredentials(options: CredentialsOptions): Credentials {
  const { clock, random, logger } = options;
  const reader = new LocalReader(options);
  const store = options.vault === undefined ? undefined : new Store(options.vault, { reader, clock, random, logger });
  const http = new GrantHttp(clock);
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
