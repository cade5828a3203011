import {
  type AgentErrorKind,
  type AgentMessage,
  type Answer,
  type AnswerTo,
  agentErrorAnswer,
  compareHeaders,
  deniedAnswer,
  type Era,
  eraOf,
  errorAnswer,
  idKeyOf,
  isJson,
  type Refusal,
  readMessage,
  refusalAnswer,
  rpcCodes,
  type Subject,
  subjectOf,
} from "../mcp/index.ts";
import type { Decision } from "../policy/index.ts";
import type { Open } from "../tunnel/index.ts";
import { type AgentHeaders, readAgentHeaders } from "./agent-headers.ts";
import type { Refused } from "./audit.ts";
import type { GatewayServer, PipelineContext } from "./context.ts";

/**
 * The judgement of one exchange as a row of named steps, without I/O: authorise the stream, read its headers, check the
 * content, read the body once, compare the headers with it, check the MCP session and the request id, decide. The first
 * step that objects says what the agent is told. What follows (audit, inject, forward, answer) is in exchange.ts.
 */

/** Where the exchange belongs among MCP sessions. */
export interface SessionRef {
  /** What the agent calls its session; undefined without one, and in the modern era. */
  readonly sealedId: string | undefined;
  /** What the upstream calls it. */
  readonly upstreamId: string | undefined;
  /** Key for what is remembered of the session, also where the agent has none. */
  readonly key: string;
}

export interface Judged {
  readonly message: AgentMessage | undefined;
  readonly era: Era;
  readonly subject: Subject;
  readonly session: SessionRef;
  readonly decision: Decision | Refused;
  /** What the agent is told at once; undefined: the call goes on to the upstream. */
  readonly answer: Answer | undefined;
  /** The id that is now in flight in `session`: to be finished with the exchange. */
  readonly flightId: string | undefined;
  /** The server's request in `session` that this message answers: to be dropped as it leaves, or else released. */
  readonly askId: string | undefined;
}

const opened: Subject = { kind: "open" };
const noBody = Buffer.alloc(0);
/** What a message that goes nowhere is told, as a server tells one that it took. */
const accepted: Answer = { status: 202, headers: ["cache-control", "no-store"], body: noBody };
const pendingAsk: Decision = { kind: "allow", rule: "answer to a pending request", at: undefined };

/** Whom an error answers; nothing else of OPEN may get into an answer. */
export function addressee(open: Open, message?: AgentMessage): AnswerTo {
  return { idText: message?.idText, requestId: open.requestId };
}

/** Step 1. A name that the agent may not use resets the stream: the relay words that answer (DESIGN 4.6). */
export function authoriseStream(ctx: PipelineContext, open: Open): GatewayServer | "NO_SERVER" | "FORBIDDEN" {
  const server = ctx.servers.get(open.server);
  if (server === undefined) return "NO_SERVER";
  return ctx.policy.hasGrant(open.server) ? server : "FORBIDDEN";
}

/** Step 2. The relay sent only what it lets through; that is checked again here (DESIGN invariant 2). */
export function readHeaders(open: Open): AgentHeaders | "headerRepeats" | "unexpected body" {
  if (open.hasBody && open.method !== "POST") return "unexpected body";
  return readAgentHeaders(open.headers) ?? "headerRepeats";
}

export function unexpectedBody(to: AnswerTo): Answer {
  return errorAnswer({
    status: 400,
    code: rpcCodes.invalidRequest,
    message: "Invalid Request: this verb has no body",
    ...to,
  });
}

/** Step 3. */
function checkContent(headers: AgentHeaders): AgentErrorKind | undefined {
  if (!isJson(headers.contentType) || headers.contentEncoding !== undefined) return "unsupportedMediaType";
  return undefined;
}

