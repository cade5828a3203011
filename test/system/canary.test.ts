import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type FixtureServer, startFixtureServer } from "../fixtures/fixture-server/server.ts";
import { type AgentAnswer, initialize, modernRequest, send } from "../support/agent-requests.ts";
import { findLeaks } from "../support/canary.ts";
import { freePort, mintToken, type Stack, startStack } from "../support/stack.ts";
import { mintSecret } from "../support/vault-backed.ts";

/** Good and bad traffic of every kind; then every byte that came out anywhere is searched for every secret. */
const secrets = {
  "bearer token": mintSecret("bearer"),
  "header value": mintSecret("header"),
  "environment token": mintSecret("environment"),
  "stale token": mintSecret("stale"),
  cookie: mintSecret("cookie"),
  "argument value": mintSecret("argument"),
};
const wrongKey = mintToken("pak_").token;

/** Answers as a careless server does: everything it was sent comes back in headers that must not pass. */
function startCareless(): Promise<Server> {
  const server = createServer((req, res) => {
    req.resume();
    const sent = req.headers.authorization ?? String(req.headers["x-api-key"] ?? "none");
    res.setHeader("www-authenticate", `Bearer realm="${sent}"`);
    res.setHeader("set-cookie", `session=${sent}`);
    res.setHeader("x-debug", sent);
    res.setHeader("server", sent);
    const status = Number(/\d{3}/.exec(req.url ?? "")?.[0] ?? 200);
    if (status === 302) res.setHeader("location", `http://127.0.0.1:1/${encodeURIComponent(sent)}`);
    res.writeHead(status, { "content-type": status === 200 ? "application/json" : "text/html" });
    res.end(
      status === 200 ? '{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}' : `<p>${sent}</p>`,
    );
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

const statuses = [200, 302, 401, 403, 500, 503] as const;

describe("the canary", () => {
  let careless: Server;
  let fixture: FixtureServer;
  let stack: Stack;
  const answers: AgentAnswer[] = [];

  beforeAll(async () => {
    careless = await startCareless();
    fixture = await startFixtureServer({ bearer: secrets["bearer token"] });
    const carelessUrl = `http://127.0.0.1:${(careless.address() as AddressInfo).port}`;
    const bearer = (file: string): object => ({ type: "bearer", token: { file } });
    const carelessServers = Object.fromEntries(
      statuses.map((status) => [
        `careless-${status}`,
        {
          url: `${carelessUrl}/${status}/mcp`,
          credential: { type: "header", name: "X-Api-Key", value: { file: "./header-value" } },
        },
      ]),
    );
    const servers = {
      fixture: { url: fixture.url, credential: bearer("./bearer-token") },
      stale: { url: fixture.url, credential: bearer("./stale-token") },
      environment: { url: `${carelessUrl}/200/mcp`, credential: { type: "bearer", token: { env: "CANARY_TOKEN" } } },
      down: { url: `http://127.0.0.1:${await freePort()}/mcp`, credential: bearer("./bearer-token") },
      ...carelessServers,
    };
    stack = await startStack({
      secretFiles: {
        "bearer-token": secrets["bearer token"],
        "stale-token": secrets["stale token"],
        "header-value": secrets["header value"],
      },
      env: { CANARY_TOKEN: secrets["environment token"] },
      servers,
      policy: Object.fromEntries(Object.keys(servers).map((name) => [name, { tools: ["test_*"] }])),
    });
    await exercise(Object.keys(servers));
  });

  afterAll(async () => {
    await stack?.stop();
    await fixture?.close();
    careless?.close();
  });

  async function exercise(names: readonly string[]): Promise<void> {
    const params = { name: "test_simple_text", arguments: { hidden: secrets["argument value"] } };
    const headers = { cookie: `session=${secrets.cookie}` };
    const keep = async (server: string, request: Parameters<typeof send>[1]): Promise<void> => {
      const url = stack.agentUrl(server);
      answers.push(await send(url, { ...request, headers: { ...request.headers, ...headers } }));
    };
    for (const name of [...names, "unknown"]) {
      for (const bearer of [stack.agentKey, wrongKey]) {
        await keep(name, { bearer, body: initialize });
        await keep(name, { bearer, ...modernRequest(1, "tools/call", params) });
        await keep(name, { bearer, ...modernRequest(2, "tools/call", { ...params, name: "denied" }) });
        await keep(name, { bearer, body: `{"broken": "${secrets["argument value"]}"` });
        await keep(name, { bearer, method: "GET" });
      }
    }
  }

  it("reaches the server with the secrets, so that there is something to leak", () => {
    const seen = fixture.recorded.map(({ headers }) => headers["authorization"]);
    expect(seen).toContain(`Bearer ${secrets["bearer token"]}`);
    expect(seen).toContain(`Bearer ${secrets["stale token"]}`);
    expect(answers.some(({ status }) => status === 200)).toBe(true);
    expect(new Set(answers.map(({ status }) => status)).size).toBeGreaterThan(4);
  });

  it("C24 finds no secret in any output or audit record", () => {
    const all = { ...secrets, "agent key": stack.agentKey, "wrong key": wrongKey, "tunnel token": stack.tunnelToken };
    expect(findLeaks(stack.outputs(), all)).toEqual([]);
  });

  it("C24 finds no upstream secret in anything that an agent received", () => {
    const outputs = answers.map(({ text, headers }, i) => ({
      name: `answer ${i}`,
      text: `${JSON.stringify([...headers])} ${text}`,
    }));
    const upstream = Object.fromEntries(Object.entries(secrets).filter(([name]) => name !== "argument value"));
    expect(findLeaks(outputs, { ...upstream, "agent key": stack.agentKey })).toEqual([]);
  });

  it("passes no address of the private network to an agent", () => {
    for (const { text, headers } of answers)
      expect(`${JSON.stringify([...headers])}${text}`).not.toContain("127.0.0.1");
  });
});
