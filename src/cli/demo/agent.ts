/** The agent side of the demo: an ordinary MCP client that knows a URL and a relay key, and remembers all it received. */
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

export interface DemoAgent {
  protocolVersion(): string | undefined;
  toolNames(): Promise<string[]>;
  /** The text of a tool's answer; rejects with the protocol's error. */
  call(tool: string, args: Record<string, unknown>): Promise<string>;
  /** Every status line, header and body byte that came from the relay so far. */
  received(): string;
  close(): Promise<void>;
}

/** Copies what a response carries into `seen`, and hands the response on untouched. */
async function remember(response: Response, seen: string[]): Promise<Response> {
  seen.push(`${response.status} ${response.statusText}`);
  for (const [name, value] of response.headers) seen.push(`${name}: ${value}`);
  if (response.body === null) return response;
  const [forClient, forMemory] = response.body.tee();
  void collect(forMemory, seen);
  return new Response(forClient, {
    status: response.status,
    statusText: response.statusText,
    headers: response.headers,
  });
}

async function collect(body: ReadableStream<Uint8Array>, seen: string[]): Promise<void> {
  const decoder = new TextDecoder();
  try {
    for await (const chunk of body) seen.push(decoder.decode(chunk, { stream: true }));
  } catch {
    // The client closed the stream; what came before is already remembered.
  }
}

/** Connects in the newest era that the server speaks. */
export async function connectAgent(url: string, key: string): Promise<DemoAgent> {
  const seen: string[] = [];
  const client = new Client(
    { name: "demo-agent", version: "1.0.0" },
    { versionNegotiation: { mode: "auto" }, capabilities: {} },
  );
  const transport = new StreamableHTTPClientTransport(new URL(url), {
    requestInit: { headers: { Authorization: `Bearer ${key}` } },
    fetch: async (input, init) => remember(await fetch(input, init), seen),
  });
  await client.connect(transport, { timeout: 5_000 });
  return {
    protocolVersion: () => client.getNegotiatedProtocolVersion(),
    toolNames: async () => (await client.listTools()).tools.map((tool) => tool.name),
    call: async (name, args) => {
      const result = await client.callTool({ name, arguments: args }, { timeout: 5_000 });
      const content = Array.isArray(result.content) ? result.content : [];
      return content.map((part) => (part.type === "text" ? part.text : `[${part.type}]`)).join("\n");
    },
    received: () => seen.join("\n"),
    close: () => client.close(),
  };
}
