import {
  Client as ClientV2,
  type McpSubscription,
  StreamableHTTPClientTransport as TransportV2,
} from "@modelcontextprotocol/client";
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as TransportV1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";

/** The four ways in which real agents speak to us. */
export const clientKinds = ["v1", "v2 legacy", "v2 auto", "v2 pin"] as const;
export type ClientKind = (typeof clientKinds)[number];
export const modernRevision = "2026-07-28";

export interface CallOptions {
  readonly signal?: AbortSignal;
  readonly timeoutMs?: number;
  readonly onProgress?: (progress: number) => void;
}

/** One surface over both SDK generations; results are what the SDK returned. */
export interface TestClient {
  readonly kind: ClientKind;
  readonly era: "legacy" | "modern";
  /** What the server asked of this client, in order. */
  readonly asked: readonly string[];
  readonly sessionId: string | undefined;
  serverInfo(): unknown;
  capabilities(): unknown;
  listTools(cursor?: string): Promise<{ tools: { name: string }[] }>;
  listPrompts(): Promise<{ prompts: { name: string }[] }>;
  listResources(): Promise<{ resources: { uri: string }[] }>;
  listResourceTemplates(): Promise<{ resourceTemplates: { uriTemplate: string }[] }>;
  callTool(name: string, args?: Record<string, unknown>, options?: CallOptions): Promise<ToolResult>;
  getPrompt(name: string, args?: Record<string, string>): Promise<unknown>;
  readResource(uri: string): Promise<unknown>;
  complete(prompt: string, argument: string, value: string): Promise<unknown>;
  subscribe(uri: string): Promise<unknown>;
  /** Modern era only. */
  listen(filter: Parameters<ClientV2["listen"]>[0]): Promise<McpSubscription>;
  /** Called for every notification without a handler of its own. */
  onNotification(listener: (method: string, params: unknown) => void): void;
  /** DELETE of the MCP session (legacy era). */
  endSession(): Promise<void>;
  close(): Promise<void>;
}

export interface ToolResult {
  readonly isError?: boolean;
  readonly content: readonly { readonly type: string; readonly text?: string }[];
}

export interface ConnectOptions {
  readonly url: string;
  readonly bearer?: string;
  /** What the client declares; all three kinds by default. */
  readonly capabilities?: {
    readonly sampling?: Record<string, never>;
    readonly elicitation?: Record<string, never>;
    readonly roots?: { listChanged: boolean };
  };
}

const info = { name: "postern-test-client", version: "1.0.0" };
const everything = { sampling: {}, elicitation: {}, roots: { listChanged: true } };

/** What the user, the model and the workspace answer. */
const answers = {
  sampling: { role: "assistant" as const, content: { type: "text" as const, text: "Paris" }, model: "test-model" },
  elicitation: { action: "accept" as const, content: { response: "yes", name: "Alice", ok: true, color: "blue" } },
  roots: { roots: [{ uri: "file:///test/root", name: "Test Root" }] },
};

function transportOptions({ bearer }: ConnectOptions): { requestInit: RequestInit } {
  return { requestInit: { headers: bearer === undefined ? {} : { Authorization: `Bearer ${bearer}` } } };
}

/** Leaves out what was not given: `exactOptionalPropertyTypes` distinguishes absent from undefined. */
function requestOptions(options: CallOptions = {}) {
  const { signal, timeoutMs, onProgress } = options;
  return {
    ...(signal === undefined ? {} : { signal }),
    ...(timeoutMs === undefined ? {} : { timeout: timeoutMs }),
    ...(onProgress === undefined
      ? {}
      : { onprogress: ({ progress }: { progress: number }): void => onProgress(progress) }),
  };
}

