import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type FixtureServer, startFixtureServer } from "../fixtures/fixture-server/server.ts";
import { type Child, startChild } from "../support/child.ts";
import {
  hasPeers,
  inspectorPeer,
  mcpRemotePeer,
  type Outcome,
  type Peer,
  type PeerAction,
  pythonPeer,
} from "../support/peers.ts";
import { freePort, type Stack, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { mintSecret } from "../support/vault-backed.ts";

/** Clients that others wrote get through Postern what they get directly, from our fixture server and from the official one. */
const everythingEntry = fileURLToPath(import.meta.resolve("@modelcontextprotocol/server-everything/dist/index.js"));
const upstreamToken = mintSecret("upstream");

const peers: readonly (readonly [name: string, peer: Peer, isModern: boolean])[] = [
  ["Inspector, legacy", inspectorPeer("legacy"), false],
  ["Inspector, auto", inspectorPeer("auto"), true],
  ["Inspector, modern", inspectorPeer("modern"), true],
  ["mcp-remote", mcpRemotePeer, false],
  ["Python SDK, legacy", pythonPeer("legacy"), false],
  ["Python SDK, auto", pythonPeer("auto"), true],
  ["Python SDK, pinned", pythonPeer("2026-07-28"), true],
];

const fixtureActions: readonly PeerAction[] = [
  { kind: "listTools" },
  { kind: "callTool", name: "echo", args: { value: "grüße \u{1f600} 9007199254740993" } },
  { kind: "callTool", name: "test_error_handling", args: {} },
  { kind: "callTool", name: "no_such_tool", args: {} },
  { kind: "readResource", uri: "test://static-text" },
  { kind: "readResource", uri: "test://no-such-resource" },
  { kind: "getPrompt", name: "test_prompt_with_arguments", args: { arg1: "a", arg2: "b" } },
  { kind: "getPrompt", name: "no_such_prompt", args: {} },
];

const everythingActions: readonly PeerAction[] = [
  { kind: "listTools" },
  { kind: "callTool", name: "echo", args: { message: "grüße" } },
  { kind: "callTool", name: "get-sum", args: { a: 2, b: 0.5 } },
  { kind: "callTool", name: "no-such-tool", args: {} },
  { kind: "readResource", uri: "demo://resource/static/document/features.md" },
  { kind: "getPrompt", name: "args-prompt", args: { city: "Oslo", state: "x" } },
];

/** Tools that server-everything registers only a moment after the handshake: a client that lists at once may miss them. */
const late = /^(?:get-roots-list|trigger-.*-request.*|simulate-research-query)$/;

function withoutLateTools(outcomes: readonly Outcome[]): readonly Outcome[] {
  return outcomes.map((outcome) => {
    const { tools } = (outcome["result"] ?? {}) as { tools?: { name: string }[] };
    if (tools === undefined) return outcome;
    return { ...outcome, result: { tools: tools.filter(({ name }) => !late.test(name)) } };
  });
}

const succeeded = (outcome: Outcome | undefined): boolean => outcome !== undefined && "result" in outcome;

describe.skipIf(!hasPeers())("clients that others wrote", () => {
  let fixture: FixtureServer;
  let everything: Child;
  let everythingUrl: string;
  let stack: Stack;

  beforeAll(async () => {
    fixture = await startFixtureServer({ bearer: upstreamToken, extras: true });
    const port = await freePort();
    everythingUrl = `http://127.0.0.1:${port}/mcp`;
    everything = startChild({
      name: "server-everything",
      command: process.execPath,
      args: [everythingEntry, "streamableHttp"],
      env: { PORT: String(port) },
    });
    const answers = (): Promise<boolean> =>
      fetch(everythingUrl, { method: "GET" }).then(
        () => true,
        () => false,
      );
    await until(answers, "server-everything listens", 15_000);
    stack = await startStack({
      secretFiles: { "upstream-token": upstreamToken },
      servers: {
        fixture: { url: fixture.url, credential: { type: "bearer", token: { file: "./upstream-token" } } },
        everything: { url: everythingUrl },
      },
      policy: {
        fixture: { tools: [{ name: "*", except: ["drop_*"] }], prompts: ["*"], resources: ["test://**"] },
        everything: { tools: ["*"], prompts: ["*"], resources: ["demo://**"] },
      },
    });
  });

  afterAll(async () => {
    await stack?.stop();
    await everything?.stop();
    await fixture?.close();
  });

  /** The same peer, the same actions, once directly and once through Postern. */
  async function runBoth(peer: Peer, server: "fixture" | "everything", actions: readonly PeerAction[]) {
    const direct = { url: server === "fixture" ? fixture.url : everythingUrl, bearer: upstreamToken };
    const agent = { url: stack.agentUrl(server), bearer: stack.agentKey };
    const [expected, got] = await Promise.all([peer(direct, actions), peer(agent, actions)]);
    return { expected, got };
  }

  describe.each(peers)("%s", (_name, peer, isModern) => {
    it("gets from the fixture server what it gets directly", { timeout: 120_000 }, async () => {
      const { expected, got } = await runBoth(peer, "fixture", fixtureActions);
      expect(expected.outcomes.map(succeeded)).toEqual([true, true, true, false, true, false, true, false]);
      const [list, ...others] = expected.outcomes;
      const { tools } = list!["result"] as { tools: { name: string }[] };
      expect(tools.map(({ name }) => name).includes("test_x_mcp_header")).toBe(isModern);
      // The one difference that the policy makes.
      const allowed = { ...list, result: { ...(list!["result"] as object), tools: tools.filter(isAllowed) } };
      expect(tools.filter(isAllowed)).not.toHaveLength(tools.length);
      expect(got).toEqual({ ...expected, outcomes: [allowed, ...others] });
    });

    it("gets from server-everything what it gets directly", { timeout: 120_000 }, async () => {
      const { expected, got } = await runBoth(peer, "everything", everythingActions);
      expect(withoutLateTools(got.outcomes)).toEqual(withoutLateTools(expected.outcomes));
      expect(got.about).toEqual(expected.about);
    });
  });
});

const isAllowed = ({ name }: { readonly name: string }): boolean => !name.startsWith("drop_");
