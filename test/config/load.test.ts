import { mkdirSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { headerNameFault } from "../../src/config/header-fields.ts";
import {
  type GatewayConfig,
  type Loaded,
  loadAny,
  loadCases,
  loadGatewayConfig,
  loadPolicy,
  loadRelayConfig,
} from "../../src/config/index.ts";
import { headerNameProblem } from "../../src/credentials/shapes.ts";
import { compilePolicy, type PolicySource } from "../../src/policy/index.ts";
import { internalCa } from "../support/internal-ca.ts";
import { gatewayWith, relayWith, ticketsPolicy, writeConfig } from "./traps.ts";

function sound<T>(loaded: Loaded<T>): { config: T; warnings: string[] } {
  if (loaded.kind === "bad") throw new Error(JSON.stringify(loaded.problems));
  const warnings = loaded.warnings.map(({ at, message }) => `${at.line}:${at.column} ${message}`);
  return { config: loaded.config, warnings };
}

function loadGateway(yaml: string): GatewayConfig {
  return sound(loadGatewayConfig(writeConfig("gateway.yaml", yaml))).config;
}

function policyOf(yaml: string): PolicySource {
  return sound(loadPolicy(writeConfig("policy.yaml", yaml))).config;
}

function isFrozen(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return true;
  return Object.isFrozen(value) && Object.values(value).every(isFrozen);
}

describe("the examples", () => {
  it.each(["gateway", "relay", "policy"])("config/%s.yaml is without fault or warning, and is recognised", (kind) => {
    const { document, loaded } = loadAny(`config/${kind}.yaml`);
    expect(loaded.kind === "bad" ? loaded.problems : loaded.warnings).toEqual([]);
    expect(document).toBe(kind);
  });

  it("what they call defaults are the defaults", () => {
    const {
      policy: _,
      policyFile: _file,
      servers: _servers,
      vault,
      ...example
    } = sound(loadGatewayConfig("config/gateway.yaml")).config;
    const bare = loadGateway(
      gatewayWith(4, "vault: { address: https://v.internal, auth: { method: token, token: { env: T } } }"),
    );
    expect(example.limits).toEqual(bare.limits);
    expect(example.timeouts).toEqual(bare.timeouts);
    expect(example.audit).toEqual(bare.audit);
    expect(example.admin).toEqual(bare.admin);
    expect([vault?.ttlMs, vault?.staleForMs]).toEqual([bare.vault?.ttlMs, bare.vault?.staleForMs]);
    const relay = sound(loadRelayConfig("config/relay.yaml")).config;
    expect(relay.limits).toEqual(sound(loadRelayConfig(writeConfig("relay.yaml", relayWith(6, "")))).config.limits);
  });
});

describe("gateway.yaml", () => {
  it("has the defaults of the design", () => {
    const config = loadGateway(
      gatewayWith(4, "vault: { address: https://v.internal, auth: { method: token, token: { env: T } } }"),
    );
    const { policy: _, ...rest } = config;
    expect(rest).toMatchObject({
      relay: { url: "wss://r.example.com", tunnel: "acme", connections: 1 },
      vault: {
        address: "https://v.internal",
        auth: { method: "token", token: { env: "T" } },
        ttlMs: 60_000,
        staleForMs: 7_200_000,
      },
      servers: { tickets: { url: "http://t.internal/mcp", onReflect: "redact" } },
      agents: { verify: "relay" },
      gateway: { id: hostname() },
      admin: { listen: { host: "127.0.0.1", port: 9464 } },
      audit: { onError: "deny" },
      limits: { requestBytes: 4_194_304, streams: 2048 },
      timeouts: { firstByteMs: 300_000, idleMs: 600_000 },
    });
    expect([rest.relay.ca, rest.audit.file, rest.servers["tickets"]?.credential]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
  });

  it("takes a local source for the token that opens the status, in both files", () => {
    const gateway = loadGateway(gatewayWith(4, "admin: { token: { file: admin-token } }"));
    expect(gateway.admin.listen.port).toBe(9464);
    expect(gateway.admin.token).toEqual({ file: expect.stringMatching(/^\/.*\/admin-token$/) });
    const relay = sound(
      loadRelayConfig(writeConfig("relay.yaml", relayWith(6, "admin: { token: { env: A } }"))),
    ).config;
    expect(relay.admin).toEqual({ listen: { host: "127.0.0.1", port: 9465 }, token: { env: "A" } });
  });

  it("takes for each server what becomes of an answer that holds its credential", () => {
    const yaml = gatewayWith(2, "servers: { tickets: { url: http://t.internal/mcp, onReflect: block } }");
    expect(loadGateway(yaml).servers["tickets"]?.onReflect).toBe("block");
  });

  it("takes names, texts and sources for a credential of several parts", () => {
    const credentialOf = (text: string) => {
      const yaml = gatewayWith(2, `servers: { tickets: { url: http://t.internal/mcp, credential: { ${text} } } }`);
      return loadGateway(yaml).servers["tickets"]?.credential;
    };
    expect(credentialOf("type: basic, username: svc, password: { env: P }")).toEqual({
      type: "basic",
      username: "svc",
      password: { env: "P" },
    });
    expect(credentialOf("type: basic, username: { env: U }, password: { env: P }")).toMatchObject({
      username: { env: "U" },
    });
    const headers = credentialOf("type: headers, headers: { X-Api-Key: { env: K }, X-Org: acme, constructor: x }");
    expect(headers).toEqual({
      type: "headers",
      headers: Object.assign(Object.create(null), { "X-Api-Key": { env: "K" }, "X-Org": "acme", constructor: "x" }),
    });
  });

  it("takes agents' keys with one hash or several, and issuers with all that relay.yaml knows of them", () => {
    const issuer =
      "{ issuer: https://i.example.com, audience: urn:x, jwks: keys.json, algorithms: [ES256], requiredScopes: [mcp], clientIds: [c], requireTyp: true }";
    const yaml = gatewayWith(
      4,
      `agents: { verify: edge, keys: [{ name: a, sha256: HASH_A }, { name: b, sha256: [HASH_B] }], issuers: [${issuer}] }`,
    );
    const file = writeConfig("gateway.yaml", yaml);
    expect(sound(loadGatewayConfig(file)).config.agents).toEqual({
      verify: "edge",
      keys: [
        { name: "a", sha256: ["a".repeat(64)] },
        { name: "b", sha256: ["b".repeat(64)] },
      ],
      issuers: [
        {
          issuer: "https://i.example.com",
          audience: "urn:x",
          jwks: { file: join(dirname(file), "keys.json") },
          algorithms: ["ES256"],
          requiredScopes: ["mcp"],
          clientIds: ["c"],
          requireTyp: true,
        },
      ],
    });
  });

  it("C24 refuses the very headers that the credentials room refuses", () => {
    const names =
      "Host Connection Keep-Alive TE Trailer Transfer-Encoding Upgrade Expect Accept Accept-Encoding Last-Event-ID Forwarded Traceparent TraceState Mcp-Name Proxy-Authorization Content-Type X-Forwarded-For X-Api-Key Authorization Cookie Baggage Acceptable X-Mcp X-Trace";
    for (const name of names.split(" ")) {
      expect([name, headerNameFault(name) === undefined]).toEqual([name, headerNameProblem(name) === undefined]);
    }
    expect(headerNameFault("tracestate")).toBeDefined();
    expect(headerNameFault("__proto__")).toBeDefined();
  });

  it("resolves relative paths against itself, and keeps absolute ones", () => {
    const yaml = gatewayWith(4, "audit: { file: logs/a.jsonl }").replace(
      "{ file: t }",
      "{ file: ../t }, ca: /etc/ca.pem",
    );
    const file = writeConfig("gateway.yaml", yaml);
    const { relay, audit } = sound(loadGatewayConfig(file)).config;
    expect(relay.token).toEqual({ file: join(dirname(file), "../t") });
    expect(relay.ca).toBe("/etc/ca.pem");
    expect(audit.file).toBe(join(dirname(file), "logs/a.jsonl"));
  });

  it("looks for CA files beside itself, and on another machine not at all", () => {
    const file = writeConfig(
      "gateway.yaml",
      gatewayWith(2, "servers: { tickets: { url: https://t.internal/mcp, ca: tls/ca.pem } }"),
    );
    const ca = join(dirname(file), "tls/ca.pem");
    expect(loadGatewayConfig(file)).toMatchObject({ kind: "bad", problems: [{ at: { line: 2, column: 56 } }] });
    expect(sound(loadGatewayConfig(file, { isElsewhere: true })).config.servers["tickets"]?.ca).toBe(ca);
    mkdirSync(dirname(ca));
    writeFileSync(ca, internalCa);
    expect(sound(loadGatewayConfig(file)).config.servers["tickets"]?.ca).toBe(ca);
    writeFileSync(file, gatewayWith(2, `servers: { tickets: { url: http://t.internal/mcp, ca: ${ca} } }`));
    expect(loadGatewayConfig(file, { isElsewhere: true }).kind).toBe("bad");
  });

  it("reads the policy from its own file, and places problems there", () => {
    const file = writeConfig("gateway.yaml", gatewayWith(3, "policy: rules/policy.yaml"));
    mkdirSync(join(dirname(file), "rules"));
    const policyFile = join(dirname(file), "rules/policy.yaml");
    writeFileSync(policyFile, ticketsPolicy("    tools: [get_*]"));
    const { config } = sound(loadGatewayConfig(file));
    expect(config.policyFile).toBe(policyFile);
    expect(config.policy.servers["tickets"]?.grants[0]?.tools[0]?.at).toEqual({
      file: policyFile,
      line: 4,
      column: 13,
    });
    writeFileSync(policyFile, `${ticketsPolicy("    tools: get_*")}\n  other: { tools: [a] }`);
    const loaded = loadGatewayConfig(file);
    const places = loaded.kind === "bad" ? loaded.problems.map(({ at }) => [at.file, at.line, at.column]) : [];
    expect(places).toEqual([
      [policyFile, 4, 12],
      [policyFile, 5, 3],
    ]);
  });

  it("reports the problems of both files at once", () => {
    const file = writeConfig("gateway.yaml", `${gatewayWith(3, "policy: policy.yaml")}\nlimts: {}`);
    writeFileSync(join(dirname(file), "policy.yaml"), "version: 1\nservers:\n  tickets: { tool: [] }");
    const loaded = loadGatewayConfig(file);
    const names = loaded.kind === "bad" ? loaded.problems.map(({ at }) => at.file.slice(dirname(file).length + 1)) : [];
    expect(names).toEqual(["gateway.yaml", "policy.yaml"]);
  });

  it("is frozen to the last leaf", () => {
    expect(isFrozen(loadGateway(gatewayWith(4, "limits: { streams: 1 }")))).toBe(true);
  });

  it("finds nothing under a name that only JavaScript knows", () => {
    const config = loadGateway(gatewayWith(2, "servers: { tickets: { url: http://t.internal/mcp } }"));
    expect(config.servers["constructor"]).toBeUndefined();
    expect(config.policy.servers["constructor"]).toBeUndefined();
    const yaml = gatewayWith(2, "servers: { constructor: { url: http://t.internal/mcp } }").replace(
      "{ tickets: { tools",
      "{ constructor: { tools",
    );
    expect(Object.keys(loadGateway(yaml).servers)).toEqual(["constructor"]);
  });

  it("warns of a server that the policy leaves out", () => {
    const yaml = gatewayWith(
      2,
      "servers: { tickets: { url: http://t.internal/mcp }, crm: { url: http://c.internal/mcp } }",
    );
    const { warnings } = sound(loadGatewayConfig(writeConfig("gateway.yaml", yaml)));
    expect(warnings).toEqual(["2:53 the policy has no entry for `crm`: every call to it is denied"]);
  });

  it("warns of paths with what Vault's API adds to them, which may be meant", () => {
    const yaml = [
      gatewayWith(
        2,
        "servers: { tickets: { url: http://t.internal/mcp, credential: { type: vaultDynamic, vault: { path: v1/ssh/creds/a }, as: { type: basic, username: { vault: { mount: secret, path: data/mcp/a, field: u } }, password: { lease: key } } } } }",
      ),
      "vault: { address: https://v.internal, auth: { method: jwt, mount: auth/jwt-k8s, role: r } }",
    ].join("\n");
    const { warnings } = sound(loadGatewayConfig(writeConfig("gateway.yaml", yaml)));
    expect(warnings).toEqual([
      "2:100 `servers.tickets.credential.vault.path` begins with v1/, which is added by itself",
      "2:179 `servers.tickets.credential.as.username.vault.path` begins with data/, which is added by itself where the mount is of KV version 2",
      "4:67 `vault.auth.mount` begins with auth/, which is added by itself",
    ]);
  });

  it("takes plain text to loopback only", () => {
    for (const host of ["127.0.0.1:1", "localhost:1", "[::1]:1"]) {
      const yaml = gatewayWith(1, `relay: { url: "ws://${host}", tunnel: acme, token: { file: t } }`);
      expect(loadGateway(yaml).relay.url).toBe(`ws://${host}`);
    }
  });

  it("staleFor: 0 is strict, and a query that holds no key passes", () => {
    const vault = "vault: { address: https://v.internal, auth: { method: token, token: { env: T } }, staleFor: 0 }";
    const yaml = gatewayWith(4, vault).replace("http://t.internal/mcp", "http://t.internal/mcp?toolset=all");
    expect(loadGateway(yaml).vault?.staleForMs).toBe(0);
    expect(loadGateway(yaml).servers["tickets"]?.url).toBe("http://t.internal/mcp?toolset=all");
  });

  it.each(["kubernetes", "jwt"])("reads %s logins with the pod's token unless another is named", (method) => {
    const load = (keys: string) =>
      loadGateway(gatewayWith(4, `vault: { address: https://v.internal, auth: { method: ${method}, ${keys} } }`));
    expect(load("role: r").vault?.auth).toEqual({
      method,
      role: "r",
      jwt: { file: "/var/run/secrets/kubernetes.io/serviceaccount/token" },
      mount: method,
    });
    expect(load("role: r, jwt: { env: J }, mount: a/b").vault?.auth).toEqual({
      method,
      role: "r",
      jwt: { env: "J" },
      mount: "a/b",
    });
  });

  it.each([
    ["unix:/run/agent.sock", "unix:/run/agent.sock"],
    ["unix:///run/agent.sock", "unix:/run/agent.sock"],
    ["http://127.0.0.1:8100/", "http://127.0.0.1:8100"],
  ])("reads an agent at %s", (written, address) => {
    const auth = `{ method: agent, agent: { address: "${written}" } }`;
    const vault = loadGateway(gatewayWith(4, `vault: { address: https://v.internal, auth: ${auth} }`)).vault;
    expect(vault?.auth).toEqual({ method: "agent", agent: { address } });
  });

  it("reads a client certificate", () => {
    const auth = "{ method: cert, certificate: { env: C }, privateKey: { env: K } }";
    const vault = loadGateway(gatewayWith(4, `vault: { address: https://v.internal, auth: ${auth} }`)).vault;
    expect(vault?.auth).toEqual({
      method: "cert",
      certificate: { env: "C" },
      privateKey: { env: "K" },
      mount: "cert",
    });
  });

  it("reads a wrapped secret id", () => {
    const auth = "{ method: approle, roleId: r, wrappedSecretId: { env: W } }";
    const vault = loadGateway(gatewayWith(4, `vault: { address: https://v.internal, auth: ${auth} }`)).vault;
    expect(vault?.auth).toEqual({ method: "approle", roleId: "r", wrappedSecretId: { env: "W" }, mount: "approle" });
  });

  it("reads approle and header credentials whole", () => {
    const approle =
      "vault: { address: https://v.internal, namespace: a/b, auth: { method: approle, roleId: r, secretId: { env: S } } }";
    const credential =
      '{ type: header, name: X-Key, prefix: "Key ", value: { vault: { mount: team/a, path: p q, field: f } } }';
    const yaml = gatewayWith(4, approle).replace(
      "http://t.internal/mcp",
      `http://t.internal/mcp, credential: ${credential}`,
    );
    const config = loadGateway(yaml);
    expect(config.vault).toMatchObject({
      namespace: "a/b",
      auth: { method: "approle", roleId: "r", secretId: { env: "S" }, mount: "approle" },
    });
    expect(config.servers["tickets"]?.credential).toEqual({
      type: "header",
      name: "X-Key",
      prefix: "Key ",
      value: { vault: { mount: "team/a", path: "p q", field: "f" } },
    });
  });
});

describe("relay.yaml", () => {
  it("has the defaults of the design, frozen", () => {
    const { config } = sound(loadRelayConfig(writeConfig("relay.yaml", relayWith(6, ""))));
    expect(config).toEqual({
      listen: { host: "0.0.0.0", port: 8080 },
      publicUrl: "https://r.example.com",
      allowedHosts: [],
      allowedOrigins: [],
      admin: { listen: { host: "127.0.0.1", port: 9465 } },
      tunnels: {
        acme: {
          gateways: [{ name: "edge", tokenSha256: ["a".repeat(64)] }],
          agents: [{ name: "bot", keySha256: ["b".repeat(64)], servers: ["tickets"] }],
        },
      },
      limits: {
        streamsPerAgent: 256,
        streamsPerConnection: 2048,
        headerBytes: 65_536,
        connections: 10_000,
        upgradesPerMinute: 60,
      },
    });
    expect(isFrozen(config)).toBe(true);
    expect(config.tunnels["constructor"]).toBeUndefined();
  });

  it.each([
    ["0.0.0.0:8080", "[::1]:8080", true],
    ["[::1]:8080", "0.0.0.0:8080", true],
    ["127.0.0.1:8080", "127.0.0.2:8080", true],
    ["[::]:8080", "127.0.0.1:8080", false],
    ["0.0.0.0:8080", "[::]:8080", false],
  ])("%s beside %s for probes: %s, as the kernel has it", (listen, admin, isSound) => {
    const yaml = relayWith(6, `listen: "${listen}"\nadmin: { listen: "${admin}" }`);
    expect(loadRelayConfig(writeConfig("relay.yaml", yaml)).kind === "bad").toBe(!isSound);
  });

  it("two hashes rotate a key, and * is every server", () => {
    const yaml = relayWith(5, '    agents: [{ name: bot, keySha256: [HASH_B, HASH_D], servers: ["*"] }]');
    const { config } = sound(loadRelayConfig(writeConfig("relay.yaml", yaml)));
    expect(config.tunnels["acme"]?.agents[0]).toMatchObject({
      servers: ["*"],
      keySha256: ["b".repeat(64), "d".repeat(64)],
    });
  });
});

describe("tokens in relay.yaml", () => {
  const load = (number: number, line: string) => {
    const file = writeConfig("relay.yaml", relayWith(number, line));
    return { folder: dirname(file), tunnel: sound(loadRelayConfig(file)).config.tunnels["acme"] };
  };

  it("an issuer stays as it was written, byte for byte", () => {
    for (const issuer of ["https://idp.example.com", "https://IDP.example.com/a/", "http://127.0.0.1:9/x"]) {
      const { tunnel } = load(5, `    agents: [{ oauth: { issuer: ${issuer} }, servers: [tickets] }]`);
      expect(tunnel?.agents).toEqual([{ oauth: { issuer }, servers: ["tickets"] }]);
    }
  });

  it("keys come from a URL or from a file beside this one", () => {
    const agents = (jwks: string) =>
      `    agents: [{ oauth: { issuer: https://i.x, jwks: ${jwks}, requiredScopes: [mcp], requireTyp: true }, servers: ["*"] }]`;
    expect(load(5, agents("https://i.x/keys?v=1")).tunnel?.agents[0]).toMatchObject({
      oauth: { jwks: { url: "https://i.x/keys?v=1" }, requiredScopes: ["mcp"], requireTyp: true },
    });
    const { folder, tunnel } = load(5, agents("keys/jwks.json"));
    expect(tunnel?.agents[0]).toMatchObject({ oauth: { jwks: { file: join(folder, "keys/jwks.json") } } });
  });

  it("a gateway by JWT stands beside one by token", () => {
    const jwt = "{ issuer: https://i.x, audience: r, subject: s, algorithms: [ES256] }";
    const { tunnel } = load(4, `    gateways: [{ name: a, tokenSha256: [HASH_A] }, { name: b, jwt: ${jwt} }]`);
    expect(tunnel?.gateways[1]).toEqual({
      name: "b",
      jwt: { issuer: "https://i.x", audience: "r", subject: "s", algorithms: ["ES256"] },
    });
  });
});

describe("policy.yaml", () => {
  const decide = (yaml: string, name: string) =>
    compilePolicy(policyOf(yaml)).decide("tickets", { kind: "tool", name }).kind;

  it("C17 an empty list and an absent key deny; two entries are their union", () => {
    expect(decide(ticketsPolicy("    tools: []"), "get_x")).toBe("deny");
    expect(decide(ticketsPolicy("    prompts: [get_x]"), "get_x")).toBe("deny");
    const two = ticketsPolicy("    tools: [get_x, get_y]");
    expect([decide(two, "get_x"), decide(two, "get_y"), decide(two, "get_z")]).toEqual(["allow", "allow", "deny"]);
  });

  it("C17 an entry with a trailing space is compared as written, and warned of", () => {
    const yaml = ticketsPolicy('    tools: ["get_x "]');
    expect([decide(yaml, "get_x"), decide(yaml, "get_x ")]).toEqual(["deny", "allow"]);
    const { warnings } = sound(loadPolicy(writeConfig("policy.yaml", yaml)));
    expect(warnings).toEqual([
      "4:13 `servers.tickets.tools[0]` has a space at its end or beginning, which is compared as written",
    ]);
  });

  it("C18 names keep case, signs and normal form on their way", () => {
    const names = ["Get_X", "get_[ab]", "a?{b}", "cafe\u0301", "caf\u00e9", "get_\u0445", "no", "y", "on", "1e", "~x"];
    const yaml = ticketsPolicy(
      `    tools:\n${names.map((name) => `      - ${name === "get_[ab]" ? `"${name}"` : name}\n`).join("")}`,
    );
    expect(policyOf(yaml).servers["tickets"]?.grants[0]?.tools.map(({ pattern }) => pattern)).toEqual(names);
  });

  it("C18 signs that other languages give a meaning are warned of", () => {
    const yaml = ticketsPolicy(
      '    tools: ["get_[ab]", "get_?", "get_{a,b}", "x\\ny"]\n    deny: { resourceTemplates: ["t://{id}"] }',
    );
    const { warnings } = sound(loadPolicy(writeConfig("policy.yaml", yaml)));
    expect(warnings.map((warning) => warning.split(" ")[0])).toEqual(["4:13", "4:25", "4:34", "4:47"]);
  });

  it("rules know their path and place in both forms", () => {
    const yaml = `version: 1
servers:
  tickets:
    tools:
      - a
      - { name: "*", except: [b] }
  crm:
    grants:
      - resources: ["r://*"]
      - client: [roots]
    deny: { tools: ["drop_*"], client: [sampling] }`;
    const file = writeConfig("policy.yaml", yaml);
    const { servers } = sound(loadPolicy(file)).config;
    const at = (line: number, column: number) => ({ file, line, column });
    const none = { tools: [], prompts: [], resources: [], resourceTemplates: [], client: [] };
    expect(servers).toEqual({
      tickets: {
        grants: [
          {
            ...none,
            at: at(3, 3),
            path: "servers.tickets",
            tools: [
              { pattern: "a", at: at(5, 9), path: "servers.tickets.tools[0]", except: [] },
              {
                pattern: "*",
                at: at(6, 9),
                path: "servers.tickets.tools[1]",
                except: [{ pattern: "b", at: at(6, 31), path: "servers.tickets.tools[1].except[0]" }],
              },
            ],
          },
        ],
        deny: none,
      },
      crm: {
        grants: [
          {
            ...none,
            at: at(9, 9),
            path: "servers.crm.grants[0]",
            resources: [{ pattern: "r://*", at: at(9, 21), path: "servers.crm.grants[0].resources[0]", except: [] }],
          },
          { ...none, at: at(10, 9), path: "servers.crm.grants[1]", client: ["roots"] },
        ],
        deny: {
          ...none,
          client: ["sampling"],
          tools: [{ pattern: "drop_*", at: at(11, 21), path: "servers.crm.deny.tools[0]" }],
        },
      },
    });
  });

  it("C17 an empty entry, an empty list of grants and a deny alone grant nothing, with a warning", () => {
    const yaml =
      "version: 1\nservers:\n  a: {}\n  b: { grants: [] }\n  c: { deny: { tools: [x] } }\n  d: { tools: [] }";
    const { config, warnings } = sound(loadPolicy(writeConfig("policy.yaml", yaml)));
    const policy = compilePolicy(config);
    expect(["a", "b", "c", "d"].map((server) => policy.hasGrant(server))).toEqual([false, false, false, true]);
    expect(warnings.map((warning) => warning.split(" ")[0])).toEqual(["3:3", "4:3", "5:3"]);
  });
});

describe("which document it is", () => {
  it("is told by the keys", () => {
    expect(loadAny(writeConfig("a.yaml", gatewayWith(4, ""))).document).toBe("gateway");
    expect(loadAny(writeConfig("a.yaml", relayWith(6, ""))).document).toBe("relay");
    expect(loadAny(writeConfig("a.yaml", ticketsPolicy("    tools: []"))).document).toBe("policy");
  });

  it.each(["servers: {}", "version: 1\ntunnels: {}", "a: 1"])(
    "is asked for when %j could be several or none",
    (yaml) => {
      const { document, loaded } = loadAny(writeConfig("a.yaml", yaml));
      expect(document).toBeUndefined();
      expect(loaded.kind === "bad" && loaded.problems[0]?.message).toContain(
        "this may be a gateway, a relay or a policy file",
      );
    },
  );
});

it("a table of cases names what is wrong with it", () => {
  const yaml =
    '- { server: a, tool: x, expect: allow }\n- { server: a, tool: "", prompt: y, expect: deny }\n- { server: a, tol: x, expect: denied }\n- {}';
  const loaded = loadCases(writeConfig("cases.yaml", yaml));
  const said =
    loaded.kind === "bad" ? loaded.problems.map(({ at, message }) => `${at.line}:${at.column} ${message}`) : [];
  expect(said).toEqual([
    "2:3 `[1]` must have exactly one of tool, resource, prompt, method",
    "3:16 unknown key `tol` in `[2]`",
    "3:32 `[2].expect` must be allow or deny",
    "4:3 `[3].server` is missing",
    "4:3 `[3].expect` is missing",
  ]);
});

it("a refresh token has a record, and its client a secret or none", () => {
  const { servers } = loadGateway(
    gatewayWith(
      2,
      [
        "vault: { address: https://v.internal, auth: { method: token, token: { file: t } } }",
        "servers:",
        "  tickets: { url: http://t.internal/mcp, credential: { type: oauthRefreshToken, issuer: https://i.com,",
        "    clientId: x, record: { vault: { mount: kv, path: mcp/a } }, scope: 'a b', resource: https://T.internal } }",
        "  other: { url: http://t.internal/mcp, credential: { type: oauthRefreshToken, tokenEndpoint: https://i.com/t,",
        "    clientId: { env: ID }, clientSecret: { env: A }, record: { vault: { mount: kv, path: mcp/b } } } }",
      ].join("\n"),
    ),
  );
  expect(servers["tickets"]?.credential).toEqual({
    type: "oauthRefreshToken",
    at: { issuer: "https://i.com" },
    clientId: "x",
    client: undefined,
    record: { vault: { mount: "kv", path: "mcp/a" } },
    scope: "a b",
    resource: "https://T.internal",
  });
  expect(servers["other"]?.credential).toMatchObject({
    at: { tokenEndpoint: "https://i.com/t" },
    client: { auth: "basic", secret: { env: "A" } },
  });
});

it("a resource is sent as it was written, and ids may be numbers or text", () => {
  const { servers } = loadGateway(
    gatewayWith(
      2,
      [
        "servers:",
        "  tickets: { url: http://t.internal/mcp, credential: { type: oauthClientCredentials, issuer: https://i.com,",
        "    clientId: x, clientSecret: { env: A }, resource: https://T.internal } }",
        "  app: { url: http://t.internal/mcp, credential: { type: githubApp, appId: Iv1.abc, installationId: 12,",
        "    privateKey: { env: B } } }",
      ].join("\n"),
    ),
  );
  expect(servers["tickets"]?.credential).toEqual({
    type: "oauthClientCredentials",
    at: { issuer: "https://i.com" },
    clientId: "x",
    client: { auth: "basic", secret: { env: "A" } },
    scope: undefined,
    resource: "https://T.internal",
    audience: undefined,
  });
  expect(servers["app"]?.credential).toMatchObject({ appId: "Iv1.abc", installationId: "12" });
});

it("secrets may depend on who calls where the gateway itself verifies that", () => {
  const { servers } = loadGateway(
    [
      gatewayWith(
        2,
        [
          "servers:",
          "  tickets: { url: http://t.internal/mcp, credential: { type: bearer,",
          "    token: { vault: { mount: secret, path: 'mcp/u-{principal.id}/x', field: token } } } }",
          "  exchanged: { url: http://t.internal/mcp, credential: { type: tokenExchange, issuer: https://i.com,",
          "    clientId: x, clientSecret: { env: A }, audience: tickets, scope: 'a b' } }",
        ].join("\n"),
      ),
      "vault: { address: https://v.internal, auth: { method: token, token: { file: t } } }",
      "agents: { verify: edge, issuers: [ { issuer: https://i.com, audience: urn:edge } ] }",
    ].join("\n"),
  );
  expect(servers["tickets"]?.credential).toEqual({
    type: "bearer",
    token: { vault: { mount: "secret", path: "mcp/u-{principal.id}/x", field: "token" } },
  });
  expect(servers["exchanged"]?.credential).toEqual({
    type: "tokenExchange",
    at: { issuer: "https://i.com" },
    clientId: "x",
    client: { auth: "basic", secret: { env: "A" } },
    scope: "a b",
    resource: undefined,
    audience: "tickets",
  });
});
