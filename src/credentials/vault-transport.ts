/**
 * The one file that knows node-vault. Its HTTP client is replaced by ours through the `request-promise` option, because
 * its own follows redirects with the token attached, has no deadline, and puts tokens and bodies into its errors.
 *
 * 1. Nothing of the environment counts: no VAULT_* variable, no proxy, no TLS switch.
 * 2. A redirect is never followed; certificates are always checked.
 * 3. The token is the caller's, per request; node-vault holds none. The namespace is added here and nowhere else.
 * 4. What fails throws a `VaultFailure` that carries nothing that came over the wire.
 */
import { readFile } from "node:fs/promises";
import nodeVault from "node-vault";
import { Agent, buildConnector, type Dispatcher, request } from "undici";
import { type Clock, guardConnect, guardedLookup, type Secret } from "../lib/index.ts";
import { CredentialError } from "./errors.ts";
import { VaultFailure, type VaultHint } from "./vault-failure.ts";

export interface ClientCertificate {
  /** PEM. */
  readonly cert: string;
  readonly key: string;
}

export interface VaultTransportOptions {
  /** An origin, or `unix:` and the path of a socket. */
  readonly address: string;
  readonly namespace?: string | undefined;
  /** PEM file. */
  readonly ca?: string | undefined;
  /** Asked for each new connection. */
  readonly clientCertificate?: (() => Promise<ClientCertificate>) | undefined;
  /** False where whatever listens adds a token of its own. */
  readonly sendsTokens?: boolean;
  readonly clock: Clock;
  /** For one request from start to the last byte; default 10 s. */
  readonly deadlineMs?: number;
}

/** A JSON object as the store sent it; undefined for an answer without a body. */
export type VaultAnswer = Readonly<Record<string, unknown>> | undefined;

export interface VaultTransport {
  readonly address: string;
  /** `path` is without `/v1/` and already encoded. `token` is undefined for a login. Rejects with `VaultFailure`. */
  read(path: string, token: Secret | undefined): Promise<VaultAnswer>;
  write(path: string, body: Readonly<Record<string, unknown>>, token: Secret | undefined): Promise<VaultAnswer>;
  /** Ends requests in flight. */
  close(): Promise<void>;
}

/** What node-vault hands its HTTP client; its `headers` are not used, `call` is ours. */
interface HookRequest {
  readonly method: Dispatcher.HttpMethod;
  readonly uri: string;
  readonly json?: unknown;
  readonly call: { readonly token: Secret | undefined };
}

interface HookAnswer {
  readonly statusCode: 200;
  readonly body: VaultAnswer;
  readonly request: { readonly path: string };
}

const maxAnswerBytes = 1024 * 1024;
const defaultDeadlineMs = 10_000;
const nothing = (): void => undefined;

export function createVaultTransport(options: VaultTransportOptions): VaultTransport {
  const sender = new Sender(options);
  const send = (hook: HookRequest): Promise<HookAnswer> => sender.send(hook);
  const client = nodeVault({
    endpoint: socketOf(options.address) === undefined ? options.address : "http://localhost",
    debug: nothing,
    "request-promise": { defaults: () => send },
  });
  // Left out at construction, these three would come from VAULT_TOKEN, VAULT_NAMESPACE and VAULT_PREFIX.
  Object.assign(client, { token: "", namespace: "", pathPrefix: "" });
  return {
    address: options.address,
    read: (path, token) => client.read(path, { call: { token } }) as Promise<VaultAnswer>,
    write: (path, body, token) => client.write(path, body, { call: { token } }) as Promise<VaultAnswer>,
    close: () => sender.close(),
  };
}

class Sender {
  readonly #options: VaultTransportOptions;
  readonly #agent: Agent;
  readonly #underWay = new Set<AbortController>();
  #isClosed = false;

