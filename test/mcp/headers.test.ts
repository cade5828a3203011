import { createMcpHandler, McpServer } from "@modelcontextprotocol/server";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import {
  type AgentMessage,
  compareHeaders,
  decodeMirrored,
  type Era,
  eraOf,
  findRepeatedHeader,
  readMessage,
} from "../../src/mcp/index.ts";

const modern = "2026-07-28";
const versionKey = "io.modelcontextprotocol/protocolVersion";
const envelope = { [versionKey]: modern, "io.modelcontextprotocol/clientCapabilities": {} };

interface Written {
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: unknown;
  readonly result?: unknown;
}

function message(written: Written): AgentMessage {
  const read = readMessage(Buffer.from(JSON.stringify({ jsonrpc: "2.0", ...written })));
  if (read.kind === "refusal") throw new Error(read.message);
  return read;
}

function compare(written: Written, headers: Record<string, string>) {
  const read = message(written);
  return compareHeaders(read, Object.entries(headers).flat(), eraOf(read, headers["MCP-Protocol-Version"]));
}

describe("era", () => {
  it.each<[Era, Written, string | undefined]>([
    ["modern", { id: 1, method: "tools/list", params: { _meta: envelope } }, undefined],
    ["modern", { id: 1, method: "tools/list", params: { _meta: envelope } }, modern],
    ["modern", { id: 1, method: "tools/list" }, modern],
    ["modern", { id: 1, method: "tools/list" }, "2027-01-01"],
    ["modern", { id: 1, method: "tools/list" }, ` ${modern}\t`],
    ["modern", { method: "notifications/cancelled" }, modern],
    ["modern", { id: 1, method: "tools/list", params: { _meta: { [versionKey]: 7 } } }, undefined],
    ["modern", { id: 1, method: "initialize", params: { _meta: envelope } }, undefined],
    ["legacy", { id: 1, method: "initialize", params: { _meta: { [versionKey]: modern } } }, undefined],
    ["legacy", { id: 1, method: "initialize", params: { protocolVersion: modern } }, undefined],
    [
      "legacy",
      { id: 1, method: "initialize", params: { _meta: { ...envelope, [versionKey]: "2025-11-25" } } },
      undefined,
    ],
    ["legacy", { id: 1, method: "tools/list" }, undefined],
    ["legacy", { id: 1, method: "tools/list", params: { _meta: { progressToken: 1 } } }, "2025-11-25"],
    ["legacy", { id: 1, result: {} }, "2025-11-25"],
  ])("is %s for %j with the header %s", (era, written, header) => {
    expect(eraOf(message(written), header)).toBe(era);
  });

  it("of an exchange without a body is the header's", () => {
    expect(eraOf(undefined, undefined)).toBe("legacy");
    expect(eraOf(undefined, "2025-06-18")).toBe("legacy");
    expect(eraOf(undefined, modern)).toBe("modern");
  });
});

