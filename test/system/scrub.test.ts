import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type FixtureServer, startFixtureServer } from "../fixtures/fixture-server/server.ts";
import { callTool } from "../support/agent-requests.ts";
import { findLeaks } from "../support/canary.ts";
import { type Stack, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { mintSecret } from "../support/vault-backed.ts";

/** Servers that answer with the credential they were sent: the fixture's tool, and one that does it in every way. */
const token = mintSecret("reflected");

const ways: { readonly [name: string]: (text: string) => string } = {
  plain: (text) => text,
  base64: (text) => Buffer.from(text).toString("base64"),
  base64url: (text) => Buffer.from(`?${text}?`).toString("base64url"),
  hex: (text) => Buffer.from(text).toString("hex"),
  percent: (text) => encodeURIComponent(text),
  unicode: (text) => [...text].map((c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`).join(""),
};

/** `/<way>/json` or `/<way>/events`; the body leaves in pieces of 7 bytes. */
function startMirror(): Promise<Server> {
  const server = createServer((req, res) => {
    req.resume();
    const [, way = "", kind = ""] = (req.url ?? "").split("/");
    const text = ways[way]?.(req.headers.authorization ?? "none") ?? "no such way";
    const message = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"${text}"}]}}`;
    const body = kind === "events" ? `event: message\ndata: ${message}\n\n` : message;
    res.writeHead(200, { "content-type": kind === "events" ? "text/event-stream" : "application/json" });
    const send = (at: number): void => {
      if (at >= body.length) res.end();
      else res.write(body.slice(at, at + 7), () => setImmediate(send, at + 7));
    };
    send(0);
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

describe("a server that answers with its credential", () => {
  let mirror: Server;
  let fixture: FixtureServer;
  let stack: Stack;

  beforeAll(async () => {
    mirror = await startMirror();
    fixture = await startFixtureServer({ bearer: token, extras: true });
    const credential = { type: "bearer", token: { file: "./token" } };
    const url = `http://127.0.0.1:${(mirror.address() as AddressInfo).port}`;
    const mirrors = Object.keys(ways).flatMap((way) =>
      ["json", "events"].map((kind) => [`${way}-${kind}`, { url: `${url}/${way}/${kind}`, credential }] as const),
    );
    const servers = {
      fixture: { url: fixture.url, credential },
      strict: { url: fixture.url, credential, onReflect: "block" },
      ...Object.fromEntries(mirrors),
    };
    stack = await startStack({
      secretFiles: { token },
      servers,
      policy: Object.fromEntries(Object.keys(servers).map((name) => [name, { tools: ["reflect_*", "test_*"] }])),
    });
  });

  afterAll(async () => {
    await stack?.stop();
    await fixture?.close();
    mirror?.close();
  });

  it("C24 the agent sees that there was one, and the log and the audit record say so", async () => {
    const answer = await callTool(stack.agentUrl("fixture"), stack.agentKey, "reflect_authorization");
    expect(answer.status).toBe(200);
    expect(answer.json().result).toMatchObject({ content: [{ type: "text", text: "Bearer [REDACTED:credential]" }] });
    await until(() => stack.audit().some((record) => record["scrubbed"] === 1), "the audit record");
    const log = stack.gateway()?.stderr() ?? "";
    expect(log).toMatch(/"level":"warn".*"server":"fixture".*"code":"redact".*"credential in an answer"/);
  });

  it("C24 `onReflect: block` gives an error instead", async () => {
    const answer = await callTool(stack.agentUrl("strict"), stack.agentKey, "reflect_authorization");
    expect(answer.json().error?.code).toBe(-33021);
    expect(findLeaks([{ name: "answer", text: answer.text }], { token })).toEqual([]);
    // What holds nothing passes.
    const other = await callTool(stack.agentUrl("strict"), stack.agentKey, "test_simple_text");
    expect(other.json().result).toBeDefined();
  });

  it.each(Object.keys(ways).flatMap((way) => ["json", "events"].map((kind) => [way, kind])))(
    "C24 %s in %s, in pieces, reaches no agent",
    async (way, kind) => {
      const answer = await callTool(stack.agentUrl(`${way}-${kind}`), stack.agentKey, "test_any");
      expect(answer.text).toContain("[REDACTED:credential]");
      expect(JSON.stringify(answer.json())).not.toContain(token);
      expect(findLeaks([{ name: "answer", text: answer.text }], { token })).toEqual([]);
    },
  );

  it("C24 nothing of it is in any output or audit record", () => {
    expect(findLeaks(stack.outputs(), { token })).toEqual([]);
  });
});
