/**
 * Words that people bring from elsewhere (OAuth's own spelling, other products, the wrong level of the file), with what
 * they mean here. Slips of the pen need no entry: nearest.ts finds those.
 */

const inAuth = "the same inside `auth: { … }`";
const inRecord = "record: { vault: { mount: secret, path: mcp/calendar } }";
const inClaims = "the same inside `claims: { … }`";
const inCredential = "credential: { type: bearer, token: { … } }";
const ownCa = "ca: PATH   (certificates are always verified)";
const inVault = "the same in `vault:` at the top of the file, for all servers";

/** By place of the unknown key: the key that is meant, or a cure in words. A key counts only where it is known. */
const keys: { readonly [pattern: string]: readonly string[] } = {
  "relay.tokenFile": ["token: { file: PATH }"],
  "agents.keys[].keySha256": ["sha256"],
  "agents.oauth": ["issuers: [ { issuer: …, audience: … } ]"],
  adminToken: ["admin: { token: { file: PATH } }"],
  "admin.tokenSha256": ["token"],
  "admin.port": ['listen: "127.0.0.1:9464"'],
  "vault.url": ["address"],
  "vault.cacheTtl": ["ttl"],
  "vault.skipVerify": [ownCa],
  "vault.tlsSkipVerify": [ownCa],
  "vault.auth.path": ["mount"],
  "vault.auth.tokenFile": ["token: { file: PATH }"],
  "vault.auth.wrapped": ["wrappedSecretId"],
  "servers.*.auth": [inCredential],
  "servers.*.token": [inCredential],
  "servers.*.headers": ["credential: { type: headers, headers: { … } }"],
  "servers.*.caFile": ["ca"],
  "servers.*.caCert": ["ca"],
  "servers.*.cacert": ["ca"],
  "servers.*.tls": [ownCa],
  "servers.*.skipVerify": [ownCa],
  "servers.*.tlsSkipVerify": [ownCa],
  "servers.*.insecureSkipVerify": [ownCa],
  "vault.method": [inAuth],
  "vault.role": [inAuth],
  "vault.roleId": [inAuth],
  "vault.secretId": [inAuth],
  "vault.token": [inAuth],
  "servers.*.credential.onReflect": ["the same beside `credential`, not in it"],
  "servers.*.credential.ttl": [inVault],
  "servers.*.credential.staleFor": [inVault],
  "servers.*.credential.vault": ["the key that the type has, with it as source: token: { vault: { … } }"],
  "servers.*.credential.ca": ["the same beside `credential`, not in it"],
  "servers.*.credential.user": ["username"],
  "servers.*.credential.pass": ["password"],
  "servers.*.credential.header": ["name"],
  "servers.*.credential.value": ["token"],
  "servers.*.credential.kid": ["keyId"],
  "servers.*.credential.tokenUrl": ["tokenEndpoint"],
  "servers.*.credential.tokenUri": ["tokenEndpoint"],
  "servers.*.credential.cert": ["certificate"],
  "servers.*.credential.clientCertificate": ["certificate"],
  "servers.*.credential.key": ["privateKey"],
  "servers.*.credential.clientKey": ["privateKey"],
  "servers.*.credential.passphrase": ["the key without a passphrase: openssl pkey -in KEY -out PLAIN_KEY"],
  "servers.*.credential.refreshToken": [`${inRecord}, in whose field refresh_token it lies`],
  "servers.*.credential.record.mount": [inRecord],
  "servers.*.credential.record.path": [inRecord],
  "servers.*.credential.iss": [inClaims],
  "servers.*.credential.sub": [inClaims],
  "servers.*.credential.aud": [inClaims, "audience"],
  "servers.*.credential.vault.mount": ["the mount as the beginning of the path: path: database/creds/postern"],
};

/** What the unknown key at `pattern` means among `known`; a text with a blank in it is a cure, not a key. */
export function meantKey(pattern: string, known: readonly string[]): string | undefined {
  if (!Object.hasOwn(keys, pattern)) return undefined;
  return keys[pattern]?.find((meant) => {
    if (meant === inClaims) return known.includes("claims");
    return meant.includes(" ") || known.includes(meant);
  });
}

/** By place of the value, the words in lower case. */
const words: { readonly [pattern: string]: { readonly [word: string]: string } } = {
  "servers.*.credential.type": {
    apikey: "header",
    api_key: "header",
    token: "bearer",
    password: "basic",
    oauth: "oauthClientCredentials",
    oauth2: "oauthClientCredentials",
    clientcredentials: "oauthClientCredentials",
    client_credentials: "oauthClientCredentials",
    refreshtoken: "oauthRefreshToken",
    refresh_token: "oauthRefreshToken",
    serviceaccount: "jwtBearer",
    google: "jwtBearer",
    github: "githubApp",
    tls: "mtls",
    certificate: "mtls",
    clientcertificate: "mtls",
    pki: "mtls",
    vault: "vaultDynamic",
    dynamic: "vaultDynamic",
    database: "vaultDynamic",
    oidc: "vaultIdentity",
    identity: "vaultIdentity",
  },
  "servers.*.credential.clientAuth": { client_secret_basic: "basic", client_secret_post: "post" },
  "vault.auth.method": { k8s: "kubernetes", oidc: "jwt", tls: "cert", certificate: "cert", proxy: "agent" },
};

export function meantWord(pattern: string, word: string): string | undefined {
  const known = Object.hasOwn(words, pattern) ? (words[pattern] ?? {}) : {};
  const lower = word.toLowerCase();
  return Object.hasOwn(known, lower) ? known[lower] : undefined;
}