describe("C16 headers that contradict the body", () => {
  const call: Written = { id: 1, method: "tools/call", params: { name: "del_x", _meta: envelope } };
  const right = { "MCP-Protocol-Version": modern, "Mcp-Method": "tools/call", "Mcp-Name": "del_x" };

  it("C16 pass when they agree, blanks around them aside", () => {
    expect(compare(call, right)).toBeUndefined();
    expect(compare(call, { ...right, "Mcp-Name": "\t del_x " })).toBeUndefined();
    expect(compare(call, { ...right, "Mcp-Name": "=?base64?ZGVsX3g=?=" })).toBeUndefined();
  });

  it.each([
    ["another name", { "Mcp-Name": "get_x" }],
    ["the name in another case", { "Mcp-Name": "DEL_X" }],
    ["another name, encoded", { "Mcp-Name": "=?base64?Z2V0X3g=?=" }],
    ["a name without padding", { "Mcp-Name": "=?base64?ZGVsX3g?=" }],
    ["a name in foreign characters", { "Mcp-Name": "=?base64?ZGVs-3g=?=" }],
    ["a name that is no UTF-8", { "Mcp-Name": "=?base64?/w==?=" }],
    ["another method", { "Mcp-Method": "tools/list" }],
    ["the method in another case", { "Mcp-Method": "Tools/Call" }],
    ["an empty method", { "Mcp-Method": "" }],
    ["another version", { "MCP-Protocol-Version": "2025-11-25" }],
    ["a version that is none", { "MCP-Protocol-Version": "latest" }],
  ])("C16 are refused: %s", (_, headers) => {
    expect(compare(call, { ...right, ...headers })).toMatchObject({ kind: "refusal", status: 400, code: -32020 });
  });

  it.each(["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"])("C16 a whole modern request lacks no %s", (name) => {
    const headers: Record<string, string> = { ...right };
    delete headers[name];
    expect(compare(call, headers)).toMatchObject({ status: 400, code: -32020 });
  });

  it("C16 are compared in the older revisions too, where they may be missing", () => {
    const legacy: Written = { id: 1, method: "tools/call", params: { name: "del_x" } };
    expect(compare(legacy, {})).toBeUndefined();
    expect(compare(legacy, { "Mcp-Name": "get_x" })).toMatchObject({ code: -32020 });
    expect(compare(legacy, { "Mcp-Method": "tools/list" })).toMatchObject({ code: -32020 });
    expect(compare({ id: 1, result: {} }, { "Mcp-Method": "tools/list" })).toMatchObject({ code: -32020 });
  });

  it("C16 what is wrongly encoded is refused, whatever the body names", () => {
    const nameless = { id: 1, method: "tools/call", params: { _meta: envelope } };
    expect(compare(nameless, { ...right, "Mcp-Name": "=?base64?eA=?=" })).toMatchObject({ code: -32020 });
    expect(compare(nameless, { ...right, "Mcp-Name": "del_x" })).toBeUndefined();
  });

  it("C16 headers of a revision that is not known here may be missing, not lie", () => {
    const params = { name: "del_x", _meta: { ...envelope, [versionKey]: "2099-01-01" } };
    expect(compare({ ...call, params }, {})).toBeUndefined();
    expect(compare({ ...call, params }, { "Mcp-Name": "get_x" })).toMatchObject({ code: -32020 });
  });

  it("C16 a notification may lack them, not lie", () => {
    const cancelled = { method: "notifications/cancelled", params: { _meta: envelope } };
    expect(compare(cancelled, {})).toBeUndefined();
    expect(compare(cancelled, { "Mcp-Method": "tools/call" })).toMatchObject({ code: -32020 });
  });

  it("without a body there is nothing to compare the method with", () => {
    expect(compareHeaders(undefined, ["mcp-method", "x", "mcp-name", "y"], "legacy")).toBeUndefined();
  });

  it("C16 a mismatch is refused in an envelope that is not whole", () => {
    const params = { name: "del_x", _meta: { [versionKey]: modern } };
    expect(compare({ ...call, params }, { ...right, "Mcp-Name": "get_x" })).toMatchObject({ code: -32020 });
    expect(compare({ ...call, params }, { "MCP-Protocol-Version": modern })).toBeUndefined();
  });
});

