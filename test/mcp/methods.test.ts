import { describe, expect, it } from "vitest";
import { type AgentMessage, type Era, readMessage, type Subject, subjectOf } from "../../src/mcp/index.ts";

function message(method: string, params?: unknown, isRequest = !method.startsWith("notifications/")): AgentMessage {
  const read = readMessage(
    Buffer.from(JSON.stringify({ jsonrpc: "2.0", ...(isRequest ? { id: 1 } : {}), method, params })),
  );
  if (read.kind === "refusal") throw new Error(read.message);
  return read;
}

const open: Subject = { kind: "open" };
const unknown: Subject = { kind: "unknown" };

/** Every method of every revision, with what it is in the older ones and from 2026-07-28 on. */
const table: readonly [method: string, params: unknown, legacy: Subject, modern: Subject][] = [
  ["initialize", { protocolVersion: "2025-11-25" }, open, unknown],
  ["ping", undefined, open, unknown],
  ["logging/setLevel", { level: "info" }, open, unknown],
  ["server/discover", {}, open, open],
  ["tools/list", { cursor: "x" }, open, open],
  ["prompts/list", {}, open, open],
  ["resources/list", {}, open, open],
  ["resources/templates/list", {}, open, open],
  ["tools/call", { name: "a" }, { kind: "tool", name: "a" }, { kind: "tool", name: "a" }],
  ["prompts/get", { name: "a" }, { kind: "prompt", name: "a" }, { kind: "prompt", name: "a" }],
  ["resources/read", { uri: "a:b" }, { kind: "resource", uris: ["a:b"] }, { kind: "resource", uris: ["a:b"] }],
  ["resources/subscribe", { uri: "a:b" }, { kind: "resource", uris: ["a:b"] }, unknown],
  ["resources/unsubscribe", { uri: "a:b" }, { kind: "resource", uris: ["a:b"] }, unknown],
  [
    "completion/complete",
    { ref: { type: "ref/prompt", name: "p", uri: "a:b" } },
    { kind: "prompt", name: "p" },
    { kind: "prompt", name: "p" },
  ],
  [
    "completion/complete",
    { ref: { type: "ref/resource", uri: "a:{b}", name: "p" } },
    { kind: "template", uriTemplate: "a:{b}" },
    { kind: "template", uriTemplate: "a:{b}" },
  ],
  [
    "subscriptions/listen",
    { notifications: { resourceSubscriptions: ["a:b", "c:d"] } },
    unknown,
    { kind: "resource", uris: ["a:b", "c:d"] },
  ],
  ["subscriptions/listen", { notifications: { toolsListChanged: true } }, unknown, open],
  ["notifications/initialized", {}, open, open],
  ["notifications/cancelled", { requestId: 1 }, open, open],
  ["notifications/progress", { progressToken: 1 }, open, open],
  ["notifications/roots/list_changed", {}, { kind: "client", ask: "roots" }, unknown],
  // What only servers send, and tasks, in the core of 2025-11-25 and as an extension later.
  ["notifications/message", {}, unknown, unknown],
  ["notifications/tools/list_changed", {}, unknown, unknown],
  ["notifications/resources/updated", { uri: "a:b" }, unknown, unknown],
  ["notifications/elicitation/complete", {}, unknown, unknown],
  ["notifications/subscriptions/acknowledged", {}, unknown, unknown],
  ["notifications/tasks", {}, unknown, unknown],
  ["notifications/tasks/status", {}, unknown, unknown],
  ["sampling/createMessage", {}, unknown, unknown],
  ["elicitation/create", {}, unknown, unknown],
  ["roots/list", {}, unknown, unknown],
  ["tasks/get", { taskId: "t" }, unknown, unknown],
  ["tasks/list", {}, unknown, unknown],
  ["tasks/result", { taskId: "t" }, unknown, unknown],
  ["tasks/update", { taskId: "t" }, unknown, unknown],
  ["tasks/cancel", { taskId: "t" }, unknown, unknown],
];

describe("subjects", () => {
  it.each(table)("%s with %j", (method, params, legacy, modern) => {
    expect(subjectOf(message(method, params), "legacy")).toEqual(legacy);
    expect(subjectOf(message(method, params), "modern")).toEqual(modern);
  });

  it.each([
    "Tools/Call",
    "tools/call ",
    "TOOLS/CALL",
    "tools/Call",
    "tools//call",
    "tools/call\u0000",
    "tools/call_as_task",
    "tool/call",
    "$/tools/call",
    "constructor",
    "__proto__",
    "toString",
    "",
  ])("C16 the method %j is unknown", (method) => {
    expect(subjectOf(message(method, { name: "get_x" }), "legacy")).toEqual(unknown);
    expect(subjectOf(message(method, { name: "get_x" }), "modern")).toEqual(unknown);
  });

  it.each([{}, null, { ttl: 1 }, false])("C16 a call with the task %j is unknown, whatever its tool", (task) => {
    expect(subjectOf(message("tools/call", { name: "get_x", task }), "legacy")).toEqual(unknown);
    expect(subjectOf(message("tools/call", { name: "get_x", task }), "modern")).toEqual(unknown);
  });

  it.each([
    ["array", ["get_x"]],
    ["object", { name: "get_x" }],
    ["number", 7],
    ["null", null],
    ["absent", undefined],
  ])("C16 a name that is %s is no name", (_, name) => {
    expect(subjectOf(message("tools/call", { name }), "legacy")).toEqual({ kind: "tool", name: undefined });
    expect(subjectOf(message("prompts/get", { name }), "legacy")).toEqual({ kind: "prompt", name: undefined });
    expect(subjectOf(message("resources/read", { uri: name }), "legacy")).toEqual({
      kind: "resource",
      uris: [undefined],
    });
    expect(subjectOf(message("tools/call"), "legacy")).toEqual({ kind: "tool", name: undefined });
  });

  it("a request sent as a notification, and the reverse, are unknown", () => {
    expect(subjectOf(message("tools/call", { name: "a" }, false), "legacy")).toEqual(unknown);
    expect(subjectOf(message("notifications/initialized", {}, true), "legacy")).toEqual(unknown);
  });

  it("a response has no subject of its own", () => {
    const read = readMessage(Buffer.from('{"jsonrpc":"2.0","id":1,"result":{}}')) as AgentMessage;
    for (const era of ["legacy", "modern"] as const satisfies Era[]) expect(subjectOf(read, era)).toEqual(unknown);
  });

  it("a completion for nothing known names nothing", () => {
    for (const ref of [undefined, "p", { type: "ref/tool", name: "p" }, { name: "p" }, { type: "ref/prompt" }]) {
      expect(subjectOf(message("completion/complete", { ref }), "modern")).toEqual({ kind: "prompt", name: undefined });
    }
    expect(subjectOf(message("completion/complete", { ref: { type: "ref/resource" } }), "modern")).toEqual({
      kind: "template",
      uriTemplate: undefined,
    });
  });

  it.each([["a:b"], [{}], [[7]], [null]])("a subscription to %j names no URI", (resourceSubscriptions) => {
    const subject = subjectOf(message("subscriptions/listen", { notifications: { resourceSubscriptions } }), "modern");
    expect(subject).toEqual({ kind: "resource", uris: [undefined] });
  });
});
