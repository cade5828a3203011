import { type Expectation, sourceAt, text } from "./expectation.ts";
import { issuedExpectations } from "./issued-cures.ts";
import type { Path } from "./tree.ts";

/** What is wrong and what to write instead, without a place yet. */
export interface Fault {
  readonly message: string;
  readonly cure: string;
}

/** The three documents, and the table of expectations that `postern policy test` runs. */
export type DocumentKind = "gateway" | "relay" | "policy" | "cases";

const listen: Expectation = { expects: "an address to listen on", example: '"127.0.0.1:9464"' };

const gateway: { readonly [pattern: string]: Expectation } = {
  "": text("a map of keys", "relay: { … }, servers: { … } and policy: ./policy.yaml, as in config/gateway.yaml"),
  relay: text("a map", "relay: { url: wss://relay.example.com, tunnel: acme, token: { file: PATH } }"),
  "relay.url": text("a wss:// address", "url: wss://relay.example.com"),
  "relay.tunnel": text("a name: a-z, 0-9 and -, at most 63", "tunnel: acme"),
  ...sourceAt("relay.token"),
  "relay.connections": text("1", "connections: 1"),
  "relay.ca": text("the path of a PEM file", "ca: /etc/postern/relay-ca.pem"),
  vault: text("a map", "vault: { address: https://vault.internal:8200, auth: { … } }"),
  "vault.address": text("an https:// address", "address: https://vault.internal:8200"),
  "vault.namespace": text("the name of a namespace", "namespace: platform"),
  "vault.ca": text("the path of a PEM file", "ca: /etc/postern/vault-ca.pem"),
  "vault.auth": text("a map that says how to log in", "auth: { method: approle, roleId: …, secretId: { file: PATH } }"),
  "vault.auth.method": text("kubernetes, jwt, approle, token, cert or agent", "method: kubernetes"),
  "vault.auth.mount": text("the path of the auth method", "mount: approle"),
  ...sourceAt("vault.auth.token", "a source of a secret outside Vault"),
  ...sourceAt("vault.auth.secretId", "a source of a secret outside Vault"),
  "vault.auth.role": text("the name of a role of the auth method", "role: postern"),
  ...sourceAt("vault.auth.jwt", "a source of a secret outside Vault"),
  ...sourceAt("vault.auth.wrappedSecretId", "a source of a secret outside Vault"),
  ...sourceAt("vault.auth.certificate", "a source of a secret outside Vault"),
  ...sourceAt("vault.auth.privateKey", "a source of a secret outside Vault"),
  "vault.auth.agent": text("a map", "agent: { address: unix:/run/vault-agent/agent.sock }"),
  "vault.auth.agent.address": text(
    "a unix socket or an address on loopback",
    "address: unix:/run/vault-agent/agent.sock",
  ),
  ...sourceAt("vault.auth.roleId"),
  "vault.auth.roleId": text("a role id, or a source of one", "roleId: { file: /run/secrets/postern/role-id }"),
  "vault.ttl": text("a duration", "ttl: 60s"),
  "vault.staleFor": text("a duration", "staleFor: 2h"),
  servers: text("a map of servers by name", "servers: { tickets: { url: http://tickets.internal:8080/mcp } }"),
  "servers.*": text("a map", "{ url: http://tickets.internal:8080/mcp }"),
  "servers.*.url": text("an http:// or https:// address", "url: http://tickets.internal:8080/mcp"),
  "servers.*.ca": text("the path of a PEM file", "ca: /etc/postern/server-ca.pem"),
  "servers.*.onReflect": text("redact or block", "onReflect: redact"),
  "servers.*.credential": text("a map", "credential: { type: bearer, token: { file: PATH } }"),
  "servers.*.credential.type": text(
    "bearer, basic, header, headers, oauthClientCredentials, oauthRefreshToken, jwtBearer, githubApp, tokenExchange, mtls, vaultDynamic or vaultIdentity",
    "type: bearer, or another: docs/credentials.md names an example of each",
  ),
  ...sourceAt("servers.*.credential.token"),
  ...sourceAt("servers.*.credential.value"),
  ...sourceAt("servers.*.credential.password"),
  ...sourceAt("servers.*.credential.username"),
  "servers.*.credential.username": text("a user name, or a source of one", "username: svc-tickets"),
  "servers.*.credential.headers": text(
    "a map of values by header name",
    "headers: { X-Api-Key: { file: PATH }, X-Org: acme }",
  ),
  ...sourceAt("servers.*.credential.headers.*"),
  "servers.*.credential.headers.*": text(
    "the value of a header, or a source of it",
    "X-Api-Key: { file: /run/secrets/postern/NAME }",
  ),
  "servers.*.credential.name": text("the name of a header", "name: X-Api-Key"),
  "servers.*.credential.tokenEndpoint": text("an https:// address", "tokenEndpoint: https://idp.example.com/token"),
  "servers.*.credential.issuer": text("an https:// address", "issuer: https://idp.example.com"),
  ...sourceAt("servers.*.credential.clientId"),
  "servers.*.credential.clientId": text("a client id, or a source of one", "clientId: postern"),
  ...sourceAt("servers.*.credential.clientSecret"),
  ...sourceAt("servers.*.credential.privateKey"),
  "servers.*.credential.record": text(
    "the entry of Vault that holds the refresh token",
    "record: { vault: { mount: secret, path: mcp/calendar } }",
  ),
  "servers.*.credential.record.vault": text(
    "mount and path of an entry, without a field",
    "vault: { mount: secret, path: mcp/calendar }",
  ),
  "servers.*.credential.record.vault.mount": text("the mount of a KV version 2 engine", "mount: secret"),
  "servers.*.credential.record.vault.path": text("the path of an entry below its mount", "path: mcp/calendar"),
  "servers.*.credential.keyId": text("the id of the key", "keyId: key-1"),
  "servers.*.credential.clientAuth": text("basic, post or privateKeyJwt", "clientAuth: basic"),
  "servers.*.credential.scope": text("scopes with a space between them", 'scope: "mcp:read mcp:write"'),
  "servers.*.credential.resource": text("the URI of the MCP server", "resource: https://tickets.internal/mcp"),
  "servers.*.credential.audience": text("whom the token is for", "audience: https://tickets.internal"),
  "servers.*.credential.claims": text("a map of iss, sub and aud", "claims: { iss: postern@project.example.com }"),
  "servers.*.credential.claims.iss": text("who asks", "iss: postern@project.example.com"),
  "servers.*.credential.claims.sub": text("for whom", "sub: alice@example.com"),
  "servers.*.credential.claims.aud": text("who is asked", "aud: https://idp.example.com/token"),
  "servers.*.credential.appId": text("the id of the app", "appId: 12345"),
  "servers.*.credential.installationId": text("the id of the installation", "installationId: 67890"),
  "servers.*.credential.apiUrl": text("an https:// address", "apiUrl: https://github.example.com/api/v3"),
  "servers.*.credential.permissions": text("a map of rights by name", "permissions: { issues: read }"),
  "servers.*.credential.permissions.*": text("read, write or admin", "issues: read"),
  "servers.*.credential.repositories": text("a list of repository names", "repositories: [tickets]"),
  "servers.*.credential.repositories[]": text("the name of a repository, without its owner", "tickets"),
  "servers.*.credential.prefix": text("text that stands before the value", 'prefix: "Token "'),
  ...issuedExpectations("servers.*.credential"),
  policy: text("the path of a policy file, or the policy itself", "policy: ./policy.yaml"),
  agents: text("a map", "agents: { verify: relay }"),
  "agents.verify": text("relay or edge", "verify: relay"),
  "agents.keys": text("a list of agent keys", "keys: [ { name: claude-prod, sha256: HASH } ]"),
  "agents.keys[]": text("a map", "{ name: claude-prod, sha256: HASH }"),
  "agents.keys[].name": text("a name: a-z, 0-9 and -, at most 63", "name: claude-prod"),
  "agents.keys[].sha256": text(
    "a hash, or a list of hashes",
    'sha256: "HASH"   (postern token new --kind agent prints it)',
  ),
  "agents.keys[].sha256[]": text("a hash", '"HASH"   (postern token new --kind agent prints it)'),
  "agents.issuers": text("a list of issuers", "issuers: [ { issuer: https://idp.example.com, audience: … } ]"),
  "agents.issuers[]": text(
    "a map",
    "{ issuer: https://idp.example.com, audience: https://relay.example.com/acme/tickets/mcp }",
  ),
  ...issuerAt("agents.issuers[]", "https://relay.example.com/acme/tickets/mcp"),
  "agents.issuers[].requiredScopes": text("a list of scopes", "requiredScopes: [mcp]"),
  "agents.issuers[].requiredScopes[]": text("a scope", "mcp"),
  "agents.issuers[].clientIds": text("a list of client ids", "clientIds: [claude-prod]"),
  "agents.issuers[].clientIds[]": text("a client id", "claude-prod"),
  "agents.issuers[].requireTyp": text("true or false", "requireTyp: true"),
  gateway: text("a map", "gateway: { id: edge-1 }"),
  "gateway.id": text("a name of this replica", "id: edge-1"),
  admin: text("a map", 'admin: { listen: "127.0.0.1:9464" }'),
  "admin.listen": listen,
  ...sourceAt("admin.token", "a source of a secret outside Vault"),
  audit: text("a map", "audit: { file: /var/log/postern/audit.jsonl, onError: deny }"),
  "audit.file": text("the path of a file", "file: /var/log/postern/audit.jsonl"),
  "audit.onError": text("deny or continue", "onError: deny"),
  limits: text("a map", "limits: { requestBytes: 4MiB, streams: 2048 }"),
  "limits.requestBytes": text("a size", "requestBytes: 4MiB"),
  "limits.streams": text("a whole number from 1 to 65536", "streams: 2048"),
  timeouts: text("a map", "timeouts: { firstByte: 5m, idle: 10m }"),
  "timeouts.firstByte": text("a duration", "firstByte: 5m"),
  "timeouts.idle": text("a duration", "idle: 10m"),
};

