/**
 * A real authorization server, `oidc-provider`, on loopback: what it signs, rotates, revokes and refuses is its own doing.
 * Ours are the two grants it has not (RFC 7523 and RFC 8693) and the resource server's half, `admits`.
 */
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import {
  createLocalJWKSet,
  createRemoteJWKSet,
  decodeJwt,
  exportJWK,
  generateKeyPair,
  type JSONWebKeySet,
  jwtVerify,
} from "jose";
import type { Configuration, KoaContextWithOIDC, Provider } from "oidc-provider";
import { mintSecret } from "./vault-backed.ts";

export interface SecretClient {
  readonly id: string;
  readonly secret: string;
}

export interface KeyClient {
  readonly id: string;
  readonly keyId: string;
  /** PKCS #8. */
  readonly pem: string;
}

/** Who may ask, each for one kind of grant. */
export interface OAuthClients {
  readonly basic: SecretClient;
  readonly post: SecretClient;
  readonly key: KeyClient;
  /** A service account: its assertion is the grant (RFC 7523). */
  readonly service: KeyClient;
  readonly rotating: SecretClient;
  readonly exchanger: SecretClient;
}

/** One request to the token endpoint, without anything secret in it. */
export interface TokenRequest {
  readonly clientId: string;
  readonly grantType: string;
  readonly clientAuth: "basic" | "post" | "assertion" | "none";
  readonly resource: string | undefined;
  readonly status: number;
}

export interface OAuthServer {
  readonly issuer: string;
  readonly tokenEndpoint: string;
  readonly clients: OAuthClients;
  readonly asked: readonly TokenRequest[];
  /** Every token it has granted: access tokens and refresh tokens. */
  readonly granted: readonly string[];
  /** How often `clientId` was granted a token. */
  grants(clientId: string): number;
  /** A refresh token of `rotating`, as if a person had consented in a browser. */
  seedRefreshToken(resource: string): Promise<string>;
  /** What a resource server does with a token: signature, issuer, audience, life and revocation. Undefined: refused. */
  admits(token: string, resource: string): Promise<{ readonly clientId: string; readonly subject: string } | undefined>;
  revoke(token: string): Promise<void>;
  close(): Promise<void>;
}

export interface OAuthServerOptions {
  /** Life of access tokens; default one hour. */
  readonly accessTokenTtlS?: number;
  /** Whose tokens may be exchanged (RFC 8693). */
  readonly subjects?: { readonly issuer: string; readonly jwksUrl: string; readonly audience: string };
}

/** Tokens for it are references, which only the server itself can explain (RFC 7662). Others are JWTs (RFC 9068). */
export const opaqueResource = "https://opaque.test/mcp";
const jwtBearer = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const tokenExchange = "urn:ietf:params:oauth:grant-type:token-exchange";
const scope = "mcp";
const defaultTtlS = 3600;

export async function startOAuthServer(options: OAuthServerOptions = {}): Promise<OAuthServer> {
  const http = createServer();
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const issuer = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  const [key, service] = [mintKeyClient("by-key"), mintKeyClient("service-account")];
  const clients: OAuthClients = {
    basic: mintClient("by-basic"),
    post: mintClient("by-post"),
    key,
    service,
    rotating: mintClient("rotating"),
    exchanger: mintClient("exchanger"),
  };
  const introspector = mintClient("resource-server");
  const ttlS = options.accessTokenTtlS ?? defaultTtlS;
  const provider = await createProvider(issuer, await configure(clients, introspector, ttlS));
  const tokenEndpoint = `${issuer}/token`;
  const keys = createLocalJWKSet(service.jwks);
  provider.registerGrantType(jwtBearer, (ctx) => grantByAssertion(ctx, keys, tokenEndpoint), ["assertion", "scope"]);
  const { subjects } = options;
  if (subjects !== undefined) registerExchange(provider, subjects);
  const asked: TokenRequest[] = [];
  const granted: string[] = [];
  record(provider, asked, granted);
  const answer = provider.callback();
  http.on("request", (req, res) => void answer(req, res));
  const post = (path: string, form: Record<string, string>): Promise<Response> =>
    fetch(issuer + path, {
      method: "POST",
      headers: { authorization: basicOf(introspector) },
      body: new URLSearchParams(form),
    });
  const guard = new ResourceServer(issuer, post);
  return {
    issuer,
    tokenEndpoint,
    clients,
    asked,
    granted,
    grants: (clientId) => asked.filter((one) => one.clientId === clientId && one.status === 200).length,
    seedRefreshToken: async (resource) => {
      const token = await seedGrant(provider, clients.rotating.id, resource);
      granted.push(token);
      return token;
    },
    admits: (token, resource) => guard.admits(token, resource),
    revoke: (token) => guard.revoke(token),
    close: async () => {
      http.closeAllConnections();
      await new Promise((resolve) => http.close(resolve));
    },
  };
}

