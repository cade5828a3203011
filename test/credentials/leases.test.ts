/** What the store issues on demand: lives, renewal, refusals and faults, against the scripted fake. */
import { inspect } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { CredentialOptions, VaultOptions } from "../../src/credentials/index.ts";
import { LeaseFields } from "../../src/credentials/lease.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { TokenEndpoint } from "../support/token-endpoint.ts";
import { until } from "../support/until.ts";
import { type Seen, VaultFake } from "../support/vault-fake.ts";
import { agent, byToken, type Harness, Opened, open } from "./harness.ts";

const path = "db/creds/tickets";
const dynamic: CredentialOptions = {
  type: "vaultDynamic",
  vault: { path },
  as: { type: "basic", username: { lease: "username" }, password: { lease: "password" } },
};

let clock: ManualClock;
let fake: VaultFake;
let issuedCount = 0;
let harness: Harness | undefined;
const opened = new Opened();

beforeEach(async () => {
  clock = new ManualClock();
  fake = await VaultFake.start(() => clock.now());
  issuedCount = 0;
});
afterEach(async () => {
  await opened.close();
  harness = undefined;
  await fake.stop();
});

interface Life {
  readonly seconds: number;
  readonly renewable?: boolean;
  /** What a renewal grants; undefined: it is refused. */
  readonly renewed?: () => number | undefined;
}

/** Users `u1`, `u2`, … with leases of that life. */
function issuing({ seconds, renewable = false, renewed = () => seconds }: Life): (request: Seen) => unknown {
  return ({ path: asked }) => {
    if (asked === "sys/leases/renew") return { lease_duration: renewed(), renewable: true, data: null };
    if (asked === "sys/leases/revoke") return {};
    if (!asked.startsWith(path)) return undefined;
    issuedCount += 1;
    const data = { username: `u${issuedCount}`, password: `password-${issuedCount}` };
    return { lease_id: `${path}/${issuedCount}`, lease_duration: seconds, renewable, data };
  };
}

const rules = `path "${path}" { capabilities = ["read"] }`;

async function start(
  life: Life,
  credential: CredentialOptions = dynamic,
  role: Record<string, unknown> = {},
  more: Partial<VaultOptions> = {},
): Promise<Harness> {
  fake.engine = issuing(life);
  const servers = { a: credential };
  harness = await opened.byRole(fake, { rules, role, vault: more, servers, clock, random: () => 0 });
  return harness;
}

/** The user of the next call. */
async function user(): Promise<string> {
  const [, value = ""] = (await harness?.inject()) ?? [];
  return Buffer.from(value.replace("Basic ", ""), "base64").toString();
}

/** How many log lines say `event`: what has come to its end, not what was only asked. */
const said = (event: string): number => harness?.lines.filter((line) => line.includes(event)).length ?? 0;
const count = (asked: string): number => fake.count(asked);

