/**
 * One row per shape of credential, against real parts: secrets in OpenBao, grants from `oidc-provider`, servers that check
 * what they get, the real processes between, and the official client. GitHub is the one part that is scripted.
 */
import { createPublicKey, generateKeyPairSync } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { jwtVerify } from "jose";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { callTool } from "../support/agent-requests.ts";
import { findLeaks } from "../support/canary.ts";
import { connectClient } from "../support/clients.ts";
import { type LeakyUpstream, leaks, startLeakyUpstream } from "../support/leaky-upstream.ts";
import { type OAuthServer, opaqueResource, startOAuthServer } from "../support/oauth-server.ts";
import { type Stack, startStack } from "../support/stack.ts";
import { json, TokenEndpoint } from "../support/token-endpoint.ts";
import { until } from "../support/until.ts";
import { mintSecret, requireBao, startVaultBacking, type VaultBacking } from "../support/vault-backed.ts";

const binary = requireBao();

/** A source in gateway.yaml. */
type At = (field: string) => object;

interface Shape {
  /** As gateway.yaml has it; `resource` is the address of its server. */
  credential(at: At, resource: string): object;
  /** What lies in Vault, by field; `bad` is what an operator got wrong. */
  readonly good: Readonly<Record<string, string>>;
  readonly bad: Readonly<Record<string, string>>;
  readonly carriers: readonly string[];
  admits(headers: IncomingHttpHeaders, resource: string): Promise<boolean>;
  /**
   * Ends what its server has admitted so far. Where a secret itself is what is sent, the new one is returned, which an operator
   * then writes to Vault.
   */
  revoke(): Promise<Readonly<Record<string, string>> | undefined>;
  /** What else must not be seen: tokens that were granted. */
  granted(): readonly string[];
  /** Whether a wrong secret is found out where the token is granted, before its server is called. */
  readonly isGrant: boolean;
}

const bearerOf = (headers: IncomingHttpHeaders): string => String(headers.authorization).replace(/^Bearer /, "");

/** Secrets that are sent as they are: what the server compares with is what was written last. */
function staticShape(
  secrets: readonly string[],
  credential: Shape["credential"],
  headersOf: (held: Readonly<Record<string, string>>) => IncomingHttpHeaders,
): Shape {
  const mint = () =>
    Object.fromEntries(secrets.map((field) => [field, field === "username" ? "svc" : mintSecret(field)]));
  let held = mint();
  return {
    credential,
    good: held,
    bad: mint(),
    carriers: Object.keys(headersOf(held)),
    admits: async (headers) => Object.entries(headersOf(held)).every(([name, value]) => headers[name] === value),
    revoke: async () => {
      held = mint();
      return held;
    },
    granted: () => [],
    isGrant: false,
  };
}

function basic({ username = "postern", password }: Readonly<Record<string, string>>): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
}

const staticShapes = (): Record<string, Shape> => ({
  bearer: staticShape(
    ["token"],
    (at) => ({ type: "bearer", token: at("token") }),
    (held) => ({ authorization: `Bearer ${held["token"]}` }),
  ),
  header: staticShape(
    ["value"],
    (at) => ({ type: "header", name: "X-Api-Key", value: at("value"), prefix: "key=" }),
    (held) => ({ "x-api-key": `key=${held["value"]}` }),
  ),
  basic: staticShape(
    ["username", "password"],
    (at) => ({ type: "basic", username: at("username"), password: at("password") }),
    (held) => ({ authorization: basic(held) }),
  ),
  "basic-named": staticShape(
    ["password"],
    (at) => ({ type: "basic", username: "postern", password: at("password") }),
    (held) => ({ authorization: basic(held) }),
  ),
  headers: staticShape(
    ["key", "second"],
    (at) => ({ type: "headers", headers: { "X-Api-Key": at("key"), "X-Second": at("second"), "X-Org": "acme" } }),
    (held) => ({ "x-api-key": held["key"], "x-second": held["second"], "x-org": "acme" }),
  ),
});

