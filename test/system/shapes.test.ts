/**
 * One row per shape of credential, against real parts: secrets in OpenBao, grants from `oidc-provider`, servers that check
 * what they get, the real processes between, and the official client. GitHub is the one part that is scripted.
 */
import { createPublicKey, generateKeyPairSync } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { createRemoteJWKSet, decodeJwt, jwtVerify } from "jose";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { FixtureServerOptions } from "../fixtures/fixture-server/server.ts";
import { callTool } from "../support/agent-requests.ts";
import { type Bao, startBao } from "../support/bao.ts";
import { findLeaks } from "../support/canary.ts";
import { connectClient } from "../support/clients.ts";
import { TestIssuer } from "../support/issuer.ts";
import { type LeakyUpstream, leaks, startLeakyUpstream } from "../support/leaky-upstream.ts";
import { type OAuthServer, opaqueResource, startOAuthServer } from "../support/oauth-server.ts";
import { admitIssuer } from "../support/relay-file.ts";
import { type Stack, startStack } from "../support/stack.ts";
import { json, TokenEndpoint } from "../support/token-endpoint.ts";
import { until } from "../support/until.ts";
import { mintSecret, requireBao } from "../support/vault-backed.ts";

const binary = requireBao();

/** A source in gateway.yaml. */
type At = (field: string) => {
  readonly vault: { readonly mount: string; readonly path: string; readonly field: string };
};
type Fields = Readonly<Record<string, string>>;
/** What is configured, where the configuration itself may be what an operator got wrong. */
interface Place {
  readonly at: At;
  /** The address of the server that it is for. */
  readonly resource: string;
  readonly isWrong: boolean;
}

interface Shape {
  /** As gateway.yaml has it. */
  credential(place: Place): object;
  /** Where below the server's own path its fields lie, for the one principal of this test. */
  readonly below?: string;
  /** What lies in Vault, by field; `bad` is what an operator got wrong. */
  readonly secrets: (resource: string) => Promise<{ readonly good: Fields; readonly bad: Fields }>;
  readonly carriers: readonly string[];
  readonly tls?: FixtureServerOptions["tls"];
  admits(headers: IncomingHttpHeaders, resource: string, socket: Socket): Promise<boolean>;
  /**
   * Ends what its server has admitted so far. Where a secret itself is what is sent, the new one is returned, which an operator
   * then writes to Vault.
   */
  revoke(): Promise<Fields | undefined>;
  /** What else must not be seen: tokens that were granted. */
  granted(): readonly string[];
  /** Undefined: a wrong secret is only found out by its server. Else how often something was granted or issued. */
  readonly grants?: () => number;
}

const bearerOf = (headers: IncomingHttpHeaders): string => String(headers.authorization).replace(/^Bearer /, "");

/** What is no secret. */
const fixed: Fields = { username: "svc", nothing: "x" };

/** Secrets that are sent as they are: what the server compares with is what was written last. */
function staticShape(
  secrets: readonly string[],
  credential: Shape["credential"],
  headersOf: (held: Fields) => IncomingHttpHeaders,
): Shape {
  const mint = () => Object.fromEntries(secrets.map((field) => [field, fixed[field] ?? mintSecret(field)]));
  let held = mint();
  return {
    credential,
    secrets: async () => ({ good: held, bad: mint() }),
    carriers: Object.keys(headersOf(held)),
    admits: async (headers) => Object.entries(headersOf(held)).every(([name, value]) => headers[name] === value),
    revoke: async () => {
      held = mint();
      return held;
    },
    granted: () => [],
  };
}

function basic({ username = "postern", password }: Fields): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
}