/** What is said of an issuer, wherever it stands. */
function issuerAt(prefix: string, audience: string): { [pattern: string]: Expectation } {
  return {
    [`${prefix}.issuer`]: text("an https:// address", "issuer: https://idp.example.com"),
    [`${prefix}.audience`]: text("one text, which `aud` must name", `audience: ${audience}`),
    [`${prefix}.algorithms`]: text("a list of signature algorithms", "algorithms: [RS256]"),
    [`${prefix}.algorithms[]`]: text("a signature algorithm", "RS256"),
    [`${prefix}.jwks`]: text("a URL, or the path of a file", "jwks: https://idp.example.com/jwks.json"),
    [`${prefix}.ca`]: text("the path of a PEM file", "ca: /etc/postern/idp-ca.pem"),
  };
}

const relay: { readonly [pattern: string]: Expectation } = {
  "": text("a map of keys", "publicUrl: https://relay.example.com and tunnels: { … }, as in config/relay.yaml"),
  listen: { ...listen, example: '"0.0.0.0:8080"' },
  publicUrl: text("an https:// address", "publicUrl: https://relay.example.com"),
  allowedHosts: text("a list of hosts", "allowedHosts: [relay.internal]"),
  "allowedHosts[]": text("a host, with its port unless that is the usual one", "relay.internal:8443"),
  allowedOrigins: text("a list of origins", "allowedOrigins: [https://console.example.com]"),
  "allowedOrigins[]": text("an origin", "https://console.example.com"),
  trustedProxies: text("an empty list", "trustedProxies: []"),
  "trustedProxies[]": text("absent in this version", "trustedProxies: []"),
  admin: text("a map", 'admin: { listen: "127.0.0.1:9465" }'),
  "admin.listen": { ...listen, example: '"127.0.0.1:9465"' },
  ...sourceAt("admin.token", "a source of a secret outside Vault"),
  tunnels: text("a map of tunnels by name", "tunnels: { acme: { gateways: [ … ], agents: [ … ] } }"),
  "tunnels.*": text("a map", "{ gateways: [ { name: edge, tokenSha256: [HASH] } ], agents: [ … ] }"),
  "tunnels.*.gateways": text("a list of gateways", "gateways: [ { name: edge, tokenSha256: [HASH] } ]"),
  "tunnels.*.gateways[]": text("a map", "{ name: edge, tokenSha256: [HASH] }"),
  "tunnels.*.gateways[].name": text("a name: a-z, 0-9 and -, at most 63", "name: edge"),
  "tunnels.*.gateways[].tokenSha256": text("a list of hashes", 'tokenSha256: ["HASH"]   (postern token new prints it)'),
  "tunnels.*.gateways[].tokenSha256[]": text("a hash", '"HASH"   (postern token new prints it)'),
  "tunnels.*.gateways[].jwt": text("a map", "jwt: { issuer: https://idp.example.com, audience: …, subject: … }"),
  ...issuerAt("tunnels.*.gateways[].jwt", "https://relay.example.com"),
  "tunnels.*.gateways[].jwt.subject": text("the `sub` of the token", "subject: system:serviceaccount:postern:gateway"),
  "tunnels.*.agents": text(
    "a list of agents",
    "agents: [ { name: claude-prod, keySha256: [HASH], servers: [tickets] } ]",
  ),
  "tunnels.*.agents[]": text("a map", "{ name: claude-prod, keySha256: [HASH], servers: [tickets] }"),
  "tunnels.*.agents[].name": text("a name: a-z, 0-9 and -, at most 63", "name: claude-prod"),
  "tunnels.*.agents[].keySha256": text(
    "a list of hashes",
    'keySha256: ["HASH"]   (postern token new --kind agent prints it)',
  ),
  "tunnels.*.agents[].keySha256[]": text("a hash", '"HASH"   (postern token new --kind agent prints it)'),
  "tunnels.*.agents[].oauth": text("a map", "oauth: { issuer: https://idp.example.com }"),
  ...issuerAt("tunnels.*.agents[].oauth", "https://relay.example.com/acme/tickets/mcp"),
  "tunnels.*.agents[].oauth.requiredScopes": text("a list of scopes", "requiredScopes: [mcp]"),
  "tunnels.*.agents[].oauth.requiredScopes[]": text("a scope", "mcp"),
  "tunnels.*.agents[].oauth.clientIds": text("a list of client ids", "clientIds: [claude-prod]"),
  "tunnels.*.agents[].oauth.clientIds[]": text("a client id", "claude-prod"),
  "tunnels.*.agents[].oauth.requireTyp": text("true or false", "requireTyp: true"),
  "tunnels.*.agents[].servers": text("a list of server names", 'servers: [tickets]   (["*"] for all of them)'),
  "tunnels.*.agents[].servers[]": text("the name of a server", "tickets"),
  limits: text("a map", "limits: { streamsPerAgent: 256, streamsPerConnection: 2048, headerBytes: 64KiB }"),
  "limits.streamsPerAgent": text("a whole number from 1 to 65536", "streamsPerAgent: 256"),
  "limits.streamsPerConnection": text("a whole number from 1 to 65536", "streamsPerConnection: 2048"),
  "limits.headerBytes": text("a size", "headerBytes: 64KiB"),
  "limits.connections": text("a whole number from 1 to 65536", "connections: 4096"),
  "limits.upgradesPerMinute": text("a whole number from 1 to 65536", "upgradesPerMinute: 60"),
};