  constructor(options: VaultTransportOptions) {
    this.#options = options;
    this.#agent = new Agent({
      connect: connectorFor(options),
      connections: 8,
      pipelining: 1,
      maxHeaderSize: 16 * 1024,
    });
  }

  async send(hook: HookRequest): Promise<HookAnswer> {
    if (this.#isClosed) throw new VaultFailure("aborted", "closed");
    const { clock, deadlineMs = defaultDeadlineMs } = this.#options;
    const end = new AbortController();
    const timer = clock.after(deadlineMs, () => end.abort());
    this.#underWay.add(end);
    try {
      return { statusCode: 200, body: await this.#exchange(hook, end.signal), request: { path: "" } };
    } catch (error) {
      if (this.#isClosed) throw new VaultFailure("aborted", "closed");
      if (end.signal.aborted) throw new VaultFailure("timeout", "no answer in time");
      if (error instanceof VaultFailure || error instanceof CredentialError) throw error;
      throw new VaultFailure("unreachable", reasonOf(error));
    } finally {
      timer.cancel();
      this.#underWay.delete(end);
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const end of this.#underWay) end.abort();
    await this.#agent.destroy();
  }

  async #exchange(hook: HookRequest, signal: AbortSignal): Promise<VaultAnswer> {
    const answer = await request(hook.uri, {
      method: hook.method,
      headers: this.#headers(hook),
      body: hook.json === undefined ? null : JSON.stringify(hook.json),
      dispatcher: this.#agent,
      signal,
      // One deadline covers all of it.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    const text = await readCapped(answer.body);
    const status = answer.statusCode;
    if (status === 204) return undefined;
    const isGood = status >= 200 && status < 300;
    if (isGood && (answer.headers["content-encoding"] ?? "identity") !== "identity") {
      throw new VaultFailure("bad-answer", "it is encoded", { status });
    }
    const body = parseObject(text);
    if (!isGood) throw statusFailure(status, body, retryAfterMs(answer.headers["retry-after"]));
    if (body === undefined) throw new VaultFailure("bad-answer", "it is no JSON object", { status });
    return body;
  }

  #headers(hook: HookRequest): Record<string, string> {
    const headers: Record<string, string> = {
      accept: "application/json",
      "accept-encoding": "identity",
      "x-vault-request": "true",
    };
    if (hook.json !== undefined) headers["content-type"] = "application/json";
    if (this.#options.namespace !== undefined) headers["x-vault-namespace"] = this.#options.namespace;
    const { token } = hook.call;
    if (token !== undefined && this.#options.sendsTokens !== false) headers["x-vault-token"] = token.reveal();
    return headers;
  }
}

/** Reads CA and client certificate for each new connection, so that a rotated one counts without a restart. */
function connectorFor(options: VaultTransportOptions): buildConnector.connector {
  const timeout = options.deadlineMs ?? defaultDeadlineMs;
  const { ca, clientCertificate } = options;
  const socketPath = socketOf(options.address);
  // Said outright, because NODE_TLS_REJECT_UNAUTHORIZED changes only the default.
  const strict = { timeout, rejectUnauthorized: true, lookup: guardedLookup("pinned") };
  if (socketPath !== undefined) return buildConnector({ ...strict, socketPath });
  if (ca === undefined && clientCertificate === undefined) return guardConnect("pinned", buildConnector(strict));
  return guardConnect("pinned", (target, callback) => {
    Promise.all([ca === undefined ? {} : readCa(ca), clientCertificate?.() ?? {}])
      .then(([trust, own]) => buildConnector({ ...strict, ...trust, ...own })(target, callback))
      // OpenSSL refuses what is no certificate, or no key to it, before it connects.
      .catch((error: unknown) => callback(error as Error, null));
  });
}

async function readCa(file: string): Promise<{ readonly ca: Buffer }> {
  try {
    return { ca: await readFile(file) };
  } catch {
    throw Object.assign(new Error("vault.ca cannot be read"), { code: "CA_FILE_UNREADABLE" });
  }
}

function socketOf(address: string): string | undefined {
  return address.startsWith("unix:") ? address.slice("unix:".length) : undefined;
}

async function readCapped(body: Dispatcher.ResponseData["body"]): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  // Leaving the loop by a throw destroys the body and with it the connection.
  for await (const chunk of body as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > maxAnswerBytes) throw new VaultFailure("bad-answer", "it is larger than 1 MiB");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** The parser's own errors quote the text, so they end here. */
function parseObject(text: string): VaultAnswer {
  try {
    return asObject(JSON.parse(text));
  } catch {
    return undefined;
  }
}

/** `value` as a JSON object, or undefined. */
export function asObject(value: unknown): VaultAnswer {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : undefined;
}

function statusFailure(status: number, body: VaultAnswer, retryAfter: number | undefined): VaultFailure {
  return new VaultFailure("status", `status ${status}`, { status, retryAfterMs: retryAfter, hint: hintOf(body) });
}

/** A conflict and some 404 are told apart by their words alone, a 404 besides by the metadata that KV v2 adds for a deleted version. */
function hintOf(body: VaultAnswer): VaultHint | undefined {
  const warnings = body?.["warnings"];
  const isMisplaced = (text: unknown): boolean =>
    typeof text === "string" && text.startsWith("Invalid path for a versioned K/V secrets engine");
  if (Array.isArray(warnings) && warnings.some(isMisplaced)) return "kv-v2-path";
  const errors = body?.["errors"];
  const said = Array.isArray(errors) ? String(errors[0]) : "";
  if (said.startsWith("no handler for route")) return "no-mount";
  if (said === "namespace is sealed") return "namespace-sealed";
  if (said.startsWith("check-and-set parameter did not match")) return "cas-mismatch";
  const metadata = asObject(asObject(body?.["data"])?.["metadata"]);
  if (metadata?.["destroyed"] === true) return "version-destroyed";
  const deletedAt = metadata?.["deletion_time"];
  return typeof deletedAt === "string" && deletedAt !== "" ? "version-deleted" : undefined;
}

/** What a `Retry-After` in seconds says; a date is not understood. */
export function retryAfterMs(header: string | string[] | undefined): number | undefined {
  return typeof header === "string" && /^\d{1,6}$/.test(header) ? Number(header) * 1_000 : undefined;
}

/** The system's or OpenSSL's name of an error, such as ECONNREFUSED: the only part of a foreign error that is kept. */
export function reasonOf(error: unknown): string {
  const code = typeof error === "object" && error !== null && "code" in error ? error.code : undefined;
  return typeof code === "string" && /^[A-Z][A-Z0-9_]{1,63}$/.test(code) ? code : "connection failed";
}