const staticShapes = (): Record<string, Shape> => ({
  bearer: staticShape(
    ["token"],
    ({ at }) => ({ type: "bearer", token: at("token") }),
    (held) => ({ authorization: `Bearer ${held["token"]}` }),
  ),
  header: staticShape(
    ["value"],
    ({ at }) => ({ type: "header", name: "X-Api-Key", value: at("value"), prefix: "key=" }),
    (held) => ({ "x-api-key": `key=${held["value"]}` }),
  ),
  basic: staticShape(
    ["username", "password"],
    ({ at }) => ({ type: "basic", username: at("username"), password: at("password") }),
    (held) => ({ authorization: basic(held) }),
  ),
  "basic-named": staticShape(
    ["password"],
    ({ at }) => ({ type: "basic", username: "postern", password: at("password") }),
    (held) => ({ authorization: basic(held) }),
  ),
  "basic-key": staticShape(
    ["key", "nothing"],
    ({ at }) => ({ type: "basic", username: at("key"), password: at("nothing") }),
    ({ key = "", nothing = "" }) => ({ authorization: basic({ username: key, password: nothing }) }),
  ),
  headers: staticShape(
    ["key", "second"],
    ({ at }) => ({ type: "headers", headers: { "X-Api-Key": at("key"), "X-Second": at("second"), "X-Org": "acme" } }),
    (held) => ({ "x-api-key": held["key"], "x-second": held["second"], "x-org": "acme" }),
  ),
});

/** A secret of each principal's own. */
function perCallerShape(principal: string): Shape {
  const shape = staticShape(
    ["token"],
    ({ at }) => {
      const { mount, path, field } = at("token").vault;
      return { type: "bearer", token: { vault: { mount, path: `${path}/{principal.id}`, field } } };
    },
    (held) => ({ authorization: `Bearer ${held["token"]}` }),
  );
  // As docs/credentials.md has it, by hand.
  return { ...shape, below: `/${principal.replaceAll(":", "~3a").replaceAll("/", "~2f").replace("#", "~23")}` };
}

/** Tokens of the authorization server; `subject` is whom they must speak for. */
function oauthShape(
  server: OAuthServer,
  expected: { readonly clientId: string; readonly audience?: string; readonly subject?: string },
  credential: Shape["credential"],
  secrets: Shape["secrets"],
): Shape {
  const { clientId, audience, subject } = expected;
  const admitted = new Set<string>();
  return {
    secrets,
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
    grants: () => server.grants(clientId),
  };
}

