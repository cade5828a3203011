import { describe, expect, it } from "vitest";
import { Cached } from "../../src/credentials/cache.ts";
import { CredentialError } from "../../src/credentials/errors.ts";
import { credentialMetrics } from "../../src/credentials/index.ts";
import { joinStates, labelOf } from "../../src/credentials/states.ts";
import { renderMetrics } from "../../src/telemetry/index.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { VaultFake } from "../support/vault-fake.ts";
import { bearerAt, byRole, open } from "./harness.ts";

const away = () => new CredentialError("store-sealed", "sealed", "unseal");
const denied = () => new CredentialError("denied", "no", "grant it");

describe("the state of a cached value", () => {
  it("tells apart nothing, valid, stale, failed, and what a person has to grant anew", async () => {
    const clock = new ManualClock();
    let next: () => Promise<string> = () => Promise.resolve("v");
    const cached = new Cached<string>({
      load: () => next(),
      freshMs: 60_000,
      staleForMs: 60_000,
      clock,
      random: () => 0,
    });
    expect(cached.state()).toMatchObject({ condition: "none", loads: 0, failures: 0 });
    expect(cached.state().ageMs).toBeUndefined();
    await cached.get();
    clock.advance(5_000);
    expect(cached.state()).toMatchObject({ condition: "valid", ageMs: 5_000, loads: 1, failures: 0 });
    next = () => Promise.reject(away());
    clock.advance(60_000);
    await cached.reload();
    expect(cached.state()).toMatchObject({ condition: "stale", ageMs: 65_000, failures: 1 });
    expect(cached.state().lastError).toEqual({ code: "store-sealed", reason: "sealed", cure: "unseal", ageMs: 0 });
    next = () => Promise.reject(denied());
    clock.advance(30_000);
    await expect(cached.reload()).rejects.toThrow("no");
    expect(cached.state()).toMatchObject({ condition: "failed", failures: 2, lastError: { code: "denied" } });
    next = () => Promise.reject(new CredentialError("needs-reauth", "the grant is gone", "grant it anew"));
    clock.advance(60_000);
    await expect(cached.reload()).rejects.toThrow("gone");
    expect([cached.state().condition, labelOf(cached.state().condition)]).toEqual(["needs-reauth", "needs_reauth"]);
    next = () => Promise.resolve("v2");
    clock.advance(60_000);
    await cached.reload();
    expect(cached.state()).toMatchObject({ condition: "valid", ageMs: 0, loads: 2, lastError: { ageMs: 60_000 } });
  });

  it("has an end only where the value says it itself", async () => {
    const clock = new ManualClock();
    const spanOf = () => ({ freshMs: 30_000, staleForMs: 10_000 });
    const plain = { load: () => Promise.resolve("v"), freshMs: 1, staleForMs: 0, clock, random: () => 0 };
    const token = new Cached<string>({ ...plain, spanOf });
    const kv = new Cached<string>({ ...plain, freshMs: 30_000 });
    await Promise.all([token.get(), kv.get()]);
    clock.advance(15_000);
    expect([token.state().expiresInMs, kv.state().expiresInMs]).toEqual([25_000, undefined]);
    clock.advance(25_000);
    expect(token.state()).toMatchObject({ condition: "none", expiresInMs: undefined });
  });
});

describe("a credential of several parts", () => {
  it("is as bad as its worst part, as old as its oldest, and ends with its first", () => {
    const error = (ageMs: number) => ({ code: "denied" as const, reason: "no", cure: "x", ageMs });
    const joined = joinStates([
      { condition: "valid", ageMs: 10, expiresInMs: 500, loads: 1, failures: 0 },
      { condition: "failed", ageMs: 30, loads: 2, failures: 3, lastError: error(7) },
      { condition: "stale", expiresInMs: 200, loads: 1, failures: 1, lastError: error(2) },
    ]);
    expect(joined).toEqual({
      condition: "failed",
      ageMs: 30,
      expiresInMs: 200,
      loads: 4,
      failures: 4,
      lastError: error(2),
    });
  });
});

