/** A gateway that believes the relay nothing, and credentials of several parts, as real processes. */
import { writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { open, send } from "../support/agent-requests.ts";
import { findLeaks } from "../support/canary.ts";
import { TestIssuer } from "../support/issuer.ts";
import { admitIssuer } from "../support/relay-file.ts";
import { mintToken, type Stack, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { mintSecret } from "../support/vault-backed.ts";

const call = (id: number) => ({ jsonrpc: "2.0", id, method: "tools/call", params: { name: "who", arguments: {} } });

describe("agents.verify: edge, through the real processes", () => {
  const issuer = new TestIssuer();
  const known = mintToken("pak_");
  const secrets = { password: mintSecret("password"), key: mintSecret("key"), rotated: mintSecret("rotated") };
  const seen: IncomingMessage["headers"][] = [];
  let current = "";
  let server: Server;
  let stack: Stack;

  beforeAll(async () => {
    await issuer.start();
    // Takes one password at a time, and says nothing of what it was sent.
    server = createServer((req, res) => {
      seen.push(req.headers);
      const basic = Buffer.from(`svc-ü:${current}`).toString("base64");
      if (req.url === "/basic" && req.headers.authorization !== `Basic ${basic}`) {
        res.writeHead(401, { "www-authenticate": "Basic realm=private" }).end();
      } else if (req.method === "GET") {
        res.writeHead(200, { "content-type": "text/event-stream" }).write(": open\n\n");
      } else {
        let body = "";
        req.on("data", (chunk: Buffer) => {
          body += chunk.toString();
        });
        req.on("end", () => {
          const { id } = JSON.parse(body) as { id: number };
          res.writeHead(200, { "content-type": "application/json" });
          res.end(JSON.stringify({ jsonrpc: "2.0", id, result: { content: [] } }));
        });
      }
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    current = secrets.password;
    stack = await startStack({
      secretFiles: { password: secrets.password, key: secrets.key },
      servers: {
        basic: {
          url: `${base}/basic`,
          credential: { type: "basic", username: "svc-ü", password: { file: "./password" } },
        },
        keyed: {
          url: `${base}/keyed`,
          credential: { type: "headers", headers: { "X-Key": { file: "./key" }, "X-Org": "acme" } },
        },
      },
      policy: { basic: { tools: ["*"] }, keyed: { tools: ["*"] } },
      // The relay knows this key by another name.
      extraAgents: { "relays-name": known },
      gatewayYaml: {
        agents: {
          verify: "edge",
          keys: [{ name: "edges-name", sha256: known.sha256 }],
          issuers: [{ issuer: issuer.url, audience: "urn:edge" }],
        },
      },
    });
    await admitIssuer(stack, { issuer: issuer.url });
  });

  afterAll(async () => {
    await stack?.stop();
    server?.closeAllConnections();
    server?.close();
    await issuer.close();
  });

  const lastPrincipal = (): unknown => stack.audit().findLast(({ event }) => event === "decision")?.["principal"];
  const ask = (bearer: string, name = "keyed", id = 1) => send(stack.agentUrl(name), { bearer, body: call(id) });

  it("a key is who the gateway says it is", async () => {
    expect((await ask(known.token)).status).toBe(200);
    expect(lastPrincipal()).toBe("key:edges-name");
    expect(stack.relay.stderr()).not.toContain("edges-name");
  });

  it("an agent whom only the relay knows is forbidden, without a challenge", async () => {
    const before = seen.length;
    const answer = await ask(stack.agentKey);
    expect([answer.status, answer.json().error?.code]).toEqual([403, -33002]);
    expect(answer.headers.get("www-authenticate")).toBeNull();
    expect(lastPrincipal()).toBe("unverified");
    expect(seen.length).toBe(before);
  });

  it("a token holds for relay and gateway each by its own audience", async () => {
    const url = stack.agentUrl("keyed");
    const both = await issuer.token({ claims: { aud: [url, "urn:edge"], sub: "bob" } });
    expect((await ask(both)).status).toBe(200);
    expect(lastPrincipal()).toBe(`oauth:${issuer.url}#bob`);
    expect((await ask(await issuer.token({ claims: { aud: url } }))).status).toBe(403);
    expect((await ask(await issuer.token({ claims: { aud: "urn:edge" } }))).status).toBe(401);
  });

  it("a stream ends with its token", async () => {
    const exp = Math.floor(Date.now() / 1000) - 57;
    const short = await issuer.token({ claims: { aud: [stack.agentUrl("keyed"), "urn:edge"], exp, iat: exp - 60 } });
    const stream = await open(stack.agentUrl("keyed"), { bearer: short, method: "GET" });
    expect(stream.status).toBe(200);
    await until(() => stream.complete() !== undefined, "the end", 10_000);
    await until(
      () => stack.audit().some(({ event, verb, end }) => event === "outcome" && verb === "GET" && end !== "complete"),
      "its record",
    );
  });

  it("C24 credentials of several parts arrive whole, and the agent's token does not", async () => {
    seen.length = 0;
    expect((await ask(known.token, "basic")).status).toBe(200);
    expect((await ask(known.token, "keyed")).status).toBe(200);
    const [basic, keyed] = seen;
    expect(basic?.authorization).toBe(`Basic ${Buffer.from(`svc-ü:${secrets.password}`).toString("base64")}`);
    expect([keyed?.["x-key"], keyed?.["x-org"], keyed?.authorization]).toEqual([secrets.key, "acme", undefined]);
  });

  it("C26 a rotated password is taken up by the call that meets the 401", async () => {
    current = secrets.rotated;
    const stale = await ask(known.token, "basic");
    expect([stale.status, stale.json().error?.code, stale.headers.get("www-authenticate")]).toEqual([
      502,
      -33021,
      null,
    ]);
    writeFileSync(join(stack.dir, "password"), `${secrets.rotated}\n`, { mode: 0o600 });
    const answers = await Promise.all(Array.from({ length: 10 }, (_, i) => ask(known.token, "basic", i)));
    expect(answers.map(({ status }) => status)).toEqual(Array(10).fill(200));
  });

  it("no secret and no agent's token stands in any output", () => {
    const found = findLeaks(stack.outputs(), { ...secrets, known: known.token, relayOnly: stack.agentKey });
    expect(found).toEqual([]);
  });
});
