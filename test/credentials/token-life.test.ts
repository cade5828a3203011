/** C28: the life of the store's token, on a clock of our own against a store that plays along. */
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ManualClock } from "../support/manual-clock.ts";
import { until } from "../support/until.ts";
import { type Seen, VaultFake } from "../support/vault-fake.ts";
import { bearerAt, byRole, byToken, type Harness, Opened, open, readMcp } from "./harness.ts";

const login = "auth/approle/login";
const renewal = "auth/token/renew-self";
const lookup = "auth/token/lookup-self";

let clock: ManualClock;
let store: VaultFake;
const opened = new Opened();

beforeEach(async () => {
  clock = new ManualClock();
  store = await VaultFake.start(() => clock.now());
  for (const name of ["a", "b", "c"]) await store.putSecret("secret", `mcp/${name}`, { token: `value-of-${name}` });
});
afterEach(async () => {
  await opened.close();
  await store.stop();
});

async function start(role: Record<string, unknown>, more = {}): Promise<Harness> {
  const servers = { a: bearerAt("mcp/a"), b: bearerAt("mcp/b"), c: bearerAt("mcp/c") };
  return await opened.byRole(store, { role, vault: more, servers, clock });
}

/** Moves on by `ms` and waits until the store has seen `count` requests to `path` and we have their answers. */
async function advanceTo(ms: number, path: string, count: number): Promise<void> {
  clock.advance(ms);
  await until(() => store.count(path) >= count, `${count} requests to ${path}, not ${store.count(path)}`);
  expect(store.count(path)).toBe(count);
  await settled();
}

/** Until no request is under way: its deadline is a timer then. */
async function settled(): Promise<void> {
  await until(() => clock.armed <= 1, "requests to end");
  await delay(0);
}

/** Moves on from timer to timer, none longer than an hour, until the token is renewed. */
async function advanceToRenewal(): Promise<void> {
  const before = store.count(renewal);
  // A request under way shows by its deadline of 10 s.
  while ((clock.nextInMs ?? 0) > 10_000) {
    expect(clock.nextInMs).toBeLessThanOrEqual(3_600_000);
    clock.advance(clock.nextInMs ?? 0);
  }
  await until(() => store.count(renewal) > before, "a renewal");
  await settled();
}

const order = (): string[] => store.seen.map(({ path }) => path).filter((path) => path.startsWith("auth/"));