/** It warns of Node 20, on which the few things used here work, and of a store in memory, which is what a test wants. */
async function createProvider(issuer: string, configuration: Configuration): Promise<Provider> {
  const warn = console.warn;
  console.warn = (...words: unknown[]) => {
    if (!String(words[0]).startsWith("oidc-provider WARNING:")) warn(...words);
  };
  try {
    const { Provider: Implementation } = await import("oidc-provider");
    return new Implementation(issuer, configuration);
  } finally {
    console.warn = warn;
  }
}

async function configure(clients: OAuthClients, introspector: SecretClient, ttlS: number): Promise<Configuration> {
  const { privateKey } = await generateKeyPair("RS256", { extractable: true });
  const { basic, post, key, service, rotating, exchanger } = clients;
  const plain = { redirect_uris: [], response_types: [] };
  const bySecret = (client: SecretClient, method: "client_secret_basic" | "client_secret_post", grants: string[]) => ({
    ...plain,
    client_id: client.id,
    client_secret: client.secret,
    token_endpoint_auth_method: method,
    grant_types: grants,
  });
  return {
    clients: [
      bySecret(basic, "client_secret_basic", ["client_credentials"]),
      bySecret(post, "client_secret_post", ["client_credentials"]),
      bySecret(introspector, "client_secret_basic", []),
      bySecret(exchanger, "client_secret_basic", [tokenExchange]),
      {
        ...bySecret(rotating, "client_secret_basic", ["authorization_code", "refresh_token"]),
        redirect_uris: ["https://client.test/callback"],
        response_types: ["code"],
      },
      {
        ...plain,
        client_id: key.id,
        token_endpoint_auth_method: "private_key_jwt",
        grant_types: ["client_credentials"],
        jwks: (key as MintedKey).jwks,
      },
      { ...plain, client_id: service.id, token_endpoint_auth_method: "none", grant_types: [jwtBearer] },
    ],
    jwks: { keys: [{ ...(await exportJWK(privateKey)), alg: "RS256", use: "sig", kid: "server" }] },
    cookies: { keys: [randomBytes(16).toString("hex")] },
    scopes: ["openid", "offline_access", scope],
    rotateRefreshToken: true,
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    ttl: { AccessToken: ttlS, ClientCredentials: ttlS, RefreshToken: 86_400, Grant: 86_400 },
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      introspection: { enabled: true, allowedPolicy: () => true },
      revocation: { enabled: true, allowedPolicy: () => true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => opaqueResource,
        useGrantedResource: () => true,
        getResourceServerInfo: (_, resource) => ({
          scope,
          audience: resource,
          accessTokenTTL: ttlS,
          accessTokenFormat: resource === opaqueResource ? "opaque" : "jwt",
        }),
      },
    },
  };
}

/**
 * Notes each request. An assertion says who asks, so a `client_id` beside it is optional (RFC 7521, 4.1), which the provider
 * does not know: it gets one from here.
 */