describe("the life of a lease", () => {
  it("is asked for once by all who wait, and both fields are of one lease", async () => {
    await start({ seconds: 60 });
    expect(await Promise.all(Array.from({ length: 10 }, user))).toEqual(Array(10).fill("u1:password-1"));
    expect(count(path)).toBe(1);
  });

  it("is replaced at two thirds of its life without a call, and the old one serves meanwhile", async () => {
    await start({ seconds: 60 });
    expect(await user()).toBe("u1:password-1");
    clock.advance(39_000);
    expect(count(path)).toBe(1);
    clock.advance(1_100);
    await until(() => issuedCount === 2, "the second lease");
    await until(async () => (await user()) === "u2:password-2", "the second user");
    clock.advance(40_100);
    await until(() => issuedCount === 3, "the third lease");
  });

  it("replicas spread themselves: the wait is up to a tenth of the life shorter", async () => {
    fake.engine = issuing({ seconds: 60 });
    harness = await opened.byRole(fake, { rules, servers: { a: dynamic }, clock, random: () => 0.999 });
    await user();
    clock.advance(34_300);
    await until(() => issuedCount === 2, "the second lease");
  });

  it("is renewed where it can be, with the life it had, and stays the same user", async () => {
    await start({ seconds: 60, renewable: true });
    for (let round = 1; round <= 3; round += 1) {
      expect(await user()).toBe("u1:password-1");
      clock.advance(40_100);
      await until(() => said("store lease renewed") === round, "a renewal");
    }
    const [renewal] = fake.seen.filter((request) => request.path === "sys/leases/renew");
    expect(renewal?.body).toEqual({ lease_id: `${path}/1`, increment: 60 });
    expect(await user()).toBe("u1:password-1");
    expect(issuedCount).toBe(1);
  });

  it.each([
    ["is cut short", () => 20],
    ["grants nothing", () => 0],
    ["has no lease_duration", () => undefined],
  ])("is replaced when its renewal %s", async (_, renewed) => {
    await start({ seconds: 60, renewable: true, renewed });
    await user();
    clock.advance(40_100);
    await until(async () => (await user()) === "u2:password-2", "another lease");
    expect(count("sys/leases/renew")).toBe(1);
  });

  it.each([400, 403, 404, 500])("is replaced when its renewal is refused with %d", async (status) => {
    await start({ seconds: 60, renewable: true });
    await user();
    fake.fault = ({ path: asked }) => (asked === "sys/leases/renew" ? { kind: "status", status } : undefined);
    clock.advance(40_100);
    await until(async () => (await user()) === "u2:password-2", "another lease");
  });

  it("is kept while the store is away, to its end and no longer; then it is back", async () => {
    await start({ seconds: 60, renewable: true });
    await user();
    const sealed = { kind: "status", status: 503 } as const;
    fake.fault = ({ path: asked }) => (asked.startsWith("db/") || asked.startsWith("sys/leases/") ? sealed : undefined);
    clock.advance(40_100);
    await until(() => said("older lease serves") === 1, "a renewal that fails");
    expect(await user()).toBe("u1:password-1");
    clock.advance(19_000);
    expect(await user()).toBe("u1:password-1");
    clock.advance(1_000);
    expect((await harness?.failure())?.isAway).toBe(true);
    fake.fault = () => undefined;
    clock.advance(3_000);
    expect(await user()).toBe("u2:password-2");
    expect([said("older lease serves"), said("credential failed")]).toEqual([1, 1]);
  });

  it("tries again by itself while the store is away", async () => {
    await start({ seconds: 600 });
    await user();
    fake.fault = ({ path: asked }) => (asked === path ? { kind: "status", status: 503 } : undefined);
    clock.advance(400_100);
    await until(() => count(path) === 2, "the second try");
    // It fails on a later tick; then the next one is a matter of time only.
    await until(() => said("older lease serves") === 1, "the failure");
    fake.fault = () => undefined;
    await until(() => {
      clock.advance(1_000);
      return issuedCount === 2;
    }, "the lease after it");
  });

  it("dies with the token that it was asked with: after another login it is asked for anew", async () => {
    await start({ seconds: 3_600, renewable: true }, dynamic, { token_ttl: "100s", token_max_ttl: "100s" });
    expect(await user()).toBe("u1:password-1");
    clock.advance(30_000);
    expect(await user()).toBe("u1:password-1");
    // Renewed at its two thirds it is cut short, so that the next time is a login.
    const logins = count("auth/approle/login");
    await until(() => {
      clock.advance(5_000);
      return count("auth/approle/login") > logins;
    }, "another login");
    await until(async () => (await user()) === "u2:password-2", "a lease of the new token");
    expect(await user()).toBe("u2:password-2");
    expect(issuedCount).toBe(2);
  });

  it("without an end is kept as a stored secret is, and asked for again after vault.ttl", async () => {
    await start({ seconds: 0 }, dynamic, {}, { ttlMs: 10_000, staleForMs: 5_000 });
    expect(await user()).toBe("u1:password-1");
    clock.advance(9_900);
    expect(await user()).toBe("u1:password-1");
    clock.advance(200);
    await until(async () => (await user()) === "u2:password-2", "another one");
    fake.fault = ({ path: asked }) => (asked === path ? { kind: "status", status: 503 } : undefined);
    clock.advance(14_000);
    expect(await user()).toBe("u2:password-2");
    await until(() => said("older lease serves") === 1, "a read that fails");
    clock.advance(2_000);
    expect(await harness?.failure()).toMatchObject({ code: "store-sealed" });
  });

  it("a refusal of the server gets a new lease, once for all who ask, and not twice within ten seconds", async () => {
    await start({ seconds: 3_600, renewable: true });
    const credential = harness?.credentials.forServer("a");
    const first = await credential?.inject(agent);
    const again = () => Promise.resolve(first === undefined ? undefined : credential?.refresh(first, agent));
    const found = await Promise.all([again(), again(), again()]);
    expect(new Set(found).size).toBe(1);
    expect(await user()).toBe("u2:password-2");
    expect([issuedCount, count("sys/leases/renew")]).toEqual([2, 0]);
    const second = await credential?.inject(agent);
    if (second !== undefined) expect(await credential?.refresh(second, agent)).toBe(second);
    expect(issuedCount).toBe(2);
    clock.advance(10_100);
    if (second !== undefined) await credential?.refresh(second, agent);
    expect(await user()).toBe("u3:password-3");
  });

  it("a server that refuses every lease gets ever fewer, and after a quiet time a new one at once", async () => {
    await start({ seconds: 86_400 });
    const credential = harness?.credentials.forServer("a");
    const refuse = async (): Promise<void> => {
      const failed = await credential?.inject(agent);
      if (failed !== undefined) await credential?.refresh(failed, agent);
    };
    for (let second = 0; second < 3_600; second += 5) {
      await refuse();
      clock.advance(5_000);
    }
    // 10, 20, 40, 80, 160 s, then every five minutes: 5 and 11 more, beside the first.
    expect(issuedCount).toBeGreaterThan(10);
    expect(issuedCount).toBeLessThan(20);
    clock.advance(700_000);
    const before = issuedCount;
    await refuse();
    clock.advance(10_100);
    await refuse();
    expect(issuedCount).toBe(before + 2);
  });

  it("is not given back by hand where the token takes it along", async () => {
    await start({ seconds: 60 });
    await user();
    await harness?.credentials.close();
    expect([count("sys/leases/revoke"), count("auth/token/revoke-self")]).toEqual([0, 1]);
  });

  it("is given back where the token is not ours, and a store that is silent is not waited for", async () => {
    fake.engine = issuing({ seconds: 60 });
    const token = await fake.createToken({ ttlMs: 3_600_000, rules });
    harness = opened.open({
      vault: byToken(fake.address),
      servers: { a: dynamic },
      env: { STORE_TOKEN: token },
      clock,
    });
    await user();
    fake.fault = ({ path: asked }) => (asked === "sys/leases/revoke" ? { kind: "hang" } : undefined);
    const closed = harness.credentials.close();
    await until(() => count("sys/leases/revoke") === 1, "the lease to be given back");
    expect(fake.seen.at(-1)?.body).toEqual({ lease_id: `${path}/1` });
    clock.advance(2_000);
    await closed;
    expect(clock.armed).toBe(0);
    expect(count("auth/token/revoke-self")).toBe(0);
  });
});