function oauthShapes(server: OAuthServer): Record<string, Shape> {
  const { basic, post, key, service, rotating, exchanger } = server.clients;
  const other = (): string => mintKey().pem;
  const at = { tokenEndpoint: server.tokenEndpoint };
  const grant = { type: "oauthClientCredentials", scope: "mcp" };
  const bySecret = (secret: string) => async () => ({ good: { secret }, bad: { secret: mintSecret("wrong") } });
  const byKey = (pem: string) => async () => ({ good: { pem }, bad: { pem: other() } });
  return {
    "oauth-basic": oauthShape(
      server,
      { clientId: basic.id },
      ({ at: from, resource }) => ({ ...grant, ...at, clientId: basic.id, clientSecret: from("secret"), resource }),
      bySecret(basic.secret),
    ),
    "oauth-issuer": oauthShape(
      server,
      { clientId: basic.id },
      ({ at: from, resource }) => ({
        ...grant,
        issuer: server.issuer,
        clientId: from("id"),
        clientSecret: from("secret"),
        clientAuth: "basic",
        resource,
      }),
      async () => ({
        good: { id: basic.id, secret: basic.secret },
        bad: { id: basic.id, secret: mintSecret("wrong") },
      }),
    ),
    "oauth-post": oauthShape(
      server,
      { clientId: post.id, audience: opaqueResource },
      ({ at: from }) => ({
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
      ({ at: from, resource }) => ({
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
      ({ at: from }) => ({
        type: "jwtBearer",
        ...at,
        privateKey: from("pem"),
        keyId: service.keyId,
        claims: { iss: service.id, sub: "alice" },
        scope: "mcp",
      }),
      byKey(service.pem),
    ),
    "token-exchange": oauthShape(
      server,
      { clientId: exchanger.id, subject: "alice" },
      ({ at: from, resource }) => ({
        type: "tokenExchange",
        ...at,
        clientId: exchanger.id,
        clientSecret: from("secret"),
        resource,
        scope: "mcp",
      }),
      bySecret(exchanger.secret),
    ),
    "oauth-refresh": oauthShape(
      server,
      { clientId: rotating.id, subject: "somebody" },
      ({ at: from, resource }) => {
        const { mount, path } = from("").vault;
        const client = { clientId: rotating.id, clientSecret: from("secret") };
        return { type: "oauthRefreshToken", ...at, ...client, record: { vault: { mount, path } }, resource };
      },
      async (resource) => ({
        good: { secret: rotating.secret, refresh_token: await server.seedRefreshToken(resource) },
        bad: { secret: rotating.secret, refresh_token: mintSecret("spent") },
      }),
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
    credential: ({ at: from }) => ({
      type: "githubApp",
      appId: 12_345,
      installationId: 67_890,
      privateKey: from("pem"),
      apiUrl: api.base,
      permissions: { issues: "read" },
      repositories: ["tickets"],
    }),
    secrets: async () => ({ good: { pem }, bad: { pem: mintKey().pem } }),
    carriers: ["authorization"],
    admits: async (headers) => valid.has(bearerOf(headers)),
    revoke: async () => {
      valid.clear();
      return undefined;
    },
    granted: () => all,
    grants: () => all.length,
  };
}

/** A server that knows whom OpenBao's identity tokens are for. */
async function identityShape(bao: Bao): Promise<Shape> {
  await bao.call("POST", "identity/oidc/config", { issuer: bao.address });
  await bao.call("POST", "identity/oidc/key/postern", { allowed_client_ids: "*" });
  await bao.call("POST", "identity/oidc/role/postern", { key: "postern", ttl: "10m" });
  const { data } = await bao.call("GET", "identity/oidc/role/postern");
  const { client_id: audience } = data as { client_id: string };
  const issuer = `${bao.address}/v1/identity/oidc`;
  const keys = createRemoteJWKSet(new URL(`${issuer}/.well-known/keys`));
  const [admitted, revoked] = [new Set<string>(), new Set<string>()];
  return {
    credential: ({ isWrong }) => ({ type: "vaultIdentity", role: isWrong ? "nobody" : "postern", as: "bearer" }),
    secrets: async () => ({ good: {}, bad: {} }),
    carriers: ["authorization"],
    admits: async (headers) => {
      const token = bearerOf(headers);
      const isGood = await jwtVerify(token, keys, { issuer, audience }).then(
        () => !revoked.has(token),
        () => false,
      );
      if (isGood) admitted.add(token);
      return isGood;
    },
    revoke: async () => {
      for (const token of admitted) revoked.add(token);
      const issuedAt = Math.max(...[...admitted].map((token) => decodeJwt(token).iat ?? 0));
      // Two tokens of one second are the same.
      await until(() => Date.now() / 1_000 >= issuedAt + 1, "the next second");
      return undefined;
    },
    granted: () => [...admitted],
    grants: () => admitted.size,
  };
}

/** One-time passwords of OpenBao's SSH engine, which the server has OpenBao verify when it first sees one. */
async function dynamicShape(bao: Bao): Promise<Shape> {
  await bao.call("POST", "sys/mounts/ssh", { type: "ssh" });
  await bao.call("POST", "ssh/roles/postern", { key_type: "otp", default_user: "postern", cidr_list: "127.0.0.0/8" });
  const [admitted, revoked] = [new Set<string>(), new Set<string>()];
  return {
    credential: ({ isWrong }) => ({
      type: "vaultDynamic",
      vault: { path: `ssh/creds/${isWrong ? "nobody" : "postern"}`, method: "write", parameters: { ip: "127.0.0.1" } },
      as: { type: "header", name: "X-Otp", value: { lease: "key" } },
    }),
    secrets: async () => ({ good: {}, bad: {} }),
    carriers: ["x-otp"],
    admits: async (headers) => {
      const otp = String(headers["x-otp"]);
      if (revoked.has(otp)) return false;
      if (admitted.has(otp)) return true;
      admitted.add(otp);
      return bao.call("POST", "ssh/verify", { otp }).then(
        () => true,
        () => false,
      );
    },
    revoke: async () => {
      for (const otp of admitted) revoked.add(otp);
      return undefined;
    },
    granted: () => [...admitted],
    grants: () => admitted.size,
  };
}

/** Servers that ask for a client certificate of OpenBao's PKI: one that lies in Vault, and one that is issued when wanted. */
async function certificateShapes(bao: Bao): Promise<Record<string, Shape>> {
  const mountPki = async (mount: string): Promise<string> => {
    await bao.call("POST", `sys/mounts/${mount}`, { type: "pki" });
    const { data } = await bao.call("POST", `${mount}/root/generate/internal`, { common_name: mount, ttl: "1h" });
    await bao.call("POST", `${mount}/roles/any`, { allow_any_name: true, enforce_hostnames: false, ttl: "30m" });
    return (data as { certificate: string }).certificate;
  };
  const issue = async (mount: string, body: object): Promise<{ certificate: string; key: string; serial: string }> => {
    const { data } = await bao.call("POST", `${mount}/issue/any`, body);
    const { certificate, private_key: key, serial_number } = data as Record<string, string>;
    return { certificate: certificate ?? "", key: key ?? "", serial: String(serial_number) };
  };
  const ca = await mountPki("pki");
  await mountPki("strangers");
  const own = await issue("pki", { common_name: "localhost", ip_sans: "127.0.0.1" });
  const tls = { cert: own.certificate, key: own.key, ca };
  const shapeOf = (
    more: Pick<Shape, "credential" | "secrets" | "grants"> & { next?: () => Promise<Fields> },
  ): Shape => {
    const [seen, revoked] = [new Set<string>(), new Set<string>()];
    return {
      ...more,
      carriers: [],
      tls,
      admits: async (_, __, socket) => {
        const { authorized } = socket as TLSSocket;
        const serial = (socket as TLSSocket).getPeerCertificate().serialNumber;
        if (!authorized || revoked.has(serial)) return false;
        seen.add(serial);
        return true;
      },
      revoke: async () => {
        for (const serial of seen) revoked.add(serial);
        return await more.next?.();
      },
      granted: () => [],
      ...(more.grants === undefined ? {} : { grants: () => seen.size }),
    };
  };
  const fields = async (mount: string): Promise<Fields> => {
    const { certificate, key } = await issue(mount, { common_name: "postern" });
    return { certificate, key, ca };
  };
  return {
    mtls: shapeOf({
      credential: ({ at }) => ({ type: "mtls", certificate: at("certificate"), privateKey: at("key"), ca: at("ca") }),
      secrets: async () => ({ good: await fields("pki"), bad: await fields("strangers") }),
      next: () => fields("pki"),
    }),
    "mtls-issued": shapeOf({
      credential: ({ at, isWrong }) => ({
        type: "mtls",
        pki: { mount: "pki", role: isWrong ? "nobody" : "any", commonName: "postern" },
        ca: at("ca"),
      }),
      secrets: async () => ({ good: { ca }, bad: { ca } }),
      grants: () => 0,
    }),
  };
}

const names = [
  "bearer",
  "header",
  "basic",
  "basic-named",
  "basic-key",
  "headers",
  "per-caller",
  "oauth-basic",
  "oauth-issuer",
  "oauth-post",
  "oauth-key",
  "oauth-refresh",
  "token-exchange",
  "jwt-bearer",
  "github-app",
  "identity",
  "dynamic",
  "mtls",
  "mtls-issued",
];

/** The agent is one person, whom relay and gateway each verify. */
const [relayAudience, edgeAudience] = ["urn:relay", "urn:edge"];
const claims = { sub: "alice", aud: [relayAudience, edgeAudience], exp: Math.floor(Date.now() / 1_000) + 3_600 };

const policy = `
  path "secret/data/mcp/*" { capabilities = ["create", "read", "update"] }
  path "identity/oidc/token/postern" { capabilities = ["read"] }
  path "ssh/creds/postern" { capabilities = ["update"] }
  path "pki/issue/any" { capabilities = ["update"] }`;

describe.skipIf(binary === undefined)("every shape of credential, against real parts", () => {
  const shapes: Record<string, Shape> = {};
  const upstreams: Record<string, LeakyUpstream> = {};
  /** Every secret there has been, to be looked for. */
  const secrets: Record<string, string> = {};
  let bao: Bao;
  let oauth: OAuthServer;
  let agents: TestIssuer;
  let agentToken: string;
  let github: TokenEndpoint;
  let stack: Stack;

  /** Keys are looked for by a line of theirs, since no one line holds all of one. */
  const remember = (prefix: string, fields: Readonly<Record<string, string>>): void => {
    for (const [field, value] of Object.entries(fields)) {
      if (value.includes("PRIVATE KEY")) secrets[`${prefix} ${field}`] = value.split("\n")[3] ?? "";
      else if (value.includes("BEGIN")) continue;
      else if (value.length > 20) secrets[`${prefix} ${field}`] = value;
    }
  };

  const write = async (name: string, server: string, fields: Fields): Promise<void> => {
    remember(server, fields);
    await bao.putSecret("secret", `mcp/${server}${shapes[name]?.below ?? ""}`, fields);
  };

  beforeAll(async () => {
    bao = await startBao(binary ?? "");
    agents = await new TestIssuer().start();
    const subjects = { issuer: agents.url, jwksUrl: agents.jwksUrl, audience: edgeAudience };
    oauth = await startOAuthServer({ subjects });
    github = await TokenEndpoint.start();
    Object.assign(shapes, staticShapes(), oauthShapes(oauth), { "github-app": githubShape(github) });
    Object.assign(shapes, { identity: await identityShape(bao), dynamic: await dynamicShape(bao) });
    Object.assign(shapes, await certificateShapes(bao), {
      "per-caller": perCallerShape(`oauth:${agents.url}#${claims.sub}`),
    });
    expect(Object.keys(shapes).sort()).toEqual(names.toSorted());
    const servers: Record<string, object> = {};
    for (const name of names) {
      const shape = shapes[name]!;
      const upstream = await startLeakyUpstream({
        admits: (headers, socket) => shape.admits(headers, upstreams[name]?.url ?? "", socket),
        carriers: shape.carriers,
        tls: shape.tls,
      });
      upstreams[name] = upstream;
      const resource = upstream.url;
      const { good, bad } = await shape.secrets(resource);
      for (const isWrong of [false, true]) {
        const server = isWrong ? `${name}-wrong` : name;
        const at: At = (field) => ({ vault: { mount: "secret", path: `mcp/${server}`, field } });
        await write(name, server, isWrong ? bad : good);
        servers[server] = { url: resource, credential: shape.credential({ at, resource, isWrong }) };
      }
    }
    const { roleId, secretId } = await bao.enableApprole(policy);
    Object.assign(secrets, { "vault root token": bao.rootToken, "approle secret id": secretId });
    const auth = { method: "approle", roleId, secretId: { file: "./secret-id" } };
    stack = await startStack({
      vault: { address: bao.address, auth },
      secretFiles: { "secret-id": secretId },
      servers,
      policy: Object.fromEntries(Object.keys(servers).map((name) => [name, { tools: ["echo", "leak_*"] }])),
      gatewayYaml: { agents: { verify: "edge", issuers: [{ issuer: agents.url, audience: edgeAudience }] } },
    });
    await admitIssuer(stack, { issuer: agents.url, audience: relayAudience });
    agentToken = await agents.token({ claims });
    secrets["agent token"] = agentToken;
  });

  afterAll(async () => {
    await stack?.stop();
    for (const upstream of Object.values(upstreams)) await upstream.close();
    await github?.stop();
    await oauth?.close();
    await agents?.close();
    await bao?.stop();
  });

  const echo = (server: string, value = "hello") => callTool(stack.agentUrl(server), agentToken, "echo", { value });
  const logOf = (server: string): string[] =>
    (stack.gateway()?.stderr() ?? "").split("\n").filter((line) => line.includes(`"server":"${server}"`));
  const allSecrets = (): Record<string, string> => {
    const tokens = [...names.flatMap((name) => shapes[name]!.granted()), ...oauth.granted];
    return { ...secrets, ...Object.fromEntries(tokens.map((token, i) => [`token ${i}`, token])) };
  };

  describe.each(names)("%s", (name) => {
    it("C24 lets the official client in, of either era, and the agent's own token stays outside", async () => {
      for (const kind of ["v1", "v2 auto"] as const) {
        const client = await connectClient(kind, { url: stack.agentUrl(name), bearer: agentToken });
        expect((await client.listTools()).tools.map((tool) => tool.name)).toEqual(["echo"]);
        const answer = await client.callTool("echo", { value: `by ${kind}` });
        expect(answer.content).toEqual([{ type: "text", text: `by ${kind}` }]);
        await client.close();
      }
      const { recorded } = upstreams[name]!;
      expect(recorded.length).toBeGreaterThan(4);
      expect(findLeaks([{ name: "server", text: JSON.stringify(recorded) }], { agentToken })).toEqual([]);
    });

    it("C26 ten calls after a revocation: all succeed, by one new credential", async () => {
      await echo(name);
      const shape = shapes[name]!;
      const before = shape.grants?.();
      const written = await shape.revoke();
      if (written !== undefined) await write(name, name, written);
      const { recorded } = upstreams[name]!;
      const first = recorded.length;
      const answers = await Promise.all(Array.from({ length: 10 }, (_, i) => echo(name, `call ${i}`)));
      expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 10 }, () => 200));
      expect(answers.map(({ text }, i) => text.includes(`call ${i}`))).toEqual(Array.from({ length: 10 }, () => true));
      const requests = recorded.length - first;
      expect(requests, "each call was made once or, where it met the refusal, twice").toBeLessThanOrEqual(20);
      expect(requests, "some met it").toBeGreaterThan(10);
      expect(shape.grants?.()).toBe(before === undefined ? undefined : before + 1);
    });

    it("C25 a wrong secret: 502 without detail, and the log says whose it is and what to do", async () => {
      const server = `${name}-wrong`;
      const { recorded } = upstreams[name]!;
      const before = recorded.length;
      const answer = await echo(server);
      expect(answer.status).toBe(502);
      expect(answer.json().error?.code).toBe(shapes[name]!.grants !== undefined ? -33_020 : -33_021);
      expect(answer.headers.get("www-authenticate")).toBeNull();
      expect(answer.text).not.toMatch(/vault|secret\/|mcp\/|127\.0\.0\.1|invalid_|issuer|token endpoint/i);
      if (shapes[name]!.grants !== undefined) expect(recorded.length, "its server was not called").toBe(before);
      const cures = () => logOf(server).filter((line) => line.includes('"cure"'));
      await until(() => cures().length > 0, `a line with a cure: ${logOf(server).join("\n")}`);
    });

    it.each(Object.keys(leaks))("C24 its server shows it as %s: the agent sees nothing", async (way) => {
      const upstream = upstreams[name]!;
      const before = upstream.leaked.get(way) ?? 0;
      const answer = await callTool(stack.agentUrl(name), agentToken, `leak_${way}`).catch((error: unknown) => error);
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
    expect(findLeaks(outputs, allSecrets())).toEqual([]);
  });
});

/** JSON escapes undone, which no agent fails to do. */
function decoded(text: string): string {
  return text.replaceAll(/\\u([0-9a-f]{4})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}
