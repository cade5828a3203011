/** Credentials that buy access tokens, against a scripted token endpoint on loopback. */
import { createPrivateKey } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import { exportJWK, exportPKCS8, generateKeyPair, jwtVerify } from "jose";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { loadGatewayConfig } from "../../src/config/index.ts";
import type { CredentialOptions } from "../../src/credentials/index.ts";
import { writeConfig } from "../config/traps.ts";
import { findLeaks } from "../support/canary.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { json, TokenEndpoint } from "../support/token-endpoint.ts";
import { until } from "../support/until.ts";
import { agent, type Harness, Opened, sentBy } from "./harness.ts";

const secret = "s3cret-of-the-client:with/odd+signs";
const hour = 3_600_000;

let clock: ManualClock;
let endpoint: TokenEndpoint;
const opened = new Opened();

beforeEach(async () => {
  clock = new ManualClock();
  endpoint = await TokenEndpoint.start();
});
afterEach(async () => {
  await opened.close();
  await endpoint.stop();
});

type Client = Extract<CredentialOptions, { type: "oauthClientCredentials" }>;

function client(more: Partial<Client> = {}): Client {
  return {
    type: "oauthClientCredentials",
    at: { tokenEndpoint: endpoint.url },
    clientId: "postern",
    client: { auth: "basic", secret: { env: "SECRET" } },
    ...more,
  };
}

function start(credential: CredentialOptions = client(), env: Record<string, string> = { SECRET: secret }): Harness {
  return opened.open({ servers: { a: credential }, env, clock });
}