async function connectV1(options: ConnectOptions): Promise<TestClient> {
  const asked: string[] = [];
  const capabilities = options.capabilities ?? everything;
  const client = new ClientV1(info, { capabilities });
  if (capabilities.sampling !== undefined) {
    client.setRequestHandler(CreateMessageRequestSchema, async () => {
      asked.push("sampling");
      return answers.sampling;
    });
  }
  if (capabilities.elicitation !== undefined) {
    client.setRequestHandler(ElicitRequestSchema, async () => {
      asked.push("elicitation");
      return answers.elicitation;
    });
  }
  if (capabilities.roots !== undefined) {
    client.setRequestHandler(ListRootsRequestSchema, async () => {
      asked.push("roots");
      return answers.roots;
    });
  }
  const transport = new TransportV1(new URL(options.url), transportOptions(options));
  await client.connect(transport as Transport);
  return {
    kind: "v1",
    era: "legacy",
    asked,
    get sessionId() {
      return transport.sessionId;
    },
    serverInfo: () => client.getServerVersion(),
    capabilities: () => client.getServerCapabilities(),
    listTools: (cursor) => client.listTools(cursor === undefined ? undefined : { cursor }),
    listPrompts: () => client.listPrompts(),
    listResources: () => client.listResources(),
    listResourceTemplates: () => client.listResourceTemplates(),
    callTool: (name, args = {}, callOptions) =>
      client.callTool(
        { name, arguments: args },
        CallToolResultSchema,
        requestOptions(callOptions),
      ) as Promise<ToolResult>,
    getPrompt: (name, args) => client.getPrompt({ name, ...(args === undefined ? {} : { arguments: args }) }),
    readResource: (uri) => client.readResource({ uri }),
    complete: (prompt, name, value) =>
      client.complete({ ref: { type: "ref/prompt", name: prompt }, argument: { name, value } }),
    subscribe: (uri) => client.subscribeResource({ uri }),
    listen: () => Promise.reject(new Error("the v1 SDK has no subscriptions/listen")),
    onNotification: (listener) => {
      client.fallbackNotificationHandler = async ({ method, params }) => listener(method, params);
    },
    endSession: () => transport.terminateSession(),
    close: () => client.close(),
  };
}

const negotiation = {
  "v2 legacy": undefined,
  "v2 auto": { mode: "auto" },
  "v2 pin": { mode: { pin: modernRevision } },
} as const;

function buildV2(kind: Exclude<ClientKind, "v1">, options: ConnectOptions, asked: string[]): ClientV2 {
  const capabilities = options.capabilities ?? everything;
  const versionNegotiation = negotiation[kind];
  const client = new ClientV2(info, {
    capabilities,
    ...(versionNegotiation === undefined ? {} : { versionNegotiation }),
  });
  if (capabilities.sampling !== undefined) {
    client.setRequestHandler("sampling/createMessage", async () => {
      asked.push("sampling");
      return answers.sampling;
    });
  }
  if (capabilities.elicitation !== undefined) {
    client.setRequestHandler("elicitation/create", async () => {
      asked.push("elicitation");
      return answers.elicitation;
    });
  }
  if (capabilities.roots !== undefined) {
    client.setRequestHandler("roots/list", async () => {
      asked.push("roots");
      return answers.roots;
    });
  }
  return client;
}

async function connectV2(kind: Exclude<ClientKind, "v1">, options: ConnectOptions): Promise<TestClient> {
  const asked: string[] = [];
  const client = buildV2(kind, options, asked);
  const transport = new TransportV2(new URL(options.url), transportOptions(options));
  await client.connect(transport);
  return {
    kind,
    era: client.getProtocolEra() ?? "legacy",
    asked,
    get sessionId() {
      return transport.sessionId;
    },
    serverInfo: () => client.getServerVersion(),
    capabilities: () => client.getServerCapabilities(),
    listTools: (cursor) => client.listTools(cursor === undefined ? undefined : { cursor }, { cacheMode: "bypass" }),
    listPrompts: () => client.listPrompts(undefined, { cacheMode: "bypass" }),
    listResources: () => client.listResources(undefined, { cacheMode: "bypass" }),
    listResourceTemplates: () => client.listResourceTemplates(undefined, { cacheMode: "bypass" }),
    callTool: (name, args = {}, callOptions) =>
      client.callTool({ name, arguments: args }, requestOptions(callOptions)) as Promise<ToolResult>,
    getPrompt: (name, args) => client.getPrompt({ name, ...(args === undefined ? {} : { arguments: args }) }),
    readResource: (uri) => client.readResource({ uri }, { cacheMode: "bypass" }),
    complete: (prompt, name, value) =>
      client.complete({ ref: { type: "ref/prompt", name: prompt }, argument: { name, value } }),
    subscribe: (uri) => client.subscribeResource({ uri }),
    listen: (filter) => client.listen(filter),
    onNotification: (listener) => {
      client.fallbackNotificationHandler = async ({ method, params }) => listener(method, params);
    },
    endSession: () => transport.terminateSession(),
    close: () => client.close(),
  };
}

/** Connects a real SDK client; it must be closed by the caller. */
export function connectClient(kind: ClientKind, options: ConnectOptions): Promise<TestClient> {
  return kind === "v1" ? connectV1(options) : connectV2(kind, options);
}