/** Tokens of the authorization server; `subject` is whom they must speak for. */
function oauthShape(
  server: OAuthServer,
  expected: { readonly clientId: string; readonly audience?: string; readonly subject?: string },
  credential: Shape["credential"],
  secrets: Pick<Shape, "good" | "bad">,
): Shape {
  const { clientId, audience, subject } = expected;
  const admitted = new Set<string>();
  return {
    ...secrets,
    credential,
    carriers: ["authorization"],
    admits: async (headers, resource) => {
      const token = bearerOf(headers);
      const who = await server.admits(token, audience ?? resource);
      if (who?.clientId !== clientId || (subject !== undefined && who.subject !== subject)) return false;
      admitted.add(token);
      return true;
    },
    revoke: async () => {
      for (const token of admitted) await server.revoke(token);
      return undefined;
    },
    granted: () => [...admitted],
    isGrant: true,
  };
}

function oauthShapes(server: OAuthServer): Record<string, Shape> {
  const { basic, post, key, service } = server.clients;
  const other = (): string => mintKey().pem;
  const at = { tokenEndpoint: server.tokenEndpoint };
  const grant = { type: "oauthClientCredentials", scope: "mcp" };
  const bySecret = (secret: string) => ({ good: { secret }, bad: { secret: mintSecret("wrong") } });
  const byKey = (pem: string) => ({ good: { pem }, bad: { pem: other() } });
  return {
    "oauth-basic": oauthShape(
      server,
      { clientId: basic.id },
      (from, resource) => ({ ...grant, ...at, clientId: basic.id, clientSecret: from("secret"), resource }),
      bySecret(basic.secret),
    ),
    "oauth-issuer": oauthShape(
      server,
      { clientId: basic.id },
      (from, resource) => ({
        ...grant,
        issuer: server.issuer,
        clientId: from("id"),
        clientSecret: from("secret"),
        clientAuth: "basic",
        resource,
      }),
      {
        good: { id: basic.id, secret: basic.secret },
        bad: { id: basic.id, secret: mintSecret("wrong") },
      },
    ),
    "oauth-post": oauthShape(
      server,
      { clientId: post.id, audience: opaqueResource },
      (from) => ({
        ...grant,
        ...at,
        clientId: post.id,
        clientSecret: from("secret"),
        clientAuth: "post",
        resource: opaqueResource,
      }),
      bySecret(post.secret),
    ),
    "oauth-key": oauthShape(
      server,
      { clientId: key.id },
      (from, resource) => ({
        ...grant,
        ...at,
        clientId: key.id,
        clientAuth: "privateKeyJwt",
        privateKey: from("pem"),
        keyId: key.keyId,
        resource,
      }),
      byKey(key.pem),
    ),
    "jwt-bearer": oauthShape(
      server,
      { clientId: service.id, audience: opaqueResource, subject: "alice" },
      (from) => ({
        type: "jwtBearer",
        ...at,
        privateKey: from("pem"),
        keyId: service.keyId,
        claims: { iss: service.id, sub: "alice" },
        scope: "mcp",
      }),
      byKey(service.pem),
    ),
  };
}

function mintKey() {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return {
    pem: privateKey.export({ type: "pkcs1", format: "pem" }).toString(),
    publicKey: createPublicKey(privateKey),
  };
}

/** Checks the app's assertion as GitHub says it does: RS256, its key, its id, ten minutes at most. */
function githubShape(api: TokenEndpoint): Shape {
  const { pem, publicKey } = mintKey();
  const valid = new Set<string>();
  const all: string[] = [];
  api.answer = (res, { method, path, headers }) => {
    const assertion = bearerOf(headers);
    const isAsked = method === "POST" && path === "/app/installations/67890/access_tokens";
    const check = { issuer: "12345", algorithms: ["RS256"], maxTokenAge: "10 min", clockTolerance: 5 };
    jwtVerify(assertion, publicKey, check).then(
      () => {
        if (!isAsked) return json(res, 404, { message: "Not Found" });
        const token = mintSecret("ghs_12345");
        valid.add(token);
        all.push(token);
        json(res, 201, { token, expires_at: new Date(Date.now() + 3_600_000).toISOString() });
      },
      () => json(res, 401, { message: `A JSON web token could not be decoded: ${assertion}` }),
    );
  };
  return {
    credential: (from) => ({
      type: "githubApp",
      appId: 12_345,
      installationId: 67_890,
      privateKey: from("pem"),
      apiUrl: api.base,
      permissions: { issues: "read" },
      repositories: ["tickets"],
    }),
    good: { pem },
    bad: { pem: mintKey().pem },
    carriers: ["authorization"],
    admits: async (headers) => valid.has(bearerOf(headers)),
    revoke: async () => {
      valid.clear();
      return undefined;
    },
    granted: () => all,
    isGrant: true,
  };
}

