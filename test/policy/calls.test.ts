import { describe, expect, it } from "vitest";
import { deniedAnswer, type Era, readMessage, subjectOf } from "../../src/mcp/index.ts";
import { admitsTool, policyOf } from "./build.ts";

/** A call from its bytes to its decision, as the gateway joins the parts. */

const policy = policyOf({ tools: ["get_x"], prompts: ["get_x"], resources: ["get_x"] });

function judgeBytes(body: string, era: Era = "legacy"): "allow" | "deny" | "refusal" {
  const message = readMessage(Buffer.from(body));
  if (message.kind === "refusal") return "refusal";
  return policy.decide("tickets", subjectOf(message, era)).kind;
}

function call(params: string, method = "tools/call"): string {
  return `{"jsonrpc":"2.0","id":1,"method":${JSON.stringify(method)},"params":${params}}`;
}

const variants = [
  "del_x",
  "GET_X",
  "get_x ",
  " get_x",
  "get_x\u0000",
  "get_\u0445",
  "get_x\n",
  "get_x\u0301",
  "../get_x",
  "./get_x",
  "%67et_x",
  "get_x/",
  "get_x?",
  "\u200bget_x",
  "get\u005fx\u00ad",
  "\uff47et_x",
  "get_",
  "",
  "*",
];

describe("C16 the list and the call agree", () => {
  it("C16 the byte-equal name passes, however it is written", () => {
    expect(judgeBytes(call('{"name":"get_x"}'))).toBe("allow");
    expect(judgeBytes(call('{"n\\u0061me":"\\u0067et_x"}'))).toBe("allow");
    expect(policy.shows("tickets", "tools", "get_x")).toBe(true);
  });

  it.each(variants)("C16 the call of %j is denied, and hidden", (name) => {
    expect(judgeBytes(call(JSON.stringify({ name })))).toBe("deny");
    expect(judgeBytes(call(JSON.stringify({ name })), "modern")).toBe("deny");
    expect(judgeBytes(call(JSON.stringify({ name }), "prompts/get"))).toBe("deny");
    expect(judgeBytes(call(JSON.stringify({ uri: name }), "resources/read"))).toBe("deny");
    expect(admitsTool(policy, name)).toBe(false);
  });

  it.each(['{"name":["get_x"]}', '{"name":{"name":"get_x"}}', "{}", '{"name":null}', '{"arguments":{"name":"get_x"}}'])(
    "C16 params %s name no tool",
    (params) => {
      expect(judgeBytes(call(params))).toBe("deny");
    },
  );

  it.each([
    '{"name":"del_x","name":"get_x"}',
    '{"name":"get_x","name":"del_x"}',
    '{"name":"get_x","n\\u0061me":"del_x"}',
    '{"name":"get_x","Name":"del_x"}',
    '{"Name":"get_x"}',
  ])("C16 params %s are refused", (params) => {
    expect(judgeBytes(call(params))).toBe("refusal");
  });

  it.each(["Tools/Call", "tools/call_async", "tasks/create", "tools/execute", "tasks/result"])(
    "C16 the method %s is denied",
    (method) => {
      expect(judgeBytes(call('{"name":"get_x"}', method))).toBe("deny");
    },
  );

  it("C16 a task-style call is denied", () => {
    expect(judgeBytes(call('{"name":"get_x","task":{"ttl":1}}'))).toBe("deny");
  });

  it("C16 the answer is the same for tools that exist and those that do not", () => {
    const answerTo = (name: string) => {
      const { status, headers, body } = deniedAnswer({ kind: "tool", name }, "legacy", { requestId: "r" });
      return { status, headers, body: body.toString().replaceAll(name, "NAME") };
    };
    expect(answerTo("del_x")).toEqual(answerTo("no_such_tool"));
  });

  it("C19 a tool is judged by its name, listed before or not", () => {
    const paged = policyOf({ tools: ["tool_3", "tool_75", "tool_119"] });
    const names = Array.from({ length: 120 }, (_, i) => `tool_${i}`);
    expect(admitsTool(paged, "tool_119")).toBe(true);
    expect(names.filter((name) => admitsTool(paged, name))).toEqual(["tool_3", "tool_75", "tool_119"]);
  });
});