const patternKinds = ["tools", "prompts", "resources", "resourceTemplates"];

function grantAt(prefix: string): { [pattern: string]: Expectation } {
  const entries: [string, Expectation][] = patternKinds.flatMap((kind) => [
    [`${prefix}.${kind}`, text("a list of rules", `${kind}: [${examplePattern(kind)}]   ([] allows none)`)],
    [`${prefix}.${kind}[]`, text("a pattern, or { name, except }", examplePattern(kind))],
    [`${prefix}.${kind}[].name`, text("a pattern", `name: ${examplePattern(kind)}`)],
    [`${prefix}.${kind}[].except`, text("a list of patterns", 'except: ["delete_*"]')],
    [`${prefix}.${kind}[].except[]`, text("a pattern", '"delete_*"')],
  ]);
  return Object.fromEntries([...entries, ...clientAt(prefix)]);
}

function denyAt(prefix: string): { [pattern: string]: Expectation } {
  const entries: [string, Expectation][] = patternKinds.flatMap((kind) => [
    [`${prefix}.${kind}`, text("a list of patterns", `${kind}: ["drop_*"]`)],
    [`${prefix}.${kind}[]`, text("a pattern (deny has no rules with keys)", '"drop_*"')],
  ]);
  return Object.fromEntries([...entries, ...clientAt(prefix)]);
}

