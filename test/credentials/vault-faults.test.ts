/** What a store does when it is ill, or is not the store: each failure has a code and a cure, and shows no secret. */
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { inspect } from "node:util";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { CredentialError } from "../../src/credentials/index.ts";
import { findLeaks } from "../support/canary.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { until } from "../support/until.ts";
import { type Fault, type Seen, VaultFake } from "../support/vault-fake.ts";
import { agent, bearerAt, byToken, type Harness, Opened, open } from "./harness.ts";

const canary = "canary-9d80b1c7f2a44e63";

// Read by the package behind node-vault's debug output when it is loaded, which is before any test.
vi.hoisted(() => {
  process.env["DEBUG"] = "node-vault";
});

let clock: ManualClock;
let store: VaultFake;
const opened = new Opened();

beforeEach(async () => {
  clock = new ManualClock();
  store = await VaultFake.start(() => clock.now());
  await store.putSecret("secret", "mcp/a", { token: canary });
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await opened.close();
  await store.stop();
});

async function start(): Promise<{ harness: Harness; secrets: Record<string, string> }> {
  const harness = await opened.byRole(store, { servers: { a: bearerAt("mcp/a") }, clock });
  return { harness, secrets: { canary, secretId: harness.env["SECRET_ID"] ?? "" } };
}

/** The secrets that the store granted us are secrets too. */
function granted(): Record<string, string> {
  const tokens = store.seen.flatMap(({ token }) => (token === undefined ? [] : [token]));
  return Object.fromEntries(tokens.map((token, i) => [`token ${i}`, token]));
}

function expectNoLeak(error: unknown, harness: Harness, secrets: Record<string, string>): void {
  const outputs = [
    { name: "inspect", text: inspect(error, { depth: null, showHidden: true }) },
    { name: "json", text: JSON.stringify(error) },
    { name: "text", text: `${String(error)} ${(error as Error).stack ?? ""}` },
    { name: "log", text: harness.lines.join("") },
    { name: "credentials", text: inspect(harness.credentials, { depth: null, showHidden: true }) },
  ];
  expect(findLeaks(outputs, { ...secrets, ...granted() })).toEqual([]);
}

const isLogin = ({ path }: Seen): boolean => path === "auth/approle/login";
const isRead = ({ path }: Seen): boolean => path.startsWith("secret/");
const status = (code: number, headers?: Record<string, string>): Fault => ({
  kind: "status",
  status: code,
  // A store, or whatever stands in for it, may quote what it was sent.
  body: { errors: [`${canary} said so`], data: { token: canary } },
  ...(headers === undefined ? {} : { headers }),
});

const faults: [string, Fault, string][] = [
  ["307", status(307, { location: "http://127.0.0.1:9/" }), "store-redirects"],
  ["429", status(429, { "retry-after": "7" }), "store-rate-limited"],
  ["472", status(472), "store-failing"],
  ["473", status(473), "store-failing"],
  ["500", status(500), "store-failing"],
  ["501", status(501), "store-not-initialised"],
  ["502", status(502), "store-failing"],
  ["503", status(503), "store-sealed"],
  ["202 without a body", { kind: "text", status: 202, text: "" }, "store-bad-answer"],
  ["an HTML page", { kind: "text", status: 200, text: `<html>${canary}</html>` }, "store-bad-answer"],
  ["JSON that is no object", { kind: "text", status: 200, text: `["${canary}"]` }, "store-bad-answer"],
  ["an object without data", { kind: "text", status: 200, text: `{"x":"${canary}"}` }, "store-bad-answer"],
  ["truncated JSON", { kind: "truncated" }, "store-bad-answer"],
  [
    "an encoded answer",
    { kind: "text", status: 200, text: `{"data":{}}`, headers: { "content-encoding": "gzip" } },
    "store-bad-answer",
  ],
  ["3 MiB", { kind: "oversized" }, "store-bad-answer"],
  ["a reset", { kind: "reset" }, "store-unreachable"],
];

