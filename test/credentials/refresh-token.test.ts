/** A refresh token that rotates, as long as all goes well. */
import { describe, expect, it } from "vitest";
import { needlesOf } from "../../src/credentials/index.ts";
import { json } from "../support/token-endpoint.ts";
import { agent } from "./harness.ts";
import { RefreshBench } from "./refresh-setup.ts";

const hour = 3_600_000;

describe("oauthRefreshToken", () => {
  it("spends the refresh token and writes back what it got, beside all that stood there", async () => {
    const bench = await RefreshBench.start({ note: "by hand", nested: { list: [1, "a"] } });
    const { refresh_token: first } = await bench.record();
    const gateway = await bench.gateway({ scope: "mcp:read", resource: "https://t.internal/mcp" });
    const sent = await bench.inject(gateway);
    const { form, headers } = bench.endpoint.only;
    expect(Object.fromEntries(form)).toEqual({
      grant_type: "refresh_token",
      client_id: "postern",
      refresh_token: first,
      scope: "mcp:read",
      resource: "https://t.internal/mcp",
    });
    expect(headers.authorization).toBeUndefined();
    const record = await bench.record();
    expect(record).toEqual({
      refresh_token: expect.stringMatching(/^refresh-/),
      access_token: sent?.replace("Bearer ", ""),
      expires_at: new Date(bench.clock.wall() + hour).toISOString(),
      note: "by hand",
      nested: { list: [1, "a"] },
    });
    expect(record["refresh_token"]).not.toBe(first);
    expect(bench.writes.map(({ refresh_claim }) => refresh_claim)).toEqual([
      {
        owner: expect.any(String),
        nonce: expect.any(String),
        until: new Date(bench.clock.wall() + 30_000).toISOString(),
      },
      undefined,
    ]);
  });

  it.each(["basic", "post"] as const)("proves who it is by a secret, %s", async (auth) => {
    const bench = await RefreshBench.start();
    await bench.inject(await bench.gateway({ client: { auth, secret: { env: "SECRET" } } }));
    const { form, headers } = bench.endpoint.only;
    if (auth === "post") expect(form.get("client_secret")).toBe("s3cret-of-the-client");
    else expect(headers.authorization).toMatch(/^Basic /);
  });

  it.each([
    ["ISO 8601", (ms: number) => new Date(ms).toISOString(), (ms: number) => new Date(ms).toISOString()],
    ["ISO 8601 elsewhere", () => "2027-01-15T10:30:01+02:00", (ms: number) => new Date(ms).toISOString()],
    ["seconds", (ms: number) => Math.floor(ms / 1_000), (ms: number) => Math.floor(ms / 1_000)],
    ["seconds as text", (ms: number) => `${Math.floor(ms / 1_000)}`, (ms: number) => `${Math.floor(ms / 1_000)}`],
  ])("uses an access token that stands there until it expires: %s", async (_, write, again) => {
    const bench = await RefreshBench.start();
    const { refresh_token } = await bench.record();
    const endsAt = bench.clock.wall() + hour / 2;
    await bench.put({ refresh_token, access_token: "given", expires_at: write(endsAt) });
    const gateway = await bench.gateway();
    expect(await bench.inject(gateway)).toBe("Bearer given");
    bench.clock.advance(hour / 2 - 80_000);
    expect(await bench.inject(gateway)).toBe("Bearer given");
    expect(bench.endpoint.asked).toHaveLength(0);
    bench.clock.advance(80_000);
    expect(await bench.inject(gateway)).toMatch(/^Bearer access-/);
    expect((await bench.record())["expires_at"]).toEqual(again(bench.clock.wall() + hour));
  });

  it.each([
    ["none", undefined],
    ["in milliseconds", 1_800_000_000_000],
    ["a word", "tomorrow"],
    ["without a zone", "2030-01-01T00:00:00"],
  ])("believes no access token whose end it cannot read: %s", async (_, expires_at) => {
    const bench = await RefreshBench.start({ access_token: "given", expires_at });
    expect(await bench.inject(await bench.gateway())).toMatch(/^Bearer access-/);
  });

  it("keeps the refresh token that the answer does not replace", async () => {
    const bench = await RefreshBench.start();
    const before = (await bench.record())["refresh_token"];
    bench.endpoint.answer = (res) => bench.endpoint.grant(res);
    expect(await bench.inject(await bench.gateway())).toBe("Bearer token-1");
    expect(await bench.record()).toMatchObject({ refresh_token: before, access_token: "token-1" });
  });

  it("reads no ID token, which a configured endpoint could not check", async () => {
    const bench = await RefreshBench.start();
    bench.endpoint.answer = (res) => bench.endpoint.grant(res, { id_token: "a.b.c", refresh_token: "refresh-2" });
    expect(await bench.inject(await bench.gateway())).toBe("Bearer token-1");
    expect(await bench.record()).toMatchObject({ refresh_token: "refresh-2" });
  });

  it("saves the refresh token that came with an access token of no use", async () => {
    const bench = await RefreshBench.start({ note: "kept" });
    bench.endpoint.answer = (res) => bench.endpoint.grant(res, { token_type: "DPoP", refresh_token: "refresh-2" });
    const gateway = await bench.gateway();
    expect((await bench.failure(gateway)).code).toBe("endpoint-bad-answer");
    expect(await bench.record()).toEqual({ refresh_token: "refresh-2", note: "kept" });
  });

  it("C26 refreshes ahead, once, while the old token serves", async () => {
    const bench = await RefreshBench.start();
    const gateway = await bench.gateway();
    const first = await bench.inject(gateway);
    bench.clock.advance(hour - 50_000);
    const ten = await Promise.all(Array.from({ length: 10 }, () => gateway.inject()));
    expect(new Set(ten.map(([, value]) => value))).toEqual(new Set([first]));
    await bench.until(async () => (await gateway.inject())[1] !== first);
    expect(bench.server.rotations).toBe(2);
  });

  it("C26 ten refused calls cause one refresh, and the next refusals none for a while", async () => {
    const bench = await RefreshBench.start();
    const credential = (await bench.gateway()).credentials.forServer("a");
    const first = await bench.settle(Promise.resolve(credential.inject(agent)));
    const ten = await bench.settle(Promise.all(Array.from({ length: 10 }, () => credential.refresh(first, agent))));
    expect(new Set(ten).size).toBe(1);
    expect(ten[0]?.headers).not.toEqual(first.headers);
    expect(bench.server.rotations).toBe(2);
    const again = await bench.settle(Promise.resolve(credential.refresh(ten[0] ?? first, agent)));
    expect(again.headers).toEqual(ten[0]?.headers);
    expect(bench.server.rotations).toBe(2);
  });

  it("takes what another gateway bought when its own token is refused, and when it is due", async () => {
    const bench = await RefreshBench.start();
    const [one, two] = [await bench.gateway(), await bench.gateway()];
    const credential = one.credentials.forServer("a");
    const first = await bench.settle(Promise.resolve(credential.inject(agent)));
    const other = two.credentials.forServer("a");
    const same = await bench.settle(Promise.resolve(other.inject(agent)));
    expect(same.headers).toEqual(first.headers);
    const second = await bench.settle(Promise.resolve(other.refresh(same, agent)));
    expect((await bench.settle(Promise.resolve(credential.refresh(first, agent)))).headers).toEqual(second.headers);
    expect(bench.server.rotations).toBe(2);
    bench.clock.advance(hour);
    const third = await bench.inject(one);
    expect(await bench.inject(two)).toBe(third);
    expect(bench.server.rotations).toBe(3);
  });

  it("looks in answers for all that is behind the token, of now and of before", async () => {
    const bench = await RefreshBench.start();
    const gateway = await bench.gateway({ client: { auth: "basic", secret: { env: "SECRET" } } });
    const injection = await bench.settle(Promise.resolve(gateway.credentials.forServer("a").inject(agent)));
    const { refresh_token: now } = await bench.record();
    const texts = injection.secrets.map((secret) => secret.reveal());
    expect(texts).toEqual(expect.arrayContaining([now, bench.spent[0], "s3cret-of-the-client"]));
    const found = needlesOf(injection).needles.map(String);
    for (const text of texts) expect(found).toContain(Buffer.from(text).toString("hex"));
  });

  it("tries once more with a client secret that was changed, and spends nothing on the old one", async () => {
    const bench = await RefreshBench.start();
    await bench.store.putSecret("secret", "mcp/client", { secret: "old-secret" });
    const secret = { vault: { mount: "secret", path: "mcp/client", field: "secret" } };
    const gateway = await bench.gateway({ client: { auth: "post", secret } });
    const { answer } = bench.endpoint;
    bench.endpoint.answer = (res, asked) => {
      if (asked.form.get("client_secret") === "new-secret") answer(res, asked);
      else json(res, 401, { error: "invalid_client" });
      void bench.store.putSecret("secret", "mcp/client", { secret: "new-secret" });
    };
    expect(await bench.inject(gateway)).toMatch(/^Bearer access-/);
    expect(bench.endpoint.asked).toHaveLength(2);
    expect(bench.server.revocations).toBe(0);
  });
});
