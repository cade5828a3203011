import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { rootCertificates } from "node:tls";
import { exportSPKI, generateKeyPair, SignJWT } from "jose";
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import type { VaultOptions } from "../../src/credentials/index.ts";
import { bearerAt, type Harness, Opened, readMcp } from "../credentials/harness.ts";
import { type Bao, startBao } from "../support/bao.ts";
import { startBaoHelper } from "../support/bao-helper.ts";
import { requireBao } from "../support/vault-backed.ts";

const binary = requireBao();
const servers = { a: bearerAt("mcp/a"), b: bearerAt("mcp/b") };
const opened = new Opened();
afterEach(() => opened.close());

/** What all logins are let in to. */
async function prepare(bao: Bao): Promise<void> {
  for (const path of ["mcp/a", "mcp/b"]) await bao.putSecret("secret", path, { token: "value" });
  await bao.call("PUT", "sys/policies/acl/postern", { policy: readMcp });
}

describe.skipIf(binary === undefined)("logins at a real OpenBao", () => {
  let bao: Bao;
  let folder: string;

  beforeAll(async () => {
    bao = await startBao(binary ?? "");
    folder = await mkdtemp(join(tmpdir(), "logins-"));
    await prepare(bao);
  });
  afterAll(async () => {
    await bao.stop();
    await rm(folder, { recursive: true, force: true });
  });

  function openWith(auth: VaultOptions["auth"], env: Record<string, string> = {}): Harness {
    return opened.open({ vault: { address: bao.address, auth }, servers, env });
  }

  it("C28 jwt: logs in with a signed token of a file, and again with its successor", async () => {
    const { privateKey, publicKey } = await generateKeyPair("RS256");
    const sign = (subject: string): Promise<string> =>
      new SignJWT({})
        .setProtectedHeader({ alg: "RS256" })
        .setIssuer("https://issuer.test")
        .setSubject(subject)
        .setAudience("vault")
        .setIssuedAt()
        .setExpirationTime("5m")
        .sign(privateKey);
    await bao.call("POST", "sys/auth/workloads/jwt", { type: "jwt" });
    await bao.call("POST", "auth/workloads/jwt/config", {
      jwt_validation_pubkeys: [await exportSPKI(publicKey)],
      bound_issuer: "https://issuer.test",
    });
    const role = { role_type: "jwt", user_claim: "sub", bound_audiences: ["vault"], bound_subject: "postern" };
    await bao.call("POST", "auth/workloads/jwt/role/postern", { ...role, token_policies: ["postern"] });
    const file = join(folder, "jwt");
    await writeFile(file, await sign("somebody-else"), { mode: 0o600 });
    const auth = { method: "jwt", role: "postern", jwt: { file }, mount: "workloads/jwt" } as const;
    expect(await openWith(auth).failure("a")).toMatchObject({ code: "login-denied", status: 400 });
    await writeFile(file, `${await sign("postern")}\n`);
    const { inject } = openWith(auth);
    expect(await inject("a")).toEqual(["Authorization", "Bearer value"]);
    await writeFile(file, await sign("postern"));
    await bao.call("PUT", "sys/leases/revoke-prefix/auth/workloads/jwt/login");
    expect(await inject("b")).toEqual(["Authorization", "Bearer value"]);
  });

  it("C28 kubernetes: logs in with the pod's token, which the cluster is asked about", async () => {
    const cluster = await startCluster({ "pod-token": "system:serviceaccount:mcp:postern" });
    onTestFinished(cluster.stop);
    await bao.call("POST", "sys/auth/kubernetes", { type: "kubernetes" });
    await bao.call("POST", "auth/kubernetes/config", {
      kubernetes_host: cluster.address,
      token_reviewer_jwt: "reviewer",
      // Not used, since the stub speaks plain http; without one OpenBao looks for a pod's.
      kubernetes_ca_cert: rootCertificates[0],
    });
    await bao.call("POST", "auth/kubernetes/role/postern", {
      bound_service_account_names: ["postern"],
      bound_service_account_namespaces: ["mcp"],
      token_policies: ["postern"],
    });
    const file = join(folder, "pod-token");
    await writeFile(file, unsigned("somebody-else"), { mode: 0o600 });
    const auth = { method: "kubernetes", role: "postern", jwt: { file } } as const;
    expect((await openWith(auth).failure("a")).code).toBe("login-denied");
    await writeFile(file, unsigned("pod-token"));
    expect(await openWith(auth).inject("a")).toEqual(["Authorization", "Bearer value"]);
    expect(cluster.reviews).toBe(2);
  });

  it("agent: asks a proxy on a unix socket, which has the token", async () => {
    const role = await bao.enableApprole(readMcp);
    const makes = join(folder, "agent.sock");
    // It refuses requests without the header that browsers cannot send.
    const config = `api_proxy { use_auto_auth_token = "force" }
listener "unix" {
  address = "${makes}"
  tls_disable = true
  require_request_header = true
}`;
    const stop = await startBaoHelper(binary ?? "", "proxy", { address: bao.address, folder, ...role, config, makes });
    onTestFinished(stop);
    const { inject } = openWith({ method: "agent", agent: { address: `unix:${makes}` } });
    expect(await inject("a")).toEqual(["Authorization", "Bearer value"]);
    const { failure } = openWith({ method: "agent", agent: { address: `unix:${folder}/nobody` } });
    expect(await failure("a")).toMatchObject({ code: "store-unreachable", message: expect.stringContaining("ENOENT") });
  });

  it("approle: unwraps a secret id, and notices that it was unwrapped before", async () => {
    await bao.call("POST", "sys/auth/roles/own", { type: "approle" });
    await bao.call("POST", "auth/roles/own/role/postern", { token_policies: ["postern"] });
    const answer = await bao.call("GET", "auth/roles/own/role/postern/role-id");
    const { role_id: roleId } = answer["data"] as { role_id: string };
    const wrap = (path: string): Promise<string> => wrapAnswer(bao, path);
    const openWrapped = (token: string): Harness =>
      openWith(
        { method: "approle", roleId, wrappedSecretId: { env: "WRAPPED" }, mount: "roles/own" },
        { WRAPPED: token },
      );
    const token = await wrap("auth/roles/own/role/postern/secret-id");
    expect(await openWrapped(token).inject("a")).toEqual(["Authorization", "Bearer value"]);
    expect(await openWrapped(token).failure("a")).toMatchObject({ code: "wrapping-refused", status: 400 });
    expect(await openWrapped("s.none").failure("a")).toMatchObject({ code: "wrapping-refused" });
    const other = openWrapped(await wrap("auth/token/create"));
    expect((await other.failure("a")).message).toContain("wraps something else");
  });
});

