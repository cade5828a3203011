import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { RotatingServer } from "./rotating-server.ts";
import { json } from "./token-endpoint.ts";

/** When, on the way of one refresh, a gateway may die: before a request of its counts, or before it learns the answer. */
export const moments = [
  "read arrives",
  "claim arrives",
  "claim done",
  "spend arrives",
  "spend done",
  "settle arrives",
  "settle done",
] as const;
export type Moment = (typeof moments)[number];

/** Where what the endpoint gave is known to nobody but the one who dies. */
export const fatal: ReadonlySet<Moment> = new Set<Moment>(["spend done", "settle arrives"]);

/** The store and the endpoint as one gateway sees them. */
export interface Steps {
  readonly storeAddress: string;
  readonly tokenEndpoint: string;
  close(): Promise<void>;
}

export interface StepsOptions {
  readonly storeAddress: string;
  /** `mount/data/path` of the record. */
  readonly entry: string;
  readonly server: RotatingServer;
  /** True: the gateway has just been killed, and gets no answer. */
  readonly reached: (moment: Moment) => boolean;
}

/** Between one gateway and both: tells each step of a refresh. */
export async function startSteps(options: StepsOptions): Promise<Steps> {
  const { reached, server, storeAddress, entry } = options;
  const store = await listen(async (req, body, res) => {
    const step = req.url === `/v1/${entry}` ? stepOf(req, body, server) : undefined;
    if (step !== undefined && reached(`${step} arrives`)) return;
    const { host: _, connection: __, "content-length": ___, ...headers } = req.headers as Record<string, string>;
    const { method = "GET" } = req;
    const answer = await fetch(`${storeAddress}${req.url}`, { method, headers, ...(body === "" ? {} : { body }) });
    const text = await answer.text();
    if (step !== undefined && step !== "read" && reached(`${step} done`)) return;
    res.writeHead(answer.status, { "content-type": "application/json" }).end(text);
  });
  const endpoint = await listen(async (_, body, res) => {
    if (reached("spend arrives")) return;
    const tokens = server.spend(new URLSearchParams(body).get("refresh_token") ?? "");
    if (tokens !== undefined && reached("spend done")) return;
    json(res, tokens === undefined ? 400 : 200, tokens ?? { error: "invalid_grant" });
  });
  return {
    storeAddress: addressOf(store),
    tokenEndpoint: `${addressOf(endpoint)}/token`,
    close: async () => {
      await Promise.all([end(store), end(endpoint)]);
    },
  };
}

/** A write without a claim that brings nothing new takes a claim back. */
function stepOf(req: IncomingMessage, body: string, server: RotatingServer): "read" | "claim" | "settle" | undefined {
  if (req.method === "GET") return "read";
  const { data } = JSON.parse(body) as { data: Record<string, unknown> };
  if (data["refresh_claim"] !== undefined) return "claim";
  return data["access_token"] !== undefined && server.isNew(String(data["refresh_token"])) ? "settle" : undefined;
}

type Handle = (req: IncomingMessage, body: string, res: ServerResponse) => Promise<void>;

async function listen(handle: Handle): Promise<Server> {
  const server = createServer((req, res) => {
    let body = "";
    req.on("data", (chunk: Buffer) => {
      body += chunk.toString();
    });
    req.on("end", () => {
      handle(req, body, res).catch(() => res.destroy());
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server;
}

function addressOf(server: Server): string {
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function end(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}
