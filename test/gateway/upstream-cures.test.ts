import { describe, expect, it } from "vitest";
import { upstreamCure } from "../../src/gateway/index.ts";

const tls = (detail: string, hasCertificate = false) =>
  upstreamCure({ code: "tls", detail }, "tickets", hasCertificate);

describe("what to do about a server's TLS", () => {
  it("names the key for a CA of one's own, and that of a client certificate where there is one", () => {
    const cure = "name a PEM file with the CA that signed the server's certificate as servers.tickets.ca";
    expect(tls("UNABLE_TO_VERIFY_LEAF_SIGNATURE")).toBe(cure);
    expect(tls("SELF_SIGNED_CERT_IN_CHAIN", true)).toBe(
      `${cure}, or servers.tickets.credential.ca where that is written`,
    );
  });

  it("does not send anybody after a CA for a wrong name, an old certificate or no TLS at all", () => {
    for (const detail of ["ERR_TLS_CERT_ALTNAME_INVALID", "CERT_HAS_EXPIRED", "ERR_SSL_WRONG_VERSION_NUMBER"]) {
      expect(tls(detail)).toBe("check the server's certificate: its names, its dates, and the port of the URL");
    }
  });

  it("asks for the file where that is what fails", () => {
    expect(tls("CA_FILE_INVALID")).toContain("servers.tickets.ca");
    expect(tls("CA_FILE_INVALID")).not.toContain("signed");
  });
});
