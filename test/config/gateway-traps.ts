import { gatewayWith, relayWith, type Trap } from "./traps.ts";

function withCredential(keys: string): string {
  return gatewayWith(2, `servers: { tickets: { url: http://t.internal/mcp, credential: { ${keys} } } }`);
}

/** What people write into gateway.yaml by mistake, and all that is said of it: place and message, then the cure. */
export const gatewayTraps: readonly Trap[] = [
  {
    title: "the relay's file in place of the gateway's",
    yaml: relayWith(6, ""),
    says: [["1:1 this is a relay file, not a gateway's", "the gateway's file, or `postern relay`"]],
  },
  {
    title: "the policy in place of the gateway's file",
    yaml: "version: 1\nservers: { tickets: { tools: [a] } }",
    says: [["1:1 this is a policy file, not a gateway's", "the gateway's file, which names it"]],
  },
  {
    title: "a variable where braces are open",
    yaml: gatewayWith(
      2,
      `servers: { tickets: { url: http://t.internal/mcp, credential: { type: bearer, token: \${TOKEN} } } }`,
    ),
    says: [
      [
        "2:86 variables are not expanded here",
        "a source for a secret: { env: NAME } or { file: PATH }; anything else as it is",
      ],
    ],
  },
  {
    title: "nearly nothing",
    yaml: "relay: {}",
    says: [
      ["1:1 `servers` is missing", "servers: { tickets: { url: http://tickets.internal:8080/mcp } }"],
      ["1:1 `policy` is missing", "policy: ./policy.yaml"],
      ["1:8 `relay.url` is missing", "url: wss://relay.example.com"],
      ["1:8 `relay.tunnel` is missing", "tunnel: acme"],
      ["1:8 `relay.token` is missing", "token: { file: /run/secrets/postern/NAME }"],
    ],
  },
  {
    title: "a metadata service for a server",
    yaml: gatewayWith(2, "servers: { tickets: { url: 'http://[::ffff:169.254.169.254]/mcp' } }"),
    says: [
      [
        "2:28 `servers.tickets.url` is a cloud's metadata service, which hands out credentials and is never dialled",
        "https://host.example.com/mcp",
      ],
    ],
  },
  {
    title: "a metadata service for a store",
    yaml: gatewayWith(
      4,
      "vault: { address: https://metadata.google.internal, auth: { method: token, token: { file: t } } }",
    ),
    says: [
      [
        "4:19 `vault.address` is a cloud's metadata service, which hands out credentials and is never dialled",
        "https://host.example.com",
      ],
    ],
  },
  {
    title: "a misspelt section",
    yaml: gatewayWith(4, "limts: {}"),
    says: [["4:1 unknown key `limts`", "limits"]],
  },
  {
    title: "a token in the file",
    yaml: gatewayWith(1, "relay: { url: wss://r.example.com, tunnel: acme, token: ptk_supersecret }"),
    says: [
      [
        "1:57 `relay.token`: a secret is never written into this file",
        "token: { file: PATH }   or { env: NAME } or { vault: { mount, path, field } }",
      ],
    ],
  },
  {
    title: "a token in braces",
    yaml: gatewayWith(1, "relay: { url: wss://r.example.com, tunnel: acme, token: { ptk_supersecret } }"),
    says: [["1:59 `relay.token` has an unknown key", "one of: vault, file, env"]],
  },
  {
    title: "a token with an alias's sign",
    yaml: gatewayWith(1, "relay: { url: wss://r.example.com, tunnel: acme, token: *ptk_supersecret }"),
    says: [
      [
        "1:57 `*` begins an alias in YAML, and aliases are not accepted",
        'the value itself, or, for a pattern, quotes around it: "*…"',
      ],
    ],
  },
  {
    title: "a token as a key",
    yaml: gatewayWith(1, "relay: { url: wss://r.example.com, tunnel: acme, token: ptk_supersecret: x }"),
    says: [
      [
        "1:57 a second `:` or an indented block stands within brackets",
        "the whole list or map on one level within the brackets",
      ],
    ],
  },
  {
    title: "a token for a tunnel's name",
    yaml: gatewayWith(1, "relay: { url: wss://r.example.com, tunnel: ptk_supersecret, token: { file: t } }"),
    says: [["1:44 `relay.tunnel` is no name: a-z, 0-9 and -, at most 63, not beginning with -", "tickets"]],
  },
  {
    title: "a token as a list",
    yaml: gatewayWith(1, "relay: { url: wss://r.example.com, tunnel: acme, token: [ptk_supersecret] }"),
    says: [["1:57 `relay.token` must be a source of a secret", "token: { file: /run/secrets/postern/NAME }"]],
  },
  {
    title: "ws:// to another host",
    yaml: gatewayWith(1, "relay: { url: ws://r.example.com, tunnel: acme, token: { file: t } }"),
    says: [["1:15 `relay.url`: ws:// is for loopback addresses only", "wss://r.example.com"]],
  },
  {
    title: "https:// where wss:// belongs",
    yaml: gatewayWith(1, "relay: { url: https://r.example.com, tunnel: acme, token: { file: t } }"),
    says: [["1:15 `relay.url` must begin with wss://", "wss://r.example.com"]],
  },
  {
    title: "a password in a URL",
    yaml: gatewayWith(1, "relay: { url: wss://u:supersecret@r.example.com, tunnel: acme, token: { file: t } }"),
    says: [
      [
        "1:15 `relay.url` holds user info: a secret is never written into this file",
        "wss://r.example.com, and a source",
      ],
    ],
  },
  {
    title: "a query in the relay's URL",
    yaml: gatewayWith(1, "relay: { url: wss://r.example.com?x=1, tunnel: acme, token: { file: t } }"),
    says: [["1:15 `relay.url` must have no query", "wss://r.example.com"]],
  },
  {
    title: "a path in the relay's URL",
    yaml: gatewayWith(1, "relay: { url: wss://r.example.com/a, tunnel: acme, token: { file: t } }"),
    says: [["1:15 `relay.url` must have no path", "wss://r.example.com"]],
  },
  {
    title: "a fragment",
    yaml: gatewayWith(1, "relay: { url: 'wss://r.example.com#a', tunnel: acme, token: { file: t } }"),
    says: [["1:15 `relay.url` has a fragment, which is never sent", "the address up to the #"]],
  },
  {
    title: "a host without scheme",
    yaml: gatewayWith(1, "relay: { url: relay.example.com, tunnel: acme, token: { file: t } }"),
    says: [["1:15 `relay.url` is no address with scheme and host", "wss://host.example.com"]],
  },
  {
    title: "a variable in a URL",
    yaml: gatewayWith(1, "relay: { url: 'wss://$RELAY', tunnel: acme, token: { file: t } }"),
    says: [["1:15 `relay.url`: variables are not expanded here", "the address itself"]],
  },
  {
    title: "ws:// to a name that looks like loopback",
    yaml: gatewayWith(1, "relay: { url: ws://127.0.0.1.example.com, tunnel: acme, token: { file: t } }"),
    says: [["1:15 `relay.url`: ws:// is for loopback addresses only", "wss://127.0.0.1.example.com"]],
  },
  {
    title: "several connections",
    yaml: gatewayWith(1, "relay: { url: wss://r.example.com, tunnel: acme, token: { file: t }, connections: 2 }"),
    says: [["1:83 `connections` above 1 is not in this version yet", "connections: 1"]],
  },
  {
    title: "connections that make no sense",
    yaml: gatewayWith(1, "relay: { url: wss://r.example.com, tunnel: acme, token: { file: t }, connections: none }"),
    says: [["1:83 `relay.connections` must be 1", "connections: 1"]],
  },
  {
    title: "a tunnel's name that no URL may hold",
    yaml: gatewayWith(1, "relay: { url: wss://r.example.com, tunnel: Acme Corp, token: { file: t } }"),
    says: [["1:44 `relay.tunnel` is no name: a-z, 0-9 and -, at most 63, not beginning with -", "acme-corp"]],
  },
  {
    title: "two sources",
    yaml: gatewayWith(1, "relay: { url: wss://r.example.com, tunnel: acme, token: { file: t, env: T } }"),
    says: [
      [
        "1:57 `relay.token` names several sources",
        "one of { file: PATH }, { env: NAME }, { vault: { mount, path, field } }",
      ],
    ],
  },
  {
    title: "no source",
    yaml: gatewayWith(1, "relay: { url: wss://r.example.com, tunnel: acme, token: {} }"),
    says: [
      ["1:57 `relay.token` names no source", "one of { file: PATH }, { env: NAME }, { vault: { mount, path, field } }"],
    ],
  },
  {
    title: "a misspelt source",
    yaml: gatewayWith(1, "relay: { url: wss://r.example.com, tunnel: acme, token: { fle: t } }"),
    says: [["1:59 `relay.token` has an unknown key", "file"]],
  },
  {
    title: "a value for an environment variable's name",
    yaml: gatewayWith(1, "relay: { url: wss://r.example.com, tunnel: acme, token: { env: T=supersecret } }"),
    says: [
      [
        "1:64 `relay.token.env` is no name of an environment variable",
        "the bare name, such as TICKETS_TOKEN, without $ or =",
      ],
    ],
  },
  {
    title: "~ in a path",
    yaml: gatewayWith(1, "relay: { url: wss://r.example.com, tunnel: acme, token: { file: ~/t } }"),
    says: [["1:65 `relay.token.file`: ~ is not expanded here", "the whole path, or one relative to this file"]],
  },
  {
    title: "a variable in a path",
    yaml: gatewayWith(1, "relay: { url: wss://r.example.com, tunnel: acme, token: { file: '$HOME/t' } }"),
    says: [["1:65 `relay.token.file`: variables are not expanded here", "the path itself"]],
  },
  {
    title: "a Vault source with faults, and no Vault",
    yaml: gatewayWith(
      1,
      "relay: { url: wss://r.example.com, tunnel: acme, token: { vault: { mount: /secret, path: a//b } } }",
    ),
    says: [
      [
        "1:59 `relay.token` reads from Vault, but the file names none",
        "vault: { address: https://vault.internal:8200, auth: { … } } at the top of the file",
      ],
      ["1:66 `relay.token.vault.field` is missing", "field: token"],
      ["1:75 `relay.token.vault.mount` must not begin or end with /", "secret"],
      ["1:90 `relay.token.vault.path` has an empty or dot segment", "segments joined by single slashes: mcp/tickets"],
    ],
  },
  {
    title: "http:// to a Vault elsewhere",
    yaml: gatewayWith(4, "vault: { address: http://vault.internal:8200, auth: { method: token, token: { file: t } } }"),
    says: [["4:19 `vault.address`: http:// is for loopback addresses only", "https://vault.internal:8200"]],
  },
  {
    title: "a client certificate without TLS",
    yaml: gatewayWith(
      4,
      "vault: { address: http://127.0.0.1:8200, auth: { method: cert, certificate: { file: c }, privateKey: { file: k } } }",
    ),
    says: [["4:19 `vault.address` must begin with https:// for a certificate to be shown", "https://127.0.0.1:8200"]],
  },
  {
    title: "a private key in the file",
    yaml: gatewayWith(
      4,
      "vault: { address: https://v.internal, auth: { method: cert, certificate: { file: c }, privateKey: supersecret } }",
    ),
    says: [
      [
        "4:99 `vault.auth.privateKey`: a secret is never written into this file",
        "privateKey: { file: PATH }   or { env: NAME }",
      ],
    ],
  },
  {
    title: "an agent elsewhere",
    yaml: gatewayWith(
      4,
      "vault: { address: https://v.internal, auth: { method: agent, agent: { address: http://agent.internal:8100 } } }",
    ),
    says: [
      [
        "4:80 `vault.auth.agent.address` must be a unix socket or an address on loopback",
        "address: unix:/run/vault-agent/agent.sock",
      ],
    ],
  },
  {
    title: "a login by a pod's token without a role",
    yaml: gatewayWith(4, "vault: { address: https://v.internal, auth: { method: kubernetes } }"),
    says: [["4:45 `vault.auth.role` is missing", "role: postern"]],
  },
  {
    title: "a signed token in the file",
    yaml: gatewayWith(4, "vault: { address: https://v.internal, auth: { method: jwt, role: r, jwt: supersecret } }"),
    says: [
      ["4:74 `vault.auth.jwt`: a secret is never written into this file", "jwt: { file: PATH }   or { env: NAME }"],
    ],
  },
  {
    title: "a misspelt auth method",
    yaml: gatewayWith(4, "vault: { address: https://v.internal, auth: { method: aprole } }"),
    says: [["4:55 `vault.auth.method` must be kubernetes, jwt, approle, token, cert or agent", "method: approle"]],
  },
  {
    title: "no auth method",
    yaml: gatewayWith(4, "vault: { address: https://v.internal, auth: { role: x } }"),
    says: [["4:45 `vault.auth.method` is missing", "method: kubernetes"]],
  },
  {
    title: "a secret id twice",
    yaml: gatewayWith(
      4,
      "vault: { address: https://v.internal, auth: { method: approle, roleId: r, secretId: { file: s }, wrappedSecretId: { file: t } } }",
    ),
    says: [["4:115 `vault.auth.wrappedSecretId` stands beside secretId", "one of secretId and wrappedSecretId"]],
  },
  {
    title: "no secret id",
    yaml: gatewayWith(4, "vault: { address: https://v.internal, auth: { method: approle, roleId: r } }"),
    says: [["4:45 `vault.auth.secretId` is missing", "secretId: { file: /run/secrets/postern/NAME }"]],
  },
  {
    title: "a Vault token in the file",
    yaml: gatewayWith(4, "vault: { address: https://v.internal, auth: { method: token, token: hvs.supersecret } }"),
    says: [
      ["4:69 `vault.auth.token`: a secret is never written into this file", "token: { file: PATH }   or { env: NAME }"],
    ],
  },
  {
    title: "a Vault token from Vault",
    yaml: gatewayWith(
      4,
      "vault: { address: https://v.internal, auth: { method: token, token: { vault: { mount: a, path: b, field: c } } } }",
    ),
    says: [["4:69 `vault.auth.token`: what opens Vault cannot be read from Vault", "{ file: PATH } or { env: NAME }"]],
  },
  {
    title: "a secret id in the file",
    yaml: gatewayWith(
      4,
      "vault: { address: https://v.internal, auth: { method: approle, roleId: r, secretId: supersecret } }",
    ),
    says: [
      [
        "4:85 `vault.auth.secretId`: a secret is never written into this file",
        "secretId: { file: PATH }   or { env: NAME }",
      ],
    ],
  },
  {
    title: "durations without unit, or in days",
    yaml: gatewayWith(
      4,
      "vault: { address: https://v.internal, auth: { method: token, token: { file: t } }, ttl: 60, staleFor: 2d }",
    ),
    says: [
      ["4:89 `vault.ttl` has no unit that is known here (ms, s, m, h)", "60s"],
      ["4:103 `vault.staleFor` has no unit that is known here (ms, s, m, h)", "48h"],
    ],
  },
  {
    title: "a duration of nothing, and a fraction",
    yaml: gatewayWith(
      4,
      "vault: { address: https://v.internal, auth: { method: token, token: { file: t } }, ttl: 0s, staleFor: 1.5h }",
    ),
    says: [
      ["4:89 `vault.ttl` must be longer than nothing", "1s"],
      ["4:103 `vault.staleFor` must be a duration", "a whole number with ms, s, m or h, such as 90s"],
    ],
  },
  {
    title: "a client without an endpoint and without a secret",
    yaml: withCredential("type: oauthClientCredentials, clientId: x"),
    says: [
      [
        "2:63 `servers.tickets.credential.tokenEndpoint` is missing",
        "tokenEndpoint: https://idp.example.com/token, or issuer: https://idp.example.com",
      ],
      [
        "2:63 `servers.tickets.credential.clientSecret` is missing",
        "clientSecret: { file: PATH }, or privateKey: { file: PATH } and keyId: key-1",
      ],
    ],
  },
  {
    title: "a client with two endpoints and two secrets",
    yaml: withCredential(
      "type: oauthClientCredentials, tokenEndpoint: https://i.com/t, issuer: https://i.com, clientId: x, clientSecret: { env: A }, privateKey: { env: B }",
    ),
    says: [
      ["2:135 `servers.tickets.credential.issuer` stands beside `tokenEndpoint`", "one of the two"],
      ["2:201 `servers.tickets.credential.privateKey` stands beside `clientSecret`", "one of the two"],
    ],
  },
  {
    title: "a client's key without its id, and a way of proof that it cannot give",
    yaml: withCredential(
      "type: oauthClientCredentials, issuer: https://i.com, clientId: x, privateKey: { env: B }, clientAuth: privateKeyJwt",
    ),
    says: [["2:63 `servers.tickets.credential.keyId` is missing", "keyId: key-1"]],
  },
  {
    title: "a client with a secret that shall sign",
    yaml: withCredential(
      "type: oauthClientCredentials, issuer: https://i.com, clientId: x, clientSecret: { env: B }, clientAuth: privateKeyJwt",
    ),
    says: [["2:169 `servers.tickets.credential.clientAuth` needs a `privateKey`", "clientAuth: basic, or post"]],
  },
  {
    title: "a client with a key that shall send a secret",
    yaml: withCredential(
      "type: oauthClientCredentials, issuer: https://i.com, clientId: x, privateKey: { env: B }, keyId: k, clientAuth: post",
    ),
    says: [["2:177 `servers.tickets.credential.clientAuth` needs a `clientSecret`", "clientAuth: privateKeyJwt"]],
  },
  {
    title: "a client whose secret has the id of a key",
    yaml: withCredential(
      "type: oauthClientCredentials, issuer: https://i.com, clientId: x, clientSecret: { env: B }, keyId: k",
    ),
    says: [["2:164 `servers.tickets.credential.keyId` belongs to a `privateKey`", "the file without it"]],
  },
  {
    title: "a refresh token without a record",
    yaml: withCredential("type: oauthRefreshToken, issuer: https://i.com, clientId: x"),
    says: [
      [
        "2:63 `servers.tickets.credential.record` is missing",
        "record: { vault: { mount: secret, path: mcp/calendar } }",
      ],
    ],
  },
  {
    title: "a refresh token in a file",
    yaml: withCredential(
      "type: oauthRefreshToken, tokenEndpoint: https://i.com/t, issuer: https://i.com, clientId: x, record: { file: PATH }",
    ),
    says: [
      ["2:166 `servers.tickets.credential.record.vault` is missing", "vault: { mount: secret, path: mcp/calendar }"],
      ["2:168 unknown key `file` in `servers.tickets.credential.record`", "one of: vault"],
    ],
  },
  {
    title: "a public client that shall prove itself, without a Vault",
    yaml: withCredential(
      "type: oauthRefreshToken, issuer: https://i.com, clientId: x, clientAuth: post, record: { vault: { mount: secret, path: mcp/a } }",
    ),
    says: [
      [
        "2:138 `servers.tickets.credential.clientAuth` needs a `clientSecret`",
        "the file without it, for a public client",
      ],
      [
        "2:154 `servers.tickets.credential.record` reads from Vault, but the file names none",
        "vault: { address: https://vault.internal:8200, auth: { … } } at the top of the file",
      ],
    ],
  },
  {
    title: "a refresh token's record with a field",
    yaml: withCredential(
      "type: oauthRefreshToken, tokenEndpoint: https://i.com/t, issuer: https://i.com, clientId: x, record: { vault: { mount: secret, path: a, field: refresh_token } }",
    ),
    says: [
      [
        "2:168 `servers.tickets.credential.record` reads from Vault, but the file names none",
        "vault: { address: https://vault.internal:8200, auth: { … } } at the top of the file",
      ],
      ["2:201 unknown key `field` in `servers.tickets.credential.record.vault`", "one of: mount, path"],
    ],
  },
  {
    title: "an assertion without claims",
    yaml: withCredential("type: jwtBearer, tokenEndpoint: https://i.com/t, privateKey: { env: B }"),
    says: [["2:63 `servers.tickets.credential.claims` is missing", "claims: { iss: postern@project.example.com }"]],
  },
  {
    title: "an app with a repository's owner, an unknown right and no id",
    yaml: withCredential(
      "type: githubApp, appId: '', installationId: 1.5, privateKey: { env: B }, permissions: { issues: all }, repositories: [acme/tickets]",
    ),
    says: [
      ["2:89 `servers.tickets.credential.appId` is no id", "appId: 12345"],
      ["2:109 `servers.tickets.credential.installationId` is no id", "installationId: 67890"],
      ["2:161 `servers.tickets.credential.permissions.issues` must be read, write or admin", "issues: read"],
      [
        "2:183 `servers.tickets.credential.repositories[0]` must be the name of a repository, without its owner",
        "tickets",
      ],
    ],
  },
  {
    title: "an app with a right of no such name",
    yaml: withCredential(
      'type: githubApp, appId: 1, installationId: 2, privateKey: { env: B }, permissions: { "Issues!": read }',
    ),
    says: [
      [
        "2:148 `servers.tickets.credential.permissions` has a name that is none of a right",
        "permissions: { issues: read, pull_requests: write }",
      ],
    ],
  },
  {
    title: "a client secret in the file, and a token endpoint in the clear",
    yaml: withCredential(
      "type: oauthClientCredentials, tokenEndpoint: http://idp.internal/token, clientId: x, clientSecret: supersecret, scope: 'a  b', resource: '/mcp'",
    ),
    says: [
      [
        "2:110 `servers.tickets.credential.tokenEndpoint`: http:// is for loopback addresses only",
        "https://idp.internal/token",
      ],
      [
        "2:164 `servers.tickets.credential.clientSecret`: a secret is never written into this file",
        "clientSecret: { file: PATH }   or { env: NAME } or { vault: { mount, path, field } }",
      ],
      [
        "2:184 `servers.tickets.credential.scope` must be scopes with one space between them",
        'scope: "mcp:read mcp:write"',
      ],
      [
        "2:202 `servers.tickets.credential.resource` is no absolute URI without fragment",
        "resource: https://tickets.internal/mcp",
      ],
    ],
  },
  {
    title: "a password in the file",
    yaml: withCredential("type: basic, username: u, password: supersecret"),
    says: [
      [
        "2:101 `servers.tickets.credential.password`: a secret is never written into this file",
        "password: { file: PATH }   or { env: NAME } or { vault: { mount, path, field } }",
      ],
    ],
  },
  {
    title: "a password behind the user name",
    yaml: withCredential('type: basic, username: "u:supersecret", password: { file: t }'),
    says: [
      [
        "2:88 `servers.tickets.credential.username` holds a colon, which would end it",
        "the name alone; the password has its own key",
      ],
    ],
  },
  {
    title: "a password without a user name",
    yaml: withCredential("type: basic, password: { file: t }"),
    says: [["2:63 `servers.tickets.credential.username` is missing", "username: svc-tickets"]],
  },
  {
    title: "secrets for keys of a user name and a password",
    yaml: withCredential("type: basic, username: { supersecret: x }, password: { file: t, supersecret: y }"),
    says: [
      ["2:90 `servers.tickets.credential.username` has an unknown key", "one of: vault, file, env"],
      ["2:129 `servers.tickets.credential.password` has an unknown key", "one of: vault, file, env"],
    ],
  },
  {
    title: "no header at all",
    yaml: withCredential("type: headers, headers: {}"),
    says: [
      [
        "2:89 `servers.tickets.credential.headers` names no header",
        "headers: { X-Api-Key: { file: PATH }, X-Org: acme }",
      ],
    ],
  },
  {
    title: "C24 headers in two spellings, and such as are not for configuring",
    yaml: withCredential(
      'type: headers, headers: { X-Key: { file: t }, x-key: acme, Mcp-Name: a, traceparent: { env: T }, "a b": x }',
    ),
    says: [
      ["2:111 `x-key` is the header of line 2 in another spelling", "each header once"],
      ["2:124 `Mcp-Name` belongs to HTTP or MCP itself", "X-Api-Key, or Authorization"],
      ["2:137 `traceparent` belongs to HTTP or MCP itself", "X-Api-Key, or Authorization"],
      ["2:162 `a b` is no header name", "X-Api-Key"],
    ],
  },
  {
    title: "C24 a secret as the text of a header, of a name that tells it",
    yaml: withCredential(
      "type: headers, headers: { X-Org: acme, Authorization: supersecret, PRIVATE-TOKEN: supersecret }",
    ),
    says: [
      [
        "2:119 `Authorization`: a secret is never written into this file",
        "Authorization: { file: PATH }   or { env: NAME } or { vault: { … } }",
      ],
      [
        "2:147 `PRIVATE-TOKEN`: a secret is never written into this file",
        "PRIVATE-TOKEN: { file: PATH }   or { env: NAME } or { vault: { … } }",
      ],
    ],
  },
  {
    title: "values that are none",
    yaml: withCredential(
      'type: headers, headers: { X-Key: { supersecret: t }, X-Org: "a\\nb", X-None: , X-Number: 7, X-Both: { file: a, env: B } }',
    ),
    says: [
      ["2:100 `servers.tickets.credential.headers.X-Key` has an unknown key", "one of: vault, file, env"],
      [
        "2:125 `servers.tickets.credential.headers.X-Org` holds what no header may carry",
        "printable ASCII on one line, without a blank at either end",
      ],
      [
        "2:133 `servers.tickets.credential.headers.X-None` has no value",
        "X-Api-Key: { file: /run/secrets/postern/NAME }",
      ],
      [
        "2:153 `servers.tickets.credential.headers.X-Number` must be the value of a header, or a source of it",
        "X-Api-Key: { file: /run/secrets/postern/NAME }",
      ],
      [
        "2:164 `servers.tickets.credential.headers.X-Both` names several sources",
        "one of { file: PATH }, { env: NAME }, { vault: { mount, path, field } }",
      ],
    ],
  },
  {
    title: "C24 a header that agents send",
    yaml: withCredential("type: header, name: tracestate, value: { env: X }"),
    says: [
      ["2:85 `servers.tickets.credential.name` belongs to HTTP or MCP itself", "name: X-Api-Key, or Authorization"],
    ],
  },
  {
    title: "C24 a bearer token in the file",
    yaml: gatewayWith(
      2,
      "servers: { tickets: { url: http://t.internal/mcp, credential: { type: bearer, token: supersecret } } }",
    ),
    says: [
      [
        "2:86 `servers.tickets.credential.token`: a secret is never written into this file",
        "token: { file: PATH }   or { env: NAME } or { vault: { mount, path, field } }",
      ],
    ],
  },
  {
    title: "C24 a header that is not for configuring",
    yaml: gatewayWith(
      2,
      'servers: { tickets: { url: http://t.internal/mcp, credential: { type: header, name: Mcp-Session-Id, value: { env: X }, prefix: "a\\nb" } } }',
    ),
    says: [
      ["2:85 `servers.tickets.credential.name` belongs to HTTP or MCP itself", "name: X-Api-Key, or Authorization"],
      [
        "2:128 `servers.tickets.credential.prefix` holds what no header may carry, or more than 64 characters",
        'prefix: "Token "',
      ],
    ],
  },
  {
    title: "a credential type in other case",
    yaml: gatewayWith(2, "servers: { tickets: { url: http://t.internal/mcp, credential: { type: Bearer } } }"),
    says: [
      [
        "2:71 `servers.tickets.credential.type` must be bearer, basic, header, headers, oauthClientCredentials, oauthRefreshToken, jwtBearer, githubApp, tokenExchange, mtls, vaultDynamic or vaultIdentity",
        "type: bearer",
      ],
    ],
  },
  {
    title: "a credential as text",
    yaml: gatewayWith(2, "servers: { tickets: { url: http://t.internal/mcp, credential: bearer } }"),
    says: [["2:63 `servers.tickets.credential` must be a map", "credential: { type: bearer, token: { file: PATH } }"]],
  },
  {
    title: "a credential without type",
    yaml: gatewayWith(2, "servers: { tickets: { url: http://t.internal/mcp, credential: { token: { file: t } } } }"),
    says: [
      [
        "2:63 `servers.tickets.credential.type` is missing",
        "type: bearer, or another: docs/credentials.md names an example of each",
      ],
    ],
  },
  {
    title: "a Vault source without a Vault",
    yaml: gatewayWith(
      2,
      "servers: { tickets: { url: http://t.internal/mcp, credential: { type: bearer, token: { vault: { mount: secret, path: a, field: b } } } } }",
    ),
    says: [
      [
        "2:88 `servers.tickets.credential.token` reads from Vault, but the file names none",
        "vault: { address: https://vault.internal:8200, auth: { … } } at the top of the file",
      ],
    ],
  },
  {
    title: "a map for a path",
    yaml: gatewayWith(
      4,
      "vault: { address: https://v.internal, auth: { method: token, token: { file: { principal: id } } } }",
    ),
    says: [["4:77 `vault.auth.token.file` must be the path of a file", "file: /run/secrets/postern/NAME"]],
  },
  {
    title: "a path that depends on the principal",
    yaml: gatewayWith(
      1,
      "relay: { url: wss://r.example.com, tunnel: acme, token: { vault: { mount: s, path: 'a/{principal.id}', field: b } } }",
    ),
    says: [
      [
        "1:59 `relay.token` reads from Vault, but the file names none",
        "vault: { address: https://vault.internal:8200, auth: { … } } at the top of the file",
      ],
      ["1:84 `relay.token.vault.path` depends on who calls, but nobody calls here", "a fixed path"],
    ],
  },
  {
    title: "a client certificate that depends on the principal",
    yaml: [
      withCredential(
        "type: mtls, certificate: { vault: { mount: s, path: 'a/{principal.id}', field: b } }, privateKey: { file: k }",
      ),
      "vault: { address: https://v.internal, auth: { method: token, token: { file: t } } }",
      `agents: { verify: edge, keys: [ { name: a, sha256: ${"a".repeat(64)} } ] }`,
    ].join("\n"),
    says: [
      [
        "2:28 `servers.tickets.url` must begin with https:// for a certificate to be shown",
        "url: https://t.internal/mcp",
      ],
      [
        "2:117 `servers.tickets.credential.certificate.vault.path` depends on who calls, which this type of credential cannot",
        "a fixed path",
      ],
    ],
  },
  {
    title: "a path that depends on the principal, whom only the relay has verified",
    yaml: [
      withCredential("type: bearer, token: { vault: { mount: s, path: 'a/{principal.id}', field: b } }"),
      "vault: { address: https://v.internal, auth: { method: token, token: { file: t } } }",
      "agents: { verify: relay }",
    ].join("\n"),
    says: [
      [
        "2:113 `servers.tickets.credential.token.vault.path` depends on who calls, which needs `agents.verify: edge`",
        "agents: { verify: edge, keys or issuers: [ … ] }, so that the gateway itself knows who calls",
      ],
    ],
  },
  {
    title: "other things of the principal in a path, and the principal in a mount",
    yaml: [
      withCredential(
        "type: basic, username: { vault: { mount: s, path: 'a/{principal.claims.team}', field: b } }, password: { vault: { mount: '{principal.id}', path: 'a/{x', field: b } }",
      ),
      "vault: { address: https://v.internal, auth: { method: token, token: { file: t } } }",
    ].join("\n"),
    says: [
      [
        "2:115 `servers.tickets.credential.username.vault.path` may hold {principal.id} and no other braces",
        "mcp/tickets/{principal.id}",
      ],
      ["2:186 `servers.tickets.credential.password.vault.mount` is the same for every principal", "a fixed path"],
      [
        "2:210 `servers.tickets.credential.password.vault.path` may hold {principal.id} and no other braces",
        "mcp/tickets/{principal.id}",
      ],
    ],
  },
  {
    title: "the principal in a path without quotes",
    yaml: withCredential("type: bearer, token: { vault: { mount: s, path: a/{principal.id}, field: b } }"),
    says: [
      ["2:115 `{` begins a map in YAML where brackets are open", 'the path in quotes: "mcp/tickets/{principal.id}"'],
    ],
  },
  {
    title: "an exchange of tokens that nobody has verified",
    yaml: withCredential("type: tokenExchange, tokenEndpoint: https://i.com/t, clientId: x, clientSecret: { env: A }"),
    says: [
      [
        "2:71 `type: tokenExchange` needs `agents.verify: edge`",
        "agents: { verify: edge, issuers: [ … ] }, so that the gateway itself knows who calls",
      ],
    ],
  },
  {
    title: "an exchange for agents that have keys alone, and without an endpoint",
    yaml: [
      withCredential("type: tokenExchange, clientId: x, clientSecret: { env: A }, clientAuth: privateKeyJwt"),
      `agents: { verify: edge, keys: [ { name: a, sha256: "${"a".repeat(64)}" } ] }`,
    ].join("\n"),
    says: [
      [
        "2:63 `servers.tickets.credential.tokenEndpoint` is missing",
        "tokenEndpoint: https://idp.example.com/token, or issuer: https://idp.example.com",
      ],
      [
        "2:71 `type: tokenExchange` needs agents with tokens: `agents.issuers`",
        "agents: { verify: edge, issuers: [ … ] }, so that the gateway itself knows who calls",
      ],
      ["2:137 `servers.tickets.credential.clientAuth` must be basic or post for `tokenExchange`", "clientAuth: basic"],
    ],
  },
  {
    title: "a server by command",
    yaml: gatewayWith(2, "servers: { tickets: { command: [node, x.js] } }"),
    says: [
      [
        "2:23 `command` is not in this version yet",
        "url: http://tickets.internal:8080/mcp   (a Streamable HTTP server)",
      ],
    ],
  },
  {
    title: "a unix socket",
    yaml: gatewayWith(2, "servers: { tickets: { url: 'unix:/run/x.sock' } }"),
    says: [["2:28 `servers.tickets.url`: `unix:` is not in this version yet", "url: https://host.example.com/mcp"]],
  },
  {
    title: "keys of later versions in a server",
    yaml: gatewayWith(2, "servers: { tickets: { url: http://t.internal/mcp, timeouts: {} } }"),
    says: [["2:51 `timeouts` is not in this version yet", "timeouts: { … } at the top of the file, for all servers"]],
  },
  {
    title: "a reflection that is neither cut out nor blocked",
    yaml: gatewayWith(2, "servers: { tickets: { url: http://t.internal/mcp, onReflect: allow } }"),
    says: [["2:62 `servers.tickets.onReflect` must be redact or block", "onReflect: redact"]],
  },
  {
    title: "a key in an upstream's query",
    yaml: gatewayWith(2, "servers: { tickets: { url: 'http://t.internal/mcp?api_key=supersecret' } }"),
    says: [
      [
        "2:28 `servers.tickets.url`: the query seems to hold a secret, which is never written into this file",
        "http://t.internal/mcp",
      ],
    ],
  },
  {
    title: "a server as text",
    yaml: gatewayWith(2, "servers: { tickets: http://t.internal/mcp }"),
    says: [["2:21 `servers.tickets` must be a map", "{ url: http://tickets.internal:8080/mcp }"]],
  },
  {
    title: "a backslash in a URL",
    yaml: gatewayWith(2, "servers: { tickets: { url: 'http://t.internal\\mcp' } }"),
    says: [["2:28 `servers.tickets.url` is no address with scheme and host", "https://host.example.com/mcp"]],
  },
  {
    title: "a server's bad name and scheme",
    yaml: gatewayWith(2, "servers: { Tickets: { url: ftp://t.internal/mcp } }"),
    says: [
      ["2:12 `Tickets` is no name: a-z, 0-9 and -, at most 63, not beginning with -", "tickets"],
      ["2:28 `servers.Tickets.url` must begin with https:// or http://", "https://t.internal/mcp"],
      ["3:34 there is no server `tickets` in the gateway's file", "Tickets"],
    ],
  },
  {
    title: "agents verified at the edge, of whom there are none",
    yaml: gatewayWith(4, "agents: { verify: edge, keys: [], issuers: [] }"),
    says: [
      [
        "4:19 `agents.verify` lets nobody in without `keys` or `issuers`",
        "keys: [ { name: claude-prod, sha256: HASH } ], or issuers: [ { issuer: …, audience: … } ]",
      ],
    ],
  },
  {
    title: "agents' keys that nobody reads",
    yaml: gatewayWith(4, "agents: { keys: [{ name: a, sha256: HASH_A }] }"),
    says: [["4:17 `agents.keys` is read with `verify: edge` only", "verify: edge beside it, or the file without it"]],
  },
  {
    title: "issuers that nobody reads",
    yaml: gatewayWith(4, "agents: { verify: relay, issuers: [{ issuer: https://i.example.com, audience: x }] }"),
    says: [
      ["4:35 `agents.issuers` is read with `verify: edge` only", "verify: edge beside it, or the file without it"],
    ],
  },
  {
    title: "agents' keys that are none, and one key for two agents",
    yaml: gatewayWith(
      4,
      "agents: { verify: edge, keys: [{ name: a, sha256: HASH_A }, { name: b, sha256: [HASH_A] }, { name: a, sha256: [] }, { name: A B, sha256: pak_supersecret }] }",
    ),
    says: [
      ["4:139 this hash belongs to another entry already", "the hash of a secret of its own"],
      ["4:216 `agents.keys[2]` has the name of an entry of line 4", "each entry once"],
      [
        "4:227 `agents.keys[2].sha256` must be a hash, or a list of hashes",
        'sha256: "HASH"   (postern token new --kind agent prints it)',
      ],
      ["4:241 `agents.keys[3].name` is no name: a-z, 0-9 and -, at most 63, not beginning with -", "a-b"],
      [
        "4:254 `agents.keys[3].sha256`: here stands a secret itself, not its hash; it is known to whoever read this file",
        "the hash of a new one, as `postern token new --kind agent` prints it",
      ],
    ],
  },
  {
    title: "issuers that are not to be believed, or for nobody in particular",
    yaml: gatewayWith(
      4,
      "agents: { verify: edge, issuers: [{ issuer: http://i.example.com, audience: x }, { issuer: https://i.example.com }, { issuer: https://i.example.com, audience: x, algorithms: [HS256], extra: 1 }] }",
    ),
    says: [
      ["4:45 `agents.issuers[0].issuer`: http:// is for loopback addresses only", "https://i.example.com"],
      ["4:82 `agents.issuers[1].audience` is missing", "audience: https://relay.example.com/acme/tickets/mcp"],
      ["4:176 `agents.issuers[2].algorithms[0]`: with a symmetric algorithm, whoever verifies can also sign", "RS256"],
      [
        "4:184 unknown key `extra` in `agents.issuers[2]`",
        "one of: issuer, audience, algorithms, requiredScopes, clientIds, jwks, ca, requireTyp",
      ],
    ],
  },
  {
    title: "an unknown way to verify",
    yaml: gatewayWith(4, "agents: { verify: gateway }"),
    says: [["4:19 `agents.verify` must be relay or edge", "verify: relay"]],
  },
  {
    title: "an admin token that is written here",
    yaml: gatewayWith(4, "admin: { token: hunter2-hunter2-hunter2 }"),
    says: [
      ["4:17 `admin.token`: a secret is never written into this file", "token: { file: PATH }   or { env: NAME }"],
    ],
  },
  {
    title: "an admin token in Vault",
    yaml: gatewayWith(4, "admin: { token: { vault: { mount: secret, path: postern, field: admin } } }"),
    says: [
      ["4:17 `admin.token`: status is wanted most while Vault is away", "{ file: PATH } or { env: NAME }"],
      [
        "4:19 `admin.token` reads from Vault, but the file names none",
        "vault: { address: https://vault.internal:8200, auth: { … } } at the top of the file",
      ],
    ],
  },
  {
    title: "a port alone, beside an admin token",
    yaml: gatewayWith(4, "admin: { listen: 9464, token: { file: t } }"),
    says: [["4:18 `admin.listen` needs a host beside the port", '"127.0.0.1:9464"']],
  },
  {
    title: "an address without host",
    yaml: gatewayWith(4, "admin: { listen: ':9464' }"),
    says: [["4:18 `admin.listen` needs a host beside the port", '"0.0.0.0:9464" for every interface']],
  },
  {
    title: "a port that does not exist",
    yaml: gatewayWith(4, "admin: { listen: '127.0.0.1:99999' }"),
    says: [["4:18 `admin.listen`: there is no such port", "a port from 1 to 65535"]],
  },
  {
    title: "an unknown way to fail",
    yaml: gatewayWith(4, "audit: { file: a.jsonl, onError: contine }"),
    says: [["4:34 `audit.onError` must be deny or continue", "onError: continue"]],
  },
  {
    title: "a size in MB, and no streams",
    yaml: gatewayWith(4, "limits: { requestBytes: 5MB, streams: 0 }"),
    says: [
      ["4:25 `limits.requestBytes` has no unit that is known here (B, KiB, MiB, GiB)", "5MiB"],
      ["4:39 `limits.streams` must be a whole number from 1 to 65536", "streams: 2048"],
    ],
  },
  {
    title: "a size without unit",
    yaml: gatewayWith(4, "limits: { requestBytes: 4096, streams: many }"),
    says: [
      ["4:25 `limits.requestBytes` has no unit that is known here (B, KiB, MiB, GiB)", "4096B"],
      ["4:40 `limits.streams` must be a whole number from 1 to 65536", "streams: 2048"],
    ],
  },
  {
    title: "a space before the unit",
    yaml: gatewayWith(4, "limits: { requestBytes: 4 MiB, streams: 1.5 }"),
    says: [
      ["4:25 `limits.requestBytes` has no unit that is known here (B, KiB, MiB, GiB)", "4MiB"],
      ["4:41 `limits.streams` must be a whole number from 1 to 65536", "streams: 2048"],
    ],
  },
  {
    title: "an unknown unit",
    yaml: gatewayWith(4, "limits: { requestBytes: 4TiB }"),
    says: [
      [
        "4:25 `limits.requestBytes` has no unit that is known here (B, KiB, MiB, GiB)",
        "a whole number with B, KiB, MiB or GiB, such as 4MiB",
      ],
    ],
  },
  {
    title: "a size that no process should hold",
    yaml: gatewayWith(4, "limits: { requestBytes: 1GiB }"),
    says: [["4:25 `limits.requestBytes` is more than one process should hold", "256MiB, or less"]],
  },
  {
    title: "a size as a list",
    yaml: gatewayWith(4, "limits: { requestBytes: [4MiB] }"),
    says: [["4:25 `limits.requestBytes` must be a size", "a whole number with B, KiB, MiB or GiB, such as 4MiB"]],
  },
  {
    title: "minutes spelt out, and two units",
    yaml: gatewayWith(4, "timeouts: { firstByte: 5min, idle: 1m30s }"),
    says: [
      ["4:24 `timeouts.firstByte` has no unit that is known here (ms, s, m, h)", "5m"],
      ["4:36 `timeouts.idle` must be a duration", "a whole number with ms, s, m or h, such as 90s"],
    ],
  },
  {
    title: "longer than a timer, and before now",
    yaml: gatewayWith(4, "timeouts: { firstByte: 600h, idle: -5s }"),
    says: [
      ["4:24 `timeouts.firstByte` is longer than a timer can wait", "596h, or less"],
      ["4:36 `timeouts.idle` must be a duration", "a whole number with ms, s, m or h, such as 90s"],
    ],
  },
  {
    title: "no policy",
    yaml: gatewayWith(3, "# none"),
    says: [["1:1 `policy` is missing", "policy: ./policy.yaml"]],
  },
  {
    title: "a policy file that is not there",
    yaml: gatewayWith(3, "policy: ./nowhere.yaml"),
    says: [["3:9 `policy` names nowhere.yaml: this file does not exist", "the path of an existing file"]],
  },
  {
    title: "a policy as a list",
    yaml: gatewayWith(3, "policy: []"),
    says: [["3:9 `policy` must be the path of a policy file, or the policy itself", "policy: ./policy.yaml"]],
  },
  {
    title: "C17 policy with nothing",
    yaml: gatewayWith(3, "policy:"),
    says: [["3:1 `policy` has no value", "policy: ./policy.yaml"]],
  },
  {
    title: "a policy for a misspelt server",
    yaml: gatewayWith(3, "policy: { version: 1, servers: { tikets: { tools: [a] } } }"),
    says: [["3:34 there is no server `tikets` in the gateway's file", "tickets"]],
  },
  {
    title: "problems in an inline policy",
    yaml: gatewayWith(3, "policy:\n  version: 1\n  servers:\n    tickets: { tools: get_x, limits: {} }"),
    says: [
      ["6:23 `servers.tickets.tools` must be a list of rules", 'tools: ["get_x"]'],
      ["6:30 `limits` is not in this version yet", "the entry without `limits`"],
    ],
  },
  {
    title: "a replica's name with a space",
    yaml: gatewayWith(4, "gateway: { id: 'a b' }"),
    says: [["4:16 `gateway.id` must be letters, digits, dots, _ and -, at most 128", "id: edge-1"]],
  },
  {
    title: "a replica's name that the tunnel does not carry",
    yaml: gatewayWith(4, `gateway: { id: ${"x".repeat(129)} }`),
    says: [["4:16 `gateway.id` must be letters, digits, dots, _ and -, at most 128", "id: edge-1"]],
  },
];
