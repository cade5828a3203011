/** Servers that take short-lived access tokens only, through the real processes. */
import { generateKeyPairSync } from "node:crypto";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { send } from "../support/agent-requests.ts";
import { findLeaks } from "../support/canary.ts";
import { type Stack, startStack } from "../support/stack.ts";
import { json, TokenEndpoint } from "../support/token-endpoint.ts";
import { mintSecret } from "../support/vault-backed.ts";

const call = (id: number) => ({ jsonrpc: "2.0", id, method: "tools/call", params: { name: "who", arguments: {} } });

describe("access tokens, through the real processes", () => {
  const secret = mintSecret("client");
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const pem = privateKey.export({ type: "pkcs1", format: "pem" }).toString();
  /** Tokens in the order in which they were granted, and those that servers still take. */
  const granted: string[] = [];
  const valid = new Set<string>();
  let refused = 0;
  let endpoint: TokenEndpoint;
  let server: Server;
  let stack: Stack;

  beforeAll(async () => {
    endpoint = await TokenEndpoint.start();
    endpoint.answer = (res, { path, body }) => {
      const token = mintSecret(`granted-${granted.length}`);
      granted.push(token);
      valid.add(token);
      if (path === "/app/installations/2/access_tokens") {
        json(res, 201, { token, expires_at: new Date(Date.now() + 3_600_000).toISOString() });
      } else if (body.includes("client_credentials") || body.includes("jwt-bearer")) {
        json(res, 200, { access_token: token, token_type: "bearer", expires_in: 3600 });
      } else {
        json(res, 400, { error: "unsupported_grant_type" });
      }
    };
    server = createServer((req, res) => {
      const token = String(req.headers.authorization).replace(/^Bearer /, "");
      let body = "";
      req.on("data", (chunk: Buffer) => {
        body += chunk.toString();
      });
      req.on("end", () => {
        if (!valid.has(token)) {
          refused += 1;
          res.writeHead(401, { "www-authenticate": 'Bearer error="invalid_token"' }).end();
          return;
        }
        const { id } = JSON.parse(body) as { id: number };
        json(res, 200, { jsonrpc: "2.0", id, result: { content: [] } });
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
    const key = { file: "./key" };
    stack = await startStack({
      secretFiles: { secret, key: pem },
      servers: {
        client: {
          url,
          credential: {
            type: "oauthClientCredentials",
            tokenEndpoint: endpoint.url,
            clientId: "postern",
            clientSecret: { file: "./secret" },
          },
        },
        assertion: {
          url,
          credential: { type: "jwtBearer", tokenEndpoint: endpoint.url, privateKey: key, claims: { iss: "svc" } },
        },
        app: {
          url,
          credential: { type: "githubApp", appId: 1, installationId: 2, privateKey: key, apiUrl: endpoint.base },
        },
      },
      policy: { client: { tools: ["*"] }, assertion: { tools: ["*"] }, app: { tools: ["*"] } },
    });
  });

  afterAll(async () => {
    await stack?.stop();
    server?.closeAllConnections();
    server?.close();
    await endpoint?.stop();
  });

  const ask = (name: string, id = 1) => send(stack.agentUrl(name), { bearer: stack.agentKey, body: call(id) });

  it.each(["client", "assertion", "app"])("C26 %s: ten calls, one grant; a revoked token, one more", async (name) => {
    const before = granted.length;
    const ten = async (): Promise<number[]> => {
      const answers = await Promise.all(Array.from({ length: 10 }, (_, i) => ask(name, i)));
      return answers.map(({ status }) => status);
    };
    expect(await ten()).toEqual(Array.from({ length: 10 }, () => 200));
    expect(granted.length).toBe(before + 1);
    valid.clear();
    const refusedBefore = refused;
    expect(await ten()).toEqual(Array.from({ length: 10 }, () => 200));
    expect(granted.length).toBe(before + 2);
    expect(refused).toBeGreaterThan(refusedBefore);
  });

  it("no secret, key or token is in anything that was written", () => {
    const keyLine = pem.split("\n")[3] ?? "";
    const tokens = Object.fromEntries(granted.map((token, i) => [`granted-${i}`, token]));
    expect(granted.length).toBe(6);
    expect(findLeaks(stack.outputs(), { secret, keyLine, ...tokens })).toEqual([]);
  });
});
