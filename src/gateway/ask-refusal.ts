import type { Caller } from "../credentials/index.ts";
import type { UpstreamRequest } from "../upstream/index.ts";
import type { GatewayServer, Injected } from "./context.ts";

const firstByteMs = 10_000;

/** Tells a server that a request of its own, which the policy does not admit, has no taker (DESIGN 4.3). */
export function refuseAsk(
  task: {
    readonly server: GatewayServer;
    readonly protocolVersion: string | undefined;
    /** In whose session it asked. */
    readonly caller: Caller;
  },
  /** Raw JSON text of the request's id. */
  idText: string,
  sessionId: string | undefined,
): void {
  const { server, protocolVersion, caller } = task;
  const error = '{"code":-32601,"message":"Method not found"}';
  const body = Buffer.from(`{"jsonrpc":"2.0","id":${idText},"error":${error}}`);
  const headers = ["content-type", "application/json", "accept", "application/json, text/event-stream"];
  if (sessionId !== undefined) headers.push("mcp-session-id", sessionId);
  if (protocolVersion !== undefined) headers.push("mcp-protocol-version", protocolVersion);
  const send = ({ headers: credential, tls }: Injected): void => {
    const request: UpstreamRequest = { method: "POST", headers: [...headers, ...credential], body, firstByteMs, tls };
    const call = server.upstream.request(request, {
      // What comes of a refusal is nobody's concern, and its answer might never end.
      onHead: () => call.abort(),
      onData: () => undefined,
      onEnd: () => undefined,
      onError: () => undefined,
    });
  };
  try {
    const injection = server.credential.inject(caller);
    if (injection instanceof Promise) injection.then(send).catch(() => undefined);
    else send(injection);
  } catch {
    // Without its credential the server is told nothing, as any other call of it fails.
  }
}
