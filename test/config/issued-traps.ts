import { gatewayWith, type Trap } from "./traps.ts";

const vault = "vault: { address: https://v.internal, auth: { method: token, token: { file: t } } }";
const credential = (keys: string, url = "https://t.internal/mcp"): string =>
  `${gatewayWith(2, `servers: { tickets: { url: ${url}, credential: { ${keys} } } }`)}\n${vault}`;

/** Client certificates, and credentials that Vault issues. */
export const issuedTraps: readonly Trap[] = [
  {
    title: "a client certificate for a server without TLS",
    yaml: credential("type: mtls, certificate: { file: c }, privateKey: { file: k }", "http://t.internal/mcp"),
    says: [
      [
        "2:28 `servers.tickets.url` must begin with https:// for a certificate to be shown",
        "url: https://t.internal/mcp",
      ],
    ],
  },
  {
    title: "a client certificate without a key, and a key without a certificate",
    yaml: credential("type: mtls, certificate: { file: c }"),
    says: [
      ["2:64 `servers.tickets.credential.privateKey` is missing", "privateKey: { file: /run/secrets/postern/NAME }"],
    ],
  },
  {
    title: "a key without a certificate",
    yaml: credential("type: mtls, privateKey: { file: k }"),
    says: [
      ["2:64 `servers.tickets.credential.certificate` is missing", "certificate: { file: /run/secrets/postern/NAME }"],
    ],
  },
  {
    title: "a certificate that is stored and issued at once",
    yaml: credential("type: mtls, certificate: { file: c }, pki: { mount: pki, role: r, commonName: n }"),
    says: [["2:109 `servers.tickets.credential.pki` stands beside `certificate`", "one of the two"]],
  },
  {
    title: "a key as text, a mount with slashes, no name",
    yaml: credential("type: mtls, certificate: supersecret, pki: { mount: pki/, role: a/b }"),
    says: [
      [
        "2:91 `servers.tickets.credential.certificate`: a secret is never written into this file",
        "certificate: { file: PATH }   or { env: NAME } or { vault: { mount, path, field } }",
      ],
      ["2:109 `servers.tickets.credential.pki.commonName` is missing", "commonName: postern.internal"],
      ["2:118 `servers.tickets.credential.pki.mount` must not begin or end with /", "pki"],
      ["2:130 `servers.tickets.credential.pki.role` is no name of a role", "role: postern"],
    ],
  },
  {
    title: "a lease outside vaultDynamic",
    yaml: credential("type: bearer, token: { lease: token }"),
    says: [["2:89 `servers.tickets.credential.token` has an unknown key", "one of: vault, file, env"]],
  },
  {
    title: "a lease of which nothing is read",
    yaml: credential("type: vaultDynamic, vault: { path: ssh/creds/a }, as: { type: bearer, token: { file: t } }"),
    says: [
      [
        "2:120 `servers.tickets.credential.as` reads nothing of what Vault issues",
        "as: { type: bearer, token: { lease: FIELD } }",
      ],
    ],
  },
  {
    title: "what is issued sent as text, a method of HTTP, a list as parameter",
    yaml: credential(
      "type: vaultDynamic, vault: { path: ssh/creds/a, method: POST, parameters: { ip: [a] } }, as: { type: bearer, token: supersecret }",
    ),
    says: [
      ["2:122 `servers.tickets.credential.vault.method` must be read or write", "method: read"],
      [
        "2:146 `servers.tickets.credential.vault.parameters.ip` must be text, a number, true or false",
        "minimum_seconds: 60",
      ],
      [
        "2:182 `servers.tickets.credential.as.token`: a secret is never written into this file",
        "token: { lease: FIELD }",
      ],
    ],
  },
  {
    title: "a secret among the parameters",
    yaml: credential(
      "type: vaultDynamic, vault: { path: a/b, parameters: { client_secret: supersecret } }, as: { type: bearer, token: { lease: t } }",
    ),
    says: [
      [
        "2:118 `servers.tickets.credential.vault.parameters` seems to hold a secret, which is never written into this file",
        "what is secret belongs into the engine's own configuration",
      ],
    ],
  },
  {
    title: "a grant of which the lease would be the secret",
    yaml: credential(
      "type: vaultDynamic, vault: { path: ssh/creds/a }, as: { type: oauthClientCredentials, tokenEndpoint: https://i/t }",
    ),
    says: [["2:128 `servers.tickets.credential.as.type` must be bearer, basic, header or headers", "type: bearer"]],
  },
  {
    title: "a header of HTTP's own, and one twice, of what is issued",
    yaml: credential(
      "type: vaultDynamic, vault: { path: a/b }, as: { type: headers, headers: { Host: { lease: h }, X-Key: { lease: k }, x-key: { lease: k } } }",
    ),
    says: [
      ["2:140 `Host` belongs to HTTP or MCP itself", "X-Api-Key, or Authorization"],
      ["2:181 `x-key` is the header of line 2 in another spelling", "each header once"],
    ],
  },
  {
    title: "an identity that is sent in no way that is known",
    yaml: credential("type: vaultIdentity, role: tickets, as: header"),
    says: [
      ["2:106 `servers.tickets.credential.as` must be bearer, or a map of type oauthClientCredentials", "as: bearer"],
    ],
  },
  {
    title: "an identity as client assertion with a secret of its own",
    yaml: credential(
      "type: vaultIdentity, role: tickets, as: { type: oauthClientCredentials, issuer: https://i.example, clientId: c, clientSecret: { env: S } }",
    ),
    says: [
      [
        "2:178 unknown key `clientSecret` in `servers.tickets.credential.as`",
        "one of: type, tokenEndpoint, issuer, ca, clientId, scope, resource, audience",
      ],
    ],
  },
  {
    title: "what Vault issues, without a Vault",
    yaml: gatewayWith(
      2,
      "servers: { tickets: { url: https://a/mcp, credential: { type: vaultIdentity, role: r, as: bearer } }, b: { url: https://b/mcp, credential: { type: mtls, pki: { mount: p, role: r, commonName: n } } } }",
    ),
    says: [
      [
        "2:57 `servers.tickets.credential` reads from Vault, but the file names none",
        "vault: { address: https://vault.internal:8200, auth: { … } } at the top of the file",
      ],
      [
        "2:154 `servers.b.credential` reads from Vault, but the file names none",
        "vault: { address: https://vault.internal:8200, auth: { … } } at the top of the file",
      ],
    ],
  },
];
