import { gatewayWith, relayWith, type Trap } from "./traps.ts";

/** What people write into relay.yaml by mistake, and all that is said of it: place and message, then the cure. */
export const relayTraps: readonly Trap[] = [
  {
    title: "one port for agents and for probes",
    yaml: relayWith(6, 'listen: "0.0.0.0:8080"\nadmin: { listen: "127.0.0.1:8080" }'),
    says: [["7:18 `listen` and `admin.listen` share a port", "a port for each, such as 8080 and 9465"]],
  },
  {
    title: "the port for agents on the default one for probes",
    yaml: relayWith(6, 'listen: "127.0.0.1:9465"'),
    says: [["6:9 `listen` and `admin.listen` share a port", "a port for each, such as 8080 and 9465"]],
  },
  {
    title: "a gateway's hash as an agent's",
    yaml: relayWith(5, "    agents: [{ name: bot, keySha256: [HASH_A], servers: [tickets] }]"),
    says: [
      [
        "5:39 this is the hash of a gateway's token, which no agent has",
        "the hash that `postern token new --kind agent` prints",
      ],
    ],
  },
  {
    title: "the gateway's file in place of the relay's",
    yaml: gatewayWith(4, ""),
    says: [["1:1 this is a gateway file, not a relay's", "the relay's file, or `postern gateway`"]],
  },
  {
    title: "nearly nothing",
    yaml: "listen: 8080",
    says: [
      ["1:1 `publicUrl` is missing", "publicUrl: https://relay.example.com"],
      ["1:1 `tunnels` is missing", "tunnels: { acme: { gateways: [ … ], agents: [ … ] } }"],
      ["1:9 `listen` needs a host beside the port", '"127.0.0.1:8080"'],
    ],
  },
  {
    title: "TLS and trusted proxies",
    yaml: relayWith(6, "tls: { certificate: a, key: b }\ntrustedProxies: [10.0.0.0/8]"),
    says: [
      ["6:1 `tls` is not in this version yet", 'listen: "127.0.0.1:8080" behind a load balancer that ends TLS'],
      ["7:17 `trustedProxies` is not in this version yet", "trustedProxies: []"],
    ],
  },
  {
    title: "a public http:// URL",
    yaml: relayWith(1, "publicUrl: http://r.example.com/x"),
    says: [["1:12 `publicUrl`: http:// is for loopback addresses only", "https://r.example.com"]],
  },
  {
    title: "a gateway by JWT that says too little",
    yaml: relayWith(4, "    gateways: [{ name: edge, jwt: { issuer: x } }]"),
    says: [
      ["4:35 `tunnels.acme.gateways[0].jwt.audience` is missing", "audience: https://relay.example.com"],
      ["4:35 `tunnels.acme.gateways[0].jwt.subject` is missing", "subject: system:serviceaccount:postern:gateway"],
      ["4:45 `tunnels.acme.gateways[0].jwt.issuer` is no address with scheme and host", "https://host.example.com"],
    ],
  },
  {
    title: "a gateway by token and by JWT, and one by nothing",
    yaml: relayWith(
      4,
      "    gateways: [{ name: a, tokenSha256: [HASH_A], jwt: { issuer: https://i.x, audience: r, subject: s } }, { name: b }]",
    ),
    says: [
      [
        "4:40 `tunnels.acme.gateways[0].tokenSha256`: a gateway comes with a token or with a JWT",
        "an entry of its own for each",
      ],
      [
        "4:165 `tunnels.acme.gateways[1].tokenSha256` is missing",
        'tokenSha256: ["HASH"]   (postern token new prints it)',
      ],
    ],
  },
  {
    title: "a gateway with servers",
    yaml: relayWith(4, "    gateways: [{ name: edge, tokenSha256: [HASH_A], servers: [a] }]"),
    says: [
      ["4:111 `servers` is not in this version yet", "the gateway without `servers`: its own file says which it has"],
    ],
  },
  {
    title: "issuers that must not be believed",
    yaml: relayWith(
      5,
      "    agents: [{ oauth: { issuer: http://i.example.com }, servers: [] }, { oauth: { issuer: 'https://i.x/?a' }, servers: [] }, { oauth: { issuer: 'https://a:supersecret@i.x' }, servers: [] }]",
    ),
    says: [
      ["5:33 `tunnels.acme.agents[0].oauth.issuer`: http:// is for loopback addresses only", "https://i.example.com"],
      ["5:91 `tunnels.acme.agents[1].oauth.issuer` must have no query", "https://i.x/"],
      [
        "5:145 `tunnels.acme.agents[2].oauth.issuer` holds user info: a secret is never written into this file",
        "https://i.x, and a source",
      ],
    ],
  },
  {
    title: "algorithms that prove nothing, scopes in one text, keys from anywhere",
    yaml: relayWith(
      5,
      "    agents: [{ oauth: { issuer: https://i.x, algorithms: [HS256, none, rs256], requiredScopes: ['a b'], jwks: http://k.x/jwks, requireTyp: 'yes', clientIds: [] }, servers: [a] }]",
    ),
    says: [
      [
        "5:59 `tunnels.acme.agents[0].oauth.algorithms[0]`: with a symmetric algorithm, whoever verifies can also sign",
        "RS256",
      ],
      ["5:66 `tunnels.acme.agents[0].oauth.algorithms[1]`: an unsigned token proves nothing", "RS256"],
      ["5:72 `tunnels.acme.agents[0].oauth.algorithms[2]` is no signature algorithm that is known here", "RS256"],
      ["5:97 `tunnels.acme.agents[0].oauth.requiredScopes[0]` holds several scopes", "[a, b]"],
      ["5:111 `tunnels.acme.agents[0].oauth.jwks`: http:// is for loopback addresses only", "https://k.x/jwks"],
      ["5:140 `tunnels.acme.agents[0].oauth.requireTyp` must be true or false", "requireTyp: true"],
      ["5:158 `tunnels.acme.agents[0].oauth.clientIds` must be a list of client ids", "clientIds: [claude-prod]"],
    ],
  },
  {
    title: "an agent by key and by OAuth, one with a name, and one by nothing",
    yaml: relayWith(
      5,
      "    agents: [{ name: a, keySha256: [HASH_B], oauth: { issuer: https://i.x }, servers: [] }, { name: b, oauth: { issuer: https://i.x }, servers: [] }, { servers: [] }]",
    ),
    says: [
      [
        "5:36 `tunnels.acme.agents[0].keySha256`: agents come with a key or with a token",
        "an entry of its own for each",
      ],
      [
        "5:159 `tunnels.acme.agents[1].name`: who calls is said by the token",
        "{ oauth: { issuer: … }, servers: [tickets] }",
      ],
      ["5:209 `tunnels.acme.agents[2].name` is missing", "name: claude-prod"],
      [
        "5:209 `tunnels.acme.agents[2].keySha256` is missing",
        'keySha256: ["HASH"]   (postern token new --kind agent prints it)',
      ],
    ],
  },
  {
    title: "an agent without servers",
    yaml: relayWith(5, "    agents: [{ name: bot, keySha256: [HASH_B] }]"),
    says: [["5:14 `tunnels.acme.agents[0].servers` is missing", 'servers: [tickets]   (["*"] for all of them)']],
  },
  {
    title: "a key instead of its hash",
    yaml: relayWith(5, "    agents: [{ name: bot, keySha256: [pak_supersecret], servers: [tickets] }]"),
    says: [
      [
        "5:39 `tunnels.acme.agents[0].keySha256[0]`: here stands a secret itself, not its hash; it is known to whoever read this file",
        "the hash of a new one, as `postern token new --kind agent` prints it",
      ],
    ],
  },
  {
    title: "a hash and a server without brackets",
    yaml: relayWith(5, "    agents: [{ name: bot, keySha256: HASH_A, servers: tickets }]"),
    says: [
      [
        "5:38 `tunnels.acme.agents[0].keySha256` must be a list of hashes",
        'keySha256: ["HASH"]   (postern token new --kind agent prints it)',
      ],
      ["5:113 `tunnels.acme.agents[0].servers` must be a list of server names", 'servers: ["tickets"]'],
    ],
  },
  {
    title: "hashes in capitals, that are none, that are numbers",
    yaml: relayWith(
      5,
      '    agents: [{ name: bot, keySha256: [HASH_CAPITAL, supersecret, 12], servers: [Tickets, "*"] }]',
    ),
    says: [
      [
        "5:39 `tunnels.acme.agents[0].keySha256[0]` must be in lower case",
        '"abababababababababababababababababababababababababababababababab"',
      ],
      [
        "5:105 `tunnels.acme.agents[0].keySha256[1]` is no SHA-256 in hex (64 characters of 0-9 and a-f)",
        "the hash that `postern token new --kind agent` prints",
      ],
      [
        "5:118 `tunnels.acme.agents[0].keySha256[2]` must be a hash",
        '"HASH"   (postern token new --kind agent prints it)',
      ],
      [
        "5:133 `tunnels.acme.agents[0].servers[0]` is no name: a-z, 0-9 and -, at most 63, not beginning with -",
        "tickets",
      ],
    ],
  },
  {
    title: "an agent without a hash",
    yaml: relayWith(5, "    agents: [{ name: bot, keySha256: [], servers: [] }]"),
    says: [
      [
        "5:38 `tunnels.acme.agents[0].keySha256` must be a list of hashes",
        'keySha256: ["HASH"]   (postern token new --kind agent prints it)',
      ],
    ],
  },
  {
    title: "one key for two agents",
    yaml: relayWith(
      5,
      "    agents: [{ name: a, keySha256: [HASH_B], servers: [x] }, { name: b, keySha256: [HASH_B], servers: [x] }]",
    ),
    says: [["5:143 this hash belongs to another entry already", "the hash of a secret of its own"]],
  },
  {
    title: "one name for two agents",
    yaml: relayWith(
      5,
      "    agents: [{ name: a, keySha256: [HASH_B], servers: [x] }, { name: a, keySha256: [HASH_D], servers: [x] }]",
    ),
    says: [["5:128 `tunnels.acme.agents[1]` has the name of an entry of line 5", "each entry once"]],
  },
  {
    title: "hosts and origins that would match nothing",
    yaml: relayWith(
      6,
      "allowedHosts: ['*.x.com', 'https://x.com', 'a b']\nallowedOrigins: ['*', 'https://x.com/', x.com]",
    ),
    says: [
      ["6:16 `allowedHosts[0]`: wildcards are not matched here", "each host by its name"],
      ["6:27 `allowedHosts[1]` is a URL, not a host", "x.com"],
      ["6:44 `allowedHosts[2]` is no host", "relay.internal, or relay.internal:8443"],
      ["7:18 `allowedOrigins[0]`: wildcards are not matched here", "each origin in full"],
      ["7:23 `allowedOrigins[1]` is not what a browser sends as Origin", "https://x.com"],
      ["7:41 `allowedOrigins[2]` is no origin (scheme, host, port)", "https://console.example.com"],
    ],
  },
  {
    title: "limits out of bounds, and unknown",
    yaml: relayWith(6, "limits: { streamsPerAgent: 0, headerBytes: 1MiB, streams: 5 }"),
    says: [
      ["6:28 `limits.streamsPerAgent` must be a whole number from 1 to 65536", "streamsPerAgent: 256"],
      ["6:44 `limits.headerBytes` is more than one process should hold", "64KiB, or less"],
      [
        "6:50 unknown key `streams` in `limits`",
        "one of: streamsPerAgent, streamsPerConnection, headerBytes, connections, upgradesPerMinute",
      ],
    ],
  },
  {
    title: "C17 a tunnel with nothing",
    yaml: relayWith(3, "  Acme:"),
    says: [["3:3 `Acme` is no name: a-z, 0-9 and -, at most 63, not beginning with -", "acme"]],
  },
  {
    title: "a misspelt key of a tunnel",
    yaml: relayWith(4, "    gatways: [{ name: edge, tokenSha256: [HASH_A] }]"),
    says: [["4:5 unknown key `gatways` in `tunnels.acme`", "gateways"]],
  },
];
