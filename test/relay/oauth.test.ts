import { SignJWT } from "jose";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createToken } from "../../src/identity/index.ts";
import { RawClient } from "../support/raw-client.ts";
import { until } from "../support/until.ts";
import { TokenRig, tellPrincipal } from "./token-rig.ts";

let rig: TokenRig;

beforeEach(async () => {
  rig = await new TokenRig().start();
});

afterEach(() => rig.close());

const metadata = (server: string, tunnel = "acme") => `/.well-known/oauth-protected-resource/${tunnel}/${server}/mcp`;
const challenge = (server = "tickets") => `Bearer resource_metadata="http://127.0.0.1${metadata(server)}"`;

async function restart(agents: Parameters<TokenRig["tunnel"]>[0] = {}): Promise<void> {
  await rig.relay.close();
  await rig.start(agents);
}

describe("an agent with an access token", () => {
  it("reaches its server as who the token says", async () => {
    await rig.connect();
    const answer = await rig.call(await rig.token({ team: "ops", big: [1, { a: "ü" }] }));
    expect(answer.status).toBe(200);
    expect(await answer.json()).toMatchObject({
      id: `oauth:${rig.issuer.url}#alice`,
      kind: "oauth",
      claims: { team: "ops", big: [1, { a: "ü" }], sub: "alice" },
    });
    const byKey = await rig.call(rig.key.token.reveal());
    expect(await byKey.json()).toEqual({ id: "key:claude", kind: "key", claims: {} });
  });

  it("has a token for the URL that it calls, and for no other", async () => {
    await rig.connect();
    const token = await rig.token();
    expect((await rig.call(token)).status).toBe(200);
    const elsewhere = await rig.call(token, "wiki");
    expect([elsewhere.status, elsewhere.headers.get("www-authenticate")]).toEqual([401, challenge("wiki")]);
    expect((await rig.call(await rig.token({}, "wiki"), "wiki")).status).toBe(200);
    expect((await rig.call(await rig.token({ aud: `${rig.resource("tickets")}/` }))).status).toBe(200);
    const init = { method: "POST", body: "{}" };
    expect((await rig.fetch("/acme/tickets/mcp/", token, init)).status).toBe(200);
  });

  it("may use what is granted: else 403 without a challenge", async () => {
    await rig.connect();
    const answer = await rig.call(await rig.token({}, "secrets"), "secrets");
    expect([answer.status, answer.headers.get("www-authenticate")]).toEqual([403, null]);
    expect(await answer.json()).toMatchObject({ error: { code: -33002, message: "Forbidden" } });
    await restart({ agents: [{ oauth: { issuer: rig.issuer.url, audience: "api" }, servers: ["tickets"] }] });
    const token = await rig.token({ aud: "api" });
    const statuses = [];
    for (const path of ["/acme/wiki/mcp", "/acme/tickets/x", "/acme/", "/acme/TICKETS/mcp"]) {
      statuses.push((await rig.fetch(path, token)).status);
    }
    expect(statuses).toEqual([403, 404, 404, 403]);
  });

  it("lacks a scope: 403 that names all of them, and where to ask", async () => {
    await restart({
      agents: [{ oauth: { issuer: rig.issuer.url, requiredScopes: ["mcp", "read"] }, servers: ["tickets"] }],
    });
    await rig.connect();
    const answer = await rig.call(await rig.token({ scope: "mcp" }));
    expect(answer.status).toBe(403);
    expect(answer.headers.get("www-authenticate")).toBe(
      `Bearer error="insufficient_scope", scope="mcp read", resource_metadata="http://127.0.0.1${metadata("tickets")}"`,
    );
    expect((await rig.call(await rig.token({ scope: "read mcp" }))).status).toBe(200);
    const notGranted = await rig.call(await rig.token({ scope: "mcp" }, "wiki"), "wiki");
    expect([notGranted.status, notGranted.headers.get("www-authenticate")]).toEqual([403, null]);
  });

  it("of several entries for one issuer, the one that grants the most speaks", async () => {
    const { url: issuer } = rig.issuer;
    await restart({
      agents: [
        { oauth: { issuer, clientIds: ["a"] }, servers: ["wiki"] },
        { oauth: { issuer, requiredScopes: ["admin"] }, servers: ["tickets"] },
        { oauth: { issuer, clientIds: ["a", "b"] }, servers: ["tickets"] },
        { oauth: { issuer, clientIds: ["a", "b"] }, servers: ["wiki"] },
      ],
    });
    await rig.connect();
    expect((await rig.call(await rig.token({ client_id: "a" }))).status).toBe(200);
    expect((await rig.call(await rig.token({ client_id: "b" }, "wiki"), "wiki")).status).toBe(200);
    expect((await rig.call(await rig.token({ client_id: "c" }))).headers.get("www-authenticate")).toContain("admin");
    expect((await rig.call(await rig.token({ client_id: "c", scope: "admin" }))).status).toBe(200);
    expect((await rig.call(await rig.token({ client_id: "c" }, "wiki"), "wiki")).status).toBe(403);
  });

  it("has so many streams at once, by whatever token", async () => {
    await rig.connect({
      onStream: () => ({ onData: () => undefined, onEnd: () => undefined, onReset: () => undefined }),
    });
    const abort = new AbortController();
    const tokens = await Promise.all(Array.from({ length: 4 }, (_, i) => rig.token({ i })));
    const open = Array.from({ length: 256 }, (_, i) =>
      rig.fetch("/acme/tickets/mcp", tokens[i % 4], { signal: abort.signal }).catch(() => undefined),
    );
    await until(() => rig.relay.status().exchanges === 256, "all are open", 10_000);
    expect((await rig.call(tokens[0])).status).toBe(503);
    const other = rig.fetch("/acme/tickets/mcp", await rig.token({ sub: "bob" }), { signal: abort.signal });
    other.catch(() => undefined);
    await until(() => rig.relay.status().exchanges === 257, "another principal has room");
    abort.abort();
    await Promise.all(open);
    await until(() => rig.relay.status().exchanges === 0, "nothing is left");
  });
});

