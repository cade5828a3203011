import { writeFileSync } from "node:fs";
import { internalCa } from "../support/internal-ca.ts";
import { gatewayWith, relayWith, type Trap, writeConfig } from "./traps.ts";

const noPem = "a file of -----BEGIN CERTIFICATE----- blocks (DER: openssl x509 -inform der -in FILE -out FILE.pem)";

/** A path outside the folder of the document, whose name messages keep. */
function place(name: string, content: string | Buffer): string {
  const file = writeConfig(name, "");
  writeFileSync(file, content);
  return file;
}

const there = place("there.pem", internalCa);
const key = place("key.pem", "-----BEGIN PRIVATE KEY-----\nsupersecret\n-----END PRIVATE KEY-----\n");
const der = place("ca.der", Buffer.from(internalCa.split("\n").slice(1, -1).join(""), "base64"));

function server(keys: string): string {
  return gatewayWith(2, `servers: { tickets: { ${keys} } }`);
}

/** Files of certificates in gateway.yaml that cannot be what was meant. */
export const caTraps: readonly Trap[] = [
  {
    title: "a CA file that is not there",
    yaml: server("url: https://t.internal/mcp, ca: ./gone.pem"),
    says: [["2:56 `servers.tickets.ca` names gone.pem: this file does not exist", "a PEM file that is mounted here"]],
  },
  {
    title: "a folder for a CA file",
    yaml: server("url: https://t.internal/mcp, ca: /"),
    says: [["2:56 `servers.tickets.ca` names /: this file is no regular file", "a PEM file that is mounted here"]],
  },
  {
    title: "a key, and DER, for a CA file",
    yaml: gatewayWith(
      2,
      `servers: { tickets: { url: https://t.internal/mcp, ca: ${key} }, crm: { url: https://c.internal/mcp, ca: ${der} } }`,
    ),
    says: [
      [`2:56 \`servers.tickets.ca\` names ${key}, which holds no PEM certificate`, noPem],
      [`2:${56 + key.length + 44} \`servers.crm.ca\` names ${der}, which holds no PEM certificate`, noPem],
    ],
  },
  {
    title: "a CA file where there is no TLS",
    yaml: server(`url: http://t.internal/mcp, ca: ${there}`),
    says: [
      [
        "2:55 `servers.tickets.ca`: `url` is http://, where there is no certificate",
        "url: https://…, or the file without `ca`",
      ],
    ],
  },
  {
    title: "a CA file beside an address with a password, which is not shown",
    yaml: server(`url: "http://u:supersecret@t.internal/mcp", ca: ${there}`),
    says: [
      [
        "2:28 `servers.tickets.url` holds user info: a secret is never written into this file",
        "http://t.internal, and a source",
      ],
      [
        "2:71 `servers.tickets.ca`: `url` is http://, where there is no certificate",
        "url: https://…, or the file without `ca`",
      ],
    ],
  },
  {
    title: "a CA file of a server whose name is a key's",
    yaml: gatewayWith(2, "servers: { credential: { url: https://t.internal/mcp, ca: gone.pem } }").replace(
      "tickets",
      "credential",
    ),
    says: [
      ["2:59 `servers.credential.ca` names gone.pem: this file does not exist", "a PEM file that is mounted here"],
    ],
  },
  {
    title: "a CA file beside that of a client certificate",
    yaml: server(
      `url: https://t.internal/mcp, ca: ${there}, credential: { type: mtls, certificate: { file: c }, privateKey: { file: k }, ca: { file: ca } }`,
    ),
    says: [
      [
        "2:56 `servers.tickets.ca` stands beside `ca` of the credential",
        "keep that of the credential, which alone is trusted then",
      ],
    ],
  },
  {
    title: "the text of a CA, a source, and a path of a shell",
    yaml: gatewayWith(
      2,
      "servers: { tickets: { url: https://a.internal/mcp, ca: { file: ca.pem } }, b: { url: https://b.internal/mcp, ca: ~/ca.pem } }",
    ),
    says: [
      ["2:56 `servers.tickets.ca` must be the path of a PEM file", "ca: /etc/postern/server-ca.pem"],
      ["2:114 `servers.b.ca`: ~ is not expanded here", "the whole path, or one relative to this file"],
    ],
  },
  {
    title: "the CA of a server in its credential",
    yaml: server("url: https://t.internal/mcp, credential: { type: bearer, token: { file: t }, ca: /etc/ca.pem }"),
    says: [["2:100 unknown key `ca` in `servers.tickets.credential`", "the same beside `credential`, not in it"]],
  },
  {
    title: "CA files of token endpoints that are not there, or where there is no TLS, or as a source",
    yaml: gatewayWith(
      2,
      [
        "servers:",
        "  tickets: { url: https://t.internal/mcp, credential: { type: oauthClientCredentials, issuer: https://i.x, clientId: c, clientSecret: { file: s }, ca: gone.pem } }",
        `  crm: { url: https://c.internal/mcp, credential: { type: jwtBearer, tokenEndpoint: http://127.0.0.1/t, privateKey: { file: k }, claims: { iss: i }, ca: ${there} } }`,
        "  gh: { url: https://g.internal/mcp, credential: { type: githubApp, appId: 1, installationId: 2, privateKey: { file: k }, ca: { file: ca.pem } } }",
      ].join("\n"),
    ),
    says: [
      [
        "3:152 `servers.tickets.credential.ca` names gone.pem: this file does not exist",
        "a PEM file that is mounted here",
      ],
      [
        "4:154 `servers.crm.credential.ca`: `tokenEndpoint` is http://, where there is no certificate",
        "tokenEndpoint: https://…, or the file without `ca`",
      ],
      ["5:127 `servers.gh.credential.ca` must be the path of a PEM file", "ca: /etc/postern/idp-ca.pem"],
    ],
  },
  {
    title: "the CA file of an endpoint that takes an identity of Vault",
    yaml: `${server(
      "url: https://t.internal/mcp, credential: { type: vaultIdentity, role: r, as: { type: oauthClientCredentials, tokenEndpoint: https://i.x/t, clientId: c, ca: gone.pem } }",
    )}\nvault: { address: https://v.internal, auth: { method: kubernetes, role: r } }`,
    says: [
      [
        "2:179 `servers.tickets.credential.as.ca` names gone.pem: this file does not exist",
        "a PEM file that is mounted here",
      ],
    ],
  },
  {
    title: "CA files of issuers that are not there, or that nothing reads",
    yaml: gatewayWith(
      4,
      `agents: { verify: edge, issuers: [{ issuer: https://i.x, audience: a, ca: gone.pem }, { issuer: https://j.x, audience: a, jwks: keys.json, ca: ${there} }] }`,
    ),
    says: [
      ["4:75 `agents.issuers[0].ca` names gone.pem: this file does not exist", "a PEM file that is mounted here"],
      ["4:144 `agents.issuers[1].ca` is not read: the keys come from a file", "the file without it"],
    ],
  },
];

/** The same in relay.yaml. */
export const relayCaTraps: readonly Trap[] = [
  {
    title: "CA files of issuers that are not there, or where there is no TLS",
    yaml: relayWith(
      4,
      `    gateways: [{ name: edge, jwt: { issuer: http://127.0.0.1, audience: r, subject: s, ca: ${there} } }]`,
    ).replace("name: bot, keySha256: [HASH_B]", "oauth: { issuer: https://i.x, ca: gone.pem }"),
    says: [
      [
        "4:92 `tunnels.acme.gateways[0].jwt.ca`: `issuer` is http://, where there is no certificate",
        "issuer: https://…, or the file without `ca`",
      ],
      [
        "5:50 `tunnels.acme.agents[0].oauth.ca` names gone.pem: this file does not exist",
        "a PEM file that is mounted here",
      ],
    ],
  },
];