describe("a lease that is on its way when we stop", () => {
  it("is given back as well", async () => {
    const issue = issuing({ seconds: 60 });
    let closed: Promise<void> | undefined;
    fake.engine = (request) => {
      if (request.path === path) closed = harness?.credentials.close();
      return issue(request);
    };
    const token = await fake.createToken({ ttlMs: 3_600_000, rules });
    harness = opened.open({
      vault: byToken(fake.address),
      servers: { a: dynamic },
      env: { STORE_TOKEN: token },
      clock,
    });
    await user().catch(() => undefined);
    await closed;
    expect(issuedCount).toBe(1);
    expect(fake.seen.at(-1)).toMatchObject({ path: "sys/leases/revoke", body: { lease_id: `${path}/1` } });
    expect(clock.armed).toBe(0);
  });
});

describe("what is asked of the store", () => {
  const options = (vault: Extract<CredentialOptions, { type: "vaultDynamic" }>["vault"]): CredentialOptions => ({
    type: "vaultDynamic",
    vault,
    as: { type: "bearer", token: { lease: "password" } },
  });

  it("a read has the parameters in its query, encoded", async () => {
    await start({ seconds: 60 }, options({ path, parameters: { minimum_seconds: 60, scope: "a b&c" } }));
    await harness?.inject();
    expect(fake.seen.at(-1)).toMatchObject({ method: "GET", path: `${path}?minimum_seconds=60&scope=a+b%26c` });
  });

  it("a write has them in its body, as they are", async () => {
    await start({ seconds: 60 }, options({ path, method: "write", parameters: { ip: "10.1.2.3", ttl: 5, x: true } }));
    await harness?.inject();
    expect(fake.seen.at(-1)).toMatchObject({ method: "POST", path, body: { ip: "10.1.2.3", ttl: 5, x: true } });
  });

  it.each([
    ["read", 403, "denied", `grant path "${path}" { capabilities = ["read"] }`],
    ["write", 403, "denied", `grant path "${path}" { capabilities = ["update"] }`],
    ["read", 404, "not-found", "check vault.path, its role and vault.parameters"],
    ["read", 405, "not-found", "method: write, or another path"],
    ["write", 405, "not-found", "method: read, or another path"],
    ["write", 400, "lease-refused", "check vault.path, its role and vault.parameters"],
    ["read", 500, "store-failing", "look into the store's own log"],
  ] as const)("a %s that is answered %d is explained: %s", async (method, status, code, cure) => {
    await start({ seconds: 60 }, options({ path, method }));
    fake.fault = ({ path: asked }) => (asked === path ? { kind: "status", status } : undefined);
    const error = await harness?.failure();
    expect(error).toMatchObject({ code, cure });
    expect(inspect(error)).not.toContain("scripted");
  });

  it.each([
    ["no data", { lease_id: "x", lease_duration: 60 }],
    ["a list for data", { lease_duration: 60, data: [] }],
  ])("an answer with %s is none", async (_, body) => {
    await start({ seconds: 60 }, options({ path }));
    fake.engine = ({ path: asked }) => (asked === path ? body : undefined);
    expect(await harness?.failure()).toMatchObject({ code: "store-bad-answer" });
  });

  it("its policy is asked for at start, and what is missing is named", async () => {
    await start({ seconds: 60 }, options({ path: "other/creds/x", method: "write" }));
    await harness?.credentials.checkAccess();
    const line = harness?.lines.find((text) => text.includes("store policy lacks a path")) ?? "";
    expect(JSON.parse(line)).toMatchObject({
      path: "other/creds/x",
      cure: 'grant path "other/creds/x" { capabilities = ["update"] }',
    });
  });

  it.each(["../sys/raw", "a//b", "a/./b", ""])("the path %j is refused before anything is asked", (bad) => {
    expect(() => open({ vault: byToken(fake.address), servers: { a: options({ path: bad }) } })).toThrow(
      expect.objectContaining({ code: "not-configured" }),
    );
  });

  it("needs a store", () => {
    expect(() => open({ servers: { a: dynamic } })).toThrow(expect.objectContaining({ code: "not-configured" }));
  });
});

