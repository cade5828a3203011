import { relayWith, type Trap } from "./traps.ts";

/** What people write into relay.yaml by mistake, and all that is said of it: place and message, then the cure. */
export const relayTraps: readonly Trap[] = [
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
    title: "a gateway by JWT",
    yaml: relayWith(4, "    gateways: [{ name: edge, jwt: { issuer: x } }]"),
    says: [["4:30 `jwt` is not in this version yet", "{ name: edge, tokenSha256: [HASH] }"]],
  },
  {
    title: "a gateway with servers",
    yaml: relayWith(4, "    gateways: [{ name: edge, tokenSha256: [HASH_A], servers: [a] }]"),
    says: [
      ["4:111 `servers` is not in this version yet", "the gateway without `servers`: its own file says which it has"],
    ],
  },
  {
    title: "an agent by OAuth",
    yaml: relayWith(5, "    agents: [{ oauth: { issuer: x }, servers: [tickets] }]"),
    says: [["5:16 `oauth` is not in this version yet", "{ name: claude-prod, keySha256: [HASH], servers: [tickets] }"]],
  },
  {
    title: "an agent without servers",
    yaml: relayWith(5, "    agents: [{ name: bot, keySha256: [HASH_A] }]"),
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
      "    agents: [{ name: a, keySha256: [HASH_A], servers: [x] }, { name: b, keySha256: [HASH_A], servers: [x] }]",
    ),
    says: [["5:143 this hash belongs to another entry already", "the hash of a secret of its own"]],
  },
  {
    title: "one name for two agents",
    yaml: relayWith(
      5,
      "    agents: [{ name: a, keySha256: [HASH_A], servers: [x] }, { name: a, keySha256: [HASH_B], servers: [x] }]",
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