describe("C20 the version header", () => {
  const list: Written = { id: 1, method: "tools/list" };

  it.each(["2024-11-05", "2025-03-26", "2025-11-25", "1999-01-01", modern, "2099-12-31"])(
    "C20 %s is for the upstream to judge",
    (version) => {
      expect(compare(list, { "MCP-Protocol-Version": version })).toBeUndefined();
      expect(compareHeaders(undefined, ["mcp-protocol-version", version], "legacy")).toBeUndefined();
    },
  );

  it.each(["", "garbage", "2025-11-25, 2025-11-25", "2025-11-25,2026-07-28", "2025-11-25;", "v2025-11-25", "*"])(
    "C20 %j is refused, never taken for absent",
    (version) => {
      expect(compare(list, { "MCP-Protocol-Version": version })).toMatchObject({ kind: "refusal", status: 400 });
      expect(compareHeaders(undefined, ["mcp-protocol-version", version], "legacy")).toMatchObject({ status: 400 });
    },
  );

  it("C20 absent is absent", () => {
    expect(compare(list, {})).toBeUndefined();
    expect(compareHeaders(undefined, [], "legacy")).toBeUndefined();
  });

  it.each(["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"])("C20 %s given twice is refused, even alike", (name) => {
    const value = { "MCP-Protocol-Version": "2025-11-25", "Mcp-Method": "tools/list", "Mcp-Name": "x" }[name] ?? "";
    const headers = [name, value, name.toUpperCase(), value];
    expect(compareHeaders(message(list), headers, "legacy")).toMatchObject({ status: 400, code: -32600 });
    expect(findRepeatedHeader(headers)).toBe(name.toLowerCase());
  });

  it("C20 an initialize under a modern version is refused as the SDK does", () => {
    const written: Written = { id: 1, method: "initialize", params: { protocolVersion: "2025-11-25" } };
    expect(compare(written, { "MCP-Protocol-Version": modern })).toMatchObject({ code: -32020 });
    expect(compare(written, { "MCP-Protocol-Version": "2025-11-25" })).toBeUndefined();
  });
});

describe("repeated headers", () => {
  it.each(["Content-Type", "mcp-session-id", "Last-Event-ID", "Mcp-Param-Region", "content-length", "Retry-After"])(
    "%s may stand there once",
    (name) => {
      expect(findRepeatedHeader([name, "a"])).toBeUndefined();
      expect(findRepeatedHeader(["x", "y", name, "a", "z", "", name.toUpperCase(), "a"])).toBe(name.toLowerCase());
    },
  );

  it("headers that are lists may repeat, and values are no names", () => {
    expect(findRepeatedHeader(["accept", "a", "Accept", "b", "tracestate", "a", "tracestate", "b"])).toBeUndefined();
    expect(findRepeatedHeader(["content-type", "host", "host", "content-type"])).toBeUndefined();
  });
});

describe("mirrored values", () => {
  it("decode from base64, and stand for themselves when the wrapper is not whole", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme" }), (text) => {
        expect(decodeMirrored(`=?base64?${Buffer.from(text).toString("base64")}?=`)).toBe(text);
      }),
    );
    expect(decodeMirrored("=?base64?77u/eA==?=")).toBe("\ufeffx");
    for (const broken of ["/w==", "eA=", "eA", "eA===", "e-A=", "eA== "]) {
      expect(decodeMirrored(`=?base64?${broken}?=`)).toBeUndefined();
    }
    for (const literal of ["", "x", "=?base64?eA==", "eA==?=", "=?BASE64?eA==?=", "=?utf-8?b?eA==?="]) {
      expect(decodeMirrored(literal)).toBe(literal);
    }
  });
});

