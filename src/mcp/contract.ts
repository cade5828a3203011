import type { RawHeaders } from "../lib/index.ts";
import { rpcCodes } from "./codes.ts";
import type { Era, Refusal, Subject } from "./types.ts";

/** The error contract (DESIGN 4.6): what an agent is told, as data, and the answers made of it. */

/** An error as it goes out: the HTTP status, and the code and message of the JSON-RPC error in the body. */
export interface AgentError {
  readonly status: number;
  readonly code: number;
  readonly message: string;
  /** Headers of this kind of error, beside those of every answer. */
  readonly headers?: RawHeaders;
}

/** A whole answer, made here rather than by an upstream. */
export interface Answer {
  readonly status: number;
  readonly headers: RawHeaders;
  readonly body: Buffer;
}

/** Which request an error answers. */
export interface AnswerTo {
  /** `AgentMessage.idText`; undefined gives `"id":null`. */
  readonly idText?: string | undefined;
  /** The value of `X-Request-Id`, repeated in `error.data.requestId`. */
  readonly requestId: string;
}

const retryLater: RawHeaders = ["retry-after", "1"];

/** Every error that does not depend on what the request names. Statuses other than these make clients do harm, see DESIGN 4.6. */
export const agentErrors = {
  headersTooLarge: { status: 431, code: rpcCodes.invalidRequest, message: "Request headers too large" },
  originNotAllowed: { status: 403, code: rpcCodes.forbidden, message: "Host or Origin not allowed" },
  /** The caller adds `WWW-Authenticate`. */
  unauthorized: { status: 401, code: rpcCodes.forbidden, message: "Unauthorized" },
  /** A server that is unknown or not granted; 404 would mean that a session has ended. */
  forbidden: { status: 403, code: rpcCodes.forbidden, message: "Forbidden" },
  verbNotAllowed: {
    status: 405,
    code: rpcCodes.invalidRequest,
    message: "Method not allowed",
    headers: ["allow", "POST, GET, DELETE"],
  },
  pathNotFound: { status: 404, code: rpcCodes.invalidRequest, message: "Not found" },
  overloaded: { status: 503, code: rpcCodes.overloaded, message: "Overloaded, try again later", headers: retryLater },
  tunnelDown: { status: 503, code: rpcCodes.tunnelDown, message: "Gateway not connected", headers: retryLater },
  unsupportedMediaType: {
    status: 415,
    code: rpcCodes.invalidRequest,
    message: "Content-Type must be application/json in UTF-8, without Content-Encoding",
  },
  bodyTooLarge: { status: 413, code: rpcCodes.invalidRequest, message: "Request body too large" },
  headerRepeats: { status: 400, code: rpcCodes.invalidRequest, message: "Invalid Request: a header repeats" },
  idInFlight: { status: 400, code: rpcCodes.invalidRequest, message: "Invalid Request: id is already in flight" },
  sessionNotFound: { status: 404, code: rpcCodes.sessionNotFound, message: "Session not found" },
  /** Audit unwritable, or a fault of our own: nothing was sent to the upstream. */
  unavailable: { status: 503, code: rpcCodes.unavailable, message: "Temporarily unavailable", headers: retryLater },
  credentialFailed: { status: 502, code: rpcCodes.credentialFailed, message: "No credential for the server" },
  upstreamFailed: { status: 502, code: rpcCodes.upstreamFailed, message: "The server failed" },
  upstreamTimeout: { status: 504, code: rpcCodes.upstreamTimeout, message: "The server did not answer in time" },
  resultTooLarge: { status: 502, code: rpcCodes.resultTooLarge, message: "Result too large" },
  /** A modern result that asks the agent for something the policy does not let the server ask. */
  askDenied: { status: 200, code: rpcCodes.deniedByPolicy, message: "Denied by policy" },
} as const satisfies Record<string, AgentError>;

export type AgentErrorKind = keyof typeof agentErrors;

/** An error of the table as an answer. `extra` adds members to `error.data`, and headers. */
export function agentErrorAnswer(
  kind: AgentErrorKind,
  to: AnswerTo,
  extra?: { readonly data?: Readonly<Record<string, unknown>>; readonly headers?: RawHeaders },
): Answer {
  return errorAnswer({ ...agentErrors[kind], ...pick(to), data: extra?.data, extraHeaders: extra?.headers });
}

/** Callers hand over wider objects (an OPEN, a message), of which no other member may get into an answer. */
function pick({ idText, requestId }: AnswerTo): AnswerTo {
  return { idText, requestId };
}

export interface ErrorOptions extends AgentError, AnswerTo {
  readonly data?: Readonly<Record<string, unknown>> | undefined;
  readonly extraHeaders?: RawHeaders | undefined;
}

/** A JSON-RPC error as an HTTP answer. The id's text goes in as it is: re-serialising would change `1.0` or 2^53+1. */
export function errorAnswer(options: ErrorOptions): Answer {
  const body = Buffer.from(errorText(options, options, options.data));
  return { status: options.status, headers: answerHeaders(options.headers, options.extraHeaders), body };
}

/** What `readMessage` or `compareHeaders` refused, as an answer. */
export function refusalAnswer(refusal: Refusal, to: AnswerTo): Answer {
  const { status, code, message } = refusal;
  return errorAnswer({ status, code, message, ...pick(to) });
}

