import { isObject } from "./json.ts";
import type { AgentMessage, Era, JsonObject, Subject } from "./types.ts";

/**
 * Every method that an agent may send in some revision from 2024-11-05 to 2026-07-28, and what the policy judges in it
 * (DESIGN 4.3). What is not in this table is unknown, and denied: tasks, and the methods that only servers send.
 */

interface MethodEntry {
  readonly kind: "request" | "notification";
  readonly eras: Era | "both";
  readonly subject: (params: JsonObject) => Subject;
}

const open: Subject = { kind: "open" };
const unknown: Subject = { kind: "unknown" };

function request(eras: Era | "both", subject: (params: JsonObject) => Subject): MethodEntry {
  return { kind: "request", eras, subject };
}

function notification(eras: Era | "both", subject: (params: JsonObject) => Subject): MethodEntry {
  return { kind: "notification", eras, subject };
}

const toOpen = (): Subject => open;
const toResource = (params: JsonObject): Subject => ({ kind: "resource", uris: [stringOf(params["uri"])] });

const methods: ReadonlyMap<string, MethodEntry> = new Map([
  ["initialize", request("legacy", toOpen)],
  ["ping", request("legacy", toOpen)],
  ["logging/setLevel", request("legacy", toOpen)],
  ["server/discover", request("both", toOpen)],
  ["tools/list", request("both", toOpen)],
  ["prompts/list", request("both", toOpen)],
  ["resources/list", request("both", toOpen)],
  ["resources/templates/list", request("both", toOpen)],
  ["tools/call", request("both", (params) => ({ kind: "tool", name: stringOf(params["name"]) }))],
  ["prompts/get", request("both", (params) => ({ kind: "prompt", name: stringOf(params["name"]) }))],
  ["resources/read", request("both", toResource)],
  ["resources/subscribe", request("legacy", toResource)],
  ["resources/unsubscribe", request("legacy", toResource)],
  ["completion/complete", request("both", toCompleted)],
  ["subscriptions/listen", request("modern", toSubscribed)],
  ["notifications/initialized", notification("both", toOpen)],
  ["notifications/cancelled", notification("both", toOpen)],
  ["notifications/progress", notification("both", toOpen)],
  ["notifications/roots/list_changed", notification("legacy", () => ({ kind: "client", ask: "roots" }))],
]);

const noParams: JsonObject = {};

/** What the policy has to judge in a message. A response is judged by the request that it answers, so it is unknown here. */
export function subjectOf(message: AgentMessage, era: Era): Subject {
  const entry = message.method === undefined ? undefined : methods.get(message.method);
  const params = message.params ?? noParams;
  if (entry === undefined || entry.kind !== message.kind) return unknown;
  if (entry.eras !== "both" && entry.eras !== era) return unknown;
  return Object.hasOwn(params, "task") ? unknown : entry.subject(params);
}

function stringOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** Completion follows its prompt or template; a reference of no known kind names nothing. */
function toCompleted({ ref }: JsonObject): Subject {
  if (!isObject(ref)) return { kind: "prompt", name: undefined };
  if (ref["type"] === "ref/resource") return { kind: "template", uriTemplate: stringOf(ref["uri"]) };
  return { kind: "prompt", name: ref["type"] === "ref/prompt" ? stringOf(ref["name"]) : undefined };
}

function toSubscribed({ notifications }: JsonObject): Subject {
  const uris = isObject(notifications) ? notifications["resourceSubscriptions"] : undefined;
  if (uris === undefined) return open;
  return { kind: "resource", uris: Array.isArray(uris) ? uris.map(stringOf) : [undefined] };
}
