/** What must hold of any KV version 2 store: run against the scripted fake, and against OpenBao in test/system. */
import { inspect } from "node:util";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { encodeCaller } from "../../src/credentials/caller-path.ts";
import type { CredentialOptions } from "../../src/credentials/index.ts";
import { findLeaks } from "../support/canary.ts";
import { RotatingServer } from "../support/rotating-server.ts";
import type { StoreSpace, StoreUnderTest } from "../support/store-under-test.ts";
import { TokenEndpoint } from "../support/token-endpoint.ts";
import { agent, bearerAt, byRole, byToken, type Harness, open, refreshing } from "./harness.ts";

const readAll =
  'path "secret/data/mcp/*" { capabilities = ["read"] } path "team/a/kv/data/*" { capabilities = ["read"] }';
const canary = "canary-4f1d9a7be2c04c55";

export function storeSuite(title: string, start: () => Promise<StoreUnderTest>): void {
  describe(title, () => {
    let store: StoreUnderTest;

    beforeAll(async () => {
      store = await start();
    });
    afterAll(() => store.stop());

    async function openByRole(
      servers: Record<string, CredentialOptions>,
      role = {},
      space: StoreSpace = store,
      namespace?: string,
    ): Promise<Harness & { secretId: string }> {
      const { roleId, secretId } = await space.enableApprole(readAll, role);
      const vault = byRole(store.address, roleId, { namespace });
      const harness = open({ vault, servers, env: { SECRET_ID: secretId } });
      onTestFinished(() => harness.credentials.close());
      return { ...harness, secretId };
    }

    it("reads a field after an approle login and builds the bearer header", async () => {
      await store.putSecret("secret", "mcp/tickets", { token: canary, other: "x" });
      const { inject, env, credentials } = await openByRole({ tickets: bearerAt("mcp/tickets") });
      expect(await inject()).toEqual(["Authorization", `Bearer ${canary}`]);
      expect(credentials.forServer("tickets").inject(agent), "at once when warm").not.toBeInstanceOf(Promise);
      expect(env).toEqual({});
    });

    it("C26 reads a rotated entry anew for calls that were refused, within its freshness", async () => {
      await store.putSecret("secret", "mcp/rotated", { user: "svc", password: "before" });
      const at = (field: string) => ({ vault: { mount: "secret", path: "mcp/rotated", field } });
      const basic: CredentialOptions = { type: "basic", username: at("user"), password: at("password") };
      const { credentials, inject } = await openByRole({ basic });
      const credential = credentials.forServer("basic");
      const first = await credential.inject(agent);
      await store.putSecret("secret", "mcp/rotated", { user: "svc", password: canary });
      expect(await inject()).toEqual(first.headers);
      const next = await Promise.all(Array.from({ length: 10 }, () => credential.refresh(first, agent)));
      expect(new Set(next).size).toBe(1);
      const blob = Buffer.from(`svc:${canary}`).toString("base64");
      expect(next[0]?.headers).toEqual(["Authorization", `Basic ${blob}`]);
      expect(await inject()).toEqual(next[0]?.headers);
    });

    it("C24 reads each principal's own entry, and no id reaches another's", async () => {
      const ids = [
        "key:bob",
        "oauth:https://i#bob",
        "oauth:https://i#Bob",
        "oauth:https://i#b\u00f6b",
        "oauth:https://i#bo\u0308b",
      ];
      for (const [i, id] of ids.entries()) {
        await store.putSecret("secret", `mcp/own/${encodeCaller(id)}`, { token: `${canary}-${i}` });
      }
      const long = `oauth:https://i#${"x".repeat(2_000)}`;
      await store.putSecret("secret", `mcp/own/${encodeCaller(long)}`, { token: canary });
      await store.putSecret("secret", "mcp/own/bob", { token: "nobody's" });
      await store.putSecret("secret", "mcp/bob", { token: "nobody's" });
      const rules = 'path "secret/data/mcp/own/+" { capabilities = ["read"] }';
      const { roleId, secretId } = await store.enableApprole(rules);
      const value = { vault: { mount: "secret", path: "mcp/own/{principal.id}", field: "token" } };
      const harness = open({
        vault: byRole(store.address, roleId),
        servers: { own: { type: "header", name: "X-Key", value } },
        env: { SECRET_ID: secretId },
        areCallersVerified: true,
      });
      onTestFinished(() => harness.credentials.close());
      const keyOf = async (id: string) => (await harness.inject("own", { id }))[1];
      expect(await Promise.all([...ids, long].map(keyOf))).toEqual([...ids.map((_, i) => `${canary}-${i}`), canary]);
      for (const sub of [
        "../bob",
        "..%2Fbob",
        "%2F..%2Fbob",
        "bob/",
        "bob%00",
        "bob ",
        "BOB",
        "~62ob",
        "+",
        "*",
        ".",
      ]) {
        const error = await harness.failure("own", { id: `oauth:https://i#${sub}` });
        expect([sub, error.code]).toEqual([sub, "not-found"]);
      }
      await harness.credentials.checkAccess();
      expect(harness.lines.join("")).toContain("store grants every path");
    });

    it("C28 says which stanza lets every principal's entry be read", async () => {
      const value = { vault: { mount: "secret", path: "mcp/other/{principal.id}/x", field: "token" } };
      const { roleId, secretId } = await store.enableApprole(readAll);
      const harness = open({
        vault: byRole(store.address, roleId),
        servers: { own: { type: "header", name: "X-Key", value: { vault: { ...value.vault, mount: "withheld" } } } },
        env: { SECRET_ID: secretId },
        areCallersVerified: true,
      });
      onTestFinished(() => harness.credentials.close());
      await harness.credentials.checkAccess();
      expect(harness.lines.join("")).toContain(
        'grant path \\"withheld/data/mcp/other/+/x\\" { capabilities = [\\"read\\"] }',
      );
    });

    it("reads with a token of somebody else's and builds any header", async () => {
      await store.putSecret("secret", "mcp/keyed", { key: `${canary}\n` });
      const token = await store.createToken({ ttlMs: 600_000, rules: readAll });
      const value = { vault: { mount: "secret", path: "mcp/keyed", field: "key" } };
      const harness = open({
        vault: byToken(store.address),
        servers: { keyed: { type: "header", name: "X-Api-Key", value, prefix: "key=" } },
        env: { STORE_TOKEN: token },
      });
      onTestFinished(() => harness.credentials.close());
      expect(await harness.inject()).toEqual(["X-Api-Key", `key=${canary}`]);
      expect(harness.credentials.forServer("keyed").headerNames()).toEqual(["x-api-key"]);
    });

    it("C27 finds mounts whose names hold slashes, and paths with odd characters", async () => {
      await store.mountKv("team/a/kv", "2");
      await store.putSecret("team/a/kv", "x y/ü%2F+", { token: canary });
      const { inject } = await openByRole({ odd: bearerAt("x y/ü%2F+", "token", "team/a/kv") });
      expect(await inject()).toEqual(["Authorization", `Bearer ${canary}`]);
    });

    it.each([
      ["missing", {}, "field-missing"],
      ["null", { token: null }, "field-missing"],
      ["empty", { token: "" }, "field-empty"],
      ["a number", { token: 5 }, "field-not-string"],
      ["an object", { token: { a: "b" } }, "field-not-string"],
      ["a list", { token: ["b"] }, "field-not-string"],
      ["only a newline", { token: "\n" }, "value-empty"],
      ["the word undefined", { token: "undefined" }, "value-invalid"],
      ["split over lines", { token: "a\r\nX-Evil: 1" }, "value-invalid"],
    ])("C27 a field that is %s fails that server only", async (what, data, code) => {
      const path = `mcp/bad ${what}`;
      await store.putSecret("secret", path, { ...data, neighbour: canary });
      const { failure, inject } = await openByRole({ bad: bearerAt(path), good: bearerAt(path, "neighbour") });
      expect(await failure("bad")).toMatchObject({ code, cure: expect.stringMatching(/./) });
      expect(await inject("good")).toEqual(["Authorization", `Bearer ${canary}`]);
    });

    it("C27 does not take what every object has for a field", async () => {
      await store.putSecret("secret", "mcp/own", { token: canary });
      const { failure } = await openByRole({
        a: bearerAt("mcp/own", "constructor"),
        b: bearerAt("mcp/own", "__proto__"),
      });
      for (const server of ["a", "b"]) expect((await failure(server)).code).toBe("field-missing");
    });

    it("C27 names mount, version and path of what is not there", async () => {
      const { failure } = await openByRole({ gone: bearerAt("mcp/none") });
      const error = await failure();
      expect(error).toMatchObject({ code: "not-found", status: 404 });
      expect(error.message).toContain("secret/data/mcp/none (mount secret, KV version 2, path mcp/none)");
    });

    it("C27 says when a path repeats data/ or a mount includes it", async () => {
      await store.putSecret("secret", "mcp/here", { token: canary });
      const { roleId, secretId } = await store.enableApprole('path "secret/*" { capabilities = ["read"] }');
      const servers = {
        path: bearerAt("data/mcp/here"),
        mount: bearerAt("mcp/here", "token", "secret/data"),
        deep: bearerAt("here", "token", "secret/mcp"),
      };
      const harness = open({ vault: byRole(store.address, roleId), servers, env: { SECRET_ID: secretId } });
      onTestFinished(() => harness.credentials.close());
      expect((await harness.failure("path")).cure).toContain("without data/");
      expect(await harness.failure("mount")).toMatchObject({
        code: "not-found",
        cure: expect.stringContaining("mount: secret"),
      });
      expect(await harness.failure("deep")).toMatchObject({
        code: "not-found",
        cure: "write mount: secret and path: mcp/here",
      });
    });

    it("C27 tells a deleted and a destroyed version from one that never was", async () => {
      for (const path of ["mcp/deleted", "mcp/destroyed"]) await store.putSecret("secret", path, { token: canary });
      await store.deleteSecret("secret", "mcp/deleted");
      await store.destroySecret("secret", "mcp/destroyed");
      const { failure } = await openByRole({ deleted: bearerAt("mcp/deleted"), destroyed: bearerAt("mcp/destroyed") });
      expect(await failure("deleted")).toMatchObject({ code: "deleted", message: expect.stringMatching(/deleted$/) });
      expect(await failure("destroyed")).toMatchObject({
        code: "deleted",
        message: expect.stringMatching(/destroyed$/),
      });
    });

    it("C27 finds out the version of each mount, so that nobody has to name it", async () => {
      for (const mount of ["old", "team/old"]) await store.mountKv(mount, "1");
      await store.putSecret("old", "tickets", { token: `${canary}-1` });
      await store.putSecret("old", "data/tickets", { data: { token: "wrong" }, metadata: {} });
      await store.putSecret("team/old", "a/x y", { token: `${canary}-team` });
      await store.putSecret("secret", "mcp/new", { token: `${canary}-2` });
      const policy = 'path "old/tickets" { capabilities = ["read"] } path "team/old/*" { capabilities = ["read"] }';
      const { roleId, secretId } = await store.enableApprole(`${policy} ${readAll}`);
      const servers = {
        one: bearerAt("tickets", "token", "old"),
        team: bearerAt("a/x y", "token", "team/old"),
        two: bearerAt("mcp/new"),
      };
      const harness = open({ vault: byRole(store.address, roleId), servers, env: { SECRET_ID: secretId } });
      onTestFinished(() => harness.credentials.close());
      expect(await harness.inject("one")).toEqual(["Authorization", `Bearer ${canary}-1`]);
      expect(await harness.inject("team")).toEqual(["Authorization", `Bearer ${canary}-team`]);
      expect(await harness.inject("two")).toEqual(["Authorization", `Bearer ${canary}-2`]);
    });

    it("C27 names mount, version and path in a mount of version 1 too", async () => {
      await store.mountKv("dated", "1");
      await store.putSecret("dated", "private/x", { token: canary });
      await store.putSecret("dated", "mcp/odd", { token: "", number: 5 });
      const { roleId, secretId } = await store.enableApprole('path "dated/mcp/*" { capabilities = ["read"] }');
      const servers = {
        absent: bearerAt("mcp/none", "token", "dated"),
        doubled: bearerAt("data/mcp/odd", "token", "dated"),
        deep: bearerAt("none", "token", "dated/mcp"),
        empty: bearerAt("mcp/odd", "token", "dated"),
        number: bearerAt("mcp/odd", "number", "dated"),
      };
      const harness = open({ vault: byRole(store.address, roleId), servers, env: { SECRET_ID: secretId } });
      onTestFinished(() => harness.credentials.close());
      const absent = await harness.failure("absent");
      expect(absent).toMatchObject({ code: "not-found", status: 404 });
      expect(absent.message).toContain("dated/mcp/none (mount dated, KV version 1, path mcp/none)");
      expect(await harness.failure("doubled")).toMatchObject({
        code: "denied",
        cure: expect.stringContaining('path "dated/data/mcp/odd" { capabilities = ["read"] }'),
      });
      expect((await harness.failure("deep")).cure).toBe("write mount: dated and path: mcp/none");
      expect((await harness.failure("empty")).code).toBe("field-empty");
      expect((await harness.failure("number")).code).toBe("field-not-string");
    });

    it("C27 says which policy is missing, and keeps the token", async () => {
      await store.putSecret("secret", "private/x", { token: canary });
      await store.putSecret("secret", "mcp/fine", { token: canary });
      const { failure, inject } = await openByRole({ no: bearerAt("private/x"), yes: bearerAt("mcp/fine") });
      const error = await failure("no");
      expect(error).toMatchObject({ code: "denied", status: 403 });
      expect(error.cure).toContain('path "secret/data/private/x" { capabilities = ["read"] }');
      expect(await inject("yes")).toEqual(["Authorization", `Bearer ${canary}`]);
    });

    it("C27 says at start which paths a policy withholds, and reads the others", async () => {
      await store.mountKv("plain", "1");
      await store.putSecret("secret", "mcp/fine", { token: canary });
      const { credentials, lines, inject } = await openByRole({
        fine: bearerAt("mcp/fine"),
        other: bearerAt("mcp/fine", "other"),
        hidden: bearerAt("private/y"),
        old: bearerAt("mcp/z", "token", "plain"),
      });
      await credentials.checkAccess();
      const warnings = lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === "store policy lacks a path");
      expect(warnings.map(({ cure }) => cure)).toEqual([
        'grant path "secret/data/private/y" { capabilities = ["read"] }',
        // Nothing of this mount is granted, so the store does not tell its version either.
        'grant path "plain/data/mcp/z" { capabilities = ["read"] } (or plain/mcp/z, if that is KV version 1)',
      ]);
      expect(await inject("fine")).toEqual(["Authorization", `Bearer ${canary}`]);
    });

    it("C27 says at start that every path is granted, whatever the version of its mount", async () => {
      await store.mountKv("granted", "1");
      const rules = `${readAll} path "granted/mcp/*" { capabilities = ["read", "list"] }`;
      const { roleId, secretId } = await store.enableApprole(rules);
      const servers = { a: bearerAt("mcp/a"), b: bearerAt("mcp/b", "token", "granted") };
      const harness = open({ vault: byRole(store.address, roleId), servers, env: { SECRET_ID: secretId } });
      onTestFinished(() => harness.credentials.close());
      await harness.credentials.checkAccess();
      expect(harness.lines.filter((line) => line.includes("lacks a path"))).toEqual([]);
      expect(harness.lines.some((line) => line.includes("store grants every path"))).toBe(true);
    });

    it("says how a login was refused", async () => {
      const { roleId } = await store.enableApprole(readAll);
      const wrong = open({
        vault: byRole(store.address, roleId),
        servers: { a: bearerAt("mcp/x") },
        env: { SECRET_ID: canary },
      });
      const dead = open({
        vault: byToken(store.address),
        servers: { a: bearerAt("mcp/x") },
        env: { STORE_TOKEN: canary },
      });
      for (const harness of [wrong, dead]) {
        const error = await harness.failure();
        expect(error.code).toBe("login-denied");
        expect(findLeaks([{ name: "error", text: inspect(error) + harness.lines.join("") }], { canary })).toEqual([]);
        await harness.credentials.close();
      }
    });

    it("refuses a token that may be used a few times only", async () => {
      await store.putSecret("secret", "mcp/fine", { token: canary });
      const token = await store.createToken({ ttlMs: 600_000, rules: readAll, numUses: 5 });
      const harness = open({
        vault: byToken(store.address),
        servers: { a: bearerAt("mcp/fine") },
        env: { STORE_TOKEN: token },
      });
      onTestFinished(() => harness.credentials.close());
      expect((await harness.failure()).code).toBe("token-limited");
      const role = await openByRole({ a: bearerAt("mcp/fine") }, { token_num_uses: 5 });
      expect((await role.failure()).code).toBe("token-limited");
    });

    it("C28 logs in again, once, when its token died", async () => {
      for (const path of ["mcp/first", "mcp/second", "mcp/third"])
        await store.putSecret("secret", path, { token: canary });
      const { inject, lines } = await openByRole({
        first: bearerAt("mcp/first"),
        second: bearerAt("mcp/second"),
        third: bearerAt("mcp/third"),
      });
      await inject("first");
      await store.revokeLogins();
      await Promise.all([inject("second"), inject("third")]);
      expect(lines.filter((line) => line.includes("store token granted"))).toHaveLength(2);
    });

    it("C28 sends the namespace on login and read alike", async () => {
      const space = await store.namespace("platform");
      await space.putSecret("secret", "mcp/tickets", { token: `${canary}-inside` });
      await store.putSecret("secret", "mcp/tickets", { token: `${canary}-outside` });
      const { inject } = await openByRole({ a: bearerAt("mcp/tickets") }, {}, space, "platform");
      expect(await inject()).toEqual(["Authorization", `Bearer ${canary}-inside`]);
    });

    it("C28 takes a batch token, which cannot be renewed", async () => {
      await store.putSecret("secret", "mcp/fine", { token: canary });
      const { inject } = await openByRole({ a: bearerAt("mcp/fine") }, { token_type: "batch", token_ttl: "60s" });
      expect(await inject()).toEqual(["Authorization", `Bearer ${canary}`]);
    });

    it("C26 gateways that share a rotating refresh token spend each one once, and write each one back", async () => {
      const server = new RotatingServer();
      const endpoint = await TokenEndpoint.start();
      onTestFinished(() => endpoint.stop());
      endpoint.answer = server.answer;
      // Each use needs a new one.
      server.expiresIn = 1;
      await store.putSecret("secret", "rotated/a", { refresh_token: server.authorise(), note: { by: "hand", n: 1 } });
      const { roleId, secretId } = await store.enableApprole(
        'path "secret/data/rotated/*" { capabilities = ["read", "create", "update"] }',
      );
      const credential = refreshing(endpoint.url, "rotated/a", { claimMs: 2_000 });
      const gateways = [1, 2, 3].map(() => {
        const env = { SECRET_ID: secretId };
        const harness = open({
          vault: byRole(store.address, roleId),
          servers: { a: credential },
          env,
          random: Math.random,
        });
        onTestFinished(() => harness.credentials.close());
        return harness;
      });
      const tokens = await Promise.all(gateways.map(async ({ inject }) => await inject()));
      expect(new Set(tokens.map(([, value]) => value)).size).toBe(3);
      expect([server.rotations, server.revocations]).toEqual([3, 0]);
      expect(new Set(endpoint.asked.map(({ form }) => form.get("refresh_token"))).size).toBe(3);
      const reader = open({
        vault: byRole(store.address, roleId),
        servers: { rt: bearerAt("rotated/a", "refresh_token"), claim: bearerAt("rotated/a", "refresh_claim") },
        env: { SECRET_ID: secretId },
      });
      onTestFinished(() => reader.credentials.close());
      const [, last = ""] = await reader.inject("rt");
      expect(server.spend(last.replace("Bearer ", "")), "the one that stands there is good").toBeDefined();
      expect((await reader.failure("claim")).code).toBe("field-missing");
    });

    it("C27 a record that may not be written costs no refresh token, and the missing stanza is said", async () => {
      const server = new RotatingServer();
      const endpoint = await TokenEndpoint.start();
      onTestFinished(() => endpoint.stop());
      endpoint.answer = server.answer;
      const refreshToken = server.authorise();
      await store.putSecret("secret", "mcp/readonly", { refresh_token: refreshToken });
      await store.mountKv("unversioned", "1");
      await store.putSecret("unversioned", "mcp/rt", { refresh_token: refreshToken });
      const { roleId, secretId } = await store.enableApprole(
        `${readAll} path "unversioned/*" { capabilities = ["read", "create", "update"] }`,
      );
      const servers = {
        denied: refreshing(endpoint.url, "mcp/readonly"),
        old: refreshing(endpoint.url, "mcp/rt", { record: { vault: { mount: "unversioned", path: "mcp/rt" } } }),
      };
      const harness = open({ vault: byRole(store.address, roleId), servers, env: { SECRET_ID: secretId } });
      onTestFinished(() => harness.credentials.close());
      const stanza = 'path "secret/data/mcp/readonly" { capabilities = ["read", "create", "update"] }';
      await harness.credentials.checkAccess();
      expect(harness.lines.find((line) => line.includes("lacks a path"))).toContain(
        JSON.stringify(stanza).slice(1, -1),
      );
      expect(harness.lines.find((line) => line.includes("record cannot be written back"))).toContain("unversioned");
      expect(await harness.failure("denied")).toMatchObject({ code: "denied", cure: `grant ${stanza}` });
      expect(await harness.failure("old")).toMatchObject({
        code: "wrong-kv-version",
        cure: expect.stringContaining("vault kv enable-versioning unversioned"),
      });
      expect(endpoint.asked).toEqual([]);
    });

    // Last, since nothing opens the seal again.
    it("C28 says when the store is sealed, at start and in mid run", async () => {
      await store.putSecret("secret", "mcp/kept", { token: canary });
      await store.putSecret("secret", "mcp/late", { token: canary });
      const running = await openByRole({ kept: bearerAt("mcp/kept"), late: bearerAt("mcp/late") });
      const starting = await openByRole({ kept: bearerAt("mcp/kept") });
      await running.inject("kept");
      await store.seal();
      expect(await running.inject("kept")).toEqual(["Authorization", `Bearer ${canary}`]);
      for (const error of [await running.failure("late"), await starting.failure("kept")]) {
        expect(error).toMatchObject({ code: "store-sealed", status: 503, cure: expect.stringContaining("unseal") });
      }
    });
  });
}
