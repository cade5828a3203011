import { generateKeyPairSync } from "node:crypto";
import type { Caller, CredentialOptions } from "../../src/credentials/index.ts";
import { Secret } from "../../src/lib/index.ts";
import { bearerAt, byRole, type Harness, open, refreshing } from "../credentials/harness.ts";
import { loopbackCertificate, loopbackKey } from "../tunnel/loopback-cert.ts";
import { json, TokenEndpoint } from "./token-endpoint.ts";
import { VaultFake } from "./vault-fake.ts";

/** One server for each shape of credential, each of which has been used once, so that nothing is asked for any more. */
export interface WarmCredentials {
  readonly harness: Harness;
  readonly shapes: readonly string[];
  stop(): Promise<void>;
}

const hour = 3_600;
const accessToken = "urn:ietf:params:oauth:token-type:access_token";
const caller: Caller = {
  id: "key:claude",
  token: new Secret("the-token-of-the-agent"),
  expiresAt: Date.now() + hour * 1_000,
};

function optionsFor(endpoint: TokenEndpoint): Record<string, CredentialOptions> {
  const at = (field: string) => ({ vault: { mount: "secret", path: "mcp/a", field } });
  const there = { at: { tokenEndpoint: endpoint.url }, clientId: "postern" };
  const lease = { lease: "key" };
  return {
    bearer: bearerAt("mcp/a"),
    header: { type: "header", name: "X-Api-Key", value: at("token") },
    basic: { type: "basic", username: at("user"), password: at("token") },
    headers: { type: "headers", headers: { "X-Api-Key": at("token"), "X-User": at("user"), "X-Org": "acme" } },
    "bearer of each principal": bearerAt("mcp/of-{principal.id}"),
    "bearer of a variable": { type: "bearer", token: { env: "TOKEN" } },
    oauthClientCredentials: {
      type: "oauthClientCredentials",
      ...there,
      client: { auth: "basic", secret: at("token") },
    },
    tokenExchange: { type: "tokenExchange", ...there, client: { auth: "basic", secret: at("token") }, audience: "a" },
    oauthRefreshToken: refreshing(endpoint.url, "mcp/record"),
    jwtBearer: {
      type: "jwtBearer",
      tokenEndpoint: endpoint.url,
      privateKey: { env: "KEY" },
      claims: { iss: "service" },
    },
    githubApp: {
      type: "githubApp",
      appId: "1",
      installationId: "2",
      privateKey: { env: "KEY" },
      apiUrl: endpoint.base,
    },
    mtls: { type: "mtls", certificate: { env: "CERT" }, privateKey: { env: "CERT_KEY" } },
    vaultDynamic: { type: "vaultDynamic", vault: { path: "ssh/creds/a" }, as: { type: "bearer", token: lease } },
    vaultIdentity: { type: "vaultIdentity", role: "postern", as: "bearer" },
  };
}

export async function warmCredentials(): Promise<WarmCredentials> {
  const store = await VaultFake.start();
  const endpoint = await TokenEndpoint.start();
  endpoint.answer = (res, { path }) => {
    const expires_at = new Date(Date.now() + hour * 1_000).toISOString();
    if (path.startsWith("/app/")) json(res, 201, { token: "ghs_installation-token", expires_at });
    else endpoint.grant(res, { refresh_token: "the-next-refresh-token", issued_token_type: accessToken });
  };
  await store.putSecret("secret", "mcp/a", { token: "secret-token-of-a", user: "svc-of-a" });
  await store.putSecret("secret", "mcp/of-key~3aclaude", { token: "secret-token-of-claude" });
  await store.putSecret("secret", "mcp/record", { refresh_token: "the-first-refresh-token" });
  store.fault = ({ path }) => {
    const lease = { lease_id: "ssh/creds/a/1", lease_duration: hour, renewable: false };
    if (path === "ssh/creds/a") return { kind: "status", status: 200, body: { ...lease, data: { key: "lease-of-a" } } };
    const data = { token: "identity-token", ttl: hour, client_id: "a" };
    return path === "identity/oidc/token/postern" ? { kind: "status", status: 200, body: { data } } : undefined;
  };
  const { roleId, secretId } = await store.enableApprole(
    'path "secret/data/mcp/*" { capabilities = ["create", "read", "update"] }',
  );
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const servers = optionsFor(endpoint);
  const harness = open({
    vault: byRole(store.address, roleId, { ttlMs: hour * 1_000 }),
    servers,
    areCallersVerified: true,
    env: {
      SECRET_ID: secretId,
      TOKEN: "token-of-the-environment",
      KEY: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
      CERT: loopbackCertificate,
      CERT_KEY: loopbackKey,
    },
  });
  const shapes = Object.keys(servers);
  const stop = async (): Promise<void> => {
    await harness.credentials.close();
    await endpoint.stop();
    await store.stop();
  };
  try {
    for (const shape of shapes) await harness.inject(shape, caller);
  } catch (error) {
    await stop();
    throw error;
  }
  return { harness, shapes, stop };
}

/** Microseconds of one warm injection at the median: of `samples`, each of `batch` in a row, since one is too short to measure. */
export function medianInjectUs({ harness }: WarmCredentials, shape: string, samples = 500, batch = 100): number {
  const credential = harness.credentials.forServer(shape);
  const times: number[] = [];
  for (let i = 0; i < samples; i += 1) {
    const startedAt = performance.now();
    for (let j = 0; j < batch; j += 1) {
      if (credential.inject(caller) instanceof Promise) throw new Error(`${shape} is not warm`);
    }
    times.push(((performance.now() - startedAt) * 1_000) / batch);
  }
  times.sort((a, b) => a - b);
  return times[Math.floor(samples / 2)] ?? 0;
}
