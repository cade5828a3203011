import { Agent, createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/**
 * A plain streaming HTTP hop that adds Authorization and changes nothing else: Host, path and every other header pass
 * as they came. It stands in front of peers that cannot send a token.
 */
export interface Forwarder {
  readonly port: number;
  /** Where requests go from now on; until then they are answered 503. */
  aim(target: { readonly port: number; readonly authorization: string }): void;
  close(): Promise<void>;
}

function passedHeaders(raw: readonly string[], authorization: string): string[] {
  const headers: string[] = [];
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i] ?? "";
    if (name.toLowerCase() !== "authorization") headers.push(name, raw[i + 1] ?? "");
  }
  return [...headers, "Authorization", authorization];
}

export async function startForwarder(): Promise<Forwarder> {
  const agent = new Agent({ keepAlive: true });
  let target: { readonly port: number; readonly authorization: string } | undefined;

  const forward = (req: IncomingMessage, res: ServerResponse): void => {
    if (target === undefined) {
      res.writeHead(503).end();
      return;
    }
    const out = request(
      {
        agent,
        host: "127.0.0.1",
        port: target.port,
        method: req.method,
        path: req.url,
        setHost: false,
        headers: passedHeaders(req.rawHeaders, target.authorization) as never,
      },
      (answer) => {
        res.writeHead(answer.statusCode ?? 502, answer.statusMessage, answer.rawHeaders as never);
        res.flushHeaders();
        answer.pipe(res);
        // A truncated answer must stay truncated.
        answer.on("error", () => res.destroy());
        answer.on("aborted", () => res.destroy());
      },
    );
    out.on("error", () => {
      if (res.headersSent) res.destroy();
      else res.writeHead(502).end();
    });
    res.on("close", () => {
      if (!res.writableFinished) out.destroy();
    });
    req.pipe(out);
  };

  const server = createServer({ keepAliveTimeout: 60_000 }, forward);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    aim: (next) => {
      target = next;
    },
    close: async () => {
      server.closeAllConnections();
      agent.destroy();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