describe("oauthClientCredentials", () => {
  it("buys a token by the client's secret as basic credentials", async () => {
    const harness = start(client({ scope: "mcp:read mcp:write", resource: "https://t.internal/mcp", audience: "t" }));
    expect(await harness.inject()).toEqual(["Authorization", "Bearer token-1"]);
    expect(harness.credentials.forServer("a").headerNames()).toEqual(["authorization"]);
    const { method, path, headers, form } = endpoint.only;
    expect([method, path, headers.accept]).toEqual(["POST", "/token", "application/json"]);
    expect(Object.fromEntries(form)).toEqual({
      grant_type: "client_credentials",
      scope: "mcp:read mcp:write",
      resource: "https://t.internal/mcp",
      audience: "t",
    });
    const [name, password] = Buffer.from(String(headers.authorization).slice(6), "base64").toString().split(":");
    expect([name, decodeURIComponent(String(password))]).toEqual(["postern", secret]);
  });

  it("has its secret looked for in answers, but not what is no secret or never sent", async () => {
    const sent = client({ clientId: { env: "ID" } });
    const { privateKey } = await generateKeyPair("ES256", { extractable: true });
    const signed = client({ client: { auth: "privateKeyJwt", privateKey: { env: "KEY" }, keyId: "k" } });
    for (const [options, env, texts] of [
      [sent, { SECRET: secret, ID: "client-id-9" }, ["token-1", secret]],
      [signed, { KEY: await exportPKCS8(privateKey) }, ["token-2"]],
    ] as const) {
      const injection = await start(options, env).credentials.forServer("a").inject(agent);
      expect(injection.secrets.map((one) => one.reveal())).toEqual(texts);
    }
  });

  it("sends the secret in the form when told so, and a client id that was read", async () => {
    const options = client({ clientId: { env: "ID" }, client: { auth: "post", secret: { env: "SECRET" } } });
    await start(options, { SECRET: secret, ID: "from-env" }).inject();
    const { headers, form } = endpoint.only;
    expect(headers.authorization).toBeUndefined();
    expect([form.get("client_id"), form.get("client_secret")]).toEqual(["from-env", secret]);
  });

  it.each(["RS256", "ES256", "EdDSA"])("signs an assertion with a key of %s", async (alg) => {
    const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
    const proof = { auth: "privateKeyJwt", privateKey: { env: "KEY" }, keyId: "key-1" } as const;
    for (const text of [await exportPKCS8(privateKey), JSON.stringify(await exportJWK(privateKey))]) {
      endpoint.asked.length = 0;
      await start(client({ client: proof }), { KEY: text }).inject();
      const { form, headers } = endpoint.only;
      expect(headers.authorization).toBeUndefined();
      expect(form.get("client_assertion_type")).toBe("urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
      const { payload, protectedHeader } = await jwtVerify(String(form.get("client_assertion")), publicKey);
      expect([payload.iss, payload.sub, payload.aud]).toEqual(["postern", "postern", endpoint.url]);
      expect(protectedHeader.kid).toBe("key-1");
    }
  });

  it.each([["/.well-known/oauth-authorization-server/tenant"], ["/tenant/.well-known/openid-configuration"]])(
    "finds the endpoint of an issuer by %s, once for an hour",
    async (place) => {
      const issuer = `${endpoint.base}/tenant`;
      endpoint.answer = (res, { path }) => {
        if (path === place) json(res, 200, { issuer, token_endpoint: `${endpoint.base}/t2` });
        else if (path === "/t2") endpoint.grant(res, { expires_in: 1800 });
        else json(res, 404, {});
      };
      const harness = start(client({ at: { issuer } }));
      expect(await harness.inject()).toEqual(["Authorization", "Bearer token-1"]);
      clock.advance(hour / 2);
      expect(await harness.inject()).toEqual(["Authorization", "Bearer token-2"]);
      expect(endpoint.asked.filter(({ path }) => path === place)).toHaveLength(1);
    },
  );

  it.each([
    ["another issuer", (base: string) => ({ issuer: `${base}/other`, token_endpoint: `${base}/token` })],
    [
      "an endpoint without TLS elsewhere",
      (base: string) => ({ issuer: base, token_endpoint: "http://192.0.2.1/token" }),
    ],
  ])("does not follow metadata that name %s", async (_, metadata) => {
    endpoint.answer = (res) => json(res, 200, metadata(endpoint.base));
    const failure = await start(client({ at: { issuer: endpoint.base } })).failure();
    expect(failure.code).toBe("endpoint-bad-answer");
    expect(endpoint.asked.every(({ method, form }) => method === "GET" && form.size === 0)).toBe(true);
  });

  it.each(["http://idp.internal/token", "ftp://127.0.0.1/token", "https://u:p@idp.internal/token", "idp"])(
    "refuses the address %s before anything is sent",
    (tokenEndpoint) => {
      expect(() => start(client({ at: { tokenEndpoint } }))).toThrow("address of a token endpoint");
    },
  );
});

describe("jwtBearer", () => {
  const claims = { iss: "svc@project.example.com", sub: "alice@example.com" };

  async function started(more: object = {}, alg = "RS256") {
    const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
    const options = { type: "jwtBearer", tokenEndpoint: endpoint.url, privateKey: { env: "KEY" }, claims, ...more };
    return { harness: start(options as CredentialOptions, { KEY: await exportPKCS8(privateKey) }), publicKey };
  }

  it("buys a token with an assertion and nothing else", async () => {
    const { harness, publicKey } = await started({ keyId: "key-1", scope: "drive.readonly" });
    expect(await harness.inject()).toEqual(["Authorization", "Bearer token-1"]);
    const { form, headers } = endpoint.only;
    expect([...form.keys()].sort()).toEqual(["assertion", "grant_type", "scope"]);
    expect(form.get("grant_type")).toBe("urn:ietf:params:oauth:grant-type:jwt-bearer");
    expect(headers.authorization).toBeUndefined();
    const currentDate = new Date(clock.wall());
    const { payload, protectedHeader } = await jwtVerify(String(form.get("assertion")), publicKey, { currentDate });
    const nowS = Math.floor(clock.wall() / 1_000);
    expect(payload).toEqual({
      ...claims,
      aud: endpoint.url,
      scope: "drive.readonly",
      iat: nowS,
      exp: nowS + 300,
      jti: expect.stringMatching(/^[0-9a-f-]{36}$/),
    });
    expect(protectedHeader).toEqual({ alg: "RS256", typ: "JWT", kid: "key-1" });
  });

  it("has no subject, scope or key id that was not configured, and the audience that was", async () => {
    const { harness, publicKey } = await started({ claims: { iss: "svc", aud: "https://idp.internal" } }, "ES256");
    await harness.inject();
    const { form } = endpoint.only;
    const currentDate = new Date(clock.wall());
    const { payload, protectedHeader } = await jwtVerify(String(form.get("assertion")), publicKey, { currentDate });
    expect(Object.keys(payload).sort()).toEqual(["aud", "exp", "iat", "iss", "jti"]);
    expect(payload.aud).toBe("https://idp.internal");
    expect(protectedHeader).toEqual({ alg: "ES256", typ: "JWT" });
    expect(form.has("scope")).toBe(false);
  });

  it("tries once more with a key that was rotated, and not with the same one", async () => {
    const { privateKey } = await generateKeyPair("ES256", { extractable: true });
    const folder = mkdtempSync(join(tmpdir(), "postern-grants-"));
    const file = join(folder, "key");
    writeFileSync(file, await exportPKCS8(privateKey), { mode: 0o600 });
    try {
      const options = { type: "jwtBearer", tokenEndpoint: endpoint.url, privateKey: { file }, claims } as const;
      const harness = start(options);
      endpoint.answer = (res) => endpoint.grant(res, { expires_in: 0 });
      await harness.inject();
      const younger = await generateKeyPair("ES256", { extractable: true });
      writeFileSync(file, await exportPKCS8(younger.privateKey));
      endpoint.answer = (res, { form }) => {
        void jwtVerify(String(form.get("assertion")), younger.publicKey, { currentDate: new Date(clock.wall()) }).then(
          () => endpoint.grant(res),
          () => json(res, 400, { error: "invalid_grant" }),
        );
      };
      // The file was read within the last second: the old key goes out first.
      expect((await harness.inject())[1]).toBe("Bearer token-2");
      expect(endpoint.asked).toHaveLength(3);
      endpoint.answer = (res) => json(res, 400, { error: "invalid_grant" });
      clock.advance(hour);
      expect((await harness.failure()).message).toContain("400 invalid_grant");
      expect(endpoint.asked).toHaveLength(4);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe("githubApp", () => {
  async function started(more: object = {}) {
    const { privateKey, publicKey } = await generateKeyPair("RS256", { extractable: true });
    const key = createPrivateKey(await exportPKCS8(privateKey)).export({ type: "pkcs1", format: "pem" });
    const options = {
      type: "githubApp",
      appId: "12345",
      installationId: "67890",
      privateKey: { env: "KEY" },
      apiUrl: `${endpoint.base}/api/v3/`,
      ...more,
    };
    return { harness: start(options as CredentialOptions, { KEY: String(key) }), publicKey };
  }

  function install(res: ServerResponse, token: string, lifeMs = hour, skewMs = 0): void {
    const now = clock.wall() + skewMs;
    const body = { token, expires_at: new Date(now + lifeMs).toISOString() };
    json(res, 201, body, { date: new Date(now).toUTCString() });
  }

  it("buys an installation token, of any length, with an assertion of the app", async () => {
    const token = `ghs_12345_${"x".repeat(600)}`;
    endpoint.answer = (res) => install(res, token);
    const { harness, publicKey } = await started({ permissions: { issues: "read" }, repositories: ["tickets"] });
    expect(await harness.inject()).toEqual(["Authorization", `Bearer ${token}`]);
    const { method, path, headers, body } = endpoint.only;
    expect([method, path]).toEqual(["POST", "/api/v3/app/installations/67890/access_tokens"]);
    expect(JSON.parse(body)).toEqual({ permissions: { issues: "read" }, repositories: ["tickets"] });
    expect([headers.accept, headers["user-agent"]]).toEqual(["application/vnd.github+json", "postern"]);
    const currentDate = new Date(clock.wall());
    const { payload } = await jwtVerify(String(headers.authorization).slice(7), publicKey, { currentDate });
    const nowS = Math.floor(clock.wall() / 1_000);
    expect(payload).toEqual({ iss: "12345", iat: nowS - 60, exp: nowS + 480 });
    expect(Number(payload.exp) - Number(payload.iat)).toBeLessThanOrEqual(600);
  });

  it("believes the server's clock about the end of a token", async () => {
    endpoint.answer = (res) => install(res, "ghs_one", hour, -2 * hour);
    const { harness } = await started();
    await harness.inject();
    clock.advance(hour - 70_000);
    await harness.inject();
    expect(endpoint.asked).toHaveLength(1);
  });

  it.each<[number, object, Record<string, string>, string, string]>([
    [401, { message: "secret-words-of-github" }, {}, "grant-denied", "401"],
    [403, { message: "secret-words-of-github" }, { "retry-after": "60" }, "endpoint-failing", "limits our rate"],
    [404, { message: "secret-words-of-github" }, {}, "grant-denied", "knows no installation 67890"],
    [422, { message: "secret-words-of-github" }, {}, "grant-denied", "422"],
    [502, { message: "secret-words-of-github" }, {}, "endpoint-failing", "502"],
    [201, { token: "secret-words-of-github" }, {}, "endpoint-bad-answer", "no token"],
    [
      201,
      { token: "secret-words of-github", expires_at: "2099-01-01T00:00:00Z" },
      {},
      "endpoint-bad-answer",
      "no token",
    ],
    [201, ["secret-words-of-github"], {}, "endpoint-bad-answer", "no token"],
  ])("explains %i with %j without quoting it", async (status, body, headers, code, words) => {
    endpoint.answer = (res) => json(res, status, body, headers);
    const { harness } = await started();
    const failure = await harness.failure();
    expect([failure.code, failure.message]).toEqual([code, expect.stringContaining(words)]);
    expect(inspect(failure, { depth: 9, showHidden: true }) + harness.lines.join("")).not.toContain("secret-words");
  });

  it("takes no key that GitHub would not take", async () => {
    const { privateKey } = await generateKeyPair("ES256", { extractable: true });
    const options = { type: "githubApp", appId: "1", installationId: "2", privateKey: { env: "KEY" } } as const;
    const harness = start({ ...options, apiUrl: endpoint.base }, { KEY: await exportPKCS8(privateKey) });
    expect((await harness.failure()).message).toContain("RSA keys only");
    expect(endpoint.asked).toEqual([]);
  });
});

describe("the life of a token", () => {
  it("C26 one request for ten calls, at the start and when the token has expired", async () => {
    const harness = start();
    const ten = (): Promise<(readonly string[])[]> => Promise.all(Array.from({ length: 10 }, () => harness.inject()));
    expect(new Set((await ten()).map(([, value]) => value))).toEqual(new Set(["Bearer token-1"]));
    expect(endpoint.asked).toHaveLength(1);
    clock.advance(hour);
    expect(new Set((await ten()).map(([, value]) => value))).toEqual(new Set(["Bearer token-2"]));
    expect(endpoint.asked).toHaveLength(2);
  });

  it.each([
    ["an hour", 3600, hour - 66_000],
    ["a minute and a half", 90, 57_000],
    ["a time that is not said", undefined, 5 * 60_000 - 66_000],
  ])("is renewed behind the calls before the end of %s", async (_, seconds, freshMs) => {
    endpoint.answer = (res) => endpoint.grant(res, { expires_in: seconds });
    const harness = start();
    const first = await harness.credentials.forServer("a").inject(agent);
    clock.advance(freshMs - 1);
    expect(harness.credentials.forServer("a").inject(agent)).toBe(first);
    expect(endpoint.asked).toHaveLength(1);
    clock.advance(1);
    expect(harness.credentials.forServer("a").inject(agent)).toBe(first);
    await until(async () => (await harness.inject())[1] === "Bearer token-2", "the younger token serves");
    expect(endpoint.asked).toHaveLength(2);
  });

  it("serves until it expires while the endpoint is away, and not beyond", async () => {
    const harness = start();
    await harness.inject();
    endpoint.answer = (res) => json(res, 503, {});
    clock.advance(hour - 60_000);
    await harness.inject();
    await until(() => harness.lines.some((line) => line.includes("older token serves")), "the warning");
    clock.advance(59_999);
    expect(await harness.inject()).toEqual(["Authorization", "Bearer token-1"]);
    clock.advance(10_000);
    expect((await harness.failure()).isAway).toBe(true);
    endpoint.answer = (res) => endpoint.grant(res);
    clock.advance(10_000);
    expect(await harness.inject()).toEqual(["Authorization", "Bearer token-2"]);
  });

  it("C26 a refused token is replaced once for all calls that meet the refusal, and not over and over", async () => {
    const credential = start().credentials.forServer("a");
    const first = await credential.inject(agent);
    const together = await Promise.all(Array.from({ length: 10 }, () => credential.refresh(first, agent)));
    expect(new Set(together.map(sentBy))).toEqual(new Set(["Bearer token-2"]));
    for (let i = 0; i < 20; i += 1) await credential.refresh(await credential.inject(agent), agent);
    expect(endpoint.asked).toHaveLength(2);
    clock.advance(10_000);
    expect(sentBy(await credential.refresh(await credential.inject(agent), agent))).toBe("Bearer token-3");
  });

  it("does not ask again at once after a failure", async () => {
    endpoint.answer = (res) => json(res, 400, { error: "invalid_scope" });
    const harness = start();
    for (let i = 0; i < 5; i += 1) expect((await harness.failure()).code).toBe("grant-denied");
    expect(endpoint.asked).toHaveLength(1);
  });
});

describe("an endpoint that gives no token", () => {
  const canary = "canary-of-the-token-endpoint";
  type Script = (res: ServerResponse) => void;

  it.each<[string, Script, string, string]>([
    [
      "400",
      (res) => json(res, 400, { error: "invalid_scope", error_description: canary }),
      "grant-denied",
      "400 invalid_scope",
    ],
    ["400 with words of its own", (res) => json(res, 400, { error: canary }), "grant-denied", "refused the grant: 400"],
    ["401", (res) => json(res, 401, { error: "invalid_client", x: canary }), "grant-denied", "401 invalid_client"],
    [
      "401 with a challenge",
      (res) => json(res, 401, { error: canary }, { "www-authenticate": `Basic realm="${canary}"` }),
      "grant-denied",
      "refused the grant: 401",
    ],
    ["404", (res) => json(res, 404, { x: canary }), "endpoint-bad-answer", "it answered 404"],
    ["429", (res) => json(res, 429, { x: canary }, { "retry-after": "7" }), "endpoint-failing", "limits our rate"],
    ["500", (res) => json(res, 500, { error: canary }), "endpoint-failing", "answered 500"],
    ["slow_down", (res) => json(res, 400, { error: "slow_down", x: canary }), "endpoint-failing", "answered 400"],
    [
      "a redirect",
      (res) => json(res, 307, {}, { location: `/elsewhere?${canary}` }),
      "endpoint-redirects",
      "redirects",
    ],
    ["200 with an error", (res) => json(res, 200, { error: canary }), "endpoint-bad-answer", "no token"],
    ["a token in HTML", (res) => res.end(`<p>${canary}</p>`), "endpoint-bad-answer", "no token"],
    [
      "broken JSON",
      (res) => res.setHeader("content-type", "application/json").end(`{"access_token":"${canary}`),
      "endpoint-bad-answer",
      "no token",
    ],
    [
      "a token type of another kind",
      (res) => endpoint.grant(res, { access_token: canary, token_type: "mac" }),
      "endpoint-bad-answer",
      "no token",
    ],
    [
      "a token bound to a key",
      (res) => endpoint.grant(res, { access_token: canary, token_type: "DPoP" }),
      "endpoint-bad-answer",
      "no token",
    ],
    [
      "a token that ends a header",
      (res) => endpoint.grant(res, { access_token: `${canary}\r\nX: y` }),
      "endpoint-bad-answer",
      "no token",
    ],
    [
      "a life that is no number",
      (res) => endpoint.grant(res, { access_token: canary, expires_in: "soon" }),
      "endpoint-bad-answer",
      "no token",
    ],
    [
      "too much",
      (res) => json(res, 200, { access_token: canary.repeat(20_000) }),
      "endpoint-bad-answer",
      "larger than 256 KiB",
    ],
    [
      "an encoding",
      (res) => json(res, 200, { access_token: canary }, { "content-encoding": "gzip" }),
      "endpoint-bad-answer",
      "encoded",
    ],
    ["a cut connection", (res) => res.destroy(), "endpoint-unreachable", "cannot be reached"],
  ])("is explained without a word of it: %s", async (_, script, code, words) => {
    endpoint.answer = (res) => void script(res);
    const harness = start();
    const failure = await harness.failure();
    expect([failure.code, failure.message]).toEqual([code, expect.stringContaining(words)]);
    expect(failure.message).toContain(`token endpoint ${endpoint.url}`);
    expect(failure.cause).toBeUndefined();
    expect(harness.lines.join("")).toContain("credential failed");
    const outputs = [
      { name: "error", text: inspect(failure, { depth: 9, showHidden: true }) + JSON.stringify(failure) },
      { name: "log", text: harness.lines.join("") },
    ];
    expect(findLeaks(outputs, { canary, secret })).toEqual([]);
    expect(endpoint.asked).toHaveLength(1);
  });

  it("is given up after ten seconds, and when the gateway stops", async () => {
    endpoint.answer = () => undefined;
    const slow = start().failure();
    await until(() => endpoint.asked.length === 1, "the request");
    clock.advance(10_000);
    expect((await slow).code).toBe("endpoint-timeout");
    const harness = start();
    const stopped = harness.failure();
    await until(() => endpoint.asked.length === 2, "the second request");
    await harness.credentials.close();
    expect((await stopped).code).toBe("closed");
    expect(clock.armed).toBe(0);
  });

  it("waits as long as it was asked to", async () => {
    endpoint.answer = (res) => json(res, 429, {}, { "retry-after": "7" });
    const harness = start();
    expect((await harness.failure()).retryAfterMs).toBe(7_000);
    clock.advance(6_999);
    await harness.failure();
    expect(endpoint.asked).toHaveLength(1);
    clock.advance(1);
    await harness.failure();
    expect(endpoint.asked).toHaveLength(2);
  });

  it.each([
    ["no key at all", "not-a-key-but-a-secret"],
    ["half a PEM", "-----BEGIN PRIVATE KEY-----\nnot-a-key-but-a-secret\n-----END PRIVATE KEY-----"],
    ["a JWK without its private half", '{"kty":"OKP","crv":"Ed25519","x":"not-a-key-but-a-secret"}'],
  ])("is not asked with %s", async (_, text) => {
    const proof = { auth: "privateKeyJwt", privateKey: { env: "KEY" }, keyId: "k" } as const;
    const failure = await start(client({ client: proof }), { KEY: text }).failure();
    expect(failure.code).toBe("value-invalid");
    expect(failure.message).toContain("environment variable KEY");
    expect(inspect(failure, { depth: 9 })).not.toContain("not-a-key");
    expect(endpoint.asked).toEqual([]);
  });
});

it("docs/credentials-oauth.md: every example loads and makes a credential", () => {
  const blocks = [
    ...readFileSync("docs/credentials-oauth.md", "utf8").matchAll(/```yaml\nservers:\n {2}(\w+):\n[\s\S]*?```/g),
  ];
  expect(blocks).toHaveLength(4);
  for (const [block, server = ""] of blocks) {
    const policy = `policy: { version: 1, servers: { ${server}: { tools: [a] } } }`;
    const vault = "vault: { address: https://v.internal, auth: { method: token, token: { env: T } } }";
    const relay = "relay: { url: wss://r.example.com, tunnel: acme, token: { env: R } }";
    const yaml = [relay, vault, policy, block.replaceAll(/```(?:yaml)?/g, "")].join("\n");
    const loaded = loadGatewayConfig(writeConfig("gateway.yaml", yaml));
    expect(loaded.kind === "bad" ? loaded.problems : loaded.warnings).toEqual([]);
    if (loaded.kind === "bad") return;
    const credential = loaded.config.servers[server]?.credential;
    const { vault: store } = loaded.config;
    if (store === undefined) throw new Error("no vault");
    const harness = opened.open({ servers: { [server]: credential }, vault: store, env: {}, clock });
    expect(harness.credentials.forServer(server).headerNames()).toEqual(["authorization"]);
  }
});