describe("states of all credentials", () => {
  it("show each server, and the store's logins, renewals and failures, without one secret", async () => {
    const vault = await VaultFake.start();
    const clock = new ManualClock();
    try {
      await vault.putSecret("secret", "mcp/good", { token: "a-secret-of-the-server" });
      await vault.putSecret("secret", "mcp/odd", { token: "two words" });
      const { roleId, secretId } = await vault.enableApprole('path "secret/data/mcp/*" { capabilities = ["read"] }', {
        token_ttl: "60s",
        token_max_ttl: "600s",
      });
      const servers = { good: bearerAt("mcp/good"), odd: bearerAt("mcp/odd"), free: undefined };
      const h = open({ vault: byRole(vault.address, roleId), servers, env: { SECRET_ID: secretId }, clock });
      expect(h.credentials.states().store).toMatchObject({ condition: "none", logins: 0 });
      await h.inject("good");
      await h.failure("odd");
      const states = h.credentials.states();
      const byServer = Object.fromEntries(states.servers.map((state) => [state.server, state]));
      expect(byServer["good"]).toMatchObject({ type: "bearer", condition: "valid", loads: 1, failures: 0 });
      // It was read; that it cannot be sent is known since the call.
      expect(byServer["odd"]).toMatchObject({ condition: "failed", lastError: { code: "value-invalid" } });
      expect(byServer["free"]).toMatchObject({ type: undefined, condition: "none" });
      expect(states.store).toMatchObject({
        method: "approle",
        condition: "valid",
        logins: 1,
        loginFailures: 0,
        reads: 2,
      });
      expect(states.store?.tokenExpiresInMs).toBeGreaterThan(0);
      const { text } = await renderMetrics(credentialMetrics(states));
      expect(text).toContain('postern_credentials_state{server="odd",state="failed"} 1');
      expect(text).toContain('postern_credentials_state{server="good",state="valid"} 1');
      expect(text).toContain('postern_credentials_state{server="good",state="needs_reauth"} 0');
      expect(text).toContain('postern_credentials_store_logins_total{result="ok"} 1');
      expect(text).not.toContain('server="free"');
      const printed = JSON.stringify(states) + text;
      for (const secret of ["a-secret-of-the-server", "two words", secretId]) expect(printed).not.toContain(secret);
      expect(text).not.toMatch(/mcp\/|SECRET_ID/);
      await h.credentials.close();
    } finally {
      await vault.stop();
    }
  });

  it("count two fields of one entry as one read", async () => {
    const vault = await VaultFake.start();
    try {
      await vault.putSecret("secret", "mcp/pair", { user: "somebody", password: "a-password-of-length" });
      const { roleId, secretId } = await vault.enableApprole('path "secret/data/mcp/*" { capabilities = ["read"] }');
      const at = (field: string) => ({ vault: { mount: "secret", path: "mcp/pair", field } });
      const pair = { type: "basic", username: at("user"), password: at("password") } as const;
      const h = open({ vault: byRole(vault.address, roleId), servers: { pair }, env: { SECRET_ID: secretId } });
      await h.inject();
      expect(h.credentials.states().servers[0]).toMatchObject({ condition: "valid", loads: 1 });
      await h.credentials.close();
    } finally {
      await vault.stop();
    }
  });

  it("count a login that failed, with its cure", async () => {
    const h = open({
      vault: byRole("http://127.0.0.1:1", "role"),
      servers: { tickets: bearerAt("mcp/x") },
      env: { SECRET_ID: "a-secret-id-of-length" },
    });
    await h.failure();
    const { store, servers } = h.credentials.states();
    expect(store).toMatchObject({
      condition: "failed",
      logins: 0,
      loginFailures: 1,
      lastError: { code: "store-unreachable" },
    });
    expect(store?.lastError?.cure).toContain("vault.address");
    expect(servers[0]).toMatchObject({ condition: "failed", failures: 1 });
    await h.credentials.close();
  });
});
