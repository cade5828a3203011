/** Client certificates on real TLS connections: rotation under calls and streams, and what alerts become. */
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { createSecureContext, type SecureContextOptions, type TLSSocket } from "node:tls";
import { afterEach, describe, expect, it, vi } from "vitest";
import { systemClock } from "../../src/lib/index.ts";
import { silentLogger } from "../../src/telemetry/index.ts";
import { mapUpstreamError } from "../../src/upstream/errors.ts";
import { createUpstream, type TlsIdentity, type Upstream, type UpstreamError } from "../../src/upstream/index.ts";
import { clientPairs } from "../support/client-pairs.ts";
import { until } from "../support/until.ts";
import { loopbackCertificate, loopbackKey } from "../tunnel/loopback-cert.ts";

const identityOf = (options: SecureContextOptions): TlsIdentity => ({
  context: createSecureContext(options),
  contextTrusting: (ca) => createSecureContext({ ...options, ca: [...ca] }),
});
const identities = clientPairs.map(({ certificate, key }) => {
  return identityOf({ cert: certificate, key, ca: loopbackCertificate });
});
const [one, two] = identities as [TlsIdentity, TlsIdentity];

let server: Server | undefined;
let upstream: Upstream | undefined;
/** Names of the certificates of requests, and of the connections that stand. */
const names: string[] = [];
const standing = new Set<string>();

afterEach(async () => {
  vi.unstubAllEnvs();
  await upstream?.close();
  server?.closeAllConnections();
  server?.close();
  names.length = 0;
  standing.clear();
});

async function start(): Promise<Upstream> {
  const ca = clientPairs.map(({ certificate }) => certificate);
  const tls = { cert: loopbackCertificate, key: loopbackKey, ca, requestCert: true, rejectUnauthorized: true };
  let connections = 0;
  server = createServer(tls, (req, res) => {
    names.push(String((req.socket as TLSSocket).getPeerCertificate().subject.CN));
    if (req.method === "GET") res.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
    else res.end("done");
  });
  server.on("secureConnection", (socket: TLSSocket) => {
    connections += 1;
    const name = `${String(socket.getPeerCertificate().subject?.CN)} ${connections}`;
    standing.add(name);
    socket.on("close", () => standing.delete(name));
  });
  const listening = server;
  await new Promise<void>((resolve) => listening.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  upstream = createUpstream({ url: `https://127.0.0.1:${port}/mcp`, clock: systemClock, logger: silentLogger });
  return upstream;
}

function send(to: Upstream, method: "POST" | "GET", tls: TlsIdentity | undefined) {
  const heard: { text: string; end?: boolean; error?: UpstreamError } = { text: "" };
  const call = to.request(
    { method, headers: [], ...(method === "POST" ? { body: Buffer.from("{}") } : {}), tls },
    {
      onHead: () => undefined,
      onData: (chunk) => {
        heard.text += chunk.toString();
      },
      onEnd: () => {
        heard.end = true;
      },
      onError: (error) => {
        heard.error = error;
      },
    },
  );
  return { heard, call };
}

async function post(to: Upstream, tls: TlsIdentity | undefined): Promise<UpstreamError | string> {
  const { heard } = send(to, "POST", tls);
  await until(() => heard.end === true || heard.error !== undefined, "an end");
  return heard.error ?? heard.text;
}

describe("a client certificate", () => {
  it("is shown, and its connection is used again while it stays the same", async () => {
    const to = await start();
    expect([await post(to, one), await post(to, one)]).toEqual(["done", "done"]);
    expect(names).toEqual(["client-1", "client-1"]);
    expect([...standing]).toEqual(["client-1 1"]);
  });

  it("is replaced for new calls at once; a stream keeps its connection to its end, idle ones close", async () => {
    const to = await start();
    expect(await post(to, one)).toBe("done");
    const stream = send(to, "GET", one);
    await until(() => stream.heard.text !== "", "the first event");
    // On a second connection, which is idle from now on.
    expect(await post(to, one)).toBe("done");
    expect([...standing]).toEqual(["client-1 1", "client-1 2"]);
    expect(await post(to, two)).toBe("done");
    expect(names.at(-1)).toBe("client-2");
    // Well before a connection that is kept alive would end by itself.
    await until(() => !standing.has("client-1 2"), "the idle connection to close", 1_000);
    expect([...standing]).toEqual(["client-1 1", "client-2 3"]);
    expect(stream.heard.error).toBeUndefined();
    stream.call.abort();
    await until(() => standing.size === 1, "the stream's connection to close", 1_000);
  });

  it("that was replaced does not come back with a call that was given it before", async () => {
    const to = await start();
    for (const identity of [one, two, one, undefined]) expect(await post(to, identity)).toBe("done");
    expect(names).toEqual(["client-1", "client-2", "client-2", "client-2"]);
    await until(() => standing.size === 1, "one connection", 1_000);
  });

  it("closing ends the calls of old certificates too", async () => {
    const to = await start();
    const stream = send(to, "GET", one);
    await until(() => stream.heard.text !== "", "the first event");
    expect(await post(to, two)).toBe("done");
    await to.close();
    await until(() => stream.heard.error !== undefined && standing.size === 0, "everything to end");
    expect(stream.heard.error?.code).toBe("closed");
  });

  it("is not shown to a server of another CA, whatever the environment says", async () => {
    vi.stubEnv("NODE_TLS_REJECT_UNAUTHORIZED", "0");
    const to = await start();
    const stranger = identityOf({ cert: clientPairs[0].certificate, key: clientPairs[0].key });
    expect(await post(to, stranger)).toMatchObject({ code: "tls", sent: false, detail: "DEPTH_ZERO_SELF_SIGNED_CERT" });
    expect(names).toEqual([]);
  });
});

describe("alerts of TLS", () => {
  it.each([
    "ERR_SSL_TLSV1_ALERT_UNKNOWN_CA",
    "ERR_SSL_SSLV3_ALERT_CERTIFICATE_EXPIRED",
    "ERR_SSL_SSLV3_ALERT_CERTIFICATE_REVOKED",
    "ERR_SSL_SSLV3_ALERT_CERTIFICATE_UNKNOWN",
    "ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE",
    "ERR_SSL_SSLV3_ALERT_HANDSHAKE_FAILURE",
    "ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED",
    "ERR_SSL_TLSV1_ALERT_ACCESS_DENIED",
  ])("%s is about our certificate", (detail) => {
    const error = Object.assign(new Error("foreign"), { code: detail });
    expect(mapUpstreamError(error, true)).toEqual({ code: "client-certificate", sent: true, detail });
  });

  it.each([
    "ERR_SSL_WRONG_VERSION_NUMBER",
    "ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION",
    "ERR_SSL_TLSV1_ALERT_INTERNAL_ERROR",
  ])("%s is not", (detail) => {
    expect(mapUpstreamError(Object.assign(new Error("foreign"), { code: detail }), true).code).toBe("tls");
  });
});
