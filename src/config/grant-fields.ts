import { z } from "zod";
import { address } from "./addresses.ts";
import { filePath, scalar, section, textField } from "./fields.ts";
import { type Source, source, vaultPath } from "./source.ts";
import { issuer, plainText } from "./token-fields.ts";

/** Credentials whose secret buys an access token at an endpoint (DESIGN 4.2). */

export type GrantSettings = ClientCredentialsSettings | RefreshTokenSettings | JwtBearerSettings | GithubAppSettings;

interface ClientCredentialsSettings {
  readonly type: "oauthClientCredentials";
  readonly at: { readonly tokenEndpoint: string } | { readonly issuer: string };
  readonly ca: string | undefined;
  readonly clientId: string | Source;
  readonly client:
    | { readonly auth: "basic" | "post"; readonly secret: Source }
    | { readonly auth: "privateKeyJwt"; readonly privateKey: Source; readonly keyId: string };
  readonly scope: string | undefined;
  readonly resource: string | undefined;
  readonly audience: string | undefined;
}

interface RefreshTokenSettings {
  readonly type: "oauthRefreshToken";
  readonly at: { readonly tokenEndpoint: string } | { readonly issuer: string };
  readonly ca: string | undefined;
  readonly clientId: string | Source;
  /** Undefined: a public client. */
  readonly client: { readonly auth: "basic" | "post"; readonly secret: Source } | undefined;
  readonly record: { readonly vault: { readonly mount: string; readonly path: string } };
  readonly scope: string | undefined;
  readonly resource: string | undefined;
}

interface JwtBearerSettings {
  readonly type: "jwtBearer";
  readonly tokenEndpoint: string;
  readonly ca?: string | undefined;
  readonly privateKey: Source;
  readonly keyId?: string | undefined;
  readonly claims: { readonly iss: string; readonly sub?: string | undefined; readonly aud?: string | undefined };
  readonly scope?: string | undefined;
}

interface GithubAppSettings {
  readonly type: "githubApp";
  readonly appId: string;
  readonly installationId: string;
  readonly privateKey: Source;
  readonly apiUrl?: string | undefined;
  readonly ca?: string | undefined;
  readonly permissions?: Readonly<Record<string, "read" | "write" | "admin">> | undefined;
  readonly repositories?: readonly string[] | undefined;
}

interface ClientKeys {
  readonly clientSecret?: Source | undefined;
  readonly privateKey?: Source | undefined;
  readonly keyId?: string | undefined;
  readonly clientAuth?: "basic" | "post" | "privateKeyJwt" | undefined;
}

/** What is wrong with keys that are right one by one: where, and what to write. */
interface Clash {
  readonly key: string;
  readonly message: string;
  readonly cure: string;
}

export function clientCredentials(base: string) {
  return section({
    type: z.literal("oauthClientCredentials"),
    ...whatIsAsked(base),
    clientSecret: source(base).optional(),
    privateKey: source(base).optional(),
    keyId: plainText("keyId: key-1").optional(),
    clientAuth: z.enum(["basic", "post", "privateKeyJwt"]).optional(),
  }).transform((file, ctx): ClientCredentialsSettings => {
    const { type, tokenEndpoint, issuer, ca, clientId, scope, resource, audience } = file;
    const client = clientOf(file);
    const at = placeOf(tokenEndpoint, issuer);
    for (const clash of [at, client]) if ("message" in clash) report(clash, ctx);
    if ("message" in at || "message" in client) return z.NEVER;
    return { type, at, ca, clientId, client, scope, resource, audience };
  });
}

export function refreshToken(base: string) {
  return section({
    type: z.literal("oauthRefreshToken"),
    tokenEndpoint: endpoint().optional(),
    issuer: issuer().optional(),
    ca: filePath(base).optional(),
    clientId: z.union([plainText("clientId: postern"), source(base)]) as z.ZodType<string | Source, unknown>,
    clientSecret: source(base).optional(),
    clientAuth: z.enum(["basic", "post"]).optional(),
    record: section({ vault: section({ mount: vaultPath(), path: vaultPath() }) }),
    scope: scopes().optional(),
    resource: resourceUri().optional(),
  }).transform((file, ctx): RefreshTokenSettings => {
    const { type, tokenEndpoint, issuer, ca, clientId, clientSecret, clientAuth, record, scope, resource } = file;
    const at = placeOf(tokenEndpoint, issuer);
    if ("message" in at) report(at, ctx);
    if (clientSecret === undefined && clientAuth !== undefined) {
      const cure = "the file without it, for a public client";
      report({ key: "clientAuth", message: "{} needs a `clientSecret`", cure }, ctx);
    }
    if ("message" in at) return z.NEVER;
    const client = clientSecret === undefined ? undefined : { auth: clientAuth ?? "basic", secret: clientSecret };
    return { type, at, ca, clientId, client, record, scope, resource };
  });
}

/** A client that proves itself by a JWT which Vault signs: all that names it, and no secret. */
export type AssertionSettings = Omit<ClientCredentialsSettings, "client">;

export function assertedClient(base: string) {
  return section({
    type: z.literal("oauthClientCredentials"),
    ...whatIsAsked(base),
  }).transform((file, ctx): AssertionSettings => {
    const { type, tokenEndpoint, issuer, ca, clientId, scope, resource, audience } = file;
    const at = placeOf(tokenEndpoint, issuer);
    if (!("message" in at)) return { type, at, ca, clientId, scope, resource, audience };
    report(at, ctx);
    return z.NEVER;
  });
}