describe("the store's token", () => {
  it("C28 is renewed at two thirds of each lease, and replaced by a login when the lease was cut at its maximum", async () => {
    const { inject } = await start({ token_ttl: "300s", token_max_ttl: "800s" });
    await inject("a");
    expect(clock.nextInMs).toBeGreaterThanOrEqual(170_000);
    expect(clock.nextInMs).toBeLessThanOrEqual(200_000);
    await advanceTo(clock.nextInMs ?? 0, renewal, 1);
    await advanceTo(clock.nextInMs ?? 0, renewal, 2);
    await advanceTo(clock.nextInMs ?? 0, renewal, 3);
    // 185 s apart: the third renewal at 555 s was granted 245 s of 300.
    await advanceTo(clock.nextInMs ?? 0, login, 2);
    expect(order()).toEqual([login, renewal, renewal, renewal, login]);
    await inject("b");
    expect(store.seen.at(-1)?.token).not.toBe(store.seen.find(({ path }) => path.includes("data"))?.token);
  });

  it("C28 follows the lease that a renewal returned, not the first one", async () => {
    const { inject } = await start({ token_ttl: "300s" });
    await inject("a");
    store.fault = ({ path, token }) =>
      path === renewal
        ? {
            kind: "status",
            status: 200,
            body: { auth: { client_token: token, lease_duration: 3_000, renewable: true, num_uses: 0 } },
          }
        : undefined;
    await advanceTo(clock.nextInMs ?? 0, renewal, 1);
    expect(clock.nextInMs).toBeGreaterThanOrEqual(1_700_000);
  });

  // 500 is what OpenBao says past the maximum.
  it.each([400, 403, 500])(
    "C28 is replaced at once when renewal is refused with %i, and serves meanwhile",
    async (refusal) => {
      const { inject } = await start({ token_ttl: "300s" });
      await inject("a");
      store.fault = ({ path }) => (path === renewal ? { kind: "status", status: refusal } : undefined);
      await advanceTo(clock.nextInMs ?? 0, login, 2);
      expect(order()).toEqual([login, renewal, login]);
      expect(await inject("b")).toEqual(["Authorization", "Bearer value-of-b"]);
    },
  );

  it("C28 keeps trying to renew while the store is away, no faster than once a second, and stays usable", async () => {
    const { inject, lines } = await start({ token_ttl: "300s" });
    await inject("a");
    store.fault = ({ path }) => (path === renewal ? { kind: "status", status: 503 } : undefined);
    await advanceTo(clock.nextInMs ?? 0, renewal, 1);
    for (const count of [2, 3, 4]) {
      expect(clock.nextInMs).toBeGreaterThanOrEqual(1_000);
      await advanceTo(clock.nextInMs ?? 0, renewal, count);
    }
    expect(await inject("b")).toEqual(["Authorization", "Bearer value-of-b"]);
    store.fault = () => undefined;
    await advanceTo(clock.nextInMs ?? 0, renewal, 5);
    expect(store.count(login)).toBe(1);
    expect(lines.filter((line) => line.includes("store token not renewed"))).toHaveLength(4);
  });

  it("C28 logs in anew at the next use once the token ran out while the store was away", async () => {
    const { inject } = await start({ token_ttl: "300s" });
    await inject("a");
    store.fault = () => ({ kind: "status", status: 503 });
    for (let i = 0; i < 30 && clock.now() < 400_000; i += 1) {
      if (clock.nextInMs === undefined) break;
      clock.advance(clock.nextInMs);
      await settled();
    }
    clock.advance(300_000);
    await settled();
    store.fault = () => undefined;
    expect(await inject("b")).toEqual(["Authorization", "Bearer value-of-b"]);
    expect(store.count(login)).toBe(2);
  });

  it.each(["batch", "service"])("C28 is never renewed when it is not renewable (%s)", async (type) => {
    const { inject } = await start({ token_ttl: "300s", token_type: type });
    if (type === "service") {
      store.fault = ({ path }) =>
        path === login && store.count(login) === 1
          ? {
              kind: "status",
              status: 200,
              body: { auth: { client_token: "s.fixed", lease_duration: 300, renewable: false } },
            }
          : path.includes("/data/")
            ? { kind: "status", status: 200, body: { data: { data: { token: "x" }, metadata: {} } } }
            : undefined;
    }
    await inject("a");
    await advanceTo(clock.nextInMs ?? 0, login, 2);
    expect(store.count(renewal)).toBe(0);
  });

  it("C28 that somebody gave us is looked at again before it ends, and its last second is not taken for eternity", async () => {
    const first = await store.createToken({ ttlMs: 300_500, rules: readMcp });
    const harness = opened.open({
      vault: byToken(store.address),
      servers: { a: bearerAt("mcp/a"), b: bearerAt("mcp/b") },
      env: { STORE_TOKEN: first },
      clock,
    });
    clock.advance(300_000);
    await harness.inject("a");
    expect(clock.nextInMs).toBeLessThan(1_000);
    expect(store.count(lookup)).toBe(1);
  });

  it("C28 is left alone when it never ends", async () => {
    const harness = opened.open({
      vault: byToken(store.address),
      servers: { a: bearerAt("mcp/a") },
      env: { STORE_TOKEN: store.rootToken },
      clock,
    });
    await harness.inject();
    expect(clock.nextInMs).toBeUndefined();
  });

  it("C28 lives through Vault's default lease of 768 hours without a hot loop", async () => {
    const { inject } = await start({});
    await inject("a");
    const startedAt = clock.now();
    await advanceToRenewal();
    const hours = (clock.now() - startedAt) / 3_600_000;
    expect(hours).toBeGreaterThan(400);
    expect(hours).toBeLessThanOrEqual(512);
    expect(store.count(renewal)).toBe(1);
  });

  it("C28 is renewed in time after the machine was suspended", async () => {
    const { inject } = await start({ token_ttl: "36000s" });
    await inject("a");
    clock.suspend(8 * 3_600_000);
    await advanceTo(3_600_000, renewal, 1);
  });

  it("C28 is not used any more when it ran out while the machine was suspended", async () => {
    const { inject } = await start({ token_ttl: "300s" });
    await inject("a");
    clock.suspend(301_000);
    await inject("b");
    expect(order()).toEqual([login, login]);
  });

  it("C28 is had by one login, however many calls want it at once", async () => {
    const { inject } = await start({ token_ttl: "300s" });
    await Promise.all(["a", "b", "c", "a", "b", "c", "a", "b", "c", "a"].map((server) => inject(server)));
    expect(store.count(login)).toBe(1);
    for (const server of ["a", "b", "c"]) expect(store.count(`secret/data/mcp/${server}`)).toBe(1);
  });

  it("C28 waits after a refused login, then works as soon as the store accepts it", async () => {
    const { failure, inject } = await start({ token_ttl: "300s" });
    store.fault = ({ path }) => (path === login ? { kind: "status", status: 400 } : undefined);
    expect((await failure("a")).code).toBe("login-denied");
    expect((await failure("b")).code).toBe("login-denied");
    expect(store.count(login)).toBe(1);
    store.fault = () => undefined;
    clock.advance(31_000);
    expect(await inject("a")).toEqual(["Authorization", "Bearer value-of-a"]);
  });

  it("C28 starts while the store cannot be reached for 5 s", async () => {
    const port = Number(new URL(store.address).port);
    const { failure, inject } = await start({ token_ttl: "300s" });
    await store.stop();
    expect(await failure("a")).toMatchObject({
      code: "store-unreachable",
      message: expect.stringContaining("ECONNREFUSED"),
    });
    await store.listen(port);
    clock.advance(5_000);
    expect(await inject("a")).toEqual(["Authorization", "Bearer value-of-a"]);
  });

  it("C28 says of a 403 whether token or policy is to blame: it asks once per half minute, and never loops", async () => {
    const { failure } = await start({ token_ttl: "3000s" });
    store.fault = ({ path }) => (path.startsWith("secret/") ? { kind: "status", status: 403 } : undefined);
    expect((await failure("a")).code).toBe("denied");
    expect((await failure("b")).code).toBe("denied");
    expect(order()).toEqual([login, lookup]);
    clock.advance(31_000);
    expect((await failure("c")).code).toBe("denied");
    expect(order()).toEqual([login, lookup, lookup]);
    expect(store.count("secret/data/mcp/a"), "read once and never retried").toBe(1);
  });

  it("C28 logs in once when everything answers 403, then gives up", async () => {
    const { inject, failure } = await start({ token_ttl: "3000s" });
    await inject("a");
    store.fault = ({ path }) => (path === login ? undefined : { kind: "status", status: 403 });
    expect((await failure("b")).code).toBe("denied");
    expect(order()).toEqual([login, lookup, login]);
  });

  it("C28 carries the namespace, and X-Vault-Request, on every kind of request, and no token on a login", async () => {
    const space = await store.namespace("platform");
    await space.putSecret("secret", "mcp/a", { token: "value-of-a" });
    const { roleId, secretId } = await space.enableApprole(readMcp);
    const harness = open({
      vault: byRole(store.address, roleId, { namespace: "platform" }),
      servers: { a: bearerAt("mcp/a"), b: bearerAt("mcp/b") },
      env: { SECRET_ID: secretId },
      clock,
    });
    await harness.inject("a");
    await harness.failure("b");
    store.fault = ({ path }) => (path === "secret/data/mcp/b" ? { kind: "status", status: 403 } : undefined);
    clock.advance(31_000);
    await harness.failure("b");
    await advanceToRenewal();
    await harness.credentials.close();
    const kinds = new Set(store.seen.map(({ path }) => path));
    for (const path of [login, lookup, renewal, "auth/token/revoke-self", "secret/data/mcp/a"])
      expect(kinds).toContain(path);
    const wrong = (seen: Seen): boolean =>
      seen.namespace !== "platform" ||
      seen.headers["x-vault-request"] !== "true" ||
      (seen.token === undefined) !== (seen.path === login);
    expect(store.seen.filter(wrong)).toEqual([]);
  });

  it("is revoked when we granted ourselves one and close, never when somebody gave it to us", async () => {
    const ours = await start({ token_ttl: "300s" });
    await ours.inject("a");
    await ours.credentials.close();
    expect(store.count("auth/token/revoke-self")).toBe(1);
    const theirs = open({
      vault: byToken(store.address),
      servers: { a: bearerAt("mcp/a") },
      env: { STORE_TOKEN: store.rootToken },
      clock,
    });
    await theirs.inject();
    await theirs.credentials.close();
    expect(store.count("auth/token/revoke-self")).toBe(1);
    expect(clock.armed).toBe(0);
    expect(await ours.failure("b")).toMatchObject({ code: "closed" });
  });

  it("closes within 2 s of a store that hangs, and leaves no timer", async () => {
    const { inject, credentials } = await start({ token_ttl: "300s" });
    await inject("a");
    store.fault = () => ({ kind: "hang" });
    const closed = credentials.close();
    await until(() => store.count("auth/token/revoke-self") === 1, "the revocation");
    clock.advance(2_000);
    await closed;
    await until(() => clock.armed === 0, "every timer to be gone");
  });

  it("C28 outlives a login that arrives after close: nothing is armed again", async () => {
    const { credentials, failure } = await start({ token_ttl: "300s" });
    store.fault = () => ({ kind: "hang" });
    const pending = failure("a");
    await until(() => store.count(login) === 1, "the login");
    let isClosed = false;
    void credentials.close().then(() => {
      isClosed = true;
    });
    await until(() => {
      if (!isClosed) clock.advance(500);
      return isClosed;
    }, "the end");
    expect((await pending).code).toBe("closed");
    await until(() => clock.armed === 0, "every timer to be gone");
  });
});