/** The SDK's own server, which judges the same headers. */
describe("against the server of the SDK", () => {
  const handler = createMcpHandler(
    () => {
      const server = new McpServer({ name: "oracle", version: "1" }, { capabilities: { tools: {}, prompts: {} } });
      server.registerTool("get_x", { description: "x" }, () => ({ content: [] }));
      server.registerPrompt("ask_x", { description: "x" }, () => ({ messages: [] }));
      return server;
    },
    { legacy: "stateless" },
  );
  beforeAll(() => {
    vi.spyOn(console, "warn").mockImplementation(() => {});
  });
  afterAll(async () => {
    vi.restoreAllMocks();
    await handler.close();
  });

  async function sdkCode(written: Written, headers: Record<string, string>): Promise<[number, number | undefined]> {
    const response = await handler.fetch(
      new Request("http://localhost/mcp", {
        method: "POST",
        headers: { accept: "application/json, text/event-stream", "content-type": "application/json", ...headers },
        body: JSON.stringify({ jsonrpc: "2.0", ...written }),
      }),
    );
    const text = await response.text();
    const code = /"error":\{"code":(-?\d+)/.exec(text)?.[1];
    return [response.status, code === undefined ? undefined : Number(code)];
  }

  const optional = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });
  const version = fc.constantFrom(modern, modern, modern, "2025-11-25", "2027-01-01");
  const methodName = fc.constantFrom("tools/call", "tools/list", "prompts/get", "resources/read", "tasks/get", "ping");
  const target = fc.constantFrom("get_x", "ask_x", "file:///x", "é", "=?base64?x?=");
  const wrapped = target.map((text) => `=?base64?${Buffer.from(text).toString("base64")}?=`);
  const meta = fc.oneof(
    { weight: 6, arbitrary: fc.constant(envelope) },
    { weight: 1, arbitrary: fc.constant({ [versionKey]: modern }) },
    { weight: 1, arbitrary: fc.constant({ ...envelope, [versionKey]: "2099-01-01" }) },
    { weight: 1, arbitrary: fc.constant(undefined) },
  );
  const strangeName = fc.constantFrom("=?base64?eA=?=", "=?base64?=", "=?base64?eA==", "get_x", "");
  /** Mostly right headers, so that both answers come up often. */
  const exchange = fc
    .record({
      method: methodName,
      name: optional(target),
      meta,
      versionHeader: optional(version),
      otherMethod: fc.option(optional(methodName), { nil: null, freq: 2 }),
      otherName: fc.option(optional(fc.oneof(wrapped, strangeName)), { nil: null, freq: 2 }),
    })
    .map(({ otherMethod, otherName, versionHeader, ...written }) => {
      const methodHeader = otherMethod === null ? written.method : otherMethod;
      const nameHeader = otherName === null ? wrap(written.name) : otherName;
      const headers: Record<string, string> = {};
      if (versionHeader !== undefined) headers["MCP-Protocol-Version"] = versionHeader;
      if (methodHeader !== undefined) headers["Mcp-Method"] = methodHeader;
      if (nameHeader !== undefined) headers["Mcp-Name"] = nameHeader;
      return { ...written, headers };
    });

  function wrap(text: string | undefined): string | undefined {
    return text === undefined ? undefined : `=?base64?${Buffer.from(text).toString("base64")}?=`;
  }

  it("refuses in the modern era just what the SDK refuses for its headers", async () => {
    let refusals = 0;
    let passes = 0;
    await fc.assert(
      fc.asyncProperty(exchange, async ({ method, name, meta: _meta, headers }) => {
        const written: Written = { id: 1, method, params: { name, uri: name, taskId: name, _meta } };
        fc.pre(eraOf(message(written), headers["MCP-Protocol-Version"]) === "modern");
        const ours = compare(written, headers);
        const [status, code] = await sdkCode(written, headers);
        if (ours === undefined) {
          // Whatever else is wrong is the upstream's to say; a header that lies is not left to it.
          expect(code).not.toBe(-32020);
          passes += 1;
        } else {
          // With an envelope that is not whole, the SDK speaks of that first.
          expect(status).toBe(400);
          expect([-32020, -32602, -32022]).toContain(code);
          expect(ours.code).toBe(-32020);
          refusals += 1;
        }
      }),
      { numRuns: 400 },
    );
    expect(Math.min(refusals, passes)).toBeGreaterThan(20);
  });

  it("agrees code for code on a whole envelope", async () => {
    await fc.assert(
      fc.asyncProperty(exchange, async ({ method, name, headers }) => {
        const written: Written = { id: 1, method, params: { name, uri: name, taskId: name, _meta: envelope } };
        const ours = compare(written, headers);
        const [status, code] = await sdkCode(written, headers);
        expect(ours?.code === -32020).toBe(code === -32020);
        if (ours !== undefined) expect(ours.status).toBe(status);
      }),
      { numRuns: 400 },
    );
  });
});
