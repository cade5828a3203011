/** Where keys are fetched from (server-side request forgery). */
import { createServer } from "node:net";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { KeyRings } from "../../src/identity/index.ts";
import { type ResolveAll, systemClock } from "../../src/lib/index.ts";
import { createLogger } from "../../src/telemetry/index.ts";
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