describe("a bearer that does not hold", () => {
  it("is the same 401, whatever is wrong with it, before the body is read", async () => {
    const now = Math.floor(Date.now() / 1000);
    const pem = await rig.issuer.pem();
    const claims = rig.issuer.claims({ aud: rig.resource("tickets") });
    const bad = [
      undefined,
      "nonsense",
      createToken("agent").token.reveal(),
      await rig.token({ exp: now - 61 }),
      await rig.token({ nbf: now + 90 }),
      await rig.token({ iss: "https://idp.example.com" }),
      await rig.token({ aud: "x" }),
      await rig.token({ aud: null }),
      `${Buffer.from('{"alg":"none"}').toString("base64url")}.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.`,
      await new SignJWT(claims).setProtectedHeader({ alg: "HS256", kid: "key-1" }).sign(pem),
      `${(await rig.token()).slice(0, -8)}AAAAAAAA`,
      await rig.token({ pad: "x".repeat(16_000) }),
      await rig.token({ pad: "x".repeat(9_000) }),
      await rig.token({ sub: "" }),
    ];
    const seen = new Set<string>();
    for (const bearer of bad) {
      const answer = await rig.call(bearer);
      const body = (await answer.text()).replaceAll(answer.headers.get("x-request-id") ?? "", "ID");
      seen.add(JSON.stringify([answer.status, answer.headers.get("www-authenticate"), body]));
    }
    expect([...seen]).toEqual([
      JSON.stringify([
        401,
        challenge(),
        '{"jsonrpc":"2.0","id":null,"error":{"code":-33002,"message":"Unauthorized","data":{"requestId":"ID"}}}',
      ]),
    ]);
    const client = new RawClient(rig.port);
    const head = `POST /acme/tickets/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n`;
    client.send(`${head}Authorization: Bearer ${await rig.token({ aud: "x" })}\r\n\r\n`);
    await client.has("HTTP/1.1 401");
    client.destroy();
  });

  it("a tunnel without oauth is told from no tunnel by nothing", async () => {
    const token = await rig.token();
    const told = async (tunnel: string, bearer: string | undefined, path = `/${tunnel}/tickets/mcp`) => {
      const answer = await rig.fetch(path, bearer);
      const text = (await answer.text()).replaceAll(answer.headers.get("x-request-id") ?? "", "ID");
      const names = [...answer.headers.keys()].filter((name) => name !== "date");
      return JSON.stringify([answer.status, names, answer.headers.get("www-authenticate"), text]);
    };
    for (const bearer of [undefined, token, "x", rig.key.token.reveal()]) {
      expect(await told("plain", bearer)).toBe(await told("nobody", bearer));
      expect(await told("plain", bearer)).toContain('"Bearer"');
      expect(await told("", bearer, metadata("tickets", "plain"))).toBe(
        await told("", bearer, metadata("tickets", "nobody")),
      );
    }
  });

  it("costs the tunnel nothing", async () => {
    const session = await rig.connect();
    for (let i = 0; i < 20; i += 1) await rig.call(await rig.token({ aud: "x" }));
    expect(session.openStreamCount).toBe(0);
    expect(rig.lines.join("")).toContain('"reason":"audience"');
    expect(rig.lines.join("")).not.toContain((await rig.token({ aud: "x" })).split(".")[1]);
  });

  it("cannot be judged while the issuer is away and no keys are known: 503, and no 401 that starts a login", async () => {
    rig.issuer.override = (_req, res) => res.writeHead(503).end();
    await restart();
    const answer = await rig.call(await rig.token());
    expect([answer.status, answer.headers.get("retry-after")]).toEqual([503, "1"]);
    expect((await rig.call(rig.key.token.reveal())).status).toBe(503);
    await rig.connect();
    expect((await rig.call(rig.key.token.reveal())).status).toBe(200);
  });

  it("an agent that leaves while its token is verified leaves nothing, and nothing is sent for it", async () => {
    const held: (() => void)[] = [];
    rig.issuer.override = (_req, res) => void held.push(() => res.end(JSON.stringify(rig.issuer.jwks)));
    const oauth = { issuer: rig.issuer.url, jwks: { url: rig.issuer.jwksUrl } };
    await restart({ agents: [{ oauth, servers: ["tickets"] }] });
    const methods: string[] = [];
    await rig.connect({
      onStream: (open, stream) => {
        methods.push(open.method);
        return tellPrincipal(open, stream);
      },
    });
    const client = new RawClient(rig.port);
    const token = await rig.token();
    client.send(`GET /acme/tickets/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${token}\r\n\r\n`);
    await until(() => rig.relay.status().connections === 1 && held.length === 1, "it waits for keys");
    client.destroy();
    await until(() => rig.relay.status().connections === 0, "it is gone");
    for (const release of held) release();
    expect((await rig.call(token)).status).toBe(200);
    expect([methods, rig.relay.status().exchanges]).toEqual([["POST"], 0]);
  });
});