function record(provider: Provider, asked: TokenRequest[], granted: string[]): void {
  provider.use(async (ctx, next) => {
    if (ctx.path !== "/token") return await next();
    const form = new URLSearchParams(await text(ctx.req));
    const assertion = form.get("assertion");
    if (assertion !== null && !form.has("client_id")) form.set("client_id", issuerOf(assertion));
    const body = Buffer.from(form.toString());
    ctx.req.headers["content-length"] = String(body.length);
    Object.assign(ctx, { req: Readable.from([body]) });
    const header = ctx.get("authorization");
    await next();
    asked.push({
      clientId: form.get("client_id") ?? basicUser(header) ?? issuerOf(form.get("client_assertion") ?? ""),
      grantType: form.get("grant_type") ?? "",
      clientAuth: authOf(header, form),
      resource: form.get("resource") ?? undefined,
      status: ctx.status,
    });
    const answer = ctx.body as { access_token?: unknown; refresh_token?: unknown } | undefined;
    for (const token of [answer?.access_token, answer?.refresh_token])
      if (typeof token === "string") granted.push(token);
  });
}

function authOf(header: string, form: URLSearchParams): TokenRequest["clientAuth"] {
  if (header !== "") return "basic";
  if (form.has("client_assertion")) return "assertion";
  return form.has("client_secret") ? "post" : "none";
}

function basicUser(header: string): string | undefined {
  const user = Buffer.from(header.slice("Basic ".length), "base64").toString().split(":")[0];
  return header === "" || user === undefined ? undefined : decodeURIComponent(user);
}

function issuerOf(jwt: string): string {
  try {
    return decodeJwt(jwt).iss ?? "";
  } catch {
    return "";
  }
}

type GrantContext = KoaContextWithOIDC & { readonly oidc: { readonly provider: Provider } };

/** RFC 7523, 2.1 and 3. */
async function grantByAssertion(
  ctx: GrantContext,
  keys: ReturnType<typeof createLocalJWKSet>,
  audience: string,
): Promise<void> {
  const { provider, params } = ctx.oidc;
  const client = clientOf(ctx);
  const claims = await verified(() =>
    jwtVerify(String(params?.["assertion"]), keys, {
      issuer: client.clientId,
      audience,
      requiredClaims: ["exp", "iat", "jti"],
      maxTokenAge: "10 min",
    }),
  );
  const { jti = "", exp = 0, sub = client.clientId } = claims;
  const isNew = await provider.ReplayDetection.unique(client.clientId, jti, exp);
  if (!isNew) throw await invalidGrant();
  await grantFor(ctx, sub, opaqueResource);
}

/** RFC 8693: the subject's token shows whom the new one is for. */
function registerExchange(provider: Provider, subjects: NonNullable<OAuthServerOptions["subjects"]>): void {
  const keys = createRemoteJWKSet(new URL(subjects.jwksUrl));
  const { issuer, audience } = subjects;
  const parameters = [
    "subject_token",
    "subject_token_type",
    "requested_token_type",
    "resource",
    "audience",
    "scope",
    "actor_token",
    "actor_token_type",
  ];
  provider.registerGrantType(
    tokenExchange,
    async (ctx) => {
      const { params } = ctx.oidc;
      const token = String(params?.["subject_token"]);
      const claims = await verified(() => jwtVerify(token, keys, { issuer, audience, requiredClaims: ["exp"] }));
      if (claims.sub === undefined) throw await invalidGrant();
      await grantFor(ctx, claims.sub, String(params?.["resource"] ?? params?.["audience"]));
      Object.assign(ctx.body as object, { issued_token_type: "urn:ietf:params:oauth:token-type:access_token" });
    },
    parameters,
  );
}

type Claims = ReturnType<typeof decodeJwt>;

async function verified(verify: () => Promise<{ payload: Claims }>): Promise<Claims> {
  try {
    return (await verify()).payload;
  } catch {
    throw await invalidGrant();
  }
}

async function invalidGrant(): Promise<Error> {
  const { errors } = await import("oidc-provider");
  return new errors.InvalidGrant("the assertion is not good");
}

