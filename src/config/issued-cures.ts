import { type Expectation, sourceAt, text } from "./expectation.ts";
import type { Path } from "./tree.ts";

/** Types of credentials that are bought at an endpoint, whose `ca` is the path of a file. */
export const grantTypes: ReadonlySet<string> = new Set([
  "oauthClientCredentials",
  "oauthRefreshToken",
  "jwtBearer",
  "githubApp",
  "tokenExchange",
]);
const pemPath = text("the path of a PEM file", "ca: /etc/postern/idp-ca.pem");

/** What is meant in credentials that Vault issues (issued-fields.ts); a part of the table of cures.ts. */
export function issuedExpectations(credential: string): { [pattern: string]: Expectation } {
  const at = (key: string): string => `${credential}.${key}`;
  return {
    ...sourceAt(at("certificate")),
    ...sourceAt(at("ca")),
    [at("ca")]: text("a source of certificates", "ca: { file: /etc/postern/server-ca.crt }"),
    [at("pki")]: text("a map", "pki: { mount: pki, role: postern, commonName: postern.internal }"),
    [at("pki.mount")]: text("the mount of a PKI engine", "mount: pki"),
    [at("pki.role")]: text("the name of a role", "role: postern"),
    [at("pki.commonName")]: text("whom the certificate names", "commonName: postern.internal"),
    [at("pki.ttl")]: text("a duration", "ttl: 24h"),
    [at("vault")]: text("a map", "vault: { path: database/creds/postern }"),
    [at("vault.path")]: text("the path of a secrets engine's answer", "path: database/creds/postern"),
    [at("vault.method")]: text("read or write", "method: read"),
    [at("vault.parameters")]: text("a map of values by name", "parameters: { minimum_seconds: 60 }"),
    [at("vault.parameters.*")]: text("text, a number, true or false", "minimum_seconds: 60"),
    [at("role")]: text("the name of a role", "role: postern"),
    ...Object.fromEntries(Object.entries(asOf("vaultDynamic")).map(([key, expectation]) => [at(key), expectation])),
    ...leasedAt(at("as.token")),
    ...leasedAt(at("as.value")),
    ...leasedAt(at("as.password")),
    ...leasedAt(at("as.username")),
    [at("as.username")]: text("a user name, or a source of one", "username: { lease: username }"),
    [at("as.name")]: text("the name of a header", "name: X-Api-Key"),
    [at("as.prefix")]: text("text that stands before the value", 'prefix: "Token "'),
    [at("as.headers")]: text("a map of values by header name", "headers: { X-Api-Key: { lease: key } }"),
    ...leasedAt(at("as.headers.*")),
    [at("as.headers.*")]: text("the value of a header, or a source of it", "X-Api-Key: { lease: key }"),
    [at("as.tokenEndpoint")]: text("an https:// address", "tokenEndpoint: https://idp.example.com/token"),
    [at("as.ca")]: pemPath,
    [at("as.issuer")]: text("an https:// address", "issuer: https://idp.example.com"),
    ...sourceAt(at("as.clientId")),
    [at("as.clientId")]: text("a client id, or a source of one", "clientId: postern"),
    [at("as.scope")]: text("scopes with a space between them", 'scope: "mcp:read mcp:write"'),
    [at("as.resource")]: text("the URI of the MCP server", "resource: https://tickets.internal/mcp"),
    [at("as.audience")]: text("whom the token is for", "audience: https://tickets.internal"),
  };
}

/** What stands at `path`, which begins below a credential of this type, if that is another thing than elsewhere. */
export function issuedExpectationAt(type: string, path: Path): Expectation | undefined {
  if (path.length === 1 && path[0] === "ca" && grantTypes.has(type)) return pemPath;
  return asOf(type)[path.join(".")];
}

function asOf(type: string): { [key: string]: Expectation } {
  if (type === "vaultIdentity") {
    return {
      as: text("bearer, or a map of type oauthClientCredentials", "as: bearer"),
      "as.type": text("oauthClientCredentials where `as` is a map", "as: bearer"),
    };
  }
  return {
    as: text("a map that says how it is sent", "as: { type: bearer, token: { lease: FIELD } }"),
    "as.type": text("bearer, basic, header or headers", "type: bearer"),
  };
}

function leasedAt(pattern: string): { [pattern: string]: Expectation } {
  return {
    ...sourceAt(pattern, "a source of a secret, as a field of the lease"),
    [`${pattern}.lease`]: text("the name of a field of what Vault issues", "lease: token"),
  };
}
