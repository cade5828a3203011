import { gatewayWith, type Trap } from "./traps.ts";

const rest = [
  "vault: { address: https://v.internal, auth: { method: token, token: { file: t } } }",
  "agents: { verify: edge, issuers: [ { issuer: https://i.example.com, audience: x } ] }",
];
const credential = (keys: string): string =>
  [gatewayWith(2, `servers: { tickets: { url: https://t.internal/mcp, credential: { ${keys} } } }`), ...rest].join(
    "\n",
  );

/** Words and places that people bring from OAuth, from Vault's own tools and from other products. */
export const slipTraps: readonly Trap[] = [
  {
    title: "the mount of an engine beside its path",
    yaml: credential(
      "type: vaultDynamic, vault: { mount: database, path: creds/a }, as: { type: bearer, token: { lease: t } }",
    ),
    says: [
      [
        "2:95 unknown key `mount` in `servers.tickets.credential.vault`",
        "the mount as the beginning of the path: path: database/creds/postern",
      ],
    ],
  },
  {
    title: "what is issued, sent by one word",
    yaml: credential("type: vaultDynamic, vault: { path: database/creds/a }, as: bearer"),
    says: [
      [
        "2:125 `servers.tickets.credential.as` must be a map that says how it is sent",
        "as: { type: bearer, token: { lease: FIELD } }",
      ],
    ],
  },
  {
    title: "what is issued, sent in no way",
    yaml: credential("type: vaultDynamic, vault: { path: database/creds/a }"),
    says: [["2:64 `servers.tickets.credential.as` is missing", "as: { type: bearer, token: { lease: FIELD } }"]],
  },
  {
    title: "an identity as a map that says no more than the word",
    yaml: credential("type: vaultIdentity, role: r, as: { type: bearer }"),
    says: [
      ["2:108 `servers.tickets.credential.as.type` must be oauthClientCredentials where `as` is a map", "as: bearer"],
    ],
  },
  {
    title: "an identity without a way",
    yaml: credential("type: vaultIdentity, role: r"),
    says: [["2:64 `servers.tickets.credential.as` is missing", "as: bearer"]],
  },
  {
    title: "a value for a token",
    yaml: credential("type: bearer, value: { file: supersecret }"),
    says: [["2:80 unknown key `value` in `servers.tickets.credential`", "token"]],
  },
  {
    title: "a header's name under another key",
    yaml: credential("type: header, header: X-Api-Key, value: { file: t }"),
    says: [["2:80 unknown key `header` in `servers.tickets.credential`", "name"]],
  },
  {
    title: "a user and a password in short",
    yaml: credential("type: basic, user: a, pass: supersecret"),
    says: [
      ["2:79 unknown key `user` in `servers.tickets.credential`", "username"],
      ["2:88 unknown key `pass` in `servers.tickets.credential`", "password"],
    ],
  },
  {
    title: "types of other products",
    yaml: credential("type: apiKey"),
    says: [
      [
        "2:72 `servers.tickets.credential.type` must be bearer, basic, header, headers, oauthClientCredentials, oauthRefreshToken, jwtBearer, githubApp, tokenExchange, mtls, vaultDynamic or vaultIdentity",
        "type: header",
      ],
    ],
  },
  {
    title: "OAuth's own name of a type",
    yaml: credential("type: client_credentials"),
    says: [
      [
        "2:72 `servers.tickets.credential.type` must be bearer, basic, header, headers, oauthClientCredentials, oauthRefreshToken, jwtBearer, githubApp, tokenExchange, mtls, vaultDynamic or vaultIdentity",
        "type: oauthClientCredentials",
      ],
    ],
  },
  {
    title: "OAuth's own names of keys and words",
    yaml: credential(
      "type: oauthClientCredentials, tokenUrl: https://i/t, client_id: x, client_secret: supersecret, clientAuth: client_secret_post",
    ),
    says: [
      ["2:96 unknown key `tokenUrl` in `servers.tickets.credential`", "tokenEndpoint"],
      ["2:119 unknown key `client_id` in `servers.tickets.credential`", "clientId"],
      ["2:133 unknown key `client_secret` in `servers.tickets.credential`", "clientSecret"],
      ["2:173 `servers.tickets.credential.clientAuth` must be basic, post or privateKeyJwt", "clientAuth: post"],
    ],
  },
  {
    title: "JOSE's name of a key's id",
    yaml: credential("type: oauthClientCredentials, issuer: https://i, clientId: x, privateKey: { file: t }, kid: k"),
    says: [["2:153 unknown key `kid` in `servers.tickets.credential`", "keyId"]],
  },
  {
    title: "the address of an issuer's metadata",
    yaml: credential(
      "type: oauthClientCredentials, issuer: https://i/a/.well-known/openid-configuration, clientId: x, clientSecret: { file: t }",
    ),
    says: [
      ["2:104 `servers.tickets.credential.issuer` is where the issuer's metadata lie, not the issuer", "https://i/a"],
    ],
  },
  {
    title: "a client id that is a number",
    yaml: credential("type: oauthClientCredentials, issuer: https://i, clientId: 12345, clientSecret: { file: t }"),
    says: [["2:125 `servers.tickets.credential.clientId` is read as a number, not as text", '"12345"']],
  },
  {
    title: "a refresh token with a source",
    yaml: credential("type: oauthRefreshToken, issuer: https://i, clientId: x, refreshToken: supersecret"),
    says: [
      [
        "2:64 `servers.tickets.credential.record` is missing",
        "record: { vault: { mount: secret, path: mcp/calendar } }",
      ],
      [
        "2:123 unknown key `refreshToken` in `servers.tickets.credential`",
        "record: { vault: { mount: secret, path: mcp/calendar } }, in whose field refresh_token it lies",
      ],
    ],
  },
  {
    title: "a record without its Vault",
    yaml: credential("type: oauthRefreshToken, issuer: https://i, clientId: x, record: { mount: secret, path: mcp/a }"),
    says: [
      ["2:131 `servers.tickets.credential.record.vault` is missing", "vault: { mount: secret, path: mcp/calendar }"],
      [
        "2:133 unknown key `mount` in `servers.tickets.credential.record`",
        "record: { vault: { mount: secret, path: mcp/calendar } }",
      ],
      [
        "2:148 unknown key `path` in `servers.tickets.credential.record`",
        "record: { vault: { mount: secret, path: mcp/calendar } }",
      ],
    ],
  },
  {
    title: "a record of each principal",
    yaml: credential(
      'type: oauthRefreshToken, issuer: https://i, clientId: x, record: { vault: { mount: secret, path: "a/{principal.id}" } }',
    ),
    says: [["2:163 `servers.tickets.credential.record.vault.path` is the same for every principal", "a fixed path"]],
  },
  {
    title: "claims beside the others",
    yaml: credential("type: jwtBearer, tokenEndpoint: https://i/t, privateKey: { file: t }, iss: a, sub: b"),
    says: [
      ["2:64 `servers.tickets.credential.claims` is missing", "claims: { iss: postern@project.example.com }"],
      ["2:136 unknown key `iss` in `servers.tickets.credential`", "the same inside `claims: { … }`"],
      ["2:144 unknown key `sub` in `servers.tickets.credential`", "the same inside `claims: { … }`"],
    ],
  },
  {
    title: "GitHub Enterprise in the clear",
    yaml: credential(
      "type: githubApp, appId: 1, installationId: 2, privateKey: { file: t }, apiUrl: http://ghe.internal/api/v3",
    ),
    says: [
      [
        "2:145 `servers.tickets.credential.apiUrl`: http:// is for loopback addresses only",
        "https://ghe.internal/api/v3",
      ],
    ],
  },
  {
    title: "a certificate under other names",
    yaml: credential("type: mtls, cert: { file: a }, key: { file: b }, passphrase: supersecret"),
    says: [
      ["2:78 unknown key `cert` in `servers.tickets.credential`", "certificate"],
      ["2:97 unknown key `key` in `servers.tickets.credential`", "privateKey"],
      [
        "2:115 unknown key `passphrase` in `servers.tickets.credential`",
        "the key without a passphrase: openssl pkey -in KEY -out PLAIN_KEY",
      ],
    ],
  },
  {
    title: "neither certificate nor PKI",
    yaml: credential("type: mtls"),
    says: [
      [
        "2:64 `servers.tickets.credential.certificate` is missing",
        "certificate: { file: PATH } and privateKey: { file: PATH }, or pki: { … } for one that Vault issues",
      ],
    ],
  },
  {
    title: "the path of a CA without a source",
    yaml: credential("type: mtls, certificate: { file: a }, privateKey: { file: b }, ca: /etc/ca.pem"),
    says: [
      [
        "2:133 `servers.tickets.credential.ca` must be a source of certificates",
        "ca: { file: /etc/postern/server-ca.crt }",
      ],
    ],
  },
  {
    title: "the principal with a shell's sign",
    yaml: credential('type: bearer, token: { vault: { mount: secret, path: "mcp/$\u007bprincipal.id}", field: f } }'),
    says: [
      ["2:119 `servers.tickets.credential.token.vault.path`: variables are not expanded here", "mcp/{principal.id}"],
    ],
  },
  {
    title: "the principal in a field",
    yaml: credential('type: bearer, token: { vault: { mount: secret, path: mcp/a, field: "{principal.id}" } }'),
    says: [
      [
        "2:133 `servers.tickets.credential.token.vault.field`: the principal has a place in `path` of a Vault source only",
        '{ vault: { mount: secret, path: "mcp/tickets/{principal.id}", field: token } }',
      ],
    ],
  },
  {
    title: "the principal in a file's name",
    yaml: credential('type: bearer, token: { file: "/secrets/{principal.id}" }'),
    says: [
      [
        "2:95 `servers.tickets.credential.token.file`: the principal has a place in `path` of a Vault source only",
        '{ vault: { mount: secret, path: "mcp/tickets/{principal.id}", field: token } }',
      ],
    ],
  },
  {
    title: "the principal in a header",
    yaml: credential('type: headers, headers: { X-Key: { file: t }, X-User: "{principal}" }'),
    says: [
      [
        "2:120 `servers.tickets.credential.headers.X-User`: the principal has a place in `path` of a Vault source only",
        '{ vault: { mount: secret, path: "mcp/tickets/{principal.id}", field: token } }',
      ],
    ],
  },
  {
    title: "what belongs to the server, or to Vault, in a credential",
    yaml: credential("type: bearer, token: { file: t }, onReflect: block, ttl: 60s, staleFor: 1h"),
    says: [
      ["2:100 unknown key `onReflect` in `servers.tickets.credential`", "the same beside `credential`, not in it"],
      [
        "2:118 unknown key `ttl` in `servers.tickets.credential`",
        "the same in `vault:` at the top of the file, for all servers",
      ],
      [
        "2:128 unknown key `staleFor` in `servers.tickets.credential`",
        "the same in `vault:` at the top of the file, for all servers",
      ],
    ],
  },
  {
    title: "a Vault in a credential",
    yaml: credential("type: bearer, vault: { mount: secret, path: a, field: b }"),
    says: [
      ["2:64 `servers.tickets.credential.token` is missing", "token: { file: /run/secrets/postern/NAME }"],
      [
        "2:80 unknown key `vault` in `servers.tickets.credential`",
        "the key that the type has, with it as source: token: { vault: { … } }",
      ],
    ],
  },
  {
    title: "a login without `auth`",
    yaml: gatewayWith(4, "vault: { address: https://v.internal, method: approle, roleId: x, secretId: supersecret }"),
    says: [
      ["4:8 `vault.auth` is missing", "auth: { method: approle, roleId: …, secretId: { file: PATH } }"],
      ["4:39 unknown key `method` in `vault`", "the same inside `auth: { … }`"],
      ["4:56 unknown key `roleId` in `vault`", "the same inside `auth: { … }`"],
      ["4:67 unknown key `secretId` in `vault`", "the same inside `auth: { … }`"],
    ],
  },
  {
    title: "another product's name of a login",
    yaml: gatewayWith(4, "vault: { address: https://v.internal, auth: { method: k8s, role: r } }"),
    says: [["4:55 `vault.auth.method` must be kubernetes, jwt, approle, token, cert or agent", "method: kubernetes"]],
  },
  {
    title: "an admin token at the top, and a hash of it",
    yaml: gatewayWith(4, "adminToken: { file: supersecret }\nadmin: { tokenSha256: x }"),
    says: [
      ["4:1 unknown key `adminToken`", "admin: { token: { file: PATH } }"],
      ["5:10 unknown key `tokenSha256` in `admin`", "token"],
    ],
  },
  {
    title: "keys that every JavaScript object has",
    yaml: gatewayWith(4, "constructor: 1\ntoString: 2\nvalueOf:"),
    says: [
      [
        "4:1 unknown key `constructor`",
        "one of: relay, vault, servers, policy, agents, gateway, admin, audit, limits, timeouts",
      ],
      [
        "5:1 unknown key `toString`",
        "one of: relay, vault, servers, policy, agents, gateway, admin, audit, limits, timeouts",
      ],
      ["6:1 `valueOf` has no value", "see config/ for examples"],
      [
        "6:1 unknown key `valueOf`",
        "one of: relay, vault, servers, policy, agents, gateway, admin, audit, limits, timeouts",
      ],
    ],
  },
  {
    title: "a principal that stands alone, without quotes",
    yaml: credential("type: bearer, token: { vault: { mount: secret, path: {principal.id}, field: f } }"),
    says: [
      [
        "2:119 `servers.tickets.credential.token.vault.path`: `{` begins a map in YAML",
        'the path in quotes: "mcp/tickets/{principal.id}"',
      ],
    ],
  },
  {
    title: "a file's name as the key",
    yaml: gatewayWith(4, "vault: { address: https://v.internal, auth: { method: token, tokenFile: supersecret } }"),
    says: [
      ["4:45 `vault.auth.token` is missing", "token: { file: /run/secrets/postern/NAME }"],
      ["4:62 unknown key `tokenFile` in `vault.auth`", "token: { file: PATH }"],
    ],
  },
  {
    title: "Vault under other names",
    yaml: gatewayWith(
      4,
      "vault: { url: https://v.internal, cacheTtl: 60s, tlsSkipVerify: true, auth: { method: kubernetes, role: r, path: k8s } }",
    ),
    says: [
      ["4:10 unknown key `url` in `vault`", "address"],
      ["4:35 unknown key `cacheTtl` in `vault`", "ttl"],
      ["4:50 unknown key `tlsSkipVerify` in `vault`", "ca: PATH   (certificates are always verified)"],
      ["4:108 unknown key `path` in `vault.auth`", "mount"],
    ],
  },
  {
    title: "a wrapped secret id under another name",
    yaml: gatewayWith(
      4,
      "vault: { address: https://v.internal, auth: { method: approle, roleId: r, wrapped: { file: t } } }",
    ),
    says: [["4:75 unknown key `wrapped` in `vault.auth`", "wrappedSecretId"]],
  },
  {
    title: "relay.yaml's name of a hash, and of issuers",
    yaml: gatewayWith(
      4,
      "agents: { verify: edge, oauth: { issuer: https://i }, keys: [ { name: a, keySha256: HASH_A } ] }",
    ),
    says: [
      ["4:25 unknown key `oauth` in `agents`", "issuers: [ { issuer: …, audience: … } ]"],
      ["4:74 unknown key `keySha256` in `agents.keys[0]`", "sha256"],
    ],
  },
  {
    title: "an audience as a list",
    yaml: gatewayWith(4, "agents: { verify: edge, issuers: [ { issuer: https://i, audience: [x, y] } ] }"),
    says: [
      [
        "4:67 `agents.issuers[0].audience` must be one text, which `aud` must name",
        "audience: https://relay.example.com/acme/tickets/mcp",
      ],
    ],
  },
  {
    title: "an admin port, and a token that is neither file nor variable",
    yaml: gatewayWith(4, "admin: { port: 9464, token: { value: supersecret } }"),
    says: [
      ["4:10 unknown key `port` in `admin`", 'listen: "127.0.0.1:9464"'],
      ["4:31 `admin.token` has an unknown key", "one of: file, env"],
    ],
  },
  {
    title: "a credential's keys beside it",
    yaml: gatewayWith(
      2,
      "servers: { tickets: { url: http://t.internal/mcp, auth: { type: bearer }, token: supersecret, headers: { X-Key: supersecret }, tlsSkipVerify: true, caCert: /etc/ca.pem } }",
    ),
    says: [
      ["2:51 unknown key `auth` in `servers.tickets`", "credential: { type: bearer, token: { … } }"],
      ["2:75 unknown key `token` in `servers.tickets`", "credential: { type: bearer, token: { … } }"],
      ["2:95 unknown key `headers` in `servers.tickets`", "credential: { type: headers, headers: { … } }"],
      ["2:128 unknown key `tlsSkipVerify` in `servers.tickets`", "ca: PATH   (certificates are always verified)"],
      ["2:149 unknown key `caCert` in `servers.tickets`", "ca"],
    ],
  },
];
