import { readFileSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { Client, ClientCredentialsProvider, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { SignJWT, UnsecuredJWT } from "jose";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type FixtureServer, startFixtureServer } from "../fixtures/fixture-server/server.ts";
import { callTool, initialize, open, openSession, send } from "../support/agent-requests.ts";
import { TestIssuer } from "../support/issuer.ts";
import {
  acmeOf,
  changeRelayFile,
  hupRelay,
  type RelayFile,
  readRelayFile,
  relayFileOf,
} from "../support/relay-file.ts";
import { mintToken, type Stack, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { mintSecret } from "../support/vault-backed.ts";

/** Agents with access tokens of a real issuer on loopback, and a relay that takes up changes of its file while it runs. */
const upstreamToken = mintSecret("upstream");

describe("agents by OAuth, through the real processes", () => {
  const issuer = new TestIssuer("/realms/test");
  let fixture: FixtureServer;
  let closed: Server;
  let stack: Stack;
  let url: string;

  const relayFile = () => relayFileOf(stack);
  const relayLog = () => stack.relay.stderr();

  const reload = (change: (file: RelayFile) => void) => changeRelayFile(stack, change);
  const token = (claims: Record<string, unknown> = {}) => issuer.token({ claims: { aud: url, ...claims } });

  beforeAll(async () => {
    await issuer.start();
    fixture = await startFixtureServer({ bearer: upstreamToken, extras: true });
    // A private server with an authorization server of its own, which the gateway has no credential for.
    closed = createServer((_req, res) => {
      const challenge = 'Bearer resource_metadata="http://127.0.0.1:9/.well-known/oauth-protected-resource"';
      res.writeHead(401, { "www-authenticate": challenge, "content-type": "application/json" });
      res.end('{"authorization_servers":["http://127.0.0.1:9"]}');
    });
    await new Promise<void>((resolve) => closed.listen(0, "127.0.0.1", resolve));
    stack = await startStack({
      secretFiles: { "upstream-token": upstreamToken },
      servers: {
        fixture: { url: fixture.url, credential: { type: "bearer", token: { file: "./upstream-token" } } },
        closed: { url: `http://127.0.0.1:${(closed.address() as AddressInfo).port}/mcp` },
      },
      policy: { fixture: { tools: ["*"] }, closed: { tools: ["*"] } },
    });
    url = stack.agentUrl("fixture");
    await reload((file) => {
      acmeOf(file).agents.push({
        oauth: { issuer: issuer.url, requiredScopes: ["mcp"] },
        servers: ["fixture", "closed"],
      });
    });
  });

  afterAll(async () => {
    await stack?.stop();
    await fixture?.close();
    closed?.close();
    await issuer.close();
  });

  it("an agent finds its way from the 401 to a call, as the specification has it", async () => {
    const first = await send(url, { body: initialize });
    expect(first.status).toBe(401);
    const where = /^Bearer resource_metadata="([^"]+)"$/.exec(first.headers.get("www-authenticate") ?? "")?.[1] ?? "";
    const metadata = (await (await fetch(where)).json()) as Record<string, unknown>;
    expect(metadata).toEqual({
      resource: url,
      authorization_servers: [issuer.url],
      scopes_supported: ["mcp"],
      bearer_methods_supported: ["header"],
    });
    const scopes = metadata["scopes_supported"] as string[];
    const granted = await issuer.token({ claims: { aud: metadata["resource"], scope: scopes.join(" "), team: "ops" } });
    expect((await callTool(url, granted, "echo", { value: "by oauth" })).text).toContain("by oauth");
    const record = stack.audit().findLast((one) => one["principal"] === `oauth:${issuer.url}#alice`);
    expect(record).toBeDefined();
    const narrow = await send(url, { bearer: await token(), body: initialize });
    expect([narrow.status, narrow.headers.get("www-authenticate")]).toEqual([
      403,
      `Bearer error="insufficient_scope", scope="mcp", resource_metadata="${where}"`,
    ]);
  });

  it("the official client, told nothing but the URL and its own secret, gets there by itself", async () => {
    const authProvider = new ClientCredentialsProvider({
      clientId: "agent",
      clientSecret: mintSecret("client"),
      expectedIssuer: issuer.url,
      scope: "mcp",
    });
    const client = new Client({ name: "oauth-agent", version: "1" });
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { authProvider }));
    const answer = await client.callTool({ name: "echo", arguments: { value: "by itself" } });
    expect(JSON.stringify(answer)).toContain("by itself");
    await client.close();
    const principal = `oauth:${issuer.url}#by-client-credentials`;
    expect(stack.audit().some((one) => one["principal"] === principal)).toBe(true);
  });

  it("tokens that do not hold reach nobody, and are all told the same", async () => {
    const heard = fixture.recorded.length;
    const now = Math.floor(Date.now() / 1000);
    const scope = "mcp";
    const confused = new SignJWT(issuer.claims({ aud: url, scope })).setProtectedHeader({ alg: "HS256", kid: "key-1" });
    const bad: Record<string, string> = {
      expired: await token({ scope, exp: now - 120 }),
      early: await token({ scope, nbf: now + 120 }),
      "other issuer": await token({ scope, iss: "https://idp.example.com" }),
      "other audience": await token({ scope, aud: stack.agentUrl("closed") }),
      unsigned: new UnsecuredJWT(issuer.claims({ aud: url, scope })).encode(),
      confused: await confused.sign(await issuer.pem()),
      oversized: await token({ scope, pad: "x".repeat(14_000) }),
      cut: (await token({ scope })).slice(0, -20),
    };
    const told = new Set<string>();
    for (const bearer of Object.values(bad)) {
      const answer = await send(url, { bearer, body: initialize });
      told.add(JSON.stringify([answer.status, answer.headers.get("www-authenticate"), answer.json().error?.code]));
    }
    const metadata = url.replace("/acme/", "/.well-known/oauth-protected-resource/acme/");
    expect([...told]).toEqual([JSON.stringify([401, `Bearer resource_metadata="${metadata}"`, -33002])]);
    expect(fixture.recorded.length).toBe(heard);
    for (const { text } of stack.outputs()) {
      for (const bearer of Object.values(bad)) expect(text).not.toContain(bearer.split(".")[1]);
    }
  });

  it("C25 a private server's own authorization never reaches the agent, and the relay dials nothing that it names", async () => {
    const closedUrl = stack.agentUrl("closed");
    const bearer = await token({ aud: closedUrl, scope: "mcp" });
    const answer = await send(closedUrl, { bearer, body: initialize });
    expect(answer.status).toBe(502);
    expect(answer.headers.get("www-authenticate")).toBeNull();
    expect(answer.text).not.toContain("127.0.0.1:9");
    const metadata = await fetch(closedUrl.replace("/acme/", "/.well-known/oauth-protected-resource/acme/"));
    expect(await metadata.json()).toMatchObject({ resource: closedUrl, authorization_servers: [issuer.url] });
    expect((await fetch(`${stack.gatewayAdmin}/readyz`)).status).toBe(200);
  });

  it("a flood of made-up key ids makes the relay ask once", async () => {
    await callTool(url, await token({ scope: "mcp" }), "echo", { value: "warm" });
    const asked = issuer.count("/keys");
    const flood = await Promise.all(
      Array.from({ length: 60 }, (_, i) => issuer.token({ claims: { aud: url }, header: { kid: `made-up-${i}` } })),
    );
    const answers = await Promise.all(flood.map((bearer) => send(url, { bearer, body: initialize })));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([401]));
    expect(issuer.count("/keys") - asked).toBeLessThanOrEqual(1);
  });

  it("the issuer goes away: the last keys serve, new agents too", async () => {
    issuer.override = (_req, res) => res.destroy();
    const answer = await callTool(url, await token({ scope: "mcp", sub: "bob" }), "echo", { value: "without issuer" });
    issuer.override = undefined;
    expect(answer.text).toContain("without issuer");
  });

  it("a file with a mistake changes nothing, and the mistake is named with its place", async () => {
    const good = readFileSync(relayFile(), "utf8");
    writeFileSync(relayFile(), good.replace("requiredScopes", "requiredScope"));
    await hupRelay(stack, '"not reloaded"');
    expect(relayLog()).toMatch(/"file":"[^"]*relay\.yaml:\d+:\d+"[^\n]*unknown key `requiredScope`/);
    writeFileSync(relayFile(), "tunnels: [");
    await hupRelay(stack, '"not reloaded"');
    expect((await callTool(url, await token({ scope: "mcp" }), "echo", { value: "as before" })).text).toContain(
      "as before",
    );
    expect((await callTool(url, stack.agentKey, "echo", { value: "by key" })).text).toContain("by key");
    writeFileSync(relayFile(), good);
    await hupRelay(stack);
  });

  it("a new key works, a removed one ends its streams between two events; others keep theirs", async () => {
    const fresh = mintToken("pak_");
    await reload((file) => {
      acmeOf(file).agents.push({ name: "fresh", keySha256: [fresh.sha256], servers: ["*"] });
    });
    const listen = async (bearer: string) => {
      const session = await openSession(url, bearer);
      const accept = { accept: "text/event-stream", ...session };
      return open(url, { bearer, method: "GET", headers: accept });
    };
    const [mine, others] = [await listen(fresh.token), await listen(stack.agentKey)];
    expect([mine.status, others.status]).toEqual([200, 200]);
    await reload((file) => {
      acmeOf(file).agents = acmeOf(file).agents.filter(({ name }) => name !== "fresh");
    });
    await until(() => mine.complete() !== undefined, "the stream of the removed key ends");
    expect(mine.complete()).toBe(true);
    expect((await send(url, { bearer: fresh.token, body: initialize })).status).toBe(401);
    expect(others.complete()).toBeUndefined();
    others.leave();
  });

  it("a token that ends while its stream is open ends the stream", async () => {
    const now = Math.floor(Date.now() / 1000);
    const bearer = await token({ scope: "mcp", exp: now - 56 });
    const session = await openSession(url, bearer);
    const headers = { accept: "text/event-stream", ...session };
    const stream = await open(url, { bearer, method: "GET", headers });
    expect(stream.status).toBe(200);
    await until(() => stream.complete() === true, "it ends", 15_000);
  });

  it("an address that changed waits for a restart, and says so", async () => {
    const before = readRelayFile(stack);
    await reload((file) => {
      file.listen = "127.0.0.1:1";
      file.limits = { headerBytes: "32KiB", streamsPerAgent: 255 };
    });
    expect(relayLog()).toMatch(/"field":"listen"[^\n]*needs a restart/);
    expect(relayLog()).toMatch(/"field":"limits.headerBytes"[^\n]*needs a restart/);
    expect(relayLog()).not.toContain("streamsPerAgent");
    await reload((file) => {
      file.listen = before.listen;
      delete file.limits;
      if (before.limits !== undefined) file.limits = before.limits;
    });
    expect((await callTool(url, stack.agentKey, "echo", { value: "still" })).text).toContain("still");
  });

  it("a tunnel token that is taken away ends the tunnel; the gateway is told why", async () => {
    const gateways: object[] = [];
    await reload((file) => {
      gateways.push(...acmeOf(file).gateways);
      acmeOf(file).gateways = [{ name: "edge", tokenSha256: [mintToken("ptk_").sha256] }];
    });
    await until(() => stack.gateway()?.stderr().includes("REVOKED") === true, "the gateway heard");
    expect((await send(url, { bearer: stack.agentKey, body: initialize })).status).toBe(503);
  });

  it("a gateway with a JWT from a file serves as any other", async () => {
    await stack.gateway()?.stop();
    const subject = "system:serviceaccount:postern:gateway";
    const jwt = { issuer: issuer.url, audience: "postern-relay", subject };
    await reload((file) => {
      acmeOf(file).gateways = [{ name: "edge", jwt }];
    });
    const bearer = await issuer.token({ claims: { aud: jwt.audience, sub: subject } });
    writeFileSync(join(stack.dir, "tunnel-token"), `${bearer}\n`, { mode: 0o600 });
    await stack.startGateway();
    expect((await callTool(url, await token({ scope: "mcp" }), "echo", { value: "by jwt" })).text).toContain("by jwt");
  });
});
