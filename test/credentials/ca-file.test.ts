/** Token endpoints behind a certificate of a CA of one's own, for every type of credential that asks one. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { exportPKCS8, generateKeyPair } from "jose";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { GrantHttp } from "../../src/credentials/grant-http.ts";
import type { Caller, CredentialOptions } from "../../src/credentials/index.ts";
import { refreshGrant } from "../../src/credentials/refresh-grant.ts";
import { Secret, systemClock } from "../../src/lib/index.ts";
import { internalCa, serverPairs } from "../support/internal-ca.ts";
import { json, TokenEndpoint } from "../support/token-endpoint.ts";
import { loopbackCertificate } from "../tunnel/loopback-cert.ts";
import { agent, type Harness, open } from "./harness.ts";

const dir = mkdtempSync(join(tmpdir(), "postern-ca-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));
const ca = join(dir, "ca.pem");
const caller: Caller = { ...agent, token: new Secret("agents-own-token"), expiresAt: Date.now() + 600_000 };
let key: string;
let endpoint: TokenEndpoint;
const opened: Harness[] = [];

beforeAll(async () => {
  key = await exportPKCS8((await generateKeyPair("RS256", { extractable: true })).privateKey);
});
beforeEach(async () => {
  writeFileSync(ca, internalCa);
  endpoint = await TokenEndpoint.start(0, serverPairs[0]);
  endpoint.answer = (res, { path }) => {
    const { base: issuer, url: token_endpoint } = endpoint;
    if (path.startsWith("/.well-known/")) json(res, 200, { issuer, token_endpoint });
    else if (path.startsWith("/app/")) json(res, 201, { token: "bought", expires_at: new Date(Date.now() + 3e6) });
    else
      endpoint.grant(res, {
        access_token: "bought",
        issued_token_type: "urn:ietf:params:oauth:token-type:access_token",
      });
  };
});
afterEach(async () => {
  for (const harness of opened.splice(0)) await harness.credentials.close();
  await endpoint.stop();
});

function start(credential: CredentialOptions): Harness {
  const harness = open({ servers: { a: credential }, env: { SECRET: "s3cret", KEY: key }, areCallersVerified: true });
  opened.push(harness);
  return harness;
}

const secret = { auth: "basic", secret: { env: "SECRET" } } as const;
type Trusting = Extract<
  CredentialOptions,
  { type: "oauthClientCredentials" | "jwtBearer" | "githubApp" | "tokenExchange" }
>;
const types: readonly [string, () => Trusting][] = [
  [
    "oauthClientCredentials",
    () => ({ type: "oauthClientCredentials", at: { issuer: endpoint.base }, clientId: "c", client: secret }),
  ],
  [
    "jwtBearer",
    () => ({ type: "jwtBearer", tokenEndpoint: endpoint.url, privateKey: { env: "KEY" }, claims: { iss: "i" } }),
  ],
  [
    "githubApp",
    () => ({ type: "githubApp", appId: "1", installationId: "2", privateKey: { env: "KEY" }, apiUrl: endpoint.base }),
  ],
  [
    "tokenExchange",
    () => ({ type: "tokenExchange", at: { tokenEndpoint: endpoint.url }, clientId: "c", client: secret }),
  ],
];

describe.each(types)("the CA of the endpoint of %s", (_, make) => {
  it("is trusted", async () => {
    expect(await start({ ...make(), ca }).inject("a", caller)).toEqual(["Authorization", "Bearer bought"]);
  });

  it("that nobody names is not, nor is another one; nothing is sent, and the cure says what to write", async () => {
    const other = join(dir, "other.pem");
    writeFileSync(other, loopbackCertificate);
    for (const credential of [make(), { ...make(), ca: other }]) {
      expect(await start(credential).failure("a", caller)).toMatchObject({
        code: "endpoint-unreachable",
        message: expect.stringContaining("UNABLE_TO_VERIFY_LEAF_SIGNATURE"),
        cure: "name a PEM file with the CA that signed its certificate as `ca` of the credential",
      });
    }
    expect(endpoint.asked).toEqual([]);
  });
});

describe("a CA file of a token endpoint", () => {
  it("that is gone fails the grant unsent, and counts again once it is there", async () => {
    const options = { type: "oauthClientCredentials", at: { tokenEndpoint: endpoint.url } } as const;
    rmSync(ca);
    const harness = start({ ...options, clientId: "c", client: secret, ca });
    expect(await harness.failure()).toMatchObject({
      message: expect.stringContaining("CA_FILE_UNREADABLE"),
      cure: "the file that `ca` of the credential names must be there and hold PEM certificates",
      isUnsent: true,
    });
    writeFileSync(ca, internalCa);
    expect(await start({ ...options, clientId: "c", client: secret, ca }).inject()).toEqual([
      "Authorization",
      "Bearer bought",
    ]);
  });

  it("a refresh token is spent under it, and never by a distrusted connection", async () => {
    const http = new GrantHttp(systemClock);
    const options = {
      type: "oauthRefreshToken",
      at: { issuer: endpoint.base },
      clientId: "c",
      record: { vault: { mount: "secret", path: "a" } },
    } as const;
    const spend = (more: { readonly ca?: string }) =>
      refreshGrant({ ...options, ...more }, http, systemClock).spend([], "refresh-1", 5_000);
    expect(await spend({})).toMatchObject({ kind: "unspent", error: { cure: expect.stringContaining("`ca`") } });
    expect(await spend({ ca })).toMatchObject({ kind: "granted", accessToken: "bought" });
    await http.close();
  });
});
