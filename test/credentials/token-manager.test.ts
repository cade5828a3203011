/** What the token manager does with answers that come at an awkward time; its ordinary life is in token-life.test.ts. */
import { describe, expect, it } from "vitest";
import type { CredentialError } from "../../src/credentials/errors.ts";
import type { WatchedTransport } from "../../src/credentials/store-health.ts";
import { TokenManager } from "../../src/credentials/vault-auth.ts";
import { VaultFailure } from "../../src/credentials/vault-failure.ts";
import type { Grant } from "../../src/credentials/vault-login.ts";
import type { VaultAnswer } from "../../src/credentials/vault-transport.ts";
import { Secret } from "../../src/lib/index.ts";
import { silentLogger } from "../../src/telemetry/index.ts";
import { ManualClock } from "../support/manual-clock.ts";

interface Pending<T> {
  resolve(value: T): void;
  reject(error: unknown): void;
}

/** A manager whose logins and requests end when the test says. */
function setUp(ownsToken = false) {
  const clock = new ManualClock();
  const logins: Pending<Grant>[] = [];
  const requests: (Pending<VaultAnswer> & { path: string; token: Secret | undefined })[] = [];
  const ask = (path: string, token: Secret | undefined): Promise<VaultAnswer> =>
    new Promise((resolve, reject) => requests.push({ path, token, resolve, reject }));
  const transport: WatchedTransport = {
    address: "https://store",
    read: ask,
    write: (path, _, token) => ask(path, token),
    close: async () => undefined,
    blocked: undefined,
    part: () => transport,
    aside: () => transport,
    insistent: () => transport,
  };
  const login = {
    ownsToken,
    logIn: () => new Promise<Grant>((resolve, reject) => logins.push({ resolve, reject })),
  };
  const manager = new TokenManager({ login, transport, clock, random: () => 0.5, logger: silentLogger });
  return { manager, clock, logins, requests };
}

const grant = (name: string, renewable = true): Grant => ({ token: new Secret(name), leaseMs: 300_000, renewable });

async function settle(): Promise<void> {
  for (let i = 0; i < 10; i += 1) await Promise.resolve();
}

const codeOf = (promise: Promise<unknown>): Promise<string> =>
  promise.then(
    () => "none",
    (error: unknown) => (error as CredentialError).code,
  );

describe("TokenManager", () => {
  it("C28 gives back what a login brings that was under way at the end, and what was in use", async () => {
    const { manager, clock, logins, requests } = setUp(true);
    void manager.current().catch(() => undefined);
    logins[0]?.resolve(grant("in-use", false));
    await settle();
    clock.advance(250_000);
    expect(logins).toHaveLength(2);
    const closed = manager.close();
    logins[1]?.resolve(grant("late"));
    await settle();
    const asked = requests.map(({ path, token }) => [path, token?.reveal()]);
    expect(asked).toEqual([
      ["auth/token/revoke-self", "in-use"],
      ["auth/token/revoke-self", "late"],
    ]);
    for (const { resolve } of requests) resolve(undefined);
    await closed;
    expect(clock.armed).toBe(0);
  });

  it("C28 waits two seconds at the end for a login that does not come", async () => {
    const { manager, clock } = setUp(true);
    void manager.current().catch(() => undefined);
    const closed = manager.close();
    clock.advance(2_000);
    await closed;
    expect(clock.armed).toBe(0);
  });

  it("C28 discards a login that arrives after close", async () => {
    const { manager, clock, logins } = setUp();
    const code = codeOf(manager.current());
    await manager.close();
    logins[0]?.resolve(grant("late"));
    expect(await code).toBe("closed");
    expect(clock.armed).toBe(0);
    expect(await codeOf(manager.current())).toBe("closed");
  });

  it("C28 discards a renewal that arrives after its token was found dead", async () => {
    const { manager, clock, logins, requests } = setUp();
    const first = manager.current();
    logins[0]?.resolve(grant("first"));
    const token = await first;
    clock.advance(clock.nextInMs ?? 0);
    expect(requests[0]?.path).toBe("auth/token/renew-self");
    const verdict = manager.judgeDenial(token);
    requests[1]?.reject(new VaultFailure("status", "403", { status: 403 }));
    expect(await verdict).toBe("retry");
    const second = manager.current();
    requests[0]?.resolve({ auth: { client_token: "first", lease_duration: 300, renewable: true } });
    await settle();
    logins[1]?.resolve(grant("second"));
    expect((await second).reveal()).toBe("second");
    expect((await manager.current()).reveal()).toBe("second");
    expect(clock.armed).toBe(1);
  });

  it("C28 runs one login at a time, also when a background one is under way", async () => {
    const { manager, clock, logins, requests } = setUp();
    const first = manager.current();
    logins[0]?.resolve(grant("first", false));
    const token = await first;
    clock.advance(clock.nextInMs ?? 0);
    expect(logins).toHaveLength(2);
    const verdict = manager.judgeDenial(token);
    requests[0]?.reject(new VaultFailure("status", "403", { status: 403 }));
    await verdict;
    const second = manager.current();
    const third = manager.current();
    expect(logins).toHaveLength(2);
    logins[1]?.resolve(grant("second", false));
    expect([(await second).reveal(), (await third).reveal()]).toEqual(["second", "second"]);
  });

  it("checks a token once for all who were denied with it, and not at all once it was replaced", async () => {
    const { manager, logins, requests } = setUp();
    const first = manager.current();
    logins[0]?.resolve(grant("first"));
    const token = await first;
    const verdicts = [manager.judgeDenial(token), manager.judgeDenial(token)];
    expect(requests.map(({ path }) => path)).toEqual(["auth/token/lookup-self"]);
    requests[0]?.resolve({ data: {} });
    expect(await Promise.all(verdicts)).toEqual(["denied", "denied"]);
    expect(await manager.judgeDenial(new Secret("older"))).toBe("retry");
    expect(requests).toHaveLength(1);
  });

  it("does not take a check that failed for an answer", async () => {
    const { manager, logins, requests } = setUp();
    const first = manager.current();
    logins[0]?.resolve(grant("first"));
    const token = await first;
    const code = codeOf(manager.judgeDenial(token));
    requests[0]?.reject(new VaultFailure("status", "503", { status: 503 }));
    expect(await code).toBe("store-sealed");
    await settle();
    void manager.judgeDenial(token);
    expect(requests).toHaveLength(2);
  });
});
