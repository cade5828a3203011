/**
 * How we talk to token endpoints.
 *
 * 1. Only `https`, or `http` on loopback; certificates are always checked; a redirect is never followed.
 * 2. What an issuer's metadata name is dialled only where that is public, or the issuer's own host.
 * 3. One deadline for all that one grant needs; answers are capped.
 * 4. What fails is a `CredentialError` that carries nothing that came over the wire: bodies of token endpoints hold
 *    tokens, and the errors of the OAuth library hold those bodies.
 */
import { ResponseBodyError } from "oauth4webapi";
import { Agent, buildConnector, type Dispatcher, request } from "undici";
import {
  addressRefused,
  type Clock,
  connectTrusting,
  guardConnect,
  guardedLookup,
  isDistrust,
  type Reach,
  type ResolveAll,
  reachOf,
} from "../lib/index.ts";
import { CredentialError, type CredentialErrorCode } from "./errors.ts";
import { reasonOf, retryAfterMs } from "./vault-transport.ts";

export interface GrantRequest {
  readonly method: "GET" | "POST";
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
  /** The configured issuer whose metadata name the URL; undefined: the URL itself is configured. */
  readonly namedBy?: string | undefined;
}

/** Sends one request of a grant. Rejects with `CredentialError`. */
export type SendRequest = (url: string, request: GrantRequest) => Promise<Response>;

/** One for each reach: a connection that is kept alive must not serve whoever may not make it. */
type Agents = Readonly<Record<Reach, Agent>>;

interface SendContext {
  readonly place: string;
  readonly last: LastAnswer;
  readonly agents: Agents;
  readonly signal: AbortSignal;
}

/** What the last answer of a grant said, as far as it may be told. */
interface LastAnswer {
  status: number;
  retryAfterMs: number | undefined;
}

export interface ExchangeOptions {
  /** Of the whole of one grant; default 10 s. */
  readonly deadlineMs?: number | undefined;
  /** A PEM file whose certificates are trusted besides. */
  readonly ca?: string | undefined;
}

/** Of the whole of one grant, unless its caller has less time. */
const defaultDeadlineMs = 10_000;
/** The system's or OpenSSL's names of what goes wrong before a request can leave. Resets are not among them. */
const unsentReasons =
  /^(?:ECONNREFUSED|ENOTFOUND|EAI_\w+|E(?:HOST|NET)UNREACH|UND_ERR_CONNECT_TIMEOUT|\w*CERT\w*|UNABLE_TO_\w+|CA_FILE_\w+)$/;
const maxAnswerBytes = 256 * 1024;

export class GrantHttp {
  readonly #clock: Clock;
  readonly #resolve: ResolveAll | undefined;
  /** By the file of certificates that they trust besides, if there is one. */
  readonly #agents = new Map<string | undefined, Agents>();
  readonly #underWay = new Set<AbortController>();
  #isClosed = false;

  /** `resolve`: another look-up of names than the system's, for tests. */
  constructor(clock: Clock, resolve?: ResolveAll) {
    this.#clock = clock;
    this.#resolve = resolve;
  }