describe("a store that fails", () => {
  it.each(faults)("answers a read with %s: a code, a cure, nothing leaked", async (_, fault, code) => {
    const { harness, secrets } = await start();
    store.fault = (seen) => (isRead(seen) ? fault : undefined);
    const error = await harness.failure();
    expect(error).toMatchObject({ code, cure: expect.stringMatching(/../) });
    expectNoLeak(error, harness, secrets);
    expect(harness.lines.filter((line) => line.includes("credential failed"))).toHaveLength(1);
  });

  it.each(faults)("answers a login with %s: a code, a cure, nothing leaked", async (_, fault, code) => {
    const { harness, secrets } = await start();
    store.fault = (seen) => (isLogin(seen) ? fault : undefined);
    const error = await harness.failure();
    expect(error).toMatchObject({ code, cure: expect.stringMatching(/../) });
    expectNoLeak(error, harness, secrets);
  });

  it.each(["login", "read"])("C28 hangs on a %s: the deadline ends it", async (kind) => {
    const { harness, secrets } = await start();
    store.fault = (seen) => ((kind === "login" ? isLogin(seen) : isRead(seen)) ? { kind: "hang" } : undefined);
    const failing = harness.failure();
    await until(() => store.seen.some(kind === "login" ? isLogin : isRead), "the request");
    clock.advance(9_999);
    clock.advance(1);
    const error = await failing;
    expect(error.code).toBe("store-timeout");
    expectNoLeak(error, harness, secrets);
  });

  it("is logged once for a run of one failure, and again after it worked", async () => {
    const { harness } = await start();
    const failed = (): number => harness.lines.filter((line) => line.includes("credential failed")).length;
    store.fault = (seen) => (isRead(seen) ? status(503) : undefined);
    for (let i = 0; i < 3; i += 1) {
      await harness.failure();
      clock.advance(10_000);
    }
    expect(failed()).toBe(1);
    store.fault = () => undefined;
    await harness.inject();
    store.fault = (seen) => (isRead(seen) ? status(403) : undefined);
    clock.advance(121_000);
    await harness.failure();
    expect(failed()).toBe(2);
  });

  it("is read once for servers that share an entry", async () => {
    await store.putSecret("secret", "mcp/shared", { one: "value-1", two: "value-2" });
    const servers = { one: bearerAt("mcp/shared", "one"), two: bearerAt("mcp/shared", "two") };
    const harness = await opened.byRole(store, { servers, clock });
    const both = await Promise.all([harness.inject("one"), harness.inject("two")]);
    expect(both.map(([, value]) => value)).toEqual(["Bearer value-1", "Bearer value-2"]);
    expect(store.count("secret/data/mcp/shared")).toBe(1);
  });

  it("leaks nothing when all goes well either", async () => {
    const { harness, secrets } = await start();
    await harness.inject();
    expectNoLeak(new Error("none"), harness, secrets);
  });

  it("resets a connection that was kept alive: the read is tried once more", async () => {
    const { harness } = await start();
    let resets = 0;
    store.fault = (seen) => {
      if (!isRead(seen) || resets > 0) return undefined;
      resets += 1;
      return { kind: "reset" };
    };
    expect(await harness.inject()).toEqual(["Authorization", `Bearer ${canary}`]);
  });

  it("lags behind (412): the read is tried once more", async () => {
    const { harness } = await start();
    store.fault = (seen) => (isRead(seen) && store.seen.filter(isRead).length === 1 ? status(412) : undefined);
    const reading = harness.inject();
    await until(() => store.seen.some(isRead) && (clock.nextInMs ?? 10_000) < 1_000, "the pause");
    clock.advance(200);
    expect(await reading).toEqual(["Authorization", `Bearer ${canary}`]);
  });

  it("answers the check of a token with a web page: that is no proof of life", async () => {
    const { harness } = await start();
    store.fault = (seen) =>
      isRead(seen) ? status(403) : isLogin(seen) ? undefined : { kind: "text", status: 200, text: "<html>" };
    expect((await harness.failure()).code).toBe("store-bad-answer");
  });

  it("C27 does not tell what a mount is, but complains of the path", async () => {
    const { harness } = await start();
    const warning = "Invalid path for a versioned K/V secrets engine. See the API docs.";
    store.fault = (seen) => {
      if (isRead(seen)) return { kind: "status", status: 404, body: { data: null, warnings: [warning] } };
      return isLogin(seen) ? undefined : status(403);
    };
    expect((await harness.failure()).code).toBe("wrong-kv-version");
  });

  it.each([
    ["sealed", { kind: "status", status: 503 }, "store-sealed"],
    ["silent about capabilities", { kind: "status", status: 200, body: {} }, "store-bad-answer"],
  ] as const)("is %s at start: that is logged, and nothing fails", async (_, fault, code) => {
    const { harness } = await start();
    store.fault = ({ path }) => (path === "sys/capabilities-self" ? fault : undefined);
    await harness.credentials.checkAccess();
    const line = harness.lines.find((text) => text.includes("store access not checked"));
    expect(JSON.parse(line ?? "{}")).toMatchObject({ code });
    expect(await harness.inject()).toEqual(["Authorization", `Bearer ${canary}`]);
  });

  it("C27 gives a mount another version in mid run", async () => {
    const rules = 'path "kv/*" { capabilities = ["read"] }';
    const servers = { a: bearerAt("mcp/a", "token", "kv") };
    const vault = { ttlMs: 1_000, staleForMs: 0 };
    const harness = await opened.byRole(store, { rules, vault, servers, clock });
    for (const version of ["1", "2", "1"] as const) {
      await store.mountKv("kv", version);
      await store.putSecret("kv", "mcp/a", { token: `of-version-${version}` });
      expect(await harness.inject()).toEqual(["Authorization", `Bearer of-version-${version}`]);
      clock.advance(2_000);
    }
    expect(store.count("sys/internal/ui/mounts/kv"), "asked at first, and when something is amiss").toBe(3);
  });

  it("names a mount of its own invention: it is not repeated", async () => {
    const { harness, secrets } = await start();
    store.fault = (seen) => {
      if (isRead(seen)) return status(404);
      const data = { path: `${canary}/`, type: "kv", options: { version: "2" } };
      return isLogin(seen) ? undefined : { kind: "status", status: 200, body: { data } };
    };
    const error = await harness.failure();
    expect(error.code).toBe("not-found");
    expectNoLeak(error, harness, secrets);
  });

  it("redirects: neither token nor request reaches the other place", async () => {
    const reached: string[] = [];
    const other = createServer((request, response) => {
      reached.push(request.url ?? "");
      response.end("{}");
    });
    await once(other.listen(0, "127.0.0.1"), "listening");
    const { harness } = await start();
    const location = `http://127.0.0.1:${(other.address() as AddressInfo).port}/v1/secret/data/mcp/a`;
    store.fault = (seen) => (isRead(seen) ? status(307, { location }) : undefined);
    expect((await harness.failure()).code).toBe("store-redirects");
    expect(reached).toEqual([]);
    await closeServer(other);
  });

  it("cannot be read past 1 MiB: the connection is given up, not drained", async () => {
    const { harness } = await start();
    store.fault = (seen) => (isRead(seen) ? { kind: "oversized" } : undefined);
    expect((await harness.failure()).message).toContain("1 MiB");
  });
});