/** The error as one server-sent event, for a stream whose headers have gone out. Write it at an event boundary only. */
export function errorEvent(
  error: Pick<AgentError, "code" | "message">,
  to: AnswerTo,
  data?: Readonly<Record<string, unknown>>,
): Buffer {
  return Buffer.from(`event: message\ndata: ${errorText(error, to, data)}\n\n`);
}

function errorText(
  error: Pick<AgentError, "code" | "message">,
  to: AnswerTo,
  data: Readonly<Record<string, unknown>> | undefined,
): string {
  const { code, message } = error;
  const text = JSON.stringify({ code, message, data: { ...data, requestId: to.requestId } });
  return `{"jsonrpc":"2.0","id":${to.idText ?? "null"},"error":${text}}`;
}

function answerHeaders(...extra: readonly (RawHeaders | undefined)[]): RawHeaders {
  const headers = [
    "content-type",
    "application/json",
    "x-content-type-options",
    "nosniff",
    "cache-control",
    "no-store",
  ];
  for (const more of extra) if (more !== undefined) headers.push(...more);
  return headers;
}

/** What a denied message is answered, as if the server did not know the name. A notification is answered 202 instead. */
export function deniedAnswer(subject: Subject, era: Era, to: AnswerTo, deniedUri?: string): Answer {
  switch (subject.kind) {
    case "tool":
      return unknownNameAnswer("tool", subject.name, to);
    case "prompt":
      return unknownNameAnswer("prompt", subject.name, to);
    case "resource":
      return resourceNotFoundAnswer(deniedUri ?? subject.uris[0], era, to);
    case "template":
      return resourceNotFoundAnswer(subject.uriTemplate, "modern", to);
    case "open":
    case "client":
    case "unknown":
      return methodNotFoundAnswer(era, to);
  }
}

/** Longest part of a name that an error repeats. */
const maxEchoLength = 256;

function unknownNameAnswer(kind: "tool" | "prompt", name: string | undefined, to: AnswerTo): Answer {
  const message = name === undefined ? `Unknown ${kind}` : `Unknown ${kind}: ${name.slice(0, maxEchoLength)}`;
  return errorAnswer({ status: 200, code: rpcCodes.invalidParams, message, ...pick(to) });
}

function resourceNotFoundAnswer(uri: string | undefined, era: Era, to: AnswerTo): Answer {
  const code = era === "legacy" ? rpcCodes.legacyResourceNotFound : rpcCodes.invalidParams;
  return errorAnswer({
    status: 200,
    code,
    message: "Resource not found",
    ...pick(to),
    data: uri === undefined ? {} : { uri },
  });
}

/** For `server/discover` never: a client takes it for an old server. */
export function methodNotFoundAnswer(era: Era, to: AnswerTo): Answer {
  const status = era === "legacy" ? 200 : 404;
  return errorAnswer({ status, code: rpcCodes.methodNotFound, message: "Method not found", ...pick(to) });
}

/** The names of the tunnel's reset codes (docs/protocol.md). */
export type ResetName =
  | "REFUSED"
  | "DRAINING"
  | "OVERLOADED"
  | "NO_SERVER"
  | "NOT_OWNER"
  | "FORBIDDEN"
  | "EXPIRED"
  | "TOO_LARGE"
  | "UPSTREAM_UNREACHABLE"
  | "CANCEL"
  | "DEADLINE"
  | "UPSTREAM_FAILED"
  | "UPSTREAM_TIMEOUT"
  | "IDLE"
  | "BODY_LIMIT"
  | "STALLED"
  | "INTEGRITY"
  | "INTERNAL"
  | "TUNNEL_LOST";

const resetErrors: Readonly<Record<ResetName, AgentErrorKind>> = {
  REFUSED: "overloaded",
  DRAINING: "overloaded",
  OVERLOADED: "overloaded",
  STALLED: "overloaded",
  NO_SERVER: "tunnelDown",
  NOT_OWNER: "tunnelDown",
  TUNNEL_LOST: "tunnelDown",
  FORBIDDEN: "forbidden",
  TOO_LARGE: "bodyTooLarge",
  BODY_LIMIT: "resultTooLarge",
  UPSTREAM_UNREACHABLE: "upstreamFailed",
  UPSTREAM_FAILED: "upstreamFailed",
  INTEGRITY: "upstreamFailed",
  INTERNAL: "upstreamFailed",
  // Nobody is left to read the answer to a cancelled exchange.
  CANCEL: "upstreamFailed",
  DEADLINE: "upstreamTimeout",
  EXPIRED: "upstreamTimeout",
  UPSTREAM_TIMEOUT: "upstreamTimeout",
  IDLE: "upstreamTimeout",
};

/**
 * The error that a stream's reset is to the agent. `isWildcardAgent`: the agent may use every server (`servers: ["*"]`),
 * so that a name which no gateway serves is, to it, an unknown server rather than one that is away.
 */
export function resetErrorKind(code: ResetName, isWildcardAgent: boolean): AgentErrorKind {
  return code === "NO_SERVER" && isWildcardAgent ? "forbidden" : resetErrors[code];
}

export function resetAnswer(code: ResetName, isWildcardAgent: boolean, to: AnswerTo): Answer {
  return agentErrorAnswer(resetErrorKind(code, isWildcardAgent), to);
}
