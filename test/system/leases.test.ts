/** What Vault issues, and client certificates, through the real processes; set up by the commands of our documents. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createRemoteJWKSet, decodeJwt, jwtVerify } from "jose";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { byToken, open } from "../credentials/harness.ts";
import { send } from "../support/agent-requests.ts";
import { type Bao, startBao } from "../support/bao.ts";
import { findLeaks } from "../support/canary.ts";
import { startChild } from "../support/child.ts";
import { CommandRoom, readHclBlocks, readShellBlocks } from "../support/doc-commands.ts";
import { RabbitApi } from "../support/rabbit-api.ts";
import { type Stack, startStack } from "../support/stack.ts";
import { TlsUpstream } from "../support/tls-upstream.ts";
import { json, TokenEndpoint } from "../support/token-endpoint.ts";
import { until } from "../support/until.ts";
import { requireBao } from "../support/vault-backed.ts";

const binary = requireBao();
const documents = fileURLToPath(new URL("../../docs/credentials-issued.md", import.meta.url));
const call = (id: number) => ({ jsonrpc: "2.0", id, method: "tools/call", params: { name: "who", arguments: {} } });
const issuedFor = (bao: Bao, mount: string, body: object) => bao.call("POST", `${mount}/issue/postern`, body);

const ledger = (field: string) => ({ vault: { mount: "secret", path: "mcp/ledger", field } });
const storedCredential = {
  type: "mtls",
  certificate: ledger("certificate"),
  privateKey: ledger("private_key"),
  ca: ledger("ca"),
};

const queuesCredential = {
  type: "vaultDynamic",
  vault: { path: "rabbitmq/creds/queues" },
  as: { type: "basic", username: { lease: "username" }, password: { lease: "password" } },
};

interface Issued {
  readonly certificate: string;
  readonly private_key: string;
  readonly issuing_ca: string;
}

describe.runIf(binary !== undefined)("what OpenBao issues, through the real processes", () => {
  let bao: Bao;
  let room: CommandRoom;
  let rabbit: RabbitApi;
  let stored: TlsUpstream;
  let issued: TlsUpstream;
  let endpoint: TokenEndpoint;
  let plain: Server;
  let stack: Stack;
  let vault: Readonly<Record<string, unknown>>;
  let serverCa: string;
  let serverTls: { cert: string; key: string };
  /** What servers have seen or were given, by what it is. */
  const secrets: Record<string, string> = {};
  const seen: { path: string; headers: IncomingMessage["headers"] }[] = [];

  /** What a path of the plain server demands. */
  const admits = async (path: string, headers: IncomingMessage["headers"]): Promise<boolean> => {
    const authorization = String(headers.authorization);
    if (path === "/queues") {
      const [user = "", password] = Buffer.from(authorization.slice(6), "base64").toString().split(":");
      return rabbit.users.get(user) === password;
    }
    if (path === "/hosts") return /^[0-9a-f-]{36}$/.test(String(headers["x-one-time"]));
    const token = authorization.replace(/^Bearer /, "");
    if (path === "/bought") return token.startsWith("bought-");
    const keys = createRemoteJWKSet(new URL(`${bao.address}/v1/identity/oidc/.well-known/keys`));
    await jwtVerify(token, keys, { issuer: `${bao.address}/v1/identity/oidc`, audience: "tickets.internal" });
    return true;
  };

  const answer = async (req: IncomingMessage, res: ServerResponse): Promise<void> => {
    let body = "";
    for await (const chunk of req) body += String(chunk);
    const path = req.url ?? "";
    seen.push({ path, headers: req.headers });
    if (!(await admits(path, req.headers).catch(() => false))) {
      res.writeHead(401).end();
      return;
    }
    const { id } = JSON.parse(body) as { id: number };
    json(res, 200, { jsonrpc: "2.0", id, result: { content: [] } });
  };

  const runBlocks = async (title: string, change: (script: string) => string = (script) => script): Promise<void> => {
    for (const script of await readShellBlocks(documents, title)) await room.run(change(script));
  };

  /** A pair for a client, and the CA that signed it. */
  const issueClient = async (): Promise<Issued> => {
    const answered = await issuedFor(bao, "pki-clients", { common_name: "postern.internal", ttl: "1h" });
    const pair = answered["data"] as Issued;
    secrets[`client key ${Object.keys(secrets).length}`] = pair.private_key.split("\n")[1] ?? "";
    return pair;
  };

  const putLedger = async (pair: Issued): Promise<void> => {
    await room.write("client.crt", pair.certificate);
    await room.write("client.key", pair.private_key);
    await room.write("server-ca.crt", serverCa);
    await runBlocks("A client certificate that is stored");
  };

  const startServers = async (): Promise<void> => {
    await bao.call("POST", "sys/mounts/pki-servers", { type: "pki" });
    await bao.call("POST", "pki-servers/root/generate/internal", { common_name: "servers", key_type: "ec" });
    await bao.call("POST", "pki-servers/roles/postern", { allow_any_name: true, key_type: "ec", allow_ip_sans: true });
    const pair = await issuedFor(bao, "pki-servers", { common_name: "localhost", ip_sans: "127.0.0.1", ttl: "1h" });
    const { certificate: cert, private_key: key, issuing_ca } = pair["data"] as Issued;
    serverCa = issuing_ca;
    serverTls = { cert, key };
    const ca = await room.read("clients-ca.crt");
    stored = await TlsUpstream.start({ ...serverTls, ca });
    issued = await TlsUpstream.start({ ...serverTls, ca });
    plain = createServer((req, res) => void answer(req, res));
    await new Promise<void>((resolve) => plain.listen(0, "127.0.0.1", resolve));
  };

  beforeAll(async () => {
    bao = await startBao(binary ?? "");
    room = await CommandRoom.open(binary ?? "", bao);
    rabbit = await RabbitApi.start();
    endpoint = await TokenEndpoint.start();
    endpoint.answer = (res) => {
      const token = `bought-${crypto.randomUUID()}`;
      secrets[`bought ${Object.keys(secrets).length}`] = token;
      json(res, 200, { access_token: token, token_type: "bearer", expires_in: 3600 });
    };
    await runBlocks("A client certificate that is issued");
    await startServers();
    await putLedger(await issueClient());
    await runBlocks("A user that is made on demand", (script) =>
      script
        .replace("http://rabbitmq.internal:15672", rabbit.url)
        .replace("ttl=3600 max_ttl=86400", "ttl=3 max_ttl=8")
        .replace("-default-lease-ttl=1h", "-default-lease-ttl=3s"),
    );
    await runBlocks("Who the gateway is, signed by Vault", (script) =>
      script.replace("https://vault.internal:8200", bao.address).replace("ttl=10m", "ttl=3s"),
    );
    const policies = ["ledger", "billing", "queues", "hosts", "tickets"].map((name) => `postern-${name}`);
    const role = { token_policies: policies, token_ttl: "4s", token_max_ttl: "10s" };
    const { roleId, secretId } = await bao.enableApprole('path "none" { capabilities = ["deny"] }', role);
    Object.assign(secrets, { secretId, root: bao.rootToken });
    vault = { address: bao.address, auth: { method: "approle", roleId, secretId: { file: "./secret-id" } } };
    const { port } = plain.address() as AddressInfo;
    const url = (path: string): string => `http://127.0.0.1:${port}/${path}`;
    stack = await startStack({
      secretFiles: { "secret-id": secretId, "server-ca": serverCa },
      vault: { ...vault, ttl: "1s" },
      servers: {
        ledger: { url: stored.url, credential: storedCredential },
        billing: {
          url: issued.url,
          credential: {
            type: "mtls",
            pki: { mount: "pki-clients", role: "postern", commonName: "postern.internal", ttl: "3s" },
            ca: { file: "./server-ca" },
          },
        },
        queues: {
          url: url("queues"),
          credential: queuesCredential,
        },
        hosts: {
          url: url("hosts"),
          credential: {
            type: "vaultDynamic",
            vault: { path: "ssh/creds/agent", method: "write", parameters: { ip: "10.1.2.3" } },
            as: { type: "header", name: "X-One-Time", value: { lease: "key" } },
          },
        },
        tickets: { url: url("tickets"), credential: { type: "vaultIdentity", role: "tickets", as: "bearer" } },
        bought: {
          url: url("bought"),
          credential: {
            type: "vaultIdentity",
            role: "tickets",
            as: { type: "oauthClientCredentials", tokenEndpoint: endpoint.url, clientId: "postern" },
          },
        },
      },
      policy: Object.fromEntries(
        ["ledger", "billing", "queues", "hosts", "tickets", "bought"].map((name) => [name, { tools: ["*"] }]),
      ),
    });
  }, 120_000);

  afterAll(async () => {
    await stack?.stop();
    plain?.closeAllConnections();
    plain?.close();
    await Promise.all([stored?.stop(), issued?.stop(), rabbit?.stop(), endpoint?.stop()]);
    await bao?.stop();
  });

  const ask = (name: string, id: number) => send(stack.agentUrl(name), { bearer: stack.agentKey, body: call(id) });

  /** Calls `name` without a pause, two at a time, until `isEnough`; gives the statuses. */
  const callUntil = async (name: string, isEnough: () => boolean, what: string): Promise<number[]> => {
    const statuses: number[] = [];
    const caller = async (): Promise<void> => {
      await until(
        async () => {
          const { status } = await ask(name, statuses.length);
          statuses.push(status);
          return isEnough();
        },
        what,
        40_000,
      );
    };
    await Promise.all([caller(), caller()]);
    return statuses;
  };

  /** An event stream of `name`: the numbers that came, until it is left. */
  const listen = async (name: string) => {
    const leave = new AbortController();
    const numbers: number[] = [];
    const response = await fetch(stack.agentUrl(name), {
      headers: { authorization: `Bearer ${stack.agentKey}`, accept: "text/event-stream" },
      signal: leave.signal,
    });
    expect(response.status).toBe(200);
    let text = "";
    const done = (async () => {
      for await (const chunk of response.body ?? []) {
        text += Buffer.from(chunk).toString();
        numbers.splice(0, numbers.length, ...[...text.matchAll(/"data":(\d+)/g)].map(([, n]) => Number(n)));
      }
      throw new Error("the event stream ended");
    })();
    const ended = done.catch((error: unknown) => error);
    await until(() => numbers.length > 0, "the first event");
    return {
      numbers,
      stop: async () => {
        leave.abort();
        return await ended;
      },
    };
  };

  const expectUnbroken = (numbers: readonly number[], atLeast: number): void => {
    expect(numbers).toEqual(Array.from({ length: numbers.length }, (_, i) => i + 1));
    expect(numbers.length).toBeGreaterThan(atLeast);
  };

  const isAbort = (error: unknown): boolean => error instanceof Error && error.name === "AbortError";

  it("mtls: a stored certificate is rotated five times under calls and an event stream, and none is lost", async () => {
    await ask("ledger", 0);
    const stream = await listen("ledger");
    let isOver = false;
    const calling = callUntil("ledger", () => isOver, "the rotations to be over");
    for (let round = 1; round <= 5; round += 1) {
      await putLedger(await issueClient());
      await until(() => new Set(stored.serials).size > round, "the new certificate", 15_000);
    }
    isOver = true;
    const statuses = await calling;
    expect(new Set(statuses)).toEqual(new Set([200]));
    expect(statuses.length).toBeGreaterThan(20);
    expectUnbroken(stream.numbers, 50);
    expect(stored.refusedCount).toBe(0);
    // One for the stream, which began with the first certificate, and two for those who call.
    await until(() => stored.sockets.size <= 3, "the connections of old certificates to close");
    expect(isAbort(await stream.stop())).toBe(true);
    await until(() => stored.sockets.size <= 2, "the stream's own connection to close");
  });

  it("mtls: a TLS alert against the certificate reads the entry anew, and the call is made again", async () => {
    await room.write("server.crt", serverTls.cert);
    await room.write("server.key", serverTls.key);
    await room.write("alerting-ca", await room.read("clients-ca.crt"));
    const script = fileURLToPath(new URL("../support/alerting_server.py", import.meta.url));
    const args = [script, ...["server.crt", "server.key", "alerting-ca"].map((name) => join(room.dir, name))];
    const alerting = startChild({ name: "alerting server", command: "python3", args });
    await until(() => alerting.stdout().includes("\n"), "a port");
    const [port, ...none] = alerting.stdout().trim().split("\n");
    expect(none).toEqual([]);
    const { private_key: key, ...first } = await issueClient();
    await bao.putSecret("secret", "mcp/ledger", { ...first, private_key: key, ca: serverCa });
    const strict = await startStack({
      secretFiles: { "secret-id": secrets["secretId"] ?? "" },
      vault: { ...vault, ttl: "1h" },
      servers: { strict: { url: `https://127.0.0.1:${port}/mcp`, credential: storedCredential } },
      policy: { strict: { tools: ["*"] } },
    });
    onTestFinished(async () => {
      await strict.stop();
      await alerting.stop();
    });
    const said = (): string[] => alerting.stdout().trim().split("\n").slice(1);
    const askStrict = () => send(strict.agentUrl("strict"), { bearer: strict.agentKey, body: call(1) });
    expect((await askStrict()).status).toBe(200);
    expect(said()).toEqual(["request"]);
    // Fresh for an hour there: only the alert can tell that there is another certificate.
    await bao.call("POST", "sys/mounts/pki-next", { type: "pki" });
    await bao.call("POST", "pki-next/root/generate/internal", { common_name: "next", key_type: "ec" });
    await bao.call("POST", "pki-next/roles/postern", { allow_any_name: true, key_type: "ec" });
    const pair = (await issuedFor(bao, "pki-next", { common_name: "postern.internal", ttl: "1h" }))["data"] as Issued;
    await room.write("alerting-ca", pair.issuing_ca);
    await bao.putSecret("secret", "mcp/ledger", { ...pair, ca: serverCa });
    expect((await askStrict()).status).toBe(200);
    expect(said()).toEqual(["request", "alert", "request"]);
    // With no other certificate at hand, the agent is told no more than that the server failed.
    await room.write("alerting-ca", await room.read("clients-ca.crt"));
    const refused = await askStrict();
    expect([refused.status, refused.text.includes("certificate")]).toEqual([502, false]);
    const log = strict.outputs().find(({ name }) => name === "gateway")?.text ?? "";
    expect(log).toContain('"reason":"the server refused the credential"');
  });

  it("mtls by PKI: certificates of three seconds are replaced under calls and an event stream, and none is lost", async () => {
    await ask("billing", 0);
    const stream = await listen("billing");
    const statuses = await callUntil("billing", () => new Set(issued.serials).size >= 5, "five certificates");
    expect(new Set(statuses)).toEqual(new Set([200]));
    expectUnbroken(stream.numbers, 50);
    expect(issued.refusedCount).toBe(0);
    expect(isAbort(await stream.stop())).toBe(true);
  });

  it("vaultDynamic: a lease is renewed, replaced at its maximum, and replaced when its token is", async () => {
    const startedAt = performance.now();
    const statuses = await callUntil("queues", () => performance.now() - startedAt > 17_000, "17 s");
    expect(new Set(statuses)).toEqual(new Set([200]));
    // Leases of 3 s that live for 8 s at most, and tokens that live for 10 s: without renewal there would be nine.
    expect(rabbit.made.length).toBeGreaterThan(2);
    expect(rabbit.made.length).toBeLessThan(8);
    expect(stack.outputs().find(({ name }) => name === "gateway")?.text).not.toContain("credential failed");
  });

  it("vaultDynamic: a write with parameters, as a header", async () => {
    const keys = (): Set<unknown> =>
      new Set(seen.filter(({ path }) => path === "/hosts").map(({ headers }) => headers["x-one-time"]));
    const statuses = await callUntil("hosts", () => keys().size >= 3, "three one-time passwords");
    expect(new Set(statuses)).toEqual(new Set([200]));
    for (const key of keys()) secrets[`one-time ${Object.keys(secrets).length}`] = String(key);
  });

  it("vaultIdentity: a JWT that the server checks against OpenBao's keys, renewed before it expires", async () => {
    const tokens = (): string[] =>
      seen.filter(({ path }) => path === "/tickets").map(({ headers }) => String(headers.authorization).slice(7));
    const statuses = await callUntil("tickets", () => new Set(tokens()).size >= 3, "three tokens");
    expect(new Set(statuses)).toEqual(new Set([200]));
    for (const token of new Set(tokens())) secrets[`identity ${Object.keys(secrets).length}`] = token;
  });

  it("vaultIdentity: a client assertion buys an access token", async () => {
    expect((await ask("bought", 1)).status).toBe(200);
    const { form } = endpoint.only;
    const assertion = form.get("client_assertion") ?? "";
    expect([form.get("grant_type"), form.get("client_id"), form.get("client_assertion_type")]).toEqual([
      "client_credentials",
      "postern",
      "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
    ]);
    expect(form.get("client_secret")).toBeNull();
    expect(decodeJwt(assertion).aud).toBe("tickets.internal");
    secrets["assertion"] = assertion;
  });

  it("vaultDynamic: with a token that is not the gateway's own, the lease itself is revoked where the policy allows it", async () => {
    const stanzas = await readHclBlocks(documents);
    const read = 'path "rabbitmq/creds/queues" { capabilities = ["read"] }';
    const makeAndClose = async (rules: string): Promise<string> => {
      const token = await bao.createToken({ ttlMs: 60_000, rules });
      const { credentials, inject } = open({
        vault: byToken(bao.address),
        servers: {
          a: {
            type: "vaultDynamic",
            vault: { path: "rabbitmq/creds/queues" },
            as: { type: "bearer", token: { lease: "username" } },
          },
        },
        env: { STORE_TOKEN: token },
      });
      const [, user = ""] = await inject();
      expect(rabbit.users.has(user.slice(7))).toBe(true);
      await credentials.close();
      return user.slice(7);
    };
    const revoked = await makeAndClose([read, ...stanzas].join("\n"));
    await until(() => !rabbit.users.has(revoked), "the user to be gone", 1_500);
    const left = await makeAndClose(read);
    expect(rabbit.users.has(left)).toBe(true);
    await until(() => !rabbit.users.has(left), "the lease to end by itself", 10_000);
  });

  it("what the policy lacks is found at start, with the stanza that the documents have", async () => {
    const gateway = (): string => stack.outputs().find(({ name }) => name === "gateway")?.text ?? "";
    await until(() => gateway().includes("store grants every path"), "the check at start");
    expect(gateway()).not.toContain("store policy lacks a path");
    const [hosts = ""] = (await readShellBlocks(documents, "A user that is made on demand")).slice(1);
    const [stanza = ""] = /path "ssh.*/.exec(hosts) ?? [];
    const token = await bao.createToken({ ttlMs: 60_000, rules: 'path "none" { capabilities = ["read"] }' });
    const { credentials, lines } = open({
      vault: byToken(bao.address),
      servers: {
        a: {
          type: "vaultDynamic",
          vault: { path: "ssh/creds/agent", method: "write" },
          as: { type: "bearer", token: { lease: "key" } },
        },
      },
      env: { STORE_TOKEN: token },
    });
    await credentials.checkAccess();
    await credentials.close();
    const found = lines.map((line) => JSON.parse(line) as { msg: string; cure?: string });
    expect(found.find(({ msg }) => msg === "store policy lacks a path")?.cure).toBe(`grant ${stanza}`);
  });

  it("vaultDynamic: when the gateway stops, its leases are revoked in OpenBao, an hour before their time", async () => {
    await bao.call("POST", "rabbitmq/config/lease", { ttl: 3_600, max_ttl: 3_600 });
    const { roleId, secretId } = await bao.enableApprole('path "none" { capabilities = ["deny"] }', {
      token_policies: ["postern-queues"],
      token_ttl: "1h",
    });
    const { port } = plain.address() as AddressInfo;
    const lasting = await startStack({
      secretFiles: { "secret-id": secretId },
      vault: { address: bao.address, auth: { method: "approle", roleId, secretId: { file: "./secret-id" } } },
      servers: { queues: { url: `http://127.0.0.1:${port}/queues`, credential: queuesCredential } },
      policy: { queues: { tools: ["*"] } },
    });
    onTestFinished(() => lasting.stop());
    const leases = (): Promise<number> =>
      bao.call("LIST", "sys/leases/lookup/rabbitmq/creds/queues").then(
        ({ data }) => (data as { keys: string[] }).keys.length,
        () => 0,
      );
    const before = new Set(rabbit.users.keys());
    const { status } = await send(lasting.agentUrl("queues"), { bearer: lasting.agentKey, body: call(1) });
    expect(status).toBe(200);
    const [user = ""] = [...rabbit.users.keys()].filter((name) => !before.has(name));
    expect(await leases()).toBeGreaterThan(0);
    expect(await lasting.gateway()?.stop(10_000)).toBe(0);
    await until(() => rabbit.deleted.includes(user), "the user to be gone", 15_000);
    await stack.gateway()?.stop(10_000);
    await until(async () => (await leases()) === 0, "every lease to be gone", 15_000);
  });

  it("nothing was written that opens a door", () => {
    rabbit.passwords.forEach((password, i) => {
      secrets[`password ${i}`] = password;
    });
    expect(Object.keys(secrets).length).toBeGreaterThan(15);
    expect(findLeaks(stack.outputs(), secrets)).toEqual([]);
  });
});