describe("the environment", () => {
  it("C28 has no say: VAULT_ variables, proxies and DEBUG change nothing", async () => {
    const stray = createServer((_, response) => void response.writeHead(500).end());
    await once(stray.listen(0, "127.0.0.1"), "listening");
    const address = `http://127.0.0.1:${(stray.address() as AddressInfo).port}`;
    vi.stubEnv("VAULT_ADDR", address);
    vi.stubEnv("VAULT_TOKEN", "stray-token");
    vi.stubEnv("VAULT_NAMESPACE", "stray-namespace");
    vi.stubEnv("VAULT_PREFIX", "/stray-prefix");
    vi.stubEnv("VAULT_SKIP_VERIFY", "1");
    vi.stubEnv("HTTP_PROXY", address);
    const said = vi.spyOn(process.stderr, "write").mockImplementation(() => true);
    const { harness } = await start();
    expect(await harness.inject()).toEqual(["Authorization", `Bearer ${canary}`]);
    expect(process.env["DEBUG"]).toBe("node-vault");
    expect(said).not.toHaveBeenCalled();
    said.mockRestore();
    const asked = ["auth/approle/login", "sys/internal/ui/mounts/secret", "secret/data/mcp/a"];
    expect(store.seen.map(({ path }) => path)).toEqual(asked);
    expect(store.seen.filter(({ token, namespace }) => token === "stray-token" || namespace !== undefined)).toEqual([]);
    await closeServer(stray);
  });
});

describe("options that cannot work", () => {
  const servers = { a: bearerAt("mcp/a") };
  const refusal = (act: () => unknown): CredentialError => {
    try {
      act();
    } catch (error) {
      return error as CredentialError;
    }
    throw new Error("was accepted");
  };

  it.each([
    "http://vault.internal:8200",
    "ftp://127.0.0.1",
    "https://user:pw@vault",
    "https://user@vault",
    "https://vault?x=1",
    "vault:8200",
    "",
  ])("refuses the address %j", (address) => {
    const error = refusal(() => open({ vault: byToken(address), servers }));
    expect(error.code).toBe("not-configured");
    expect(inspect(error)).not.toContain("pw");
  });

  it.each(["http://localhost:8200", "http://[::1]:8200", "https://vault.internal:8200"])(
    "accepts the address %s",
    async (address) => {
      await open({ vault: byToken(address), servers }).credentials.close();
    },
  );

  it.each([
    ["../sys", "x"],
    ["secret", "a/../../b"],
    ["secret", "a//b"],
    ["secret", "/a"],
    ["secret", "a\nb"],
    ["secret", "a\ud800"],
    ["", "a"],
  ])("refuses the mount %j with the path %j", (mount, path) => {
    expect(
      refusal(() => open({ vault: byToken(store.address), servers: { a: bearerAt(path, "token", mount) } })).code,
    ).toBe("not-configured");
  });

  it("refuses a vault source without a vault, and a server that nobody configured", async () => {
    expect(refusal(() => open({ servers })).code).toBe("not-configured");
    const { credentials } = open({ servers: { plain: undefined } });
    expect(refusal(() => credentials.forServer("other")).code).toBe("not-configured");
    expect(refusal(() => credentials.forServer("constructor")).code).toBe("not-configured");
    expect(credentials.forServer("plain").inject(agent)).toEqual({ headers: [], secrets: [] });
    expect(credentials.forServer("plain").headerNames()).toEqual([]);
  });
});

async function closeServer(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}