/** Where a token is bought, by whom, and for what. */
function whatIsAsked(base: string) {
  return {
    tokenEndpoint: endpoint().optional(),
    issuer: issuer().optional(),
    ca: filePath(base).optional(),
    clientId: z.union([plainText("clientId: postern"), source(base)]) as z.ZodType<string | Source, unknown>,
    scope: scopes().optional(),
    resource: resourceUri().optional(),
    audience: plainText("audience: https://tickets.internal").optional(),
  };
}

export function jwtBearer(base: string) {
  return section({
    type: z.literal("jwtBearer"),
    tokenEndpoint: endpoint(),
    ca: filePath(base).optional(),
    privateKey: source(base),
    keyId: plainText("keyId: key-1").optional(),
    claims: section({
      iss: plainText("iss: postern@project.example.com"),
      sub: plainText("sub: alice@example.com").optional(),
      aud: plainText("aud: https://idp.example.com/token").optional(),
    }),
    scope: scopes().optional(),
  });
}

export function githubApp(base: string) {
  const right = z.enum(["read", "write", "admin"]);
  return section({
    type: z.literal("githubApp"),
    appId: idOrNumber("appId: 12345"),
    installationId: idOrNumber("installationId: 67890"),
    privateKey: source(base),
    apiUrl: endpoint().optional(),
    ca: filePath(base).optional(),
    permissions: z
      .record(z.string().meta({ pattern: rightName.source }), right)
      .refine((map) => Object.keys(map).every((name) => rightName.test(name)), {
        message: "{} has a name that is none of a right",
        params: { cure: "permissions: { issues: read, pull_requests: write }" },
      })
      .optional(),
    repositories: z.array(repositoryName()).min(1).optional(),
  });
}

const rightName = /^[a-z][a-z_]{0,63}$/;

/** GitHub's ids are numbers, which people write with or without quotes; apps have a client id besides. */
function idOrNumber(example: string): z.ZodType<string, unknown> {
  const pattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
  return scalar({ anyOf: [{ type: "integer" }, { type: "string", pattern: pattern.source }] }, (raw, fail) => {
    const id = typeof raw === "number" && Number.isSafeInteger(raw) && raw > 0 ? String(raw) : raw;
    return typeof id === "string" && pattern.test(id) ? id : fail("{} is no id", example);
  });
}

function repositoryName() {
  return textField({ pattern: "^[A-Za-z0-9._-]{1,100}$" }, (raw, fail) => {
    if (/^[A-Za-z0-9._-]{1,100}$/.test(raw)) return raw;
    return fail("{} must be the name of a repository, without its owner", raw.split("/").at(-1) || "tickets");
  });
}

export function report({ key, message, cure }: Clash, ctx: z.RefinementCtx): void {
  ctx.addIssue({ code: "custom", message, path: [key], params: { cure } });
}

export function placeOf(
  tokenEndpoint: string | undefined,
  issuer: string | undefined,
): { readonly tokenEndpoint: string } | { readonly issuer: string } | Clash {
  if (tokenEndpoint === undefined) {
    if (issuer !== undefined) return { issuer };
    const cure = "tokenEndpoint: https://idp.example.com/token, or issuer: https://idp.example.com";
    return { key: "tokenEndpoint", message: "missing", cure };
  }
  if (issuer === undefined) return { tokenEndpoint };
  return { key: "issuer", message: "{} stands beside `tokenEndpoint`", cure: "one of the two" };
}

const eitherProof = "clientSecret: { file: PATH }, or privateKey: { file: PATH } and keyId: key-1";

function clientOf({
  clientSecret,
  privateKey,
  keyId,
  clientAuth,
}: ClientKeys): ClientCredentialsSettings["client"] | Clash {
  if (privateKey === undefined) {
    if (clientSecret === undefined) return { key: "clientSecret", message: "missing", cure: eitherProof };
    if (keyId !== undefined)
      return { key: "keyId", message: "{} belongs to a `privateKey`", cure: "the file without it" };
    if (clientAuth !== "privateKeyJwt") return { auth: clientAuth ?? "basic", secret: clientSecret };
    return { key: "clientAuth", message: "{} needs a `privateKey`", cure: "clientAuth: basic, or post" };
  }
  if (clientSecret !== undefined) {
    return { key: "privateKey", message: "{} stands beside `clientSecret`", cure: "one of the two" };
  }
  if (keyId === undefined) return { key: "keyId", message: "missing", cure: "" };
  if (clientAuth === undefined || clientAuth === "privateKeyJwt") return { auth: "privateKeyJwt", privateKey, keyId };
  return { key: "clientAuth", message: "{} needs a `clientSecret`", cure: "clientAuth: privateKeyJwt" };
}

export function endpoint() {
  return address({ schemes: ["https", "http"], isPlainLocal: true, hasPath: true });
}

/** RFC 8707, section 2. Stays as it was written: servers compare it with what they call themselves. */
export function resourceUri() {
  return textField({ minLength: 1 }, (raw, fail) => {
    const isUri = /^[A-Za-z][A-Za-z0-9+.-]*:[\x21-\x7e]+$/.test(raw) && !raw.includes("#") && URL.canParse(raw);
    return isUri ? raw : fail("{} is no absolute URI without fragment", "resource: https://tickets.internal/mcp");
  });
}

/** RFC 6749, section 3.3. */
export function scopes() {
  const pattern = /^[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*$/;
  return textField({ pattern: pattern.source }, (raw, fail) => {
    return pattern.test(raw)
      ? raw
      : fail("{} must be scopes with one space between them", 'scope: "mcp:read mcp:write"');
  });
}