describe("the metadata of a resource", () => {
  it("C25 names the agent's URL and the issuer, alike for known and unknown servers, with a gateway or without", async () => {
    const told = async (server: string) => {
      const answer = await rig.fetch(metadata(server));
      expect(answer.status).toBe(200);
      expect(answer.headers.get("content-type")).toBe("application/json");
      return answer.json();
    };
    const expected = (server: string) => ({
      resource: rig.resource(server),
      authorization_servers: [rig.issuer.url],
      bearer_methods_supported: ["header"],
    });
    expect(await told("tickets")).toEqual(expected("tickets"));
    expect(await told("no-such-server")).toEqual(expected("no-such-server"));
    await rig.connect();
    expect(await told("tickets")).toEqual(expected("tickets"));
    expect(await told("no-such-server")).toEqual(expected("no-such-server"));
  });

  it("names the scopes that are asked for, and every issuer once", async () => {
    const { url: issuer } = rig.issuer;
    await restart({
      agents: [
        { oauth: { issuer, requiredScopes: ["mcp"] }, servers: ["a"] },
        { oauth: { issuer, requiredScopes: ["mcp", "read"], audience: "x" }, servers: ["b"] },
        { oauth: { issuer: "https://idp.example.com" }, servers: ["b"] },
      ],
    });
    expect(await (await rig.fetch(metadata("a"))).json()).toMatchObject({
      authorization_servers: [issuer, "https://idp.example.com"],
      scopes_supported: ["mcp", "read"],
    });
  });

  it("is read only, may be read by pages of an allowed origin, and is nowhere else", async () => {
    expect((await rig.fetch(metadata("tickets"), undefined, { method: "HEAD" })).status).toBe(200);
    const posted = await rig.fetch(metadata("tickets"), undefined, { method: "POST", body: "{}" });
    expect([posted.status, posted.headers.get("allow")]).toEqual([405, "GET, HEAD"]);
    const origin = "https://app.example.com";
    const preflight = await rig.fetch(metadata("tickets"), undefined, { method: "OPTIONS", headers: { origin } });
    expect([preflight.status, preflight.headers.get("access-control-allow-origin")]).toEqual([204, origin]);
    const foreign = await rig.fetch(metadata("tickets"), undefined, { headers: { origin: "https://evil.test" } });
    expect(foreign.status).toBe(403);
    for (const path of [
      metadata("tickets", "plain"),
      metadata("tickets", "nobody"),
      "/.well-known/oauth-protected-resource",
      "/.well-known/oauth-protected-resource/acme",
      "/.well-known/oauth-protected-resource/acme/tickets",
      "/.well-known/oauth-protected-resource/acme/Tickets/mcp",
      "/.well-known/oauth-protected-resource/acme/tickets/mcp/x",
      "/.well-known/oauth-authorization-server/acme/tickets/mcp",
      "/acme/.well-known/oauth-protected-resource",
    ]) {
      expect([path, (await rig.fetch(path)).status]).toEqual([path, path.startsWith("/acme") ? 401 : 404]);
    }
  });
});
