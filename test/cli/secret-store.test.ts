import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type SecretStore, startSecretStore } from "../../src/cli/demo/secret-store.ts";
import { Secret } from "../../src/lib/index.ts";
import { bearerAt, byToken, open } from "../credentials/harness.ts";

let store: SecretStore;

beforeEach(async () => {
  const secrets = { "secret/mcp/tickets": { token: new Secret("ticket-token") } };
  store = await startSecretStore({ token: new Secret("store-token"), secrets });
});
afterEach(() => store.close());

function openWith(token: string, path = "mcp/tickets") {
  return open({ vault: byToken(store.address), servers: { a: bearerAt(path) }, env: { STORE_TOKEN: token } });
}

describe("the demo's secret store", () => {
  it("is read through the same code as Vault", async () => {
    const { inject, credentials } = openWith("store-token");
    expect(await inject()).toEqual(["Authorization", "Bearer ticket-token"]);
    await credentials.close();
  });

  it("gives nothing to a wrong token", async () => {
    const { failure, credentials } = openWith("other-token");
    expect((await failure()).code).toBe("login-denied");
    await credentials.close();
    for (const headers of [{}, { "x-vault-token": "" }, { "x-vault-token": "other-token" }]) {
      const response = await fetch(`${store.address}/v1/secret/data/mcp/tickets`, { headers });
      expect([response.status, await response.text()]).toEqual([403, '{"errors":["permission denied"]}']);
    }
  });

  it.each(["mcp/none", "constructor", "mcp"])("answers 404 for %s", async (path) => {
    const { failure, credentials } = openWith("store-token", path);
    expect((await failure()).code).toBe("not-found");
    await credentials.close();
  });

  it("listens on loopback only and lets its port go", async () => {
    expect(store.address).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    await store.close();
    await expect(fetch(store.address)).rejects.toThrow();
  });
});