/** Step 6. Undefined: the id was not made here for this server and principal. */
function findSession(ctx: PipelineContext, open: Open, era: Era, headers: AgentHeaders): SessionRef | undefined {
  const sealedId = headers.sessionId;
  const principalId = open.principal.id;
  if (era === "modern" || sealedId === undefined) {
    return { sealedId: undefined, upstreamId: undefined, key: `${open.server} ${principalId}` };
  }
  const upstreamId = ctx.sessionIds.open(open.server, principalId, sealedId);
  return upstreamId === undefined ? undefined : { sealedId, upstreamId, key: sealedId };
}

/** Steps 3 to 8 for one exchange; `body` is undefined for GET and DELETE. */
export function judge(ctx: PipelineContext, open: Open, headers: AgentHeaders, body: Buffer | undefined): Judged {
  if (open.method !== "POST") return judgeMessage(ctx, open, headers, undefined);
  const problem = checkContent(headers);
  if (problem !== undefined) return refused("legacy", problem, agentErrorAnswer(problem, addressee(open)));
  const message = readMessage(body ?? noBody);
  if (message.kind === "refusal") return refused("legacy", message.message, refusalAnswer(message, addressee(open)));
  return judgeMessage(ctx, open, headers, message);
}

function judgeMessage(
  ctx: PipelineContext,
  open: Open,
  headers: AgentHeaders,
  message: AgentMessage | undefined,
): Judged {
  const to = addressee(open, message);
  const era = eraOf(message, headers.protocolVersion);
  const mismatch: Refusal | undefined = compareHeaders(message, open.headers, era);
  if (mismatch !== undefined) return refused(era, mismatch.message, refusalAnswer(mismatch, to), message);
  const session = findSession(ctx, open, era, headers);
  if (session === undefined) {
    return refused(era, "sessionNotFound", agentErrorAnswer("sessionNotFound", to), message);
  }
  if (message?.kind === "response") return judgeResponse(ctx, message, era, session);
  const subject = message === undefined ? opened : subjectOf(message, era);
  const decision = ctx.policy.decide(open.server, subject);
  if (decision.kind === "deny") {
    const answer = message?.kind === "notification" ? accepted : denial(message, subject, era, decision, to);
    return { message, era, subject, session, decision, answer, flightId: undefined, askId: undefined };
  }
  const flightId = message?.kind === "request" && session.sealedId !== undefined ? idKeyOf(to.idText ?? "") : undefined;
  if (flightId !== undefined && !ctx.sessions.begin(session.key, flightId)) {
    return refused(era, "idInFlight", agentErrorAnswer("idInFlight", to), message);
  }
  return { message, era, subject, session, decision, answer: undefined, flightId, askId: undefined };
}

/** An agent's answer to the server passes only if the server asked for it (DESIGN 4.3). */
function judgeResponse(ctx: PipelineContext, message: AgentMessage, era: Era, session: SessionRef): Judged {
  const askId = message.idText === undefined ? undefined : idKeyOf(message.idText);
  const isAwaited = askId !== undefined && ctx.sessions.claimAsk(session.key, askId);
  const common = { message, era, subject: opened, session, flightId: undefined };
  if (isAwaited) return { ...common, decision: pendingAsk, answer: undefined, askId };
  const decision: Refused = { kind: "refused", reason: "answers no pending request" };
  return { ...common, decision, answer: accepted, askId: undefined };
}

function denial(
  message: AgentMessage | undefined,
  subject: Subject,
  era: Era,
  decision: Decision & { readonly kind: "deny" },
  to: AnswerTo,
): Answer {
  if (decision.reason === "no-grant") return agentErrorAnswer("forbidden", to);
  // A client takes every other refusal of discovery, and of a whole stream, for an older server.
  if (message === undefined || message.method === "server/discover") return agentErrorAnswer("unavailable", to);
  return deniedAnswer(subject, era, to, decision.uri);
}

function refused(era: Era, reason: string, answer: Answer, message?: AgentMessage): Judged {
  return {
    message,
    era,
    subject: opened,
    session: { sealedId: undefined, upstreamId: undefined, key: "" },
    decision: { kind: "refused", reason },
    answer,
    flightId: undefined,
    askId: undefined,
  };
}