describe("fields of a lease", () => {
  const fields = new LeaseFields(
    {
      token: "t",
      port: 22,
      big: 2 ** 60,
      deep: { key: "k" },
      "a.b": "dotted",
      empty: "",
      list: [],
      ok: true,
      no: null,
    },
    "ssh/creds/a",
  );
  const get = (name: string): string => {
    try {
      return fields.field(name).reveal();
    } catch (error) {
      return (error as { code: string }).code;
    }
  };

  it.each([
    ["token", "t"],
    ["port", "22"],
    ["deep.key", "k"],
    ["a.b", "dotted"],
    ["big", "field-not-string"],
    ["deep", "field-not-string"],
    ["list", "field-not-string"],
    ["ok", "field-not-string"],
    ["empty", "field-empty"],
    ["no", "field-missing"],
    ["deep.none", "field-missing"],
    ["token.x", "field-missing"],
    ["constructor", "field-missing"],
    ["deep.constructor", "field-missing"],
    ["__proto__.x", "field-missing"],
    [".", "field-missing"],
  ])("%s is %s", (name, value) => {
    expect(get(name)).toBe(value);
  });

  it("is the same object each time", () => {
    expect(fields.field("token")).toBe(fields.field("token"));
  });
});

describe("an identity that the store signs", () => {
  const identityPath = "identity/oidc/token/tickets";
  let jwtCount = 0;
  const signing = (ttl: unknown) => (request: Seen) => {
    if (request.path !== identityPath) return undefined;
    jwtCount += 1;
    return { lease_id: "", lease_duration: 0, renewable: false, data: { token: `head.${jwtCount}.sig`, ttl } };
  };
  const openIdentity = async (as: Extract<CredentialOptions, { type: "vaultIdentity" }>["as"], ttl: unknown) => {
    jwtCount = 0;
    await start({ seconds: 60 }, { type: "vaultIdentity", role: "tickets", as });
    fake.engine = signing(ttl);
  };

  it("is sent as a bearer, and replaced at two thirds of its ttl", async () => {
    await openIdentity("bearer", 600);
    expect(await harness?.inject()).toEqual(["Authorization", "Bearer head.1.sig"]);
    expect(fake.seen.at(-1)).toMatchObject({ method: "GET", path: identityPath });
    clock.advance(399_000);
    expect(jwtCount).toBe(1);
    clock.advance(1_100);
    await until(() => jwtCount === 2, "the second token");
  });

  it("outlives the login that it was asked with", async () => {
    jwtCount = 0;
    const role = { token_ttl: "30s", token_max_ttl: "30s" };
    await start({ seconds: 60 }, { type: "vaultIdentity", role: "tickets", as: "bearer" }, role);
    fake.engine = signing(600);
    await harness?.inject();
    clock.advance(60_000);
    expect(await harness?.inject()).toEqual(["Authorization", "Bearer head.1.sig"]);
  });

  it.each([undefined, 0, "10m"])("without a usable ttl (%j) it is no answer", async (ttl) => {
    await openIdentity("bearer", ttl);
    expect(await harness?.failure()).toMatchObject({ code: "store-bad-answer" });
  });

  it("a login without an entity is told what it lacks", async () => {
    await openIdentity("bearer", 600);
    fake.fault = ({ path: asked }) => (asked === identityPath ? { kind: "status", status: 400 } : undefined);
    expect(await harness?.failure()).toMatchObject({
      code: "lease-refused",
      cure: expect.stringContaining("as a root token has none"),
    });
  });

  it("buys access tokens as a client assertion; a refused one is made anew once", async () => {
    const endpoint = await TokenEndpoint.start();
    await openIdentity(
      {
        type: "oauthClientCredentials",
        at: { tokenEndpoint: endpoint.url },
        clientId: "postern",
        scope: "mcp",
      },
      600,
    );
    expect(await harness?.inject()).toEqual(["Authorization", "Bearer token-1"]);
    const { form, headers } = endpoint.only;
    expect(headers.authorization).toBeUndefined();
    expect(Object.fromEntries(form)).toEqual({
      grant_type: "client_credentials",
      client_id: "postern",
      client_assertion: "head.1.sig",
      client_assertion_type: "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
      scope: "mcp",
    });
    await endpoint.stop();
  });
});
