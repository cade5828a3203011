/** Client certificates: what makes one, what is refused and how it is said, and one that the store's PKI issues. */
import { generateKeyPairSync, X509Certificate } from "node:crypto";
import type { AddressInfo } from "node:net";
import { connect, createServer, type SecureContext } from "node:tls";
import { inspect } from "node:util";
import { afterEach, describe, expect, it, onTestFinished } from "vitest";
import { CredentialError } from "../../src/credentials/errors.ts";
import { needlesOf } from "../../src/credentials/index.ts";
import { mtlsShape } from "../../src/credentials/tls-identity.ts";
import { Secret } from "../../src/lib/index.ts";
import { clientPairs } from "../support/client-pairs.ts";
import { internalCa, serverPairs } from "../support/internal-ca.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { until } from "../support/until.ts";
import { VaultFake } from "../support/vault-fake.ts";
import { agent, byToken, type Harness, open } from "./harness.ts";

const [one, two] = clientPairs;
const entry = (field: string) => ({ vault: { mount: "secret", path: "mcp/a", field } });
const stored = { type: "mtls", certificate: entry("certificate"), privateKey: entry("private_key") } as const;
const inFiles = { type: "mtls", certificate: { file: "/run/tls.crt" }, privateKey: { file: "/run/tls.key" } } as const;
const secretsOf = (...texts: readonly string[]): Secret[] => texts.map((text) => new Secret(text));

function thrownBy(action: () => unknown): CredentialError {
  try {
    action();
  } catch (error) {
    if (error instanceof CredentialError) return error;
    throw error;
  }
  throw new Error("nothing was thrown");
}