function clientAt(prefix: string): [string, Expectation][] {
  return [
    [`${prefix}.client`, text("a list of what the server may ask", "client: [elicitation]")],
    [`${prefix}.client[]`, text("sampling, elicitation or roots", "elicitation")],
  ];
}

function examplePattern(kind: string): string {
  if (kind === "resources") return '"ticket://open/*"';
  if (kind === "resourceTemplates") return '"ticket://{id}"';
  return kind === "prompts" ? "summarize" : "search_issues";
}

const policy: { readonly [pattern: string]: Expectation } = {
  "": text("a map of keys", "version: 1 and servers: { … }, as in config/policy.yaml"),
  version: text("1", "version: 1"),
  servers: text("a map of servers by name", "servers: { tickets: { tools: [search_issues] } }"),
  "servers.*": text("a map", "{ tools: [search_issues] }"),
  ...grantAt("servers.*"),
  "servers.*.grants": text("a list of grants", "grants: [ { tools: [search_issues] } ]"),
  "servers.*.grants[]": text("a map", "{ tools: [search_issues] }"),
  ...grantAt("servers.*.grants[]"),
  "servers.*.deny": text("a map of pattern lists", 'deny: { tools: ["drop_*"] }'),
  ...denyAt("servers.*.deny"),
};

const cases: { readonly [pattern: string]: Expectation } = {
  "": text("a list of cases, at least one", "- { server: tickets, tool: get_issue, expect: allow }"),
  "[]": text("a map", "{ server: tickets, tool: get_issue, expect: allow }"),
  "[].server": text("the name of a server", "server: tickets"),
  "[].tool": text("the name of a tool", "tool: get_issue"),
  "[].resource": text("the URI of a resource", 'resource: "ticket://open/1"'),
  "[].prompt": text("the name of a prompt", "prompt: summarize"),
  "[].method": text("the name of a method", "method: tools/list"),
  "[].expect": text("allow or deny", "expect: deny"),
};

