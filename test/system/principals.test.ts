/** Servers to which each agent comes with a secret of his own, from a real vault and through the real processes. */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { open, send } from "../support/agent-requests.ts";
import { findLeaks } from "../support/canary.ts";
import { TestIssuer } from "../support/issuer.ts";
import { admitIssuer } from "../support/relay-file.ts";
import { mintToken, type Stack, startStack } from "../support/stack.ts";
import { json, TokenEndpoint } from "../support/token-endpoint.ts";
import { until } from "../support/until.ts";
import { mintSecret, requireBao, startVaultBacking, type VaultBacking } from "../support/vault-backed.ts";

const call = (id: number) => ({ jsonrpc: "2.0", id, method: "tools/call", params: { name: "who", arguments: {} } });
const marker = "[REDACTED:credential]";
const accessToken = "urn:ietf:params:oauth:token-type:access_token";
const binary = requireBao();

describe.skipIf(binary === undefined)("secrets of each principal, through the real processes", () => {
  const issuer = new TestIssuer();
  const key = mintToken("pak_");
  const secrets = {
    bob: mintSecret("bob"),
    carol: mintSecret("carol"),
    key: mintSecret("key"),
    hidden: mintSecret("hidden"),
    client: mintSecret("client"),
  };
  /** Granted access tokens, by subject token. */
  const exchanged = new Map<string, string>();
  const subjects: string[] = [];
  const received: string[] = [];
  const revoked = new Set<string>();
  let streams: ((text: string) => void)[] = [];
  /** In place of what it was sent. */
  let says: string | undefined;
  let vault: VaultBacking;
  let endpoint: TokenEndpoint;
  let server: Server;
  let stack: Stack;

  beforeAll(async () => {
    if (binary === undefined) return;
    await issuer.start();
    vault = await startVaultBacking(binary, ["secret/data/mcp/tickets/+"]);
    endpoint = await TokenEndpoint.start();
    endpoint.answer = (res, { form }) => {
      const subject = form.get("subject_token") ?? "";
      if (subject === "" || form.get("audience") !== "tickets") return json(res, 400, { error: "invalid_request" });
      const token = mintSecret("exchanged");
      exchanged.set(subject, token);
      json(res, 200, { access_token: token, issued_token_type: accessToken, token_type: "Bearer", expires_in: 600 });
    };
    // Says back whatever it was sent, and on a stream what it is told to.
    server = createServer((req, res) => {
      const given = req.headers.authorization ?? "";
      received.push(given);
      if (revoked.has(given)) return void res.writeHead(401).end();
      if (req.method === "GET") {
        res.writeHead(200, { "content-type": "text/event-stream" }).write(": open\n\n");
        streams.push((text) => {
          const params = { level: "info", data: text };
          res.write(`data: ${JSON.stringify({ jsonrpc: "2.0", method: "notifications/message", params })}\n\n`);
        });
        return;
      }
      let body = "";
      req.on("data", (chunk: Buffer) => {
        body += chunk.toString();
      });
      req.on("end", () => {
        const { id } = JSON.parse(body) as { id: number };
        json(res, 200, {
          jsonrpc: "2.0",
          id,
          result: { content: [{ type: "text", text: says ?? `you sent ${given}` }] },
        });
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
    stack = await startStack({
      secretFiles: { "secret-id": vault.secretId, client: secrets.client },
      vault: { ...vault.yaml, ttl: "1s" },
      servers: {
        own: {
          url,
          credential: {
            type: "bearer",
            token: { vault: { mount: "secret", path: "mcp/tickets/{principal.id}", field: "token" } },
          },
        },
        swapped: {
          url,
          credential: {
            type: "tokenExchange",
            tokenEndpoint: endpoint.url,
            clientId: "postern",
            clientSecret: { file: "./client" },
            audience: "tickets",
          },
        },
      },
      policy: { own: { tools: ["*"] }, swapped: { tools: ["*"] } },
      extraAgents: { ci: key },
      gatewayYaml: {
        agents: {
          verify: "edge",
          keys: [{ name: "ci", sha256: key.sha256 }],
          issuers: [{ issuer: issuer.url, audience: "urn:edge" }],
        },
      },
    });
    await admitIssuer(stack, { issuer: issuer.url });
    await store("bob", secrets.bob);
    await store("carol", secrets.carol);
    await vault.bao.putSecret("secret", "mcp/tickets/key~3aci", { token: secrets.key });
    await vault.bao.putSecret("secret", "mcp/bob", { token: secrets.hidden });
    await vault.bao.putSecret("secret", "mcp/tickets/bob", { token: secrets.hidden });
  });

  afterAll(async () => {
    await stack?.stop();
    server?.closeAllConnections();
    server?.close();
    await endpoint?.stop();
    await vault?.bao.stop();
    await issuer.close();
  });

  /** Writes the entry of `sub` as docs/credentials.md has it. */
  async function store(sub: string, token: string): Promise<void> {
    const at = issuer.url.replaceAll(":", "~3a").replaceAll("/", "~2f");
    await vault.bao.putSecret("secret", `mcp/tickets/oauth~3a${at}~23${sub}`, { token });
  }

  async function tokenOf(sub: string): Promise<string> {
    const aud = ["own", "swapped"].map((name) => stack.agentUrl(name));
    const token = await issuer.token({ claims: { sub, aud: [...aud, "urn:edge"] } });
    subjects.push(token);
    return token;
  }

  const ask = (bearer: string, name = "own") => send(stack.agentUrl(name), { bearer, body: call(1) });

  it("C24 each agent calls with his own, and his answer is searched for it", async () => {
    const tokens = [await tokenOf("bob"), await tokenOf("carol"), key.token];
    received.length = 0;
    const answers = await Promise.all(tokens.map((token) => ask(token)));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(new Set(received)).toEqual(new Set([secrets.bob, secrets.carol, secrets.key].map((one) => `Bearer ${one}`)));
    for (const { text } of answers) expect(text).toContain(`you sent Bearer ${marker}`);
  });

  it("C24 a server that tells one agent the secret of another is cut short, and the log says so", async () => {
    expect((await ask(await tokenOf("carol"))).status).toBe(200);
    says = `bob, carol has ${secrets.carol}`;
    const answer = await ask(await tokenOf("bob"));
    says = undefined;
    expect([answer.status, answer.text.includes(`bob, carol has ${marker}`)]).toEqual([200, true]);
    expect(stack.gateway()?.stderr()).toContain("credential of another caller in an answer");
  });

  it("C24 no id reaches the entry of another", async () => {
    received.length = 0;
    const hostile = [
      "../bob",
      "..%2Fbob",
      "%2E%2E/bob",
      "bob/",
      "bob%00",
      "Bob",
      "bob ",
      "ｂob",
      "bo\u200bb",
      "~62ob",
      "+",
      "*",
      "x/../bob",
    ];
    for (const sub of hostile) {
      const answer = await ask(await tokenOf(sub));
      expect([sub, answer.status, answer.json().error?.code]).toEqual([sub, 502, -33020]);
      expect(answer.text).not.toMatch(/vault|secret|mcp\/tickets/i);
    }
    expect(received).toEqual([]);
    expect(stack.gateway()?.stderr()).toContain("~23~2e~2e~2fbob");
  });

  it("C26 what was rotated for one is read anew for the call that meets the 401", async () => {
    const bearer = await tokenOf("bob");
    expect((await ask(bearer)).status).toBe(200);
    revoked.add(`Bearer ${secrets.bob}`);
    const next = mintSecret("bob-2");
    await store("bob", next);
    const answers = await Promise.all(Array.from({ length: 5 }, () => ask(bearer)));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
    expect(received.at(-1)).toBe(`Bearer ${next}`);
    Object.assign(secrets, { bob2: next });
  });

  it("C24 an event stream is searched for the values before and after a change", async () => {
    const before = mintSecret("dave-1");
    const after = mintSecret("dave-2");
    await store("dave", before);
    const bearer = await tokenOf("dave");
    streams = [];
    const stream = await open(stack.agentUrl("own"), { bearer, method: "GET" });
    await until(() => streams.length === 1, "the stream is open");
    await store("dave", after);
    await until(async () => {
      await ask(bearer);
      return received.at(-1) === `Bearer ${after}`;
    }, "the new value serves");
    streams[0]?.(`was ${before} is ${after} end`);
    await until(() => stream.text().includes(" end"), "the event");
    expect(stream.text()).toContain(`was ${marker} is ${marker} end`);
    stream.leave();
    Object.assign(secrets, { dave1: before, dave2: after });
  });

  it("C24 an agent's token is exchanged for one that is his, and never sent on", async () => {
    const [bob, carol] = [await tokenOf("bob"), await tokenOf("carol")];
    received.length = 0;
    const answers = await Promise.all([bob, carol, bob, carol, bob].map((bearer) => ask(bearer, "swapped")));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
    for (const { text } of answers) expect(text).toContain(`you sent Bearer ${marker}`);
    expect(endpoint.asked).toHaveLength(2);
    const wanted = [bob, carol].map((one) => `Bearer ${exchanged.get(one)}`);
    expect(new Set(received)).toEqual(new Set(wanted));
    expect(wanted[0]).not.toBe(wanted[1]);
  });

  it("C24 an agent with a key has nothing to exchange, and the log says so", async () => {
    received.length = 0;
    const asked = endpoint.asked.length;
    const answer = await ask(key.token, "swapped");
    expect([answer.status, answer.json().error?.code]).toEqual([502, -33020]);
    expect([received.length, endpoint.asked.length]).toEqual([0, asked]);
    expect(stack.gateway()?.stderr()).toContain("the agent came with a key");
  });

  it("no secret and no agent's token stands in any output", () => {
    const tokens = Object.fromEntries([...subjects, ...exchanged.values()].map((one, i) => [`token ${i}`, one]));
    expect(findLeaks(stack.outputs(), { ...secrets, ...tokens, ...vault.secrets, key: key.token })).toEqual([]);
  });
});