const names = [
  "bearer",
  "header",
  "basic",
  "basic-named",
  "headers",
  "oauth-basic",
  "oauth-issuer",
  "oauth-post",
  "oauth-key",
  "jwt-bearer",
  "github-app",
];

describe.skipIf(binary === undefined)("every shape of credential, against real parts", () => {
  const shapes: Record<string, Shape> = {};
  const upstreams: Record<string, LeakyUpstream> = {};
  /** Every secret there has been, to be looked for. */
  const secrets: Record<string, string> = {};
  let vault: VaultBacking;
  let oauth: OAuthServer;
  let github: TokenEndpoint;
  let stack: Stack;

  /** Keys are looked for by a line of theirs, since no one line holds all of one. */
  const remember = (prefix: string, fields: Readonly<Record<string, string>>): void => {
    for (const [field, value] of Object.entries(fields)) {
      if (value.includes("BEGIN")) secrets[`${prefix} ${field}`] = value.split("\n")[3] ?? "";
      else if (value.length > 20) secrets[`${prefix} ${field}`] = value;
    }
  };

  const write = async (name: string, fields: Readonly<Record<string, string>>): Promise<void> => {
    remember(name, fields);
    await vault.bao.putSecret("secret", `mcp/${name}`, fields);
  };

  beforeAll(async () => {
    vault = await startVaultBacking(binary ?? "", ["secret/data/mcp/*"]);
    oauth = await startOAuthServer();
    github = await TokenEndpoint.start();
    Object.assign(shapes, staticShapes(), oauthShapes(oauth), { "github-app": githubShape(github) });
    const servers: Record<string, object> = {};
    for (const name of names) {
      const shape = shapes[name]!;
      const upstream = await startLeakyUpstream({
        admits: (headers) => shape.admits(headers, upstreams[name]?.url ?? ""),
        carriers: shape.carriers,
      });
      upstreams[name] = upstream;
      for (const [server, fields] of [
        [name, shape.good],
        [`${name}-wrong`, shape.bad],
      ] as const) {
        await write(server, fields);
        const at: At = (field) => ({ vault: { mount: "secret", path: `mcp/${server}`, field } });
        servers[server] = { url: upstream.url, credential: shape.credential(at, upstream.url) };
      }
    }
    Object.assign(secrets, vault.secrets);
    stack = await startStack({
      vault: vault.yaml,
      secretFiles: { "secret-id": vault.secretId },
      servers,
      policy: Object.fromEntries(Object.keys(servers).map((name) => [name, { tools: ["echo", "leak_*"] }])),
    });
  });

  afterAll(async () => {
    await stack?.stop();
    for (const upstream of Object.values(upstreams)) await upstream.close();
    await github?.stop();
    await oauth?.close();
    await vault?.bao.stop();
  });

  const echo = (server: string, value = "hello") => callTool(stack.agentUrl(server), stack.agentKey, "echo", { value });
  const logOf = (server: string): string[] =>
    (stack.gateway()?.stderr() ?? "").split("\n").filter((line) => line.includes(`"server":"${server}"`));
  const allSecrets = (): Record<string, string> => {
    const granted = names.flatMap((name) => shapes[name]!.granted().map((token, i) => [`${name} token ${i}`, token]));
    return { ...secrets, ...Object.fromEntries(granted) };
  };

  describe.each(names)("%s", (name) => {
    it("C24 lets the official client in, of either era, and the agent's own key stays outside", async () => {
      for (const kind of ["v1", "v2 auto"] as const) {
        const client = await connectClient(kind, { url: stack.agentUrl(name), bearer: stack.agentKey });
        expect((await client.listTools()).tools.map((tool) => tool.name)).toEqual(["echo"]);
        const answer = await client.callTool("echo", { value: `by ${kind}` });
        expect(answer.content).toEqual([{ type: "text", text: `by ${kind}` }]);
        await client.close();
      }
      const { recorded } = upstreams[name]!;
      expect(recorded.length).toBeGreaterThan(4);
      expect(findLeaks([{ name: "server", text: JSON.stringify(recorded) }], { "agent key": stack.agentKey })).toEqual(
        [],
      );
    });

    it("C26 ten calls after a revocation: all succeed, by one new credential", async () => {
      await echo(name);
      const shape = shapes[name]!;
      const before = [shape.granted().length, github.asked.length + oauth.asked.length];
      const written = await shape.revoke();
      if (written !== undefined) await write(name, written);
      const { recorded } = upstreams[name]!;
      const first = recorded.length;
      const answers = await Promise.all(Array.from({ length: 10 }, (_, i) => echo(name, `call ${i}`)));
      expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 10 }, () => 200));
      expect(answers.map(({ text }, i) => text.includes(`call ${i}`))).toEqual(Array.from({ length: 10 }, () => true));
      const requests = recorded.length - first;
      expect(requests, "each call was made once or, where it met the refusal, twice").toBeLessThanOrEqual(20);
      expect(requests, "some met it").toBeGreaterThan(10);
      const grants = shape.isGrant ? 1 : 0;
      expect([shape.granted().length, github.asked.length + oauth.asked.length]).toEqual(before.map((n) => n + grants));
    });

    it("C25 a wrong secret: 502 without detail, and the log says whose it is and what to do", async () => {
      const server = `${name}-wrong`;
      const { recorded } = upstreams[name]!;
      const before = recorded.length;
      const answer = await echo(server);
      expect(answer.status).toBe(502);
      expect(answer.json().error?.code).toBe(shapes[name]!.isGrant ? -33_020 : -33_021);
      expect(answer.headers.get("www-authenticate")).toBeNull();
      expect(answer.text).not.toMatch(/vault|secret\/|mcp\/|127\.0\.0\.1|invalid_|issuer|token endpoint/i);
      if (shapes[name]!.isGrant) expect(recorded.length, "its server was not called").toBe(before);
      const cures = () => logOf(server).filter((line) => line.includes('"cure"'));
      await until(() => cures().length > 0, `a line with a cure: ${logOf(server).join("\n")}`);
    });

    it.each(Object.keys(leaks))("C24 its server shows it as %s: the agent sees nothing", async (way) => {
      const upstream = upstreams[name]!;
      const before = upstream.leaked.get(way) ?? 0;
      const answer = await callTool(stack.agentUrl(name), stack.agentKey, `leak_${way}`).catch(
        (error: unknown) => error,
      );
      expect(upstream.leaked.get(way), "it tried").toBeGreaterThan(before);
      const seen =
        answer instanceof Error
          ? `broken off: ${String(answer.cause)}`
          : JSON.stringify([...(answer as { headers: Headers }).headers]) + (answer as { text: string }).text;
      expect(
        findLeaks(
          [
            { name: way, text: seen },
            { name: "decoded", text: decoded(seen) },
          ],
          allSecrets(),
        ),
      ).toEqual([]);
    });
  });

  it("C24 nothing of any secret or token is in a log, the audit, or what the relay wrote", async () => {
    expect(Object.keys(allSecrets()).length).toBeGreaterThan(30);
    const metrics = await Promise.all(
      [stack.relayAdmin, stack.gatewayAdmin].map(async (admin) => (await fetch(`${admin}/metrics`)).text()),
    );
    const outputs = [...stack.outputs(), ...metrics.map((text, i) => ({ name: `metrics ${i}`, text }))];
    expect(findLeaks(outputs, { ...allSecrets(), "agent key": stack.agentKey })).toEqual([]);
  });
});

/** JSON escapes undone, which no agent fails to do. */
function decoded(text: string): string {
  return text.replaceAll(/\\u([0-9a-f]{4})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}
