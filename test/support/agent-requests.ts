import { modernRevision } from "./clients.ts";
import { noteAnswer } from "./known-secrets.ts";

/** MCP requests of an agent as plain HTTP, for what no SDK client would send or show. */
export interface AgentRequest {
  readonly bearer?: string;
  readonly method?: string;
  /** An object is sent as JSON, a string as it is. */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

export interface AgentAnswer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly durationMs: number;
  /** The body, or the data of its last event, as JSON. */
  json(): RpcMessage;
}

export interface RpcMessage {
  readonly jsonrpc: "2.0";
  readonly id?: unknown;
  readonly method?: string;
  readonly result?: Record<string, unknown>;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: Record<string, unknown> };
}

const deadlineMs = 20_000;

function init(request: AgentRequest): RequestInit {
  const { bearer, body } = request;
  const deadline = AbortSignal.timeout(deadlineMs);
  return {
    method: request.method ?? "POST",
    headers: {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      ...(bearer === undefined ? {} : { authorization: `Bearer ${bearer}` }),
      ...request.headers,
    },
    ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
    redirect: "manual",
    signal: request.signal === undefined ? deadline : AbortSignal.any([deadline, request.signal]),
  };
}

/** The JSON of every event that has data. */
export function eventData(text: string): RpcMessage[] {
  return text
    .split(/\r?\n\r?\n/)
    .map((event) =>
      event
        .split(/\r?\n/)
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5).trimStart())
        .join("\n"),
    )
    .filter((data) => data !== "")
    .map((data) => JSON.parse(data) as RpcMessage);
}

export async function send(url: string, request: AgentRequest): Promise<AgentAnswer> {
  const startedAt = performance.now();
  const answer = await fetch(url, init(request));
  const text = await answer.text();
  noteAnswer(url, answer.headers, text);
  return {
    status: answer.status,
    headers: answer.headers,
    text,
    durationMs: performance.now() - startedAt,
    json: () => {
      const isStream = (answer.headers.get("content-type") ?? "").includes("event-stream");
      const message = isStream ? eventData(text).at(-1) : (JSON.parse(text) as RpcMessage);
      if (message === undefined) throw new Error(`no event with data: ${text}`);
      return message;
    },
  };
}

export interface OpenAnswer {
  readonly status: number;
  readonly headers: Headers;
  /** Everything received so far. */
  text(): string;
  /** True when the body came to a clean end, false when it broke off; undefined while it is open. */
  complete(): boolean | undefined;
  /** Leaves, as an agent does that has lost interest. */
  leave(): void;
}

/** Resolves as soon as the headers are there and reads the body in the background. */
export async function open(url: string, request: AgentRequest): Promise<OpenAnswer> {
  const leaving = new AbortController();
  const answer = await fetch(url, init({ ...request, signal: leaving.signal }));
  let text = "";
  let complete: boolean | undefined;
  const read = async (): Promise<void> => {
    const decoder = new TextDecoder();
    try {
      for await (const chunk of answer.body ?? []) text += decoder.decode(chunk, { stream: true });
    } finally {
      noteAnswer(url, answer.headers, text);
    }
  };
  read().then(
    () => {
      complete = true;
    },
    () => {
      complete = false;
    },
  );
  return {
    status: answer.status,
    headers: answer.headers,
    text: () => text,
    complete: () => complete,
    leave: () => leaving.abort(),
  };
}

export const initialize = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: {
    protocolVersion: "2025-11-25",
    capabilities: { sampling: {}, elicitation: {}, roots: {} },
    clientInfo: { name: "raw", version: "1" },
  },
} as const;

/** Opens a legacy session and returns the headers of its later requests. */
export async function openSession(url: string, bearer: string): Promise<Record<string, string>> {
  const answer = await send(url, { bearer, body: initialize });
  const id = answer.headers.get("mcp-session-id");
  if (answer.status !== 200 || id === null) throw new Error(`no session: ${answer.status} ${answer.text}`);
  const headers = { "mcp-session-id": id, "mcp-protocol-version": "2025-11-25" };
  await send(url, { bearer, headers, body: { jsonrpc: "2.0", method: "notifications/initialized" } });
  return headers;
}

/** A request of the modern era: body with its envelope, and the headers that mirror it. */
export function modernRequest(
  id: number | string,
  method: string,
  params: Record<string, unknown> = {},
): { readonly body: unknown; readonly headers: Record<string, string> } {
  const name = params["name"] ?? params["uri"];
  return {
    body: {
      jsonrpc: "2.0",
      id,
      method,
      params: {
        ...params,
        _meta: {
          "io.modelcontextprotocol/protocolVersion": modernRevision,
          "io.modelcontextprotocol/clientCapabilities": { sampling: {}, elicitation: {}, roots: {} },
          "io.modelcontextprotocol/clientInfo": { name: "raw", version: "1" },
        },
      },
    },
    headers: {
      "mcp-protocol-version": modernRevision,
      "mcp-method": method,
      ...(typeof name === "string" ? { "mcp-name": name } : {}),
    },
  };
}

/** One modern `tools/call`. */
export function callTool(
  url: string,
  bearer: string,
  name: string,
  args: Record<string, unknown> = {},
): Promise<AgentAnswer> {
  return send(url, { bearer, ...modernRequest(1, "tools/call", { name, arguments: args }) });
}
