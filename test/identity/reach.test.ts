/** Where keys are fetched from (server-side request forgery). */
import { createServer as createTlsServer } from "node:https";
import { createServer } from "node:net";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { KeyRings } from "../../src/identity/index.ts";
import { type ResolveAll, systemClock } from "../../src/lib/index.ts";
import { createLogger } from "../../src/telemetry/index.ts";
import { clientPairs } from "../support/client-pairs.ts";
import { TestIssuer } from "../support/issuer.ts";

const answering =
  (address: string): ResolveAll =>
  (_, __, done) =>
    setImmediate(() => done(null, [{ address, family: 4 }]));

describe("the address of an issuer's keys", () => {
  let issuer: TestIssuer;
  let rings: KeyRings | undefined;
  const lines: string[] = [];
  const logger = createLogger({ level: "debug", destination: { write: (line) => void lines.push(line) } });

  beforeEach(async () => {
    lines.length = 0;
    issuer = new TestIssuer();
    await issuer.start();
  });
  afterEach(async () => {
    vi.unstubAllEnvs();
    await rings?.close();
    await issuer.close();
  });

  const open = (resolve: ResolveAll): KeyRings => {
    rings = new KeyRings({ clock: systemClock, random: Math.random, logger }, {}, resolve);
    return rings;
  };

  it.each([
    ["an address", "https://10.1.2.3/jwks"],
    ["a name", "https://keys.example.com/jwks"],
    ["a metadata service", "https://169.254.169.254/jwks"],
  ])("L64 cannot be in the private network by %s that metadata name", async (_, jwks_uri) => {
    issuer.metadata = { jwks_uri };
    expect(await open(answering("192.168.7.7")).ring(issuer.url, undefined).current()).toBeUndefined();
    expect(lines.join("")).toContain('"reason":"ADDRESS_REFUSED"');
  });

  it("L63 is no metadata service even where the operator wrote it", async () => {
    const jwks = { url: "https://keys.example.com/jwks" };
    expect(await open(answering("169.254.169.254")).ring("https://idp.example.com", jwks).current()).toBeUndefined();
    expect(lines.join("")).toContain('"reason":"ADDRESS_REFUSED"');
  });

  it("is not asked where its certificate is not trusted, whatever the environment says", async () => {
    vi.stubEnv("NODE_TLS_REJECT_UNAUTHORIZED", "0");
    const [{ certificate: cert, key }] = clientPairs;
    let asked = 0;
    const server = createTlsServer({ cert, key }, (_, res) => {
      asked += 1;
      res.end("{}");
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const url = `https://keys.example.com:${(server.address() as { port: number }).port}/jwks`;
    await open(answering("127.0.0.1")).ring("https://idp.example.com", { url }).current();
    expect(asked).toBe(0);
    expect(lines.join("")).toContain('"reason":"DEPTH_ZERO_SELF_SIGNED_CERT"');
    await new Promise((resolve) => server.close(resolve));
  });

  it("may be anywhere else where the operator wrote it, and for the issuer's own metadata", async () => {
    let accepted = 0;
    const server = createServer((socket) => {
      accepted += 1;
      socket.on("error", () => undefined).destroy();
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const origin = `https://keys.example.com:${(server.address() as { port: number }).port}`;
    const ringOf = open(answering("127.0.0.1"));
    await ringOf.ring("https://idp.example.com", { url: `${origin}/jwks` }).current();
    expect(accepted).toBe(1);
    await ringOf.ring(origin, undefined).current();
    expect(accepted).toBe(3);
    server.close();
  });
});
