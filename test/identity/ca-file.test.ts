/** Issuers whose metadata and keys lie behind a certificate of a CA of one's own. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeEach, describe, expect, it } from "vitest";
import { createTokenVerifier, type TokenVerifier, type TokenVerifierOptions } from "../../src/identity/index.ts";
import { createLogger } from "../../src/telemetry/index.ts";
import { internalCa, serverPairs } from "../support/internal-ca.ts";
import { TestIssuer } from "../support/issuer.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { loopbackCertificate } from "../tunnel/loopback-cert.ts";

const dir = mkdtempSync(join(tmpdir(), "postern-ca-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));
const ca = join(dir, "ca.pem");
const audience = "https://relay.example.com/acme/tickets/mcp";

let issuer: TestIssuer;
let clock: ManualClock;
let lines: string[];
const verifiers: TokenVerifier[] = [];

beforeEach(async () => {
  writeFileSync(ca, internalCa);
  clock = new ManualClock();
  lines = [];
  issuer = new TestIssuer("", serverPairs[0]);
  issuer.now = () => clock.wall();
  await issuer.start();
});
afterEach(async () => {
  for (const verifier of verifiers.splice(0)) await verifier.close();
  await issuer.close();
});

function open(options: Partial<TokenVerifierOptions>): TokenVerifier {
  const logger = createLogger({ level: "debug", destination: { write: (line) => void lines.push(line) } });
  const verifier = createTokenVerifier({ issuer: issuer.url, ...options }, { clock, random: () => 0.5, logger });
  verifiers.push(verifier);
  return verifier;
}

const kindOf = async (verifier: TokenVerifier): Promise<string> =>
  (await verifier.verify(await issuer.token(), audience)).kind;
const complaint = (): { readonly reason: string; readonly cure: string } => JSON.parse(lines.at(-1) ?? "{}");

describe("the CA of an issuer", () => {
  it("is trusted for its metadata and for its keys", async () => {
    expect(await kindOf(open({ ca }))).toBe("valid");
    expect(issuer.count("/.well-known/oauth-authorization-server")).toBe(1);
    expect(await kindOf(open({ ca, jwks: { url: issuer.jwksUrl } }))).toBe("valid");
    expect(issuer.count("/keys")).toBe(2);
  });

  it.each([
    ["nobody names", {}],
    ["is another than the one named", { ca: join(dir, "other.pem") }],
  ])("that %s is not: no token holds, and the log says which key to write", async (_, options) => {
    writeFileSync(join(dir, "other.pem"), loopbackCertificate);
    expect(await kindOf(open(options))).toBe("unavailable");
    expect(issuer.asked).toEqual([]);
    expect(complaint()).toMatchObject({
      reason: "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
      cure: expect.stringMatching(/as `ca` beside `issuer`; tokens of this issuer are refused until then$/),
    });
  });

  it("counts once its file holds it", async () => {
    rmSync(ca);
    const verifier = open({ ca });
    expect(await kindOf(verifier)).toBe("unavailable");
    expect(complaint()).toMatchObject({
      reason: "CA_FILE_UNREADABLE",
      cure: expect.stringContaining("the file that `ca` of the issuer names must be there"),
    });
    writeFileSync(ca, internalCa);
    await clock.advance(2_000);
    expect(await kindOf(verifier)).toBe("valid");
  });
});
