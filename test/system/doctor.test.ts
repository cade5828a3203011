import { readFileSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse, stringify } from "yaml";
import { type FixtureServer, startFixtureServer } from "../fixtures/fixture-server/server.ts";
import { callTool } from "../support/agent-requests.ts";
import { type Bao, startBao } from "../support/bao.ts";
import { findLeaks } from "../support/canary.ts";
import { startChild } from "../support/child.ts";
import { freePort, mintToken, type Stack, startStack } from "../support/stack.ts";
import { mintSecret, requireBao } from "../support/vault-backed.ts";

/** `postern doctor` against real parts, whole and with one of them broken at a time. */
const binary = requireBao();
const main = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));
const upstreamToken = mintSecret("upstream");
const staleToken = mintSecret("stale");
const wrongToken = mintToken("ptk_").token;

interface StageLine {
  readonly name: string;
  readonly state: string;
  readonly detail: string;
  readonly cure?: string;
}
interface Diagnosis {
  readonly code: number;
  readonly ok: boolean;
  readonly stages: readonly StageLine[];
  readonly failed: readonly string[];
  stage(name: string): StageLine | undefined;
}
type Yaml = Record<string, Record<string, unknown>>;

describe.skipIf(binary === undefined)("doctor", () => {
  let bao: Bao;
  let secretId: string;
  let fixture: FixtureServer;
  let stack: Stack;
  let stranger: Server;
  const outputs: { name: string; text: string }[] = [];

  async function run(args: readonly string[]) {
    const child = startChild({ name: "doctor", command: process.execPath, args: [main, "doctor", ...args] });
    const code = await child.ended;
    outputs.push({ name: `doctor ${args.join(" ")}`, text: child.stdout() + child.stderr() });
    return { code, out: child.stdout(), err: child.stderr() };
  }

  /** The stack's file of `part`, changed. */
  async function diagnose(part: "gateway" | "relay", change: (yaml: Yaml) => void): Promise<Diagnosis> {
    const yaml = parse(readFileSync(join(stack.dir, `${part}.yaml`), "utf8")) as Yaml;
    change(yaml);
    const file = join(stack.dir, `changed-${part}.yaml`);
    writeFileSync(file, stringify(yaml, { aliasDuplicateObjects: false }));
    const { code, out, err } = await run(["-c", file, "--json"]);
    if (out === "") throw new Error(err);
    const { ok, stages } = JSON.parse(out) as { ok: boolean; stages: StageLine[] };
    const failed = stages.filter(({ state }) => state === "failed").map(({ name }) => name);
    return { code, ok, stages, failed, stage: (name) => stages.find((stage) => stage.name === name) };
  }
  const bearer = (path: string): object => ({
    type: "bearer",
    token: { vault: { mount: "secret", path, field: "token" } },
  });

  beforeAll(async () => {
    bao = await startBao(binary ?? "", { tls: true });
    const rules = ["secret/data/mcp/*"].map((path) => `path "${path}" { capabilities = ["read"] }`).join("\n");
    const role = await bao.enableApprole(rules);
    ({ secretId } = role);
    await bao.putSecret("secret", "mcp/good", { token: upstreamToken });
    await bao.putSecret("secret", "mcp/stale", { token: staleToken });
    fixture = await startFixtureServer({ bearer: upstreamToken, extras: true });
    stranger = createServer((_req, res) => res.writeHead(500).end("no"));
    await new Promise<void>((resolve) => stranger.listen(0, "127.0.0.1", resolve));
    stack = await startStack({
      vault: {
        address: bao.address,
        ca: bao.caFile,
        auth: { method: "approle", roleId: role.roleId, secretId: { file: "./secret-id" } },
      },
      secretFiles: { "secret-id": secretId, "wrong-token": wrongToken },
      servers: { good: { url: fixture.url, credential: bearer("mcp/good") } },
      policy: { good: { tools: ["echo"] } },
    });
  });

  afterAll(async () => {
    const printed = [...outputs, ...stack.outputs()];
    const secrets = {
      "vault root token": bao.rootToken,
      "secret id": secretId,
      "upstream token": upstreamToken,
      "stale token": staleToken,
      "tunnel token": stack.tunnelToken,
      "wrong token": wrongToken,
      "agent key": stack.agentKey,
    };
    await stack.stop();
    await fixture.close();
    stranger.close();
    await bao.stop();
    expect(outputs.length).toBeGreaterThan(10);
    expect(findLeaks(printed, secrets)).toEqual([]);
  });

  it("finds nothing wrong with a whole one, and leaves the running gateway and its sessions as they were", async () => {
    const tunnels = async (): Promise<unknown> => await (await fetch(`${stack.gatewayAdmin}/readyz`)).json();
    expect(await tunnels()).toMatchObject({ ready: true });
    const connected = (): number =>
      (
        stack
          .gateway()
          ?.stderr()
          .match(/tunnel connected/g) ?? []
      ).length;
    const before = connected();
    const { code, out } = await run(["-c", join(stack.dir, "gateway.yaml")]);
    expect(out).toMatch(/^ok {6}vault tls .*issued by .*, valid to /m);
    expect(out).toMatch(/^ok {6}vault login .*by approle, for \d+ s$/m);
    expect(out).toMatch(/^ok {6}vault policy .*grants all that is configured: 1$/m);
    expect(out).toMatch(/^ok {6}relay upgrade .*token accepted$/m);
    expect(out).toMatch(/^ok {6}relay echo .*back after [\d.]+ ms$/m);
    expect(out).toMatch(/^ok {6}server good credential .*bearer: Authorization$/m);
    expect(out).toMatch(/^ok {6}server good mcp .*initialize: 200/m);
    expect(out).toMatch(/gateway\.yaml: \d+ ok, 0 failed, 0 skipped\n$/);
    expect(code).toBe(0);
    expect(fixture.sessionCount).toBe(0);
    expect(connected()).toBe(before);
    expect(stack.gateway()?.stderr()).not.toContain("took this one's place");
    const { status } = await callTool(stack.agentUrl("good"), stack.agentKey, "echo", { value: "x" });
    expect(status).toBe(200);
  });

  it("leaves no token of its own behind at the vault", async () => {
    const accessors = async (): Promise<number> => {
      const { data } = (await bao.call("LIST", "auth/token/accessors")) as { data: { keys: string[] } };
      return data.keys.length;
    };
    const before = await accessors();
    expect((await diagnose("gateway", () => undefined)).ok).toBe(true);
    expect(await accessors()).toBe(before);
  });

  it("a token that the relay does not know", async () => {
    const found = await diagnose(
      "gateway",
      (yaml) => void Object.assign(yaml["relay"] ?? {}, { token: { file: "./wrong-token" } }),
    );
    expect([found.code, found.failed]).toEqual([1, ["relay upgrade"]]);
    expect(found.stage("relay upgrade")).toMatchObject({
      detail: "the relay refuses the upgrade: 401 Unauthorized",
      cure: expect.stringContaining("relay.tunnel and relay.token"),
    });
    expect(found.stage("relay echo")).toMatchObject({ state: "skipped", detail: 'waits for "relay hello"' });
    expect(found.stage("server good mcp")?.state).toBe("ok");
  });

  it("a certificate of a CA that is not trusted, and a TLS server that is no relay", async () => {
    const url = bao.address.replace("https:", "wss:");
    const distrusted = await diagnose("gateway", (yaml) => {
      yaml["relay"] = { ...yaml["relay"], url };
      delete yaml["vault"]?.["ca"];
    });
    expect(distrusted.failed).toEqual(["relay tls", "vault tls"]);
    expect(distrusted.stage("relay tls")?.detail).toMatch(/not trusted: .*; issued by /);
    expect(distrusted.stage("relay tls")?.cure).toContain("relay.ca");
    expect(distrusted.stage("vault tls")?.cure).toContain("vault.ca");
    expect(distrusted.stage("server good credential")).toMatchObject({
      state: "skipped",
      detail: 'waits for "vault login"',
    });
    const strange = await diagnose("gateway", (yaml) => {
      yaml["relay"] = { ...yaml["relay"], url, ca: bao.caFile };
    });
    expect(strange.failed).toEqual(["relay upgrade"]);
    expect(strange.stage("relay upgrade")?.cure).toMatch(/relay/);
  });

  it("names that have no address", async () => {
    const found = await diagnose("gateway", (yaml) => {
      yaml["relay"] = { ...yaml["relay"], url: "wss://relay.postern.invalid" };
      yaml["servers"] = { good: { url: "http://tickets.postern.invalid/mcp", credential: bearer("mcp/good") } };
    });
    expect(found.failed).toEqual(["relay dns", "server good dns"]);
    expect(found.stage("relay dns")?.detail).toMatch(/^relay\.postern\.invalid has no address: E/);
    expect(found.stage("relay dns")?.cure).toContain("relay.url");
    expect(found.stage("server good dns")?.cure).toContain("servers.good.url");
  });

  it("servers that are down, refuse, want a credential, are no MCP or not there", async () => {
    const port = await freePort();
    const other = `http://127.0.0.1:${(stranger.address() as AddressInfo).port}`;
    const servers = {
      down: { url: `http://127.0.0.1:${port}/mcp` },
      stale: { url: fixture.url, credential: bearer("mcp/stale") },
      bare: { url: fixture.url },
      broken: { url: other },
      elsewhere: { url: fixture.url.replace(/\/mcp$/, "/nothing"), credential: bearer("mcp/good") },
      absent: { url: fixture.url, credential: bearer("mcp/absent") },
    };
    const names = Object.keys(servers);
    const found = await diagnose("gateway", (yaml) => {
      yaml["servers"] = servers;
      yaml["policy"] = { version: 1, servers: Object.fromEntries(names.map((name) => [name, { tools: ["echo"] }])) };
    });
    expect(found.failed).toEqual([
      "server down tcp",
      "server stale mcp",
      "server bare mcp",
      "server broken mcp",
      "server elsewhere mcp",
      "server absent credential",
    ]);
    expect(found.stage("server stale mcp")).toMatchObject({
      detail: "the server refuses the credential: 401",
      cure: expect.stringContaining("servers.stale.credential"),
    });
    expect(found.stage("server bare mcp")?.cure).toBe("write servers.bare.credential");
    expect(found.stage("server broken mcp")?.detail).toBe("the server answers 500");
    expect(found.stage("server elsewhere mcp")?.cure).toContain("servers.elsewhere.url");
    expect(found.stage("server absent credential")?.detail).toContain("there is nothing at secret/data/mcp/absent");
  });

  it("a policy of the vault that lacks a path, with the stanza", async () => {
    const found = await diagnose("gateway", (yaml) => {
      yaml["servers"] = { good: { url: fixture.url, credential: bearer("private/denied") } };
    });
    expect(found.failed).toEqual(["vault policy", "server good credential"]);
    expect(found.stage("vault policy")?.cure).toContain(
      'path "secret/data/private/denied" { capabilities = ["read"] }',
    );
  });

  it("does not open a wrapped secret id, which opens once", async () => {
    const found = await diagnose("gateway", (yaml) => {
      const auth = yaml["vault"]?.["auth"] as Record<string, unknown>;
      const { secretId: _, ...rest } = auth;
      yaml["vault"] = { ...yaml["vault"], auth: { ...rest, wrappedSecretId: { file: "./secret-id" } } };
    });
    expect([found.code, found.failed]).toEqual([0, []]);
    expect(found.stage("vault login")).toMatchObject({
      state: "skipped",
      detail: expect.stringContaining("opens once"),
    });
  });

  it("a relay's file, with the relay and without", async () => {
    const { code, out } = await run(["-c", join(stack.dir, "relay.yaml")]);
    expect(out).toMatch(/^ok {6}listen port .*taken, by the relay that runs$/m);
    expect(out).toMatch(/^ok {6}publicUrl relay .*leads to a relay$/m);
    expect(code).toBe(0);
    const [admin, port] = [await freePort(), await freePort()];
    const issuer = `http://127.0.0.1:${await freePort()}`;
    const found = await diagnose("relay", (yaml) => {
      Object.assign(yaml, {
        admin: { listen: `127.0.0.1:${admin}` },
        listen: `127.0.0.1:${(stranger.address() as AddressInfo).port}`,
        publicUrl: `http://127.0.0.1:${port}`,
      });
      const { acme } = yaml["tunnels"] as { acme: { agents: object[] } };
      acme.agents.push({ oauth: { issuer }, servers: ["good"] });
    });
    expect(found.failed).toEqual(["listen port", "publicUrl tcp", `issuer ${issuer}`]);
    expect(found.stage("listen port")).toMatchObject({
      detail: expect.stringContaining("EADDRINUSE"),
      cure: expect.any(String),
    });
    expect(found.stage("admin port")?.detail).toMatch(/is free$/);
    expect(found.stage(`issuer ${issuer}`)?.detail).toBe("no keys: ECONNREFUSED");
  });

  it("misuse and a file that is wrong: 2, and nothing is tried", async () => {
    expect((await run([])).code).toBe(2);
    expect((await run(["-c", join(stack.dir, "policy.yaml")])).code).toBe(2);
  });

  // The last ones: what they break stays broken.
  it("a vault that is sealed, then one that is gone", async () => {
    await bao.seal();
    const sealed = await diagnose("gateway", () => undefined);
    expect(sealed.failed).toEqual(["vault health"]);
    expect(sealed.stage("vault health")).toMatchObject({
      detail: expect.stringContaining("is sealed"),
      cure: expect.stringContaining("unseal"),
    });
    expect(sealed.stage("vault login")?.state).toBe("skipped");
    expect(sealed.stage("relay echo")?.state).toBe("ok");
  });
});
