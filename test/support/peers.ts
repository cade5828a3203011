import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { getDefaultEnvironment, StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { startChild } from "./child.ts";

/**
 * Clients that others wrote, each as its own program: the MCP Inspector's command line, mcp-remote and the official Python
 * SDK. scripts/install-peers.sh puts them below .cache/.
 */
const root = fileURLToPath(new URL("../../", import.meta.url));
const peers = join(root, ".cache/peers/node_modules");
const node22 = join(peers, `node-linux-${process.arch}/bin/node`);
const inspector = join(peers, "@modelcontextprotocol/inspector/clients/launcher/build/index.js");
const mcpRemote = join(peers, "mcp-remote/dist/proxy.js");
const python = join(root, ".cache/mcp/bin/python");
const pythonClient = join(root, "test/peers/python_client.py");

/** Whether the peers are there. In CI their absence fails: a skipped proof is none. */
export function hasPeers(): boolean {
  const missing = [node22, inspector, mcpRemote, python].filter((file) => !existsSync(file));
  if (missing.length === 0) return true;
  const what = `${missing.join(", ")} missing: run scripts/install-peers.sh`;
  if (process.env["CI"] === "true") throw new Error(what);
  console.warn(`\n  SKIPPED: every test with a client that others wrote. ${what}\n`);
  return false;
}

export interface Target {
  readonly url: string;
  readonly bearer: string;
}

/** What a peer is asked to do. */
export type PeerAction =
  | { readonly kind: "listTools" }
  | { readonly kind: "callTool"; readonly name: string; readonly args: Readonly<Record<string, unknown>> }
  | { readonly kind: "readResource"; readonly uri: string }
  | { readonly kind: "getPrompt"; readonly name: string; readonly args: Readonly<Record<string, string>> };

/** A result or an error, in the peer's own words. */
export type Outcome = Readonly<Record<string, unknown>>;

/** Runs actions against a target, in order, and yields one outcome for each; `about` is what it says of the session. */
export type Peer = (
  target: Target,
  actions: readonly PeerAction[],
) => Promise<{ readonly about?: unknown; readonly outcomes: readonly Outcome[] }>;

async function run(name: string, command: string, args: readonly string[], env: Readonly<Record<string, string>>) {
  const child = startChild({ name, command, args, env });
  const timer = setTimeout(() => child.signal("SIGKILL"), 45_000);
  const code = await child.ended;
  clearTimeout(timer);
  return { code, stdout: child.stdout(), stderr: child.stderr() };
}

async function withHome<T>(act: (home: string) => Promise<T>): Promise<T> {
  const home = mkdtempSync(join(tmpdir(), "postern-peer-"));
  try {
    return await act(home);
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
}

function inspectorArguments(action: PeerAction): string[] {
  const pairs = (args: Readonly<Record<string, unknown>>): string[] =>
    Object.entries(args).map(([key, value]) => `${key}=${String(value)}`);
  switch (action.kind) {
    case "listTools":
      return ["--method", "tools/list"];
    case "callTool":
      return ["--method", "tools/call", "--tool-name", action.name, "--tool-args-json", JSON.stringify(action.args)];
    case "readResource":
      return ["--method", "resources/read", "--uri", action.uri];
    case "getPrompt": {
      const args = pairs(action.args);
      const flags = args.length === 0 ? [] : ["--prompt-args", ...args];
      return ["--method", "prompts/get", "--prompt-name", action.name, ...flags];
    }
  }
}

/** One process per action. An outcome has the exit code, since the Inspector's is part of what its users see. */
export function inspectorPeer(era: "legacy" | "auto" | "modern"): Peer {
  return (target, actions) =>
    withHome(async (home) => {
      const outcomes: Outcome[] = [];
      for (const action of actions) {
        const args = [inspector, "--cli", target.url, "--transport", "http", "--protocol-era", era, "--format", "json"];
        const header = ["--header", `Authorization: Bearer ${target.bearer}`];
        const { code, stdout, stderr } = await run(
          "inspector",
          node22,
          [...args, ...header, ...inspectorArguments(action)],
          { HOME: home },
        );
        const said = parseLast(stdout) ?? parseLast(stderr);
        if (said === undefined) throw new Error(`the Inspector said nothing: ${code}\n${stdout}\n${stderr}`);
        outcomes.push({ code, ...said });
      }
      return { outcomes };
    });
}

/** The last line that is a JSON object. */
function parseLast(text: string): Outcome | undefined {
  for (const line of text.trim().split("\n").reverse()) {
    if (!line.startsWith("{")) continue;
    return JSON.parse(line) as Outcome;
  }
  return undefined;
}

export function pythonPeer(mode: "legacy" | "auto" | "2026-07-28"): Peer {
  return async (target, actions) => {
    const args = [pythonClient, target.url, mode, JSON.stringify(actions)];
    const { code, stdout, stderr } = await run("python", python, args, { BEARER: target.bearer });
    if (code !== 0) throw new Error(`the Python client ended with ${code}\n${stderr}`);
    const { outcomes, ...about } = JSON.parse(stdout) as { outcomes: Outcome[] };
    return { about, outcomes };
  };
}

async function actOnClient(client: Client, action: PeerAction): Promise<unknown> {
  switch (action.kind) {
    case "listTools":
      return client.listTools();
    case "callTool":
      return client.callTool({ name: action.name, arguments: action.args });
    case "readResource":
      return client.readResource({ uri: action.uri });
    case "getPrompt":
      return client.getPrompt({ name: action.name, arguments: action.args });
  }
}

/** A desktop agent that speaks stdio only: SDK v1 on one side of mcp-remote, the target on the other. */
export const mcpRemotePeer: Peer = (target, actions) =>
  withHome(async (home) => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: mcp-remote itself reads the variable, so that no secret is in argv
    const flags = ["--allow-http", "--transport", "http-only", "--header", "Authorization:${AUTHORIZATION}"];
    const transport = new StdioClientTransport({
      command: node22,
      args: [mcpRemote, target.url, ...flags],
      env: { ...getDefaultEnvironment(), HOME: home, AUTHORIZATION: `Bearer ${target.bearer}` },
      stderr: "ignore",
    });
    const client = new Client({ name: "postern-test-client", version: "1.0.0" });
    try {
      await client.connect(transport, { timeout: 45_000 });
      const outcomes: Outcome[] = [];
      for (const action of actions) {
        outcomes.push(
          await actOnClient(client, action).then(
            (result) => ({ result }),
            (error: { code?: unknown; message?: unknown }) => ({ error: { code: error.code, message: error.message } }),
          ),
        );
      }
      return { about: { server: client.getServerVersion(), can: client.getServerCapabilities() }, outcomes };
    } finally {
      await client.close();
    }
  });