function clientOf(ctx: GrantContext) {
  const { client } = ctx.oidc;
  if (client === undefined) throw new Error("no client");
  return client;
}

/** An access token that says `subject`, for one resource. */
async function grantFor(ctx: GrantContext, subject: string, resource: string): Promise<void> {
  const { provider } = ctx.oidc;
  const info = {
    scope,
    audience: resource,
    accessTokenFormat: resource === opaqueResource ? "opaque" : "jwt",
  } as const;
  const token = new provider.AccessToken({
    accountId: subject,
    client: clientOf(ctx),
    gty: "assertion",
    scope,
    resourceServer: new provider.ResourceServer(resource, info),
  } as never);
  const value = await token.save();
  ctx.body = { access_token: value, token_type: "Bearer", expires_in: token.expiration, scope };
}

async function seedGrant(provider: Provider, clientId: string, resource: string): Promise<string> {
  const client = await provider.Client.find(clientId);
  if (client === undefined) throw new Error(`no client ${clientId}`);
  const accountId = "somebody";
  const grant = new provider.Grant({ accountId, clientId });
  grant.addResourceScope(resource, scope);
  const grantId = await grant.save();
  const token = new provider.RefreshToken({
    accountId,
    client,
    grantId,
    gty: "authorization_code",
    resource,
    scope: `offline_access ${scope}`,
  } as never);
  return await token.save();
}

type Post = (path: string, form: Record<string, string>) => Promise<Response>;

/** How the servers behind the gateway look at a token. */
class ResourceServer {
  readonly #issuer: string;
  readonly #post: Post;
  readonly #keys: ReturnType<typeof createRemoteJWKSet>;
  /** A JWT stands for itself, so its revocation is the resource server's to remember. */
  readonly #revoked = new Set<string>();

  constructor(issuer: string, post: Post) {
    this.#issuer = issuer;
    this.#post = post;
    this.#keys = createRemoteJWKSet(new URL(`${issuer}/jwks`));
  }

  async admits(token: string, resource: string): Promise<{ clientId: string; subject: string } | undefined> {
    return token.split(".").length === 3
      ? await this.#verify(token, resource)
      : await this.#introspect(token, resource);
  }

  async #verify(token: string, resource: string) {
    const wanted = { issuer: this.#issuer, audience: resource, typ: "at+jwt", requiredClaims: ["exp", "jti"] };
    try {
      const { payload } = await jwtVerify(token, this.#keys, wanted);
      if (this.#revoked.has(String(payload.jti))) return undefined;
      return { clientId: String(payload["client_id"]), subject: String(payload.sub) };
    } catch {
      return undefined;
    }
  }

  async #introspect(token: string, resource: string) {
    const answer = await this.#post("/token/introspection", { token });
    const told = (await answer.json()) as { active?: boolean; aud?: string; client_id?: string; sub?: string };
    if (told.active !== true || told.aud !== resource) return undefined;
    return { clientId: String(told.client_id), subject: String(told.sub) };
  }

  async revoke(token: string): Promise<void> {
    if (token.split(".").length === 3) this.#revoked.add(String(decodeJwt(token).jti));
    else await this.#post("/token/revocation", { token });
  }
}

function mintClient(id: string): SecretClient {
  return { id, secret: mintSecret(id) };
}

interface MintedKey extends KeyClient {
  readonly jwks: JSONWebKeySet;
}

function mintKeyClient(id: string): MintedKey {
  const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const keyId = `${id}-1`;
  const jwk = { ...publicKey.export({ format: "jwk" }), kid: keyId, alg: "RS256", use: "sig" };
  const pem = privateKey.export({ type: "pkcs8", format: "pem" }).toString();
  return { id, keyId, pem, jwks: { keys: [jwk] } as JSONWebKeySet };
}

function basicOf({ id, secret }: SecretClient): string {
  return `Basic ${Buffer.from(`${encodeURIComponent(id)}:${encodeURIComponent(secret)}`).toString("base64")}`;
}
