/** The agent's own access token as what a server's token is bought with (RFC 8693), against a scripted endpoint. */
import { SignJWT } from "jose";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Caller, CredentialOptions, ServerCredential } from "../../src/credentials/index.ts";
import { Secret } from "../../src/lib/index.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { json, TokenEndpoint } from "../support/token-endpoint.ts";
import { until } from "../support/until.ts";
import { failuresIn, type Harness, Opened, sentBy } from "./harness.ts";

const secret = "client-secret-5f3a";
const accessToken = "urn:ietf:params:oauth:token-type:access_token";
const hour = 3_600_000;

let clock: ManualClock;
let endpoint: TokenEndpoint;
const opened = new Opened();

beforeEach(async () => {
  clock = new ManualClock();
  endpoint = await TokenEndpoint.start();
  endpoint.answer = (res) => endpoint.grant(res, { issued_token_type: accessToken });
});
afterEach(async () => {
  await opened.close();
  await endpoint.stop();
});

function start(more: Record<string, unknown> = {}): Harness {
  const credential = {
    type: "tokenExchange",
    at: { tokenEndpoint: endpoint.url },
    clientId: "postern",
    client: { auth: "basic", secret: { env: "SECRET" } },
    ...more,
  } as CredentialOptions;
  return opened.open({ servers: { a: credential }, env: { SECRET: secret }, areCallersVerified: true, clock });
}

const startOne = (more?: Record<string, unknown>): ServerCredential => start(more).credentials.forServer("a");

function callerWith(token: string, lifeMs = 24 * hour, id = "oauth:https://i#bob"): Caller {
  return { id, token: new Secret(token), expiresAt: clock.wall() + lifeMs };
}

describe("token exchange", () => {
  it("C24 sends the agent's token to the endpoint as the subject, and to the server what it was given", async () => {
    const credential = startOne({ audience: "tickets", resource: "https://tickets.internal/mcp", scope: "mcp:read" });
    const caller = callerWith("subject-of-bob");
    const injection = await credential.inject(caller);
    expect(injection.headers).toEqual(["Authorization", "Bearer token-1"]);
    // Neither must come back from the server.
    expect(injection.secrets.map((one) => one.reveal())).toEqual(["token-1", secret]);
    const { form, headers } = endpoint.only;
    expect(Object.fromEntries(form)).toEqual({
      grant_type: "urn:ietf:params:oauth:grant-type:token-exchange",
      subject_token: "subject-of-bob",
      subject_token_type: accessToken,
      requested_token_type: accessToken,
      audience: "tickets",
      resource: "https://tickets.internal/mcp",
      scope: "mcp:read",
    });
    const basic = Buffer.from(String(headers.authorization).slice(6), "base64").toString();
    expect(basic.split(":").map(decodeURIComponent)).toEqual(["postern", secret]);
    expect(credential.inject(callerWith("subject-of-bob"))).toBe(injection);
    expect(credential.headerNames()).toEqual(["authorization"]);
  });

  it("gives the client's secret in the form where that is wanted", async () => {
    await start({ client: { auth: "post", secret: { env: "SECRET" } } }).inject("a", callerWith("subject"));
    const { form, headers } = endpoint.only;
    expect([form.get("client_id"), form.get("client_secret"), headers.authorization]).toEqual([
      "postern",
      secret,
      undefined,
    ]);
  });

  it("C24 gives each principal a token of his own, and ten calls of one cause one exchange", async () => {
    const credential = startOne();
    endpoint.answer = (res, { form }) =>
      endpoint.grant(res, { access_token: `for-${form.get("subject_token")}`, issued_token_type: accessToken });
    const ids = ["alice", "bob"];
    const all = Array.from({ length: 20 }, async (_, i) => {
      const name = ids[i % 2];
      return sentBy(await credential.inject(callerWith(`subject-${name}`, hour, `oauth:https://i#${name}`)));
    });
    expect(await Promise.all(all)).toEqual(all.map((_, i) => `Bearer for-subject-${ids[i % 2]}`));
    expect(endpoint.asked).toHaveLength(2);
  });

  it("buys another for another token of the same principal, and for the same text of another one", async () => {
    const credential = startOne();
    const sent = [];
    for (const caller of [
      callerWith("one"),
      callerWith("two"),
      callerWith("one"),
      callerWith("one", hour, "oauth:x#y"),
    ]) {
      sent.push(sentBy(await credential.inject(caller)));
    }
    expect(sent).toEqual(["Bearer token-1", "Bearer token-2", "Bearer token-1", "Bearer token-3"]);
  });

  it("C26 buys anew when the server refused a token, once for all who met it", async () => {
    const credential = startOne();
    const caller = callerWith("subject");
    const first = await credential.inject(caller);
    const next = await Promise.all(Array.from({ length: 10 }, () => credential.refresh(first, caller)));
    expect(next.map(sentBy)).toEqual(Array(10).fill("Bearer token-2"));
    expect(endpoint.asked.map(({ form }) => form.get("subject_token"))).toEqual(["subject", "subject"]);
    expect(endpoint.asked).toHaveLength(2);
  });

  it("buys ahead of a token's end", async () => {
    const credential = startOne();
    const caller = callerWith("subject");
    await credential.inject(caller);
    clock.advance(3_600_000 - 50_000);
    expect(sentBy(await credential.inject(caller))).toBe("Bearer token-1");
    await until(async () => sentBy(await credential.inject(caller)) === "Bearer token-2", "the younger token serves");
    expect(endpoint.asked.map(({ form }) => form.get("subject_token"))).toEqual(["subject", "subject"]);
  });
});

