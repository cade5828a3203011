import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createSecureContext, rootCertificates } from "node:tls";
import { afterAll, describe, expect, it } from "vitest";
import { connectTrusting, isDistrust, readCertificates } from "../../src/lib/index.ts";
import { internalCa } from "../support/internal-ca.ts";
import { loopbackCertificate } from "../tunnel/loopback-cert.ts";

const dir = mkdtempSync(join(tmpdir(), "postern-trust-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

it("a file of certificates is trusted beside Node's own roots, and a context is made once for each text", async () => {
  const file = join(dir, "ca.pem");
  const trusted: (readonly string[])[] = [];
  const connect = connectTrusting<string, (error: null, socket: string) => void>(
    file,
    () => (target, callback) => callback(null as never, target as never),
    (ca) => {
      trusted.push(ca);
      return createSecureContext();
    },
  );
  const dial = (): Promise<unknown> =>
    new Promise((resolve) => connect("there", (error: Error | null, socket: unknown) => resolve(error ?? socket)));
  writeFileSync(file, internalCa);
  expect([await dial(), await dial()]).toEqual(["there", "there"]);
  writeFileSync(file, `${loopbackCertificate}\n${internalCa}`);
  expect(await dial()).toBe("there");
  const own = (ca: readonly string[] = []) => ca.slice(rootCertificates.length).map((pem) => pem.trim());
  expect(trusted.map((ca) => ca.slice(0, rootCertificates.length))).toEqual([rootCertificates, rootCertificates]);
  expect(trusted.map(own)).toEqual([[internalCa], [loopbackCertificate, internalCa]]);
  rmSync(file);
  expect(await dial()).toMatchObject({ code: "CA_FILE_UNREADABLE" });
});

describe("what a file of certificates holds", () => {
  it.each([
    ["", undefined],
    ["-----BEGIN PRIVATE KEY-----\nbm8=\n-----END PRIVATE KEY-----", undefined],
    ["-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----", undefined],
    [`${internalCa}\n-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----`, undefined],
    [`# by hand\r\n${internalCa.replaceAll("\n", "\r\n")}`, ["CN=internal-ca"]],
    [`${internalCa}\n${loopbackCertificate}`, ["CN=internal-ca", "CN=localhost"]],
  ])("%#", (text, subjects) => {
    expect(readCertificates(text)?.map(({ subject }) => subject)).toEqual(subjects);
  });
});

it.each([
  ["UNABLE_TO_VERIFY_LEAF_SIGNATURE", true],
  ["UNABLE_TO_GET_ISSUER_CERT_LOCALLY", true],
  ["SELF_SIGNED_CERT_IN_CHAIN", true],
  ["DEPTH_ZERO_SELF_SIGNED_CERT", true],
  ["CA_FILE_UNREADABLE", true],
  ["CERT_HAS_EXPIRED", false],
  ["ERR_TLS_CERT_ALTNAME_INVALID", false],
  ["UNABLE_TO_GET_CRL", false],
  ["ECONNREFUSED", false],
])("%s is a matter of whom to trust: %s", (code, is) => {
  expect(isDistrust(code)).toBe(is);
});
