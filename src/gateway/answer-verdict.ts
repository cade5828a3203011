import { agentErrors, editLists, type MessageSkimmer, readInputMethods, readUpdatedUri } from "../mcp/index.ts";
import type { ClientKind } from "../mcp/types.ts";
import type { AnsweredExchange, AnswerHooks, AnswerJudge } from "./answer-types.ts";

/** What becomes of one message of an upstream. Reasons hold no byte of the message. */
export type Verdict =
  /** Goes out as it came. */
  | { readonly kind: "pass"; readonly ask?: Ask }
  | { readonly kind: "replace"; readonly bytes: Buffer }
  /** A response that becomes -33001. */
  | { readonly kind: "deny" }
  /** Never leaves; the rest of the stream goes on. */
  | { readonly kind: "drop"; readonly reason: string; readonly ask?: Ask }
  /** Cannot be told for certain. */
  | { readonly kind: "refuse"; readonly reason: string };

/** A request of the server. */
export interface Ask {
  readonly idText: string;
  readonly method: string;
}

export type MessageKind = "request" | "notification" | "response" | "none";

const pass: Verdict = { kind: "pass" };

const askKinds: ReadonlyMap<string, ClientKind> = new Map([
  ["sampling/createMessage", "sampling"],
  ["elicitation/create", "elicitation"],
  ["roots/list", "roots"],
]);

const updatedMethod = "notifications/resources/updated";

/** Why a message cannot be told for certain, so far; undefined: it still can. */
export function doubtOf(message: MessageSkimmer): string | undefined {
  if (message.isArray) return "a batch";
  if (message.isBroken) return "no valid JSON";
  if (!message.isObject && !message.isBlank) return "no JSON object";
  if (message.isAmbiguous) return "a judged key repeats, or has no certain value";
  if (message.hasMethod && (message.hasResult || message.hasError)) return "both request and response";
  return undefined;
}

/** Whether a message, as far as it is known, may have to be edited or dropped. */
export function needsWhole(message: MessageSkimmer, judge: AnswerJudge): boolean {
  if (message.hasList || message.hasInputRequests || message.isTask) return true;
  const { method } = message;
  return method !== undefined && !mayPassUnread(method, judge);
}

function mayPassUnread(method: string, judge: AnswerJudge): boolean {
  const ask = askKinds.get(method);
  if (ask !== undefined) return judge.admitsAsk(ask);
  return method === "ping" || (method.startsWith("notifications/") && !isTask(method) && method !== updatedMethod);
}

/** Of a complete message. */
export function kindOf(message: MessageSkimmer): MessageKind {
  if (message.method !== undefined) return message.idText === undefined ? "notification" : "request";
  return message.hasResult || message.hasError ? "response" : "none";
}

/** Whether a response answers this very exchange. Servers may write the id anew, so its value counts as well. */
export function isOwn(message: MessageSkimmer, exchange: AnsweredExchange): boolean {
  const { idText } = message;
  if (idText === undefined || exchange.idText === undefined) return false;
  return idText === exchange.idText || JSON.parse(idText) === JSON.parse(exchange.idText);
}

/**
 * Judges a complete message. `read` gives its bytes and is called only where the skimmer's findings do not decide;
 * undefined where they have already gone out, so that only `pass` can be carried out.
 */
export function judgeMessage(message: MessageSkimmer, read: (() => Buffer) | undefined, judge: AnswerJudge): Verdict {
  const doubt = message.isComplete ? doubtOf(message) : "no valid JSON";
  if (doubt !== undefined) return { kind: "refuse", reason: doubt };
  switch (kindOf(message)) {
    case "request":
      return judgeRequest(message.idText ?? "null", message.method ?? "", judge);
    case "notification":
      return judgeNotification(message.method ?? "", read, judge);
    case "response":
      return judgeResponse(message, read, judge);
    case "none":
      return { kind: "refuse", reason: "neither request nor response" };
  }
}

function judgeRequest(idText: string, method: string, judge: AnswerJudge): Verdict {
  if (idText === "null") return { kind: "drop", reason: "a request without an id" };
  const ask = { idText, method };
  const kind = askKinds.get(method);
  const isAdmitted = kind === undefined ? method === "ping" : judge.admitsAsk(kind);
  return isAdmitted ? { kind: "pass", ask } : { kind: "drop", reason: "a request that the policy does not admit", ask };
}

function judgeNotification(method: string, read: (() => Buffer) | undefined, judge: AnswerJudge): Verdict {
  if (isTask(method)) return { kind: "drop", reason: "a task notification" };
  // Whoever overlooks the missing id would take it for a request.
  if (!method.startsWith("notifications/")) return { kind: "drop", reason: "a notification that has no such name" };
  if (method !== updatedMethod) return pass;
  const uri = read === undefined ? undefined : readUpdatedUri(read());
  if (uri !== undefined && judge.admitsUpdate(uri)) return pass;
  return { kind: "drop", reason: "an update of a resource that the policy does not admit" };
}

function judgeResponse(message: MessageSkimmer, read: (() => Buffer) | undefined, judge: AnswerJudge): Verdict {
  // A task that nobody asked for could never be followed: its methods are denied (DESIGN 4.3).
  if (message.isTask)
    return read === undefined ? { kind: "refuse", reason: "a task that was seen too late" } : { kind: "deny" };
  if (!message.hasList && !message.hasInputRequests) return pass;
  if (read === undefined) return { kind: "refuse", reason: "a list that was seen too late" };
  const bytes = read();
  if (message.hasInputRequests && !areInputsAdmitted(bytes, judge)) return { kind: "deny" };
  if (!message.hasList) return pass;
  const edit = editLists(bytes, (kind, name) => judge.shows(kind, name));
  switch (edit.kind) {
    case "same":
      return pass;
    case "edited":
      return { kind: "replace", bytes: edit.bytes };
    case "refused":
      return { kind: "refuse", reason: edit.reason };
  }
}

/** The response that stands in for one which asks the agent what the policy does not admit, or starts a task. */
export function deniedText(message: MessageSkimmer, hooks: AnswerHooks): Buffer {
  const { code, message: text } = agentErrors.askDenied;
  return Buffer.from(hooks.errorJson(message.idText ?? "null", code, text));
}

function areInputsAdmitted(bytes: Buffer, judge: AnswerJudge): boolean {
  const methods = readInputMethods(bytes);
  if (methods === undefined) return false;
  return methods.every((method) => {
    const kind = method === undefined ? undefined : askKinds.get(method);
    return kind !== undefined && judge.admitsAsk(kind);
  });
}

function isTask(method: string): boolean {
  return method.startsWith("notifications/tasks");
}