/** The one table of what is meant where; the patterns have `*` for a name and `[]` for an index. */
export const expectations: { readonly [kind in DocumentKind]: { readonly [pattern: string]: Expectation } } = {
  gateway,
  relay,
  policy,
  cases,
};

/** Whether a source stands at `path`. Its keys are not shown: some of them are secrets in the wrong place. */
export function isSourceAt(kind: DocumentKind, path: Path): boolean {
  return /\ba source of\b/.test(expectationAt(kind, path).expects);
}

/** What is meant at `path`. A test holds that every place of the three schemas has an entry. */
export function expectationAt(kind: DocumentKind, path: Path): Expectation {
  const pattern = patternOf(path);
  const found = Object.hasOwn(expectations[kind], pattern) ? expectations[kind][pattern] : undefined;
  return found ?? { expects: "something else", example: "see config/ for examples" };
}

/** Maps whose keys are the author's own names. */
const namedMaps = new Set(["servers", "tunnels"]);
const namedMapsBelow = new Set([
  "servers.*.credential.headers",
  "servers.*.credential.permissions",
  "servers.*.credential.as.headers",
  "servers.*.credential.vault.parameters",
]);

/** `servers.*.tools[]` for `servers.tickets.tools[1]`. */
export function patternOf(path: Path): string {
  let pattern = "";
  path.forEach((step, i) => {
    if (typeof step === "number") pattern += "[]";
    else if (i === 1 && namedMaps.has(String(path[0]))) pattern += ".*";
    else if (namedMapsBelow.has(pattern)) pattern += ".*";
    else pattern += i === 0 ? step : `.${step}`;
  });
  return pattern;
}
