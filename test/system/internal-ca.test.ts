/** What is reached by TLS under a CA of one's own, through the real processes. */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer as createPlainServer } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse, stringify } from "yaml";
import { callTool, send } from "../support/agent-requests.ts";
import { startChild } from "../support/child.ts";
import { internalCa, serverPairs } from "../support/internal-ca.ts";
import { TestIssuer } from "../support/issuer.ts";
import { type Stack, startStack } from "../support/stack.ts";
import { json, TokenEndpoint } from "../support/token-endpoint.ts";
import { until } from "../support/until.ts";
import { loopbackCertificate } from "../tunnel/loopback-cert.ts";

const main = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));
const [first, renewed] = serverPairs;

describe("a CA of one's own, through the real processes", () => {
  let server: Server;
  let stack: Stack;

  beforeAll(async () => {
    server = createServer(first, (req, res) => {
      let body = "";
      req.on("data", (chunk: Buffer) => {
        body += chunk.toString();
      });
      req.on("end", () => {
        const { id } = JSON.parse(body) as { id: number };
        json(res, 200, { jsonrpc: "2.0", id, result: { content: [{ type: "text", text: "here" }] } });
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const url = `https://localhost:${(server.address() as AddressInfo).port}/mcp`;
    stack = await startStack({
      secretFiles: { "internal.pem": internalCa, "other.pem": loopbackCertificate },
      servers: { right: { url, ca: "./internal.pem" }, unnamed: { url }, wrong: { url, ca: "./other.pem" } },
      policy: Object.fromEntries(["right", "unnamed", "wrong"].map((name) => [name, { tools: ["*"] }])),
    });
  });
  afterAll(async () => {
    await stack?.stop();
    server?.closeAllConnections();
    server?.close();
  });

  const call = async (name: string): Promise<{ status: number; text: string }> => {
    const { status, text } = await callTool(stack.agentUrl(name), stack.agentKey, "look", {});
    return { status, text };
  };
  const cureFor = (name: string): string | undefined => {
    const line = (stack.gateway()?.stderr() ?? "").split("\n").findLast((one) => {
      return one.includes(`"server":"${name}"`) && one.includes('"cure"');
    });
    return line === undefined ? undefined : (JSON.parse(line) as { cure: string }).cure;
  };
  const run = async (command: string) => {
    const args = [main, command, "-c", join(stack.dir, "gateway.yaml"), "--json"];
    const child = startChild({ name: command, command: process.execPath, args });
    const code = await child.ended;
    return { code, json: JSON.parse(child.stdout()) as Record<string, { [key: string]: string }[]> };
  };

  it("a server is reached under it, and goes on when it renews its certificate", async () => {
    expect(await call("right")).toMatchObject({ status: 200, text: expect.stringContaining("here") });
    server.setSecureContext(renewed);
    server.closeAllConnections();
    expect(await call("right")).toMatchObject({ status: 200, text: expect.stringContaining("here") });
  });

  it.each(["unnamed", "wrong"])("a server whose CA is %s fails, and the log says which key to write", async (name) => {
    expect(await call(name)).toMatchObject({ status: 502, text: expect.not.stringContaining("localhost") });
    await until(() => cureFor(name) !== undefined, "the line of the log");
    expect(cureFor(name)).toBe(
      `name a PEM file with the CA that signed the server's certificate as servers.${name}.ca`,
    );
  });

  it("the doctor says the same", async () => {
    const { code, json } = await run("doctor");
    expect(code).toBe(1);
    const stage = (name: string) => json["stages"]?.find((one) => one["name"] === name);
    expect(stage("server right tls")).toMatchObject({ state: "ok" });
    expect(stage("server right mcp")).toMatchObject({ state: "ok" });
    for (const name of ["unnamed", "wrong"]) {
      expect(stage(`server ${name} tls`)).toMatchObject({
        state: "failed",
        cure: expect.stringContaining(`as servers.${name}.ca;`),
      });
    }
  });

  it("a file that is gone fails the next connection, and check; once it is back, calls go on", async () => {
    const file = join(stack.dir, "internal.pem");
    rmSync(file);
    server.closeAllConnections();
    await until(async () => (await call("right")).status === 502, "the connection is made anew");
    await until(() => cureFor("right") !== undefined, "the line of the log");
    expect(cureFor("right")).toBe("the file that servers.right.ca names must be there and hold PEM certificates");
    const { code, json } = await run("check");
    expect([code, json["problems"]?.map(({ message }) => message)]).toEqual([
      2,
      [`\`servers.right.ca\` names ${file}: this file does not exist`],
    ]);
    writeFileSync(file, internalCa);
    expect(await call("right")).toMatchObject({ status: 200 });
  });
});

interface RelayFile {
  readonly tunnels: { readonly acme: { readonly agents: unknown[] } };
}

describe("an issuer and a token endpoint under a CA of one's own, through the real processes", () => {
  let issuer: TestIssuer;
  let endpoint: TokenEndpoint;
  let stack: Stack;
  const authorizations: (string | undefined)[] = [];
  const server = createPlainServer((req, res) => {
    authorizations.push(req.headers.authorization);
    req.resume().on("end", () => json(res, 200, { jsonrpc: "2.0", id: 1, result: { content: [] } }));
  });

  beforeAll(async () => {
    issuer = await new TestIssuer("", first).start();
    endpoint = await TokenEndpoint.start(0, first);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
    const bought = { type: "oauthClientCredentials", tokenEndpoint: endpoint.url, clientId: "postern" };
    const credential = { ...bought, clientSecret: { file: "./client-secret" } };
    stack = await startStack({
      secretFiles: { "internal.pem": internalCa, "client-secret": "secret-of-the-client-of-tickets" },
      servers: { bought: { url, credential: { ...credential, ca: "./internal.pem" } }, unnamed: { url, credential } },
      policy: { bought: { tools: ["*"] }, unnamed: { tools: ["*"] } },
      gatewayYaml: {
        agents: { verify: "edge", issuers: [{ issuer: issuer.url, audience: "urn:edge", ca: "./internal.pem" }] },
      },
    });
    rewrite("relay", (relay) => {
      (relay as unknown as RelayFile).tunnels.acme.agents.push({
        oauth: { issuer: issuer.url, ca: "./internal.pem" },
        servers: ["*"],
      });
    });
    stack.relay.signal("SIGHUP");
    await until(() => stack.relay.stderr().includes('"reloaded"'), "the relay has read its file again");
  });
  afterAll(async () => {
    await stack?.stop();
    server.closeAllConnections();
    server.close();
    await Promise.all([issuer?.close(), endpoint?.stop()]);
  });

  function rewrite(part: string, change: (yaml: Record<string, unknown>) => void, to = part): string {
    const yaml = parse(readFileSync(join(stack.dir, `${part}.yaml`), "utf8")) as Record<string, unknown>;
    change(yaml);
    const file = join(stack.dir, `${to}.yaml`);
    writeFileSync(file, stringify(yaml, { aliasDuplicateObjects: false }));
    return file;
  }

  const ask = async (name: string) => {
    const bearer = await issuer.token({ claims: { aud: [stack.agentUrl(name), "urn:edge"] } });
    const body = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "look", arguments: {} } };
    return await send(stack.agentUrl(name), { bearer, body });
  };

  it("relay and gateway believe the agent's token, and the credential is bought", async () => {
    expect((await ask("bought")).status).toBe(200);
    expect(authorizations).toEqual(["Bearer token-1"]);
  });

  it("without the key nothing is bought, and the log says which one to write", async () => {
    expect((await ask("unnamed")).status).toBe(502);
    const line = (stack.gateway()?.stderr() ?? "").split("\n").find((one) => one.includes("credential failed"));
    expect(JSON.parse(line ?? "{}")).toMatchObject({
      server: "unnamed",
      cure: "name a PEM file with the CA that signed its certificate as `ca` of the credential",
    });
    expect(endpoint.asked.length).toBe(1);
  });

  it.each(["gateway", "relay"])("the doctor of a %s names the key of an issuer", async (part) => {
    const file = rewrite(
      part,
      (yaml) => {
        const { issuers } = (yaml["agents"] ?? {}) as { issuers?: { ca?: string }[] };
        const { acme } = (yaml["tunnels"] ?? {}) as { acme?: { agents: { oauth?: { ca?: string } }[] } };
        for (const entry of issuers ?? acme?.agents.flatMap(({ oauth }) => oauth ?? []) ?? []) delete entry.ca;
      },
      `without-${part}`,
    );
    const diagnose = async (of: string) => {
      const args = [main, "doctor", "-c", of, "--json"];
      const child = startChild({ name: "doctor", command: process.execPath, args });
      await child.ended;
      const { stages } = JSON.parse(child.stdout()) as { stages: { name: string; state: string; cure?: string }[] };
      return stages.find(({ name }) => name === `issuer ${issuer.url}`);
    };
    expect(await diagnose(join(stack.dir, `${part}.yaml`))).toMatchObject({ state: "ok" });
    expect(await diagnose(file)).toMatchObject({
      state: "failed",
      cure: "name a PEM file with the CA that signed the certificate there as `ca` beside `issuer`",
    });
  });
});
