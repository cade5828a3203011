/** Where requests for tokens, and those to the store, may go (server-side request forgery). */
import { createServer, type Server } from "node:net";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { GrantHttp } from "../../src/credentials/grant-http.ts";
import type { CredentialOptions } from "../../src/credentials/index.ts";
import { type ResolveAll, systemClock } from "../../src/lib/index.ts";
import { json, TokenEndpoint } from "../support/token-endpoint.ts";
import { byToken, type Harness, open } from "./harness.ts";

const toLoopback: ResolveAll = (_, __, done) => done(null, [{ address: "127.0.0.1", family: 4 }]);
const get = { method: "GET", headers: {} } as const;

describe("the address of a token endpoint", () => {
  let server: Server;
  let accepted = 0;
  let http: GrantHttp;

  beforeAll(async () => {
    server = createServer((socket) => {
      accepted += 1;
      socket.on("error", () => undefined).destroy();
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  });
  afterAll(() => server.close());
  beforeEach(() => {
    accepted = 0;
    http = new GrantHttp(systemClock, toLoopback);
  });
  afterEach(() => http.close());

  const url = (): string => `https://api.example.com:${(server.address() as { port: number }).port}/token`;
  const send = (target: string, namedBy?: string): Promise<unknown> =>
    http.exchange("token endpoint", (to) => to(target, { ...get, namedBy }));

  it("L64 an issuer's metadata cannot lead into the private network, whatever the name resolves to", async () => {
    await expect(send(url(), "https://idp.example.com")).rejects.toMatchObject({
      code: "endpoint-unreachable",
      message: expect.stringContaining("ADDRESS_REFUSED"),
      cure: expect.stringContaining("tokenEndpoint"),
    });
    expect(accepted).toBe(0);
  });

  it("L64 what the operator wrote may lead there, and so may what an issuer says of its own host", async () => {
    // Nobody speaks TLS there: that the connection was made is what counts.
    await expect(send(url())).rejects.toMatchObject({ code: "endpoint-unreachable" });
    await expect(send(url(), "https://api.example.com/realm")).rejects.toMatchObject({ code: "endpoint-unreachable" });
    expect(accepted).toBe(2);
  });

  it("L65 a connection that the operator's endpoint keeps alive serves no issuer's", async () => {
    const endpoint = await TokenEndpoint.start();
    endpoint.answer = (res) => json(res, 200, {});
    const plain = `http://localhost:${new URL(endpoint.base).port}/token`;
    await send(plain);
    await expect(send(plain, "https://idp.example.com")).rejects.toMatchObject({ code: "endpoint-unreachable" });
    expect(endpoint.asked).toHaveLength(1);
    await endpoint.stop();
  });

  it.each(["https://169.254.169.254/token", "https://[::ffff:a9fe:a9fe]/token", "https://metadata.google.internal/t"])(
    "L63 %s is never asked, whoever wrote it",
    async (target) => {
      await expect(send(target)).rejects.toMatchObject({ message: expect.stringContaining("ADDRESS_REFUSED") });
    },
  );
});

describe("a credential", () => {
  let harness: Harness | undefined;
  afterEach(() => harness?.credentials.close());

  it.each(["https://10.1.2.3/token", "https://[fd00:ec2::254]/token", "https://169.254.169.254/token"])(
    "L64 whose issuer on this machine names %s is not had",
    async (token_endpoint) => {
      const endpoint = await TokenEndpoint.start();
      endpoint.answer = (res) => json(res, 200, { issuer: endpoint.base, token_endpoint });
      const credential: CredentialOptions = {
        type: "oauthClientCredentials",
        at: { issuer: endpoint.base },
        clientId: "postern",
        client: { auth: "post", secret: { env: "CLIENT_SECRET" } },
      };
      harness = open({ servers: { a: credential }, env: { CLIENT_SECRET: "a-client-secret" } });
      expect((await harness.failure()).message).toContain("ADDRESS_REFUSED");
      expect(endpoint.asked.map(({ body }) => body)).toEqual([""]);
      await endpoint.stop();
    },
  );

  it("L63 is not read from a store at a metadata service", async () => {
    const vault = byToken("https://169.254.169.254");
    const source = { mount: "secret", path: "a", field: "token" };
    harness = open({ vault, servers: { a: { type: "bearer", token: { vault: source } } }, env: { STORE_TOKEN: "t" } });
    expect((await harness.failure()).message).toContain("ADDRESS_REFUSED");
  });
});