describe("a bought token lives no longer than", () => {
  const jwtUntil = (seconds: number): Promise<string> =>
    new SignJWT({ exp: Math.floor(clock.wall() / 1_000) + seconds })
      .setProtectedHeader({ alg: "HS256" })
      .sign(new TextEncoder().encode("k".repeat(32)));

  it("C24 what it was bought with, and is not bought again just before", async () => {
    const credential = startOne();
    const caller = callerWith("subject", 300_000);
    await credential.inject(caller);
    clock.advance(299_000);
    expect(sentBy(await credential.inject(caller))).toBe("Bearer token-1");
    expect(endpoint.asked).toHaveLength(1);
    clock.advance(1_000);
    await expect(async () => credential.inject(caller)).rejects.toMatchObject({ code: "caller-unfit" });
    expect(endpoint.asked).toHaveLength(1);
  });

  it("its endpoint says", async () => {
    endpoint.answer = (res) => endpoint.grant(res, { issued_token_type: accessToken, expires_in: 60 });
    const credential = startOne();
    const caller = callerWith("subject");
    await credential.inject(caller);
    clock.advance(61_000);
    expect(sentBy(await credential.inject(caller))).toBe("Bearer token-2");
  });

  it("its endpoint says, where it says no time itself", async () => {
    const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
    const token = (id: number): string => `${part({ alg: "HS256" })}.${part({ exp: "soon", id })}.c2lnbmF0dXJl`;
    endpoint.answer = (res) => {
      const more = { access_token: token(endpoint.asked.length), expires_in: 60 };
      endpoint.grant(res, { issued_token_type: accessToken, ...more });
    };
    const credential = startOne();
    const caller = callerWith("subject");
    await credential.inject(caller);
    clock.advance(61_000);
    expect(sentBy(await credential.inject(caller))).toBe(`Bearer ${token(2)}`);
  });

  it("it says itself", async () => {
    const tokens = [await jwtUntil(120), await jwtUntil(7_000)];
    endpoint.answer = (res) =>
      endpoint.grant(res, { issued_token_type: accessToken, access_token: tokens[endpoint.asked.length - 1] });
    const credential = startOne();
    const caller = callerWith("subject");
    expect(sentBy(await credential.inject(caller))).toBe(`Bearer ${tokens[0]}`);
    clock.advance(121_000);
    expect(sentBy(await credential.inject(caller))).toBe(`Bearer ${tokens[1]}`);
  });
});

describe("there is no token", () => {
  it("C24 for an agent that came with a key, nor where the relay is believed; nothing is asked", async () => {
    const harness = start();
    for (const caller of [{ id: "key:claude" }, { id: "oauth:https://i#bob" }]) {
      expect((await harness.failure("a", caller)).code).toBe("caller-unfit");
      await harness.failure("a", caller);
    }
    expect(endpoint.asked).toHaveLength(0);
    expect(failuresIn(harness).map(({ principal, code }) => [principal, code])).toEqual([
      ["key:claude", "caller-unfit"],
      ["oauth:https://i#bob", "caller-unfit"],
    ]);
    expect(failuresIn(harness)[0]?.["reason"]).toContain("came with a key");
  });

  it.each([
    ["refuses the subject", { status: 400, body: { error: "invalid_grant" } }, "grant-denied"],
    ["refuses the client", { status: 401, body: { error: "invalid_client" } }, "grant-denied"],
    ["does not know the audience", { status: 400, body: { error: "invalid_target" } }, "grant-denied"],
    ["has trouble", { status: 503, body: {} }, "endpoint-failing"],
    [
      "gives another kind of token",
      grant({ issued_token_type: "urn:ietf:params:oauth:token-type:id_token" }),
      "endpoint-bad-answer",
    ],
    ["does not say what it gives", grant({}), "endpoint-bad-answer"],
    ["gives no bearer", grant({ issued_token_type: accessToken, token_type: "N_A" }), "endpoint-bad-answer"],
    [
      "hands the subject back",
      grant({ issued_token_type: accessToken, access_token: "subject-canary" }),
      "endpoint-bad-answer",
    ],
  ])("C24 when the endpoint %s, and the agent's is not sent instead", async (_, { status, body }, code) => {
    endpoint.answer = (res) => json(res, status, body);
    const harness = start();
    const caller = callerWith("subject-canary");
    const error = await harness.failure("a", caller);
    expect(error.code).toBe(code);
    const asked = endpoint.asked.length;
    expect((await harness.failure("a", caller)).code).toBe(code);
    expect(endpoint.asked).toHaveLength(asked);
    expect(JSON.stringify([error, error.message, error.cure, harness.lines])).not.toMatch(
      /subject-canary|client-secret/,
    );
  });

  it("for one principal, and another still gets his", async () => {
    endpoint.answer = (res, { form }) =>
      form.get("subject_token") === "bad"
        ? json(res, 400, { error: "invalid_grant" })
        : endpoint.grant(res, { issued_token_type: accessToken });
    const harness = start();
    expect((await harness.failure("a", callerWith("bad", hour, "oauth:https://i#eve"))).code).toBe("grant-denied");
    expect(await harness.inject("a", callerWith("good"))).toEqual(["Authorization", "Bearer token-1"]);
  });
});

function grant(more: Record<string, unknown>): { status: number; body: Record<string, unknown> } {
  return { status: 200, body: { access_token: "other", token_type: "Bearer", expires_in: 60, ...more } };
}
