import { describe, expect, it } from "vitest";
import { headerValue } from "../../src/lib/index.ts";
import {
  type AgentErrorKind,
  type Answer,
  agentErrorAnswer,
  agentErrors,
  deniedAnswer,
  errorAnswer,
  errorEvent,
  methodNotFoundAnswer,
  type ResetName,
  readMessage,
  refusalAnswer,
  resetAnswer,
  type Subject,
} from "../../src/mcp/index.ts";
import { resetCodes } from "../../src/tunnel/types.ts";

const to = { idText: "7", requestId: "req-1" };

interface Body {
  readonly id: unknown;
  readonly error: { readonly code: number; readonly message: string; readonly data: Record<string, unknown> };
}

function bodyOf(answer: Answer): Body {
  return JSON.parse(answer.body.toString()) as Body;
}

describe("every error answer", () => {
  const answers: [string, Answer][] = [
    ...Object.keys(agentErrors).map((kind): [string, Answer] => [kind, agentErrorAnswer(kind as AgentErrorKind, to)]),
    ["denied", deniedAnswer({ kind: "tool", name: "x" }, "legacy", to)],
    ["method", methodNotFoundAnswer("modern", to)],
    ["refusal", refusalAnswer({ kind: "refusal", status: 400, code: -32600, message: "m" }, to)],
  ];

  it.each(answers)("%s carries the request id and the headers of every answer", (_, answer) => {
    expect(bodyOf(answer)).toMatchObject({ jsonrpc: "2.0", id: 7, error: { data: { requestId: "req-1" } } });
    expect(headerValue(answer.headers, "content-type")).toBe("application/json");
    expect(headerValue(answer.headers, "x-content-type-options")).toBe("nosniff");
    expect(headerValue(answer.headers, "cache-control")).toBe("no-store");
  });

  it("C14 has the id as it was written, or null", () => {
    for (const idText of ["1.0", "9007199254740993", "1e400", '"\\u0041"', "-0"]) {
      const read = readMessage(Buffer.from(`{"jsonrpc":"2.0","id":${idText},"method":"ping"}`));
      if (read.kind === "refusal") throw new Error(read.message);
      const answer = errorAnswer({ status: 200, code: 1, message: "m", idText: read.idText, requestId: "r" });
      expect(answer.body.toString()).toContain(`"id":${idText},`);
    }
    expect(agentErrorAnswer("tunnelDown", { requestId: "r" }).body.toString()).toContain('"id":null,');
  });

  it("takes nothing else from what it is told to answer", () => {
    // An OPEN, a message or an error may stand there: all of them have members of the same names.
    const wide = { ...to, status: 200, code: 1, message: "canary", data: { x: "canary" }, headers: ["x-canary", "1"] };
    const all: Answer[] = [
      agentErrorAnswer("forbidden", wide),
      refusalAnswer({ kind: "refusal", status: 400, code: -32600, message: "m" }, wide),
      deniedAnswer({ kind: "tool", name: "x" }, "legacy", wide),
      deniedAnswer({ kind: "resource", uris: ["a://b"] }, "modern", wide),
      methodNotFoundAnswer("modern", wide),
    ];
    expect(all.map(({ status }) => status)).toEqual([403, 400, 200, 200, 404]);
    expect(all.map((answer) => answer.body.toString() + answer.headers.join()).join()).not.toContain("canary");
  });

  it("takes more data and headers, but no other request id", () => {
    const extra = { data: { requestId: "forged", retryAfterMs: 5 }, headers: ["www-authenticate", "Bearer"] };
    const answer = agentErrorAnswer("unauthorized", to, extra);
    expect(bodyOf(answer).error.data).toEqual({ requestId: "req-1", retryAfterMs: 5 });
    expect(headerValue(answer.headers, "www-authenticate")).toBe("Bearer");
  });
});

describe("the table", () => {
  it.each<[AgentErrorKind, number, number]>([
    ["headersTooLarge", 431, -32600],
    ["originNotAllowed", 403, -33002],
    ["unauthorized", 401, -33002],
    ["forbidden", 403, -33002],
    ["verbNotAllowed", 405, -32600],
    ["pathNotFound", 404, -32600],
    ["overloaded", 503, -33011],
    ["tunnelDown", 503, -33010],
    ["unsupportedMediaType", 415, -32600],
    ["bodyTooLarge", 413, -32600],
    ["headerRepeats", 400, -32600],
    ["idInFlight", 400, -32600],
    ["sessionNotFound", 404, -32001],
    ["unavailable", 503, -33012],
    ["credentialFailed", 502, -33020],
    ["upstreamFailed", 502, -33021],
    ["upstreamTimeout", 504, -33022],
    ["resultTooLarge", 502, -33023],
    ["askDenied", 200, -33001],
  ])("%s is %i with %i", (kind, status, code) => {
    const answer = agentErrorAnswer(kind, to);
    expect(answer.status).toBe(status);
    expect(bodyOf(answer).error.code).toBe(code);
    expect(headerValue(answer.headers, "retry-after") !== undefined).toBe(status === 503);
    expect(headerValue(answer.headers, "allow")).toBe(status === 405 ? "POST, GET, DELETE" : undefined);
  });

  it("has every kind in the test above", () => {
    expect(Object.keys(agentErrors)).toHaveLength(19);
  });
});

