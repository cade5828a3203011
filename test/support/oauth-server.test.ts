/** The grants of src/credentials against a server that nobody here wrote, and that server's own refusals. */
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import type { CredentialOptions } from "../../src/credentials/index.ts";
import { agent, type Harness, open } from "../credentials/harness.ts";
import { TestIssuer } from "./issuer.ts";
import { type OAuthServer, opaqueResource, startOAuthServer } from "./oauth-server.ts";

const resource = "https://tickets.test/mcp";

let subjects: TestIssuer;
let server: OAuthServer;

beforeAll(async () => {
  subjects = await new TestIssuer().start();
  server = await startOAuthServer({
    subjects: { issuer: subjects.url, jwksUrl: subjects.jwksUrl, audience: "https://relay.test/mcp" },
  });
});
afterAll(async () => {
  await server.close();
  await subjects.close();
});

function openWith(credential: CredentialOptions, env: Record<string, string>): Harness {
  const harness = open({ servers: { a: credential }, env });
  onTestFinished(() => harness.credentials.close());
  return harness;
}

const tokenOf = (headers: readonly string[]): string => String(headers[1]).replace("Bearer ", "");

const shapes: Record<string, () => readonly [CredentialOptions, Record<string, string>]> = {
  basic: () => {
    const { id, secret } = server.clients.basic;
    const client = { auth: "basic", secret: { env: "S" } } as const;
    return [{ ...grant, at: { tokenEndpoint: server.tokenEndpoint }, clientId: id, client, resource }, { S: secret }];
  },
  "basic, found by the issuer": () => {
    const { id, secret } = server.clients.basic;
    const client = { auth: "basic", secret: { env: "S" } } as const;
    return [{ ...grant, at: { issuer: server.issuer }, clientId: id, client, resource }, { S: secret }];
  },
  post: () => {
    const { id, secret } = server.clients.post;
    const client = { auth: "post", secret: { env: "S" } } as const;
    const at = { tokenEndpoint: server.tokenEndpoint };
    return [{ ...grant, at, clientId: id, client, resource: opaqueResource }, { S: secret }];
  },
  privateKeyJwt: () => {
    const { id, keyId, pem } = server.clients.key;
    const client = { auth: "privateKeyJwt", privateKey: { env: "K" }, keyId } as const;
    return [{ ...grant, at: { tokenEndpoint: server.tokenEndpoint }, clientId: id, client, resource }, { K: pem }];
  },
  jwtBearer: () => {
    const { id, keyId, pem } = server.clients.service;
    const { tokenEndpoint } = server;
    const privateKey = { env: "K" };
    return [{ type: "jwtBearer", tokenEndpoint, privateKey, keyId, claims: { iss: id, sub: "alice" } }, { K: pem }];
  },
};
const grant = { type: "oauthClientCredentials", scope: "mcp" } as const;

const wanted: Record<string, [string, object]> = {
  basic: [resource, { clientId: "by-basic", subject: "by-basic" }],
  "basic, found by the issuer": [resource, { clientId: "by-basic", subject: "by-basic" }],
  post: [opaqueResource, { clientId: "by-post" }],
  privateKeyJwt: [resource, { clientId: "by-key", subject: "by-key" }],
  jwtBearer: [opaqueResource, { clientId: "service-account", subject: "alice" }],
};

describe("a real authorization server", () => {
  it.each(Object.keys(shapes))("grants by %s what a resource server admits until it is revoked", async (name) => {
    const [credential, env] = shapes[name]!();
    const { credentials } = openWith(credential, env);
    const first = await credentials.forServer("a").inject(agent);
    const token = tokenOf(first.headers);
    const [audience, who] = wanted[name]!;
    expect(await server.admits(token, audience)).toMatchObject(who);
    expect(await server.admits(token, "https://other.test/mcp")).toBeUndefined();
    await server.revoke(token);
    expect(await server.admits(token, audience)).toBeUndefined();
    const next = tokenOf((await credentials.forServer("a").refresh(first, agent)).headers);
    expect(await server.admits(next, audience)).toMatchObject(who);
    expect(server.granted).toContain(next);
  });

  it.each(["basic", "post", "privateKeyJwt", "jwtBearer"])("refuses %s with another's secret or key", async (name) => {
    const [credential] = shapes[name]!();
    const other = name.includes("ivate") ? server.clients.service.pem : server.clients.key.pem;
    const { failure } = openWith(credential, { S: "another-secret-altogether", K: other });
    expect(await failure()).toMatchObject({ code: "grant-denied", cure: expect.stringMatching(/./) });
  });

  it("admits nothing that it has not signed", async () => {
    const forged = await subjects.token({ claims: { iss: server.issuer, aud: resource, jti: "1", sub: "by-basic" } });
    expect(await server.admits(forged, resource)).toBeUndefined();
    expect(await server.admits("opaque", opaqueResource)).toBeUndefined();
  });

  const ask = (form: Record<string, string>, { id, secret }: { id: string; secret: string }): Promise<Response> =>
    fetch(server.tokenEndpoint, {
      method: "POST",
      headers: { authorization: `Basic ${Buffer.from(`${id}:${secret}`).toString("base64")}` },
      body: new URLSearchParams(form),
    });

  it("C26 rotates refresh tokens, and ends the family when one is spent twice", async () => {
    const { rotating } = server.clients;
    const first = await server.seedRefreshToken(resource);
    const refresh = async (token: string) => {
      const answer = await ask({ grant_type: "refresh_token", refresh_token: token }, rotating);
      return (await answer.json()) as { access_token: string; refresh_token: string; error?: string };
    };
    const second = await refresh(first);
    expect(second.refresh_token).not.toBe(first);
    expect(await server.admits(second.access_token, resource)).toMatchObject({ subject: "somebody" });
    expect((await refresh(first)).error).toBe("invalid_grant");
    expect((await refresh(second.refresh_token)).error).toBe("invalid_grant");
  });

  it("exchanges a subject's token for one of its own, and no other's", async () => {
    const exchange = async (subject: string) => {
      const form = {
        grant_type: "urn:ietf:params:oauth:grant-type:token-exchange",
        subject_token: subject,
        subject_token_type: "urn:ietf:params:oauth:token-type:access_token",
        resource,
      };
      return (await (await ask(form, server.clients.exchanger)).json()) as Record<string, string>;
    };
    const good = await exchange(await subjects.token({ claims: { aud: "https://relay.test/mcp" } }));
    expect(good["issued_token_type"]).toBe("urn:ietf:params:oauth:token-type:access_token");
    expect(await server.admits(String(good["access_token"]), resource)).toEqual({
      clientId: "exchanger",
      subject: "alice",
    });
    const bad = await exchange(await subjects.token({ claims: { aud: "https://elsewhere.test/mcp" } }));
    expect(bad["error"]).toBe("invalid_grant");
  });
});
