/** Servers with a certificate of a CA of one's own, on real TLS connections. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createSecureContext, type TLSSocket } from "node:tls";
import { afterAll, afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { systemClock } from "../../src/lib/index.ts";
import { silentLogger } from "../../src/telemetry/index.ts";
import { createUpstream, type TlsIdentity, type Upstream, type UpstreamError } from "../../src/upstream/index.ts";
import { clientPairs } from "../support/client-pairs.ts";
import { internalCa, serverPairs } from "../support/internal-ca.ts";
import { until } from "../support/until.ts";
import { loopbackCertificate } from "../tunnel/loopback-cert.ts";

const dir = mkdtempSync(join(tmpdir(), "postern-ca-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));
const caFile = join(dir, "ca.pem");
const [first, renewed] = serverPairs;

let server: Server | undefined;
let upstream: Upstream | undefined;
let connections = 0;
/** Names of the client certificates of requests. */
const names: string[] = [];

beforeEach(() => {
  writeFileSync(caFile, internalCa);
  connections = 0;
  names.length = 0;
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await upstream?.close();
  server?.closeAllConnections();
  server?.close();
});

async function start(options: { readonly caFile?: string } = { caFile }): Promise<Upstream> {
  const client = { requestCert: true, rejectUnauthorized: false };
  server = createServer({ ...first, ...client }, (req, res) => {
    names.push(String((req.socket as TLSSocket).getPeerCertificate().subject?.CN));
    res.end("done");
  });
  server.on("secureConnection", () => {
    connections += 1;
  });
  const listening = server;
  await new Promise<void>((resolve) => listening.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const url = `https://127.0.0.1:${port}/mcp`;
  upstream = createUpstream({ url, ...options, clock: systemClock, logger: silentLogger });
  return upstream;
}

async function post(to: Upstream, tls?: TlsIdentity): Promise<UpstreamError | string> {
  let text = "";
  let outcome: UpstreamError | string | undefined;
  to.request(
    { method: "POST", headers: [], body: Buffer.from("{}"), tls },
    {
      onHead: () => undefined,
      onData: (chunk) => {
        text += chunk.toString();
      },
      onEnd: () => {
        outcome = text;
      },
      onError: (error) => {
        outcome = error;
      },
    },
  );
  await until(() => outcome !== undefined, "an end");
  return outcome ?? "";
}

/** Ends what is kept alive, so that the next call dials. */
async function hangUp(): Promise<void> {
  server?.closeAllConnections();
  await new Promise((resolve) => setImmediate(resolve));
}

describe("a CA of one's own", () => {
  it("is trusted for its server, and the connection is used again", async () => {
    const to = await start();
    expect([await post(to), await post(to)]).toEqual(["done", "done"]);
    expect(connections).toBe(1);
  });

  it("that nobody names is not, whatever the environment says; nor is another one", async () => {
    vi.stubEnv("NODE_TLS_REJECT_UNAUTHORIZED", "0");
    const distrusted = { code: "tls", sent: false, detail: "UNABLE_TO_VERIFY_LEAF_SIGNATURE" };
    expect(await post(await start({}))).toEqual(distrusted);
    await upstream?.close();
    server?.close();
    writeFileSync(caFile, loopbackCertificate);
    expect(await post(await start())).toEqual(distrusted);
    expect(names).toEqual([]);
  });

  it("of several in the file each is trusted", async () => {
    writeFileSync(caFile, `the old one\n${loopbackCertificate}\n\nthe new one\n${internalCa}\n`);
    expect(await post(await start())).toBe("done");
  });

  it("goes on when the server renews its certificate under it", async () => {
    const to = await start();
    expect(await post(to)).toBe("done");
    server?.setSecureContext(renewed);
    await hangUp();
    expect(await post(to)).toBe("done");
    expect(connections).toBe(2);
  });

  it("does not vouch for another name", async () => {
    const first = await start();
    const { port } = (server as Server).address() as AddressInfo;
    upstream = createUpstream({
      url: `https://[::ffff:127.0.0.1]:${port}/mcp`,
      caFile,
      clock: systemClock,
      logger: silentLogger,
    });
    expect(await post(upstream)).toMatchObject({ code: "tls", detail: "ERR_TLS_CERT_ALTNAME_INVALID" });
    await first.close();
  });

  it("counts for the next connection once the file holds it, and no longer once it does not", async () => {
    writeFileSync(caFile, loopbackCertificate);
    const to = await start();
    expect(await post(to)).toMatchObject({ detail: "UNABLE_TO_VERIFY_LEAF_SIGNATURE" });
    writeFileSync(caFile, internalCa);
    expect(await post(to)).toBe("done");
    writeFileSync(caFile, loopbackCertificate);
    expect(await post(to)).toBe("done");
    await hangUp();
    expect(await post(to)).toMatchObject({ detail: "UNABLE_TO_VERIFY_LEAF_SIGNATURE" });
  });

  it("is not replaced by anything when the file is gone or holds none", async () => {
    const to = await start();
    rmSync(caFile);
    expect(await post(to)).toEqual({ code: "tls", sent: false, detail: "CA_FILE_UNREADABLE" });
    writeFileSync(caFile, "-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n");
    expect(await post(to)).toEqual({ code: "tls", sent: false, detail: "CA_FILE_INVALID" });
    expect(connections).toBe(0);
    writeFileSync(caFile, internalCa);
    expect(await post(to)).toBe("done");
  });

  it("is trusted beside what a client certificate brings with it", async () => {
    const [{ certificate: cert, key }] = clientPairs;
    const identity: TlsIdentity = {
      context: createSecureContext({ cert, key }),
      contextTrusting: (ca) => createSecureContext({ cert, key, ca: [...ca] }),
    };
    expect(await post(await start(), identity)).toBe("done");
    expect(names).toEqual(["client-1"]);
  });
});