describe("denials", () => {
  it.each<[Subject, "legacy" | "modern", number, number, string]>([
    [{ kind: "tool", name: "del_x" }, "legacy", 200, -32602, "Unknown tool: del_x"],
    [{ kind: "tool", name: "del_x" }, "modern", 200, -32602, "Unknown tool: del_x"],
    [{ kind: "tool", name: undefined }, "modern", 200, -32602, "Unknown tool"],
    [{ kind: "prompt", name: "p" }, "legacy", 200, -32602, "Unknown prompt: p"],
    [{ kind: "resource", uris: ["a:b"] }, "legacy", 200, -32002, "Resource not found"],
    [{ kind: "resource", uris: ["a:b"] }, "modern", 200, -32602, "Resource not found"],
    [{ kind: "template", uriTemplate: "a:{b}" }, "legacy", 200, -32602, "Resource not found"],
    [{ kind: "client", ask: "roots" }, "legacy", 200, -32601, "Method not found"],
    [{ kind: "unknown" }, "legacy", 200, -32601, "Method not found"],
    [{ kind: "unknown" }, "modern", 404, -32601, "Method not found"],
  ])("%j in the %s era is %i with %i", (subject, era, status, code, message) => {
    const answer = deniedAnswer(subject, era, to);
    expect(answer.status).toBe(status);
    expect(bodyOf(answer).error).toMatchObject({ code, message });
  });

  it("of a resource names the URI, the denied one of several", () => {
    const uris = ["a:b", "c:d"];
    expect(bodyOf(deniedAnswer({ kind: "resource", uris }, "modern", to)).error.data["uri"]).toBe("a:b");
    expect(bodyOf(deniedAnswer({ kind: "resource", uris }, "modern", to, "c:d")).error.data["uri"]).toBe("c:d");
    expect(bodyOf(deniedAnswer({ kind: "resource", uris: [undefined] }, "modern", to)).error.data).not.toHaveProperty(
      "uri",
    );
  });

  it("repeat at most the start of a long name", () => {
    const { error } = bodyOf(deniedAnswer({ kind: "tool", name: "x".repeat(1e6) }, "modern", to));
    expect(error.message.length).toBeLessThan(300);
  });
});

describe("resets", () => {
  const expected: Record<ResetName, [status: number, code: number]> = {
    REFUSED: [503, -33011],
    DRAINING: [503, -33011],
    OVERLOADED: [503, -33011],
    STALLED: [503, -33011],
    NO_SERVER: [503, -33010],
    NOT_OWNER: [503, -33010],
    TUNNEL_LOST: [503, -33010],
    FORBIDDEN: [403, -33002],
    TOO_LARGE: [413, -32600],
    BODY_LIMIT: [502, -33023],
    UPSTREAM_UNREACHABLE: [502, -33021],
    UPSTREAM_FAILED: [502, -33021],
    INTEGRITY: [502, -33021],
    INTERNAL: [502, -33021],
    CANCEL: [502, -33021],
    DEADLINE: [504, -33022],
    EXPIRED: [504, -33022],
    UPSTREAM_TIMEOUT: [504, -33022],
    IDLE: [504, -33022],
  };

  it("are known by every name that the tunnel has", () => {
    expect(Object.keys(expected).sort()).toEqual(Object.keys(resetCodes).sort());
  });

  it.each(Object.entries(expected))("%s is answered %j", (name, [status, code]) => {
    const answer = resetAnswer(name as ResetName, false, to);
    expect([answer.status, bodyOf(answer).error.code]).toEqual([status, code]);
  });

  it("NO_SERVER is an unknown server to an agent that may use all of them", () => {
    const answer = resetAnswer("NO_SERVER", true, to);
    expect([answer.status, bodyOf(answer).error.code]).toEqual([403, -33002]);
    expect(resetAnswer("TUNNEL_LOST", true, to).status).toBe(503);
  });
});

describe("error events", () => {
  it("are one whole event in one line, whatever the message holds", () => {
    const event = errorEvent({ code: -33010, message: "a\nb\r\n\n" }, to, { note: "\n\n" }).toString();
    expect(event).toMatch(/^event: message\ndata: [^\r\n]+\n\n$/);
    const data = JSON.parse(event.slice("event: message\ndata: ".length)) as Body;
    expect(data).toMatchObject({ id: 7, error: { code: -33010, data: { requestId: "req-1" } } });
  });
});