  /** Runs all requests of one grant; `place` names the endpoint in errors. Rejects with `CredentialError`. */
  async exchange<T>(
    place: string,
    talk: (send: SendRequest) => Promise<T>,
    { deadlineMs = defaultDeadlineMs, ca }: ExchangeOptions = {},
  ): Promise<T> {
    if (this.#isClosed) throw closedError();
    const end = new AbortController();
    const timer = this.#clock.after(deadlineMs, () => end.abort());
    const last: LastAnswer = { status: 0, retryAfterMs: undefined };
    this.#underWay.add(end);
    const agents = this.#agentsFor(ca);
    try {
      return await talk((url, message) => this.#send(url, message, { place, last, agents, signal: end.signal }));
    } catch (error) {
      if (this.#isClosed) throw closedError();
      if (end.signal.aborted) {
        throw new CredentialError("endpoint-timeout", `${place} did not answer in time`, "check its load and the path");
      }
      throw error instanceof CredentialError ? error : explainAnswer(error, place, last);
    } finally {
      timer.cancel();
      this.#underWay.delete(end);
    }
  }

  /** Ends grants in flight. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const end of this.#underWay) end.abort();
    const agents = [...this.#agents.values()].flatMap((one) => Object.values(one));
    await Promise.all(agents.map((agent) => agent.destroy()));
  }

  #agentsFor(ca: string | undefined): Agents {
    const known = this.#agents.get(ca);
    if (known !== undefined) return known;
    const open = (reach: Reach): Agent => openAgent(reach, this.#resolve, ca);
    const agents = { pinned: open("pinned"), local: open("local"), public: open("public") };
    this.#agents.set(ca, agents);
    return agents;
  }

  async #send(
    url: string,
    { method, headers, body, namedBy }: GrantRequest,
    { place, last, agents, signal }: SendContext,
  ): Promise<Response> {
    if (!isSafeAddress(new URL(url))) throw badAnswer(place, "it names an address without TLS", last);
    try {
      const answer = await request(url, {
        method,
        headers: { ...headers, "accept-encoding": "identity" },
        body: body ?? null,
        dispatcher: agents[reachOf(url, namedBy)],
        signal,
        // One deadline covers all of it.
        headersTimeout: 0,
        bodyTimeout: 0,
      });
      last.status = answer.statusCode;
      last.retryAfterMs = retryAfterMs(answer.headers["retry-after"]);
      return await toResponse(answer, place, last);
    } catch (error) {
      if (error instanceof CredentialError) throw error;
      throw unreachable(place, reasonOf(error));
    }
  }
}

function openAgent(reach: Reach, resolve: ResolveAll | undefined, ca: string | undefined): Agent {
  // Said outright, because NODE_TLS_REJECT_UNAUTHORIZED changes only the default.
  const strict = { rejectUnauthorized: true, timeout: defaultDeadlineMs, lookup: guardedLookup(reach, resolve) };
  const build = (trust: buildConnector.BuildOptions): buildConnector.connector =>
    buildConnector({ ...strict, ...trust });
  return new Agent({
    connect: guardConnect(
      reach,
      ca === undefined ? build({}) : connectTrusting(ca, (secureContext) => build({ secureContext })),
    ),
    connections: 8,
    pipelining: 1,
    maxHeaderSize: 16 * 1024,
  });
}

function unreachable(place: string, reason: string): CredentialError {
  return new CredentialError("endpoint-unreachable", `${place} cannot be reached: ${reason}`, reachCure(reason), {
    isUnsent: reason === addressRefused || unsentReasons.test(reason),
  });
}

function reachCure(reason: string): string {
  if (reason === addressRefused) {
    return "an issuer may name public addresses and its own host only: write tokenEndpoint, if that is meant";
  }
  if (reason.startsWith("CA_FILE_"))
    return "the file that `ca` of the credential names must be there and hold PEM certificates";
  if (isDistrust(reason)) return "name a PEM file with the CA that signed its certificate as `ca` of the credential";
  return "check its address, DNS, the firewall and its certificate";
}

/** `https`, or `http` to this machine: secrets must not cross a network in the clear. */
export function isSafeAddress(url: URL): boolean {
  return url.protocol === "https:" || (url.protocol === "http:" && isLoopback(url.hostname));
}

/** Throws `not-configured` for what is neither `https` nor on loopback, or holds user info. */
export function checkAddress(address: string): URL {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  if (url !== undefined && isSafeAddress(url) && url.username === "" && url.password === "") return url;
  throw new CredentialError(
    "not-configured",
    "the address of a token endpoint or issuer cannot be used",
    "write https://…, or http:// on loopback",
  );
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "[::1]" || /^127(?:\.\d{1,3}){3}$/.test(host);
}

async function toResponse(answer: Dispatcher.ResponseData, place: string, last: LastAnswer): Promise<Response> {
  const text = await readCapped(answer.body, place, last);
  const { statusCode: status, headers } = answer;
  if ((headers["content-encoding"] ?? "identity") !== "identity") throw badAnswer(place, "it is encoded", last);
  if (status < 200 || status > 599) throw badAnswer(place, "its status is unknown", last);
  const kept = new Headers();
  for (const name of ["content-type", "date"]) {
    const value = headers[name];
    if (typeof value === "string") kept.set(name, value);
  }
  return new Response(status === 204 || status === 205 || status === 304 ? null : text, { status, headers: kept });
}

async function readCapped(body: Dispatcher.ResponseData["body"], place: string, last: LastAnswer): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  // Leaving the loop by a throw destroys the body and with it the connection.
  for await (const chunk of body as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > maxAnswerBytes) throw badAnswer(place, "it is larger than 256 KiB", last);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** RFC 6749, 5.2; RFC 8707, 2. Only these words are repeated: a server could put anything in their place. */
const knownErrors: ReadonlySet<string> = new Set([
  "invalid_request",
  "invalid_client",
  "invalid_grant",
  "unauthorized_client",
  "unsupported_grant_type",
  "invalid_scope",
  "invalid_target",
  "access_denied",
]);
const awayErrors: ReadonlySet<string> = new Set(["slow_down", "temporarily_unavailable", "server_error"]);

/** The meaning of an answer that brought no token. */
function explainAnswer(error: unknown, place: string, last: LastAnswer): CredentialError {
  const { status, retryAfterMs: wait } = last;
  const word = error instanceof ResponseBodyError ? error.error : "";
  const fail = (code: CredentialErrorCode, what: string, cure: string): CredentialError =>
    new CredentialError(code, `${place} ${what}`, cure, { status, retryAfterMs: wait });
  if (status >= 300 && status < 400) {
    return fail("endpoint-redirects", "redirects, which is not followed", "configure the address it redirects to");
  }
  if (status === 429 || (status === 403 && wait !== undefined)) {
    return fail("endpoint-failing", "limits our rate", "wait, or raise the client's limit there");
  }
  if (status >= 500 || awayErrors.has(word)) {
    return fail("endpoint-failing", `answered ${status}`, "look into its own log");
  }
  if (status === 400 || status === 401 || status === 403) {
    const said = knownErrors.has(word) ? `${status} ${word}` : String(status);
    return fail("grant-denied", `refused the grant: ${said}`, "check client, key, scope and audience against it");
  }
  return badAnswer(place, status >= 400 ? `it answered ${status}` : "it holds no token that can be used", last);
}

export function badAnswer(place: string, what: string, { status }: { readonly status: number }): CredentialError {
  const cure = "check that the configured address is the one of a token endpoint or issuer";
  return new CredentialError("endpoint-bad-answer", `${place} gave no usable answer: ${what}`, cure, {
    ...(status === 0 ? {} : { status }),
  });
}

function closedError(): CredentialError {
  return new CredentialError("closed", "the request was given up", "none needed while stopping");
}