/** A server that says whose certificate it was shown; the error's code where it is not trusted. */
async function listenTls(): Promise<(context: SecureContext | undefined) => Promise<string>> {
  const server = createServer({ ...serverPairs[0], requestCert: true, rejectUnauthorized: false }, (socket) => {
    socket.on("error", () => undefined).end(String(socket.getPeerCertificate().subject?.CN));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  return (secureContext) =>
    new Promise((resolve) => {
      const socket = connect({
        host: "127.0.0.1",
        port,
        rejectUnauthorized: true,
        ...(secureContext && { secureContext }),
      });
      socket.on("data", (text: Buffer) => resolve(text.toString()));
      socket.on("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? "no code"));
    });
}

describe("a stored certificate", () => {
  it("adds no header, and is the same object while the texts are the same", () => {
    const shape = mtlsShape(stored, new ManualClock());
    const first = shape.build(secretsOf(one.certificate, one.key));
    expect([first.headers, shape.names]).toEqual([[], []]);
    const again = shape.build(secretsOf(one.certificate, one.key));
    expect(again.tls).toBe(first.tls);
    const other = shape.build(secretsOf(two.certificate, two.key));
    expect(other.tls).not.toBe(first.tls);
  });

  it("is shown to a server whose CA is trusted besides, and keeps its own CA", async () => {
    const shake = await listenTls();
    const build = (more: object, ...texts: readonly string[]) =>
      mtlsShape({ ...stored, ...more }, new ManualClock()).build(secretsOf(one.certificate, one.key, ...texts)).tls;
    expect(await shake(build({})?.context)).toBe("UNABLE_TO_VERIFY_LEAF_SIGNATURE");
    expect(await shake(build({})?.contextTrusting([internalCa]))).toBe("client-1");
    const own = build({ ca: entry("ca") }, internalCa);
    expect(await shake(own?.context)).toBe("client-1");
    expect(await shake(own?.contextTrusting([two.certificate]))).toBe("client-1");
  });

  it("shows nothing of its key to whoever prints it, and no answer is searched for it", () => {
    const injection = mtlsShape(stored, new ManualClock()).build(secretsOf(one.certificate, one.key));
    expect(inspect(injection, { depth: 9, showHidden: true })).not.toContain(one.key.split("\n")[1]);
    expect(JSON.stringify(injection)).not.toContain(one.key.split("\n")[1]);
    expect(needlesOf(injection)).toEqual({ needles: [], hasShort: false });
  });

  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const pkcs8 = { type: "pkcs8", format: "pem" } as const;
  const otherKey = String(privateKey.export(pkcs8));
  const encrypted = String(privateKey.export({ ...pkcs8, cipher: "aes-256-cbc", passphrase: "x" }));
  const weak = generateKeyPairSync("rsa", { modulusLength: 512 }).privateKey.export(pkcs8);
  const broken = one.certificate.replace(/\n[A-Za-z0-9]{8}/, "\ncanary99");

  it.each([
    ["no certificate", "canary-text", one.key, "certificate", "holds no certificate"],
    ["half a certificate", one.certificate.slice(0, 200), one.key, "certificate", "holds no certificate"],
    ["a certificate that is none", broken, one.key, "certificate", "holds no certificate"],
    ["the key in its place", one.key, one.key, "certificate", "holds no certificate"],
    ["no key", one.certificate, "canary-text", "private_key", "holds no private key"],
    ["the certificate for a key", one.certificate, one.certificate, "private_key", "holds no private key"],
    ["an encrypted key", one.certificate, encrypted, "private_key", "holds an encrypted private key"],
    ["the key of another", one.certificate, otherKey, "private_key", "holds another key"],
    ["a weak key of another", one.certificate, String(weak), "private_key", "holds another key"],
  ])("with %s is refused by name of the place, nothing quoted", (_, certificate, key, field, what) => {
    const error = thrownBy(() => mtlsShape(stored, new ManualClock()).build(secretsOf(certificate, key)));
    expect(error.code).toBe("value-invalid");
    expect(error.message).toContain(`field ${field} of secret/mcp/a ${what}`);
    for (const part of ["canary", "BEGIN", one.key.split("\n")[1] ?? "", otherKey.split("\n")[1] ?? ""]) {
      expect(inspect(error, { depth: 9 })).not.toContain(part);
    }
  });

  it("with a CA that is none is refused", () => {
    const shape = mtlsShape({ ...stored, ca: { file: "/run/ca" } }, new ManualClock());
    expect(thrownBy(() => shape.build(secretsOf(one.certificate, one.key, "canary"))).message).toBe(
      "file /run/ca holds no certificate",
    );
    expect(shape.build(secretsOf(one.certificate, one.key, two.certificate)).tls).toBeDefined();
  });

  it("that has expired, or is not valid yet, is refused, also when it was good before", () => {
    let now = Date.parse(new X509Certificate(one.certificate).validFrom) - 1_000;
    const clock = { ...new ManualClock(), now: () => 0, wall: () => now, after: () => ({ cancel: () => undefined }) };
    const shape = mtlsShape(stored, clock);
    const build = () => shape.build(secretsOf(one.certificate, one.key));
    expect(thrownBy(build).message).toContain("is not valid yet");
    now += 1_000;
    expect(build().tls).toBeDefined();
    now = Date.parse(new X509Certificate(one.certificate).validTo);
    expect(thrownBy(build).message).toContain("has expired");
  });
});

describe("a pair of files in the middle of its rotation", () => {
  it("leaves the pair before in use for ten seconds", () => {
    const clock = new ManualClock();
    const shape = mtlsShape(inFiles, clock);
    const before = shape.build(secretsOf(one.certificate, one.key));
    const torn = () => shape.build(secretsOf(two.certificate, one.key));
    expect(torn().tls).toBe(before.tls);
    clock.advance(9_900);
    expect(torn().tls).toBe(before.tls);
    clock.advance(200);
    expect(thrownBy(torn).message).toContain("holds another key");
    expect(shape.build(secretsOf(two.certificate, two.key)).tls).not.toBe(before.tls);
    expect(torn().tls).toBeDefined();
  });

  it("is refused where there was none before, and at once where both are of one entry", () => {
    const torn = secretsOf(two.certificate, one.key);
    expect(thrownBy(() => mtlsShape(inFiles, new ManualClock()).build(torn)).code).toBe("value-invalid");
    const shape = mtlsShape(stored, new ManualClock());
    shape.build(secretsOf(one.certificate, one.key));
    expect(thrownBy(() => shape.build(torn)).code).toBe("value-invalid");
  });
});

describe("a certificate that the store issues", () => {
  let fake: VaultFake | undefined;
  let harness: Harness | undefined;
  afterEach(async () => {
    await harness?.credentials.close();
    await fake?.stop();
  });

  const start = async (clock: ManualClock, more: Record<string, unknown> = {}) => {
    fake = await VaultFake.start(() => clock.now());
    let count = 0;
    fake.engine = ({ path }) => {
      if (path !== "pki/issue/postern") return undefined;
      const { certificate, key } = clientPairs[count % 2] ?? one;
      count += 1;
      const expiration = Math.floor(clock.wall() / 1_000) + 600;
      const data = { certificate, private_key: key, ca_chain: [two.certificate], expiration, ...more };
      return { lease_id: "", lease_duration: 0, renewable: false, data };
    };
    const pki = { mount: "pki", role: "postern", commonName: "postern.internal", ttlMs: 600_000 };
    harness = open({
      vault: byToken(fake.address),
      servers: { a: { type: "mtls", pki } },
      env: { STORE_TOKEN: fake.rootToken },
      clock,
      random: () => 0,
    });
    return harness.credentials.forServer("a");
  };

  it("is asked for by name and life, and replaced at two thirds of it", async () => {
    const clock = new ManualClock();
    const credential = await start(clock);
    const first = await credential.inject(agent);
    expect(first.tls).toBeDefined();
    expect(fake?.seen.at(-1)).toMatchObject({
      method: "POST",
      path: "pki/issue/postern",
      body: { common_name: "postern.internal", format: "pem", ttl: "600s" },
    });
    clock.advance(399_000);
    expect(await credential.inject(agent)).toBe(first);
    clock.advance(2_000);
    await until(async () => (await credential.inject(agent)).tls !== first.tls, "the next certificate");
    expect(fake?.count("pki/issue/postern")).toBe(2);
  });

  it("has its chain behind it", async () => {
    const credential = await start(new ManualClock());
    const { secrets } = await credential.inject(agent);
    expect(secrets[0]?.reveal()).toBe(`${one.certificate}\n${two.certificate}`);
  });

  it("after a refusal another one is issued, but not twice within ten seconds", async () => {
    const credential = await start(new ManualClock());
    const first = await credential.inject(agent);
    const second = await credential.refresh(first, agent);
    expect(second.tls).not.toBe(first.tls);
    expect(await credential.refresh(second, agent)).toBe(second);
    expect(fake?.count("pki/issue/postern")).toBe(2);
  });

  it.each([undefined, 0, "soon"])("without an expiration (%j) it is no answer", async (expiration) => {
    await start(new ManualClock(), { expiration });
    expect(await harness?.failure()).toMatchObject({ code: "store-bad-answer" });
  });
});