it.skipIf(binary === undefined)("cert: logs in with a client certificate, and with its successor", async () => {
  const bao = await startBao(binary ?? "", { tls: true });
  onTestFinished(bao.stop);
  const folder = await mkdtemp(join(tmpdir(), "certs-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await prepare(bao);
  await bao.call("POST", "sys/mounts/pki", { type: "pki" });
  const root = await bao.call("POST", "pki/root/generate/internal", { common_name: "clients", ttl: "1h" });
  await bao.call("POST", "pki/roles/clients", { allow_any_name: true, enforce_hostnames: false, ttl: "30m" });
  await bao.call("POST", "sys/auth/cert", { type: "cert" });
  const { certificate: ca } = root["data"] as { certificate: string };
  const trusted = { certificate: ca, allowed_common_names: ["postern"], token_policies: ["postern"] };
  await bao.call("POST", "auth/cert/certs/postern", trusted);
  const [certificate, privateKey] = [{ file: join(folder, "tls.crt") }, { file: join(folder, "tls.key") }];
  const place = async (name: string): Promise<void> => {
    const issued = await bao.call("POST", "pki/issue/clients", { common_name: name });
    const pair = issued["data"] as { certificate: string; private_key: string };
    await writeFile(certificate.file, pair.certificate, { mode: 0o600 });
    await writeFile(privateKey.file, pair.private_key, { mode: 0o600 });
  };
  const openWith = (): Harness => {
    const auth = { method: "cert", certificate, privateKey } as const;
    return opened.open({ vault: { address: bao.address, ca: bao.caFile, auth }, servers });
  };
  expect(await openWith().failure("a")).toMatchObject({ code: "source-missing" });
  await place("somebody-else");
  expect(await openWith().failure("a")).toMatchObject({ code: "login-denied" });
  await writeFile(privateKey.file, "no key");
  expect(await openWith().failure("a")).toMatchObject({ code: "store-unreachable" });
  await place("postern");
  const { inject } = openWith();
  expect(await inject("a")).toEqual(["Authorization", "Bearer value"]);
  await place("postern");
  await bao.call("PUT", "sys/leases/revoke-prefix/auth/cert/login");
  expect(await inject("b")).toEqual(["Authorization", "Bearer value"]);
});

/** The answer of a POST to `path`, wrapped. */
async function wrapAnswer(bao: Bao, path: string): Promise<string> {
  const headers = { "x-vault-token": bao.rootToken, "x-vault-wrap-ttl": "60s" };
  const response = await fetch(`${bao.address}/v1/${path}`, { method: "POST", headers, body: "{}" });
  const answer = (await response.json()) as { wrap_info: { token: string } };
  return answer.wrap_info.token;
}

/** OpenBao reads the claims before it asks the cluster whether they are true. */
function unsigned(id: string): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const account = { namespace: "mcp", serviceaccount: { name: "postern", uid: "uid-1" } };
  const now = Math.floor(Date.now() / 1_000);
  const claims = {
    iss: "kubernetes/serviceaccount",
    sub: "system:serviceaccount:mcp:postern",
    iat: now - 10,
    nbf: now - 10,
    exp: now + 600,
    jti: id,
    "kubernetes.io": account,
  };
  return `${part({ alg: "RS256" })}.${part(claims)}.${Buffer.from("signature").toString("base64url")}`;
}

interface Cluster {
  readonly address: string;
  readonly reviews: number;
  stop(): Promise<void>;
}

/** The one call of a Kubernetes API server that a login needs: whose token is this (authentication.k8s.io/v1 TokenReview). */
async function startCluster(users: Readonly<Record<string, string>>): Promise<Cluster> {
  let reviews = 0;
  const review = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { spec } = JSON.parse(Buffer.concat(chunks).toString()) as { spec: { token: string } };
    const claims = JSON.parse(Buffer.from(spec.token.split(".")[1] ?? "", "base64url").toString()) as { jti: string };
    const username = users[claims.jti];
    reviews += 1;
    const status =
      username === undefined ? { authenticated: false } : { authenticated: true, user: { username, uid: "uid-1" } };
    const body = { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", spec, status };
    response.writeHead(201, { "content-type": "application/json" }).end(JSON.stringify(body));
  };
  const server = createServer((request, response) => void review(request, response));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    address: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    get reviews() {
      return reviews;
    },
    stop: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
