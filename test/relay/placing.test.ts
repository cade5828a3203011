import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { FakeSession } from "../support/fake-tunnel.ts";
import { until } from "../support/until.ts";
import { Rig } from "./rig.ts";

let rig: Rig;

beforeEach(async () => {
  rig = await new Rig().listen();
});

afterEach(async () => {
  await until(() => rig.leftovers === 0, "no exchange is left");
  await rig.close();
});

async function codeOf(answer: Response): Promise<[number, number, string | null]> {
  const body = (await answer.json()) as { error: { code: number } };
  return [answer.status, body.error.code, answer.headers.get("retry-after")];
}

function serving(session: FakeSession): FakeSession {
  session.onStream = (stream) => stream.answer(`"${session.peer.id}"`);
  return session;
}

describe("no tunnel", () => {
  it("C30 is 503 with Retry-After within 2 s, for POST, GET and DELETE", async () => {
    for (const method of ["POST", "GET", "DELETE"]) {
      const started = performance.now();
      expect(await codeOf(await rig.fetch({ method }))).toEqual([503, -33010, "1"]);
      // Nobody expects it: there is nothing to wait for.
      expect(performance.now() - started).toBeLessThan(1_000);
    }
  });

  it("C30 that was here a moment ago is waited for, for a moment", async () => {
    const old = rig.connect();
    old.terminate("LOST", "gone");
    await until(() => [...rig.tunnel.sessions].length === 0, "the session is gone");
    const started = performance.now();
    const pending = [rig.fetch(), rig.fetch({ method: "GET" })];
    await until(() => rig.tunnel.waiterCount === 2, "both wait");
    serving(rig.connect());
    for (const answer of await Promise.all(pending)) expect(answer.status).toBe(200);
    rig.connect(["other"]).terminate("LOST", "gone");
    expect(performance.now() - started).toBeLessThan(1_400);
  });

  it("C30 that does not come back is 503 within 2 s, and nothing waits on", async () => {
    rig.connect().terminate("LOST", "gone");
    const started = performance.now();
    expect(await codeOf(await rig.fetch())).toEqual([503, -33010, "1"]);
    const took = performance.now() - started;
    expect(took).toBeGreaterThan(1_300);
    expect(took).toBeLessThan(2_000);
  });

  it("lets an agent that waits leave", async () => {
    rig.connect().terminate("LOST", "gone");
    const client = rig.raw();
    client.send(rig.request("POST /acme/tickets/mcp HTTP/1.1", [], "{}"));
    await until(() => rig.tunnel.waiterCount === 1, "it waits");
    client.destroy();
    await until(() => rig.tunnel.waiterCount === 0, "it is forgotten");
  });

  it("C30 fails calls in flight at once, and only those of the tunnel session that went", async () => {
    const lost = rig.connect(["tickets"], { id: "a" });
    const inFlight = rig.fetch();
    await until(() => lost.streams.length === 1, "in flight");
    const stays = serving(rig.connect(["tickets"], { id: "b" }));
    const started = performance.now();
    lost.terminate("LOST", "gone");
    expect(await codeOf(await inFlight)).toEqual([503, -33010, "1"]);
    expect(performance.now() - started).toBeLessThan(500);
    expect(await (await rig.fetch()).text()).toBe('"b"');
    expect(stays.streams).toHaveLength(1);
  });
});

describe("a server that no gateway serves", () => {
  it("is away for an agent that names it, and unknown to one that may use all", async () => {
    rig.connect(["other"]);
    expect(await codeOf(await rig.fetch())).toEqual([503, -33010, "1"]);
    const authorization = `Bearer ${rig.wildcardKey.token.reveal()}`;
    expect(await codeOf(await rig.fetch({ headers: { authorization } }))).toEqual([403, -33002, null]);
    serving(rig.connect(["tickets"], { id: "b" }));
    expect((await rig.fetch({ headers: { authorization } })).status).toBe(200);
  });
});

describe("another gateway", () => {
  it("gets a stream that the first did not process", async () => {
    for (const code of [
      "REFUSED",
      "DRAINING",
      "OVERLOADED",
      "NO_SERVER",
      "NOT_OWNER",
      "UPSTREAM_UNREACHABLE",
    ] as const) {
      const first = rig.connect(["tickets"], { id: "a" });
      const second = serving(rig.connect(["tickets"], { id: "b" }));
      second.openStreamCount = 1;
      first.onStream = (stream) => stream.fail(code);
      const answer = await rig.fetch({ body: '"once"' });
      expect([code, answer.status, await answer.text()]).toEqual([code, 200, '"b"']);
      expect(first.last.body).toBe('"once"');
      expect(second.last.body).toBe('"once"');
      expect(second.last.isRequestEnded).toBe(true);
    }
  });

  it("gets a stream whose OPEN never left, and one that the first would not open", async () => {
    const first = rig.connect(["tickets"], { id: "a" });
    const second = serving(rig.connect(["tickets"], { id: "b" }));
    second.openStreamCount = 1;
    first.onStream = (stream) => stream.fail("TUNNEL_LOST", true);
    expect(await (await rig.fetch()).text()).toBe('"b"');
    first.refusal = { code: "OVERLOADED", message: "" };
    expect(await (await rig.fetch()).text()).toBe('"b"');
    expect(first.streams).toHaveLength(1);
  });

  it("never gets one that may have been processed", async () => {
    const expected = {
      TUNNEL_LOST: -33010,
      UPSTREAM_FAILED: -33021,
      UPSTREAM_TIMEOUT: -33022,
      STALLED: -33011,
    } as const;
    for (const [code, rpcCode] of Object.entries(expected)) {
      const first = rig.connect(["tickets"], { id: "a" });
      const second = serving(rig.connect(["tickets"], { id: "b" }));
      second.openStreamCount = 1;
      first.onStream = (stream) => stream.fail(code as keyof typeof expected);
      expect((await codeOf(await rig.fetch()))[1]).toBe(rpcCode);
      expect(second.streams).toHaveLength(0);
    }
  });

  it("is not asked when the answer would be the same", async () => {
    for (const [code, status] of [
      ["FORBIDDEN", 403],
      ["TOO_LARGE", 413],
      ["EXPIRED", 504],
      ["BODY_LIMIT", 502],
    ] as const) {
      const first = rig.connect(["tickets"], { id: "a" });
      const second = serving(rig.connect(["tickets"], { id: "b" }));
      second.openStreamCount = 1;
      first.onStream = (stream) => stream.fail(code);
      expect([code, (await rig.fetch()).status]).toEqual([code, status]);
      expect(second.streams).toHaveLength(0);
    }
  });

  it("cannot get a body that was too large to keep", async () => {
    const first = rig.connect(["tickets"], { id: "a" });
    const second = serving(rig.connect(["tickets"], { id: "b" }));
    second.openStreamCount = 1;
    first.onStream = (stream) => stream.fail("REFUSED");
    expect(await codeOf(await rig.fetch({ body: "x".repeat(200_000) }))).toEqual([503, -33011, "1"]);
    expect(second.streams).toHaveLength(0);
  });

  it("is asked three times at most", async () => {
    const sessions = ["a", "b", "c", "d"].map((id) => rig.connect(["tickets"], { id }));
    for (const session of sessions) session.onStream = (stream) => stream.fail("OVERLOADED");
    expect(await codeOf(await rig.fetch())).toEqual([503, -33011, "1"]);
    expect(sessions.flatMap(({ streams }) => streams)).toHaveLength(3);
  });

  it("is not waited for when one is here but cannot serve", async () => {
    rig.connect(["tickets"], { id: "gone" }).terminate("LOST", "gone");
    const session = rig.connect();
    for (const [code, status] of [
      ["UPSTREAM_UNREACHABLE", 502],
      ["OVERLOADED", 503],
    ] as const) {
      session.onStream = (stream) => stream.fail(code);
      const started = performance.now();
      expect((await rig.fetch()).status).toBe(status);
      expect(performance.now() - started).toBeLessThan(1_000);
    }
  });

  it("is waited for when the only one drains", async () => {
    const old = rig.connect();
    old.onStream = (stream) => {
      old.isAccepting = false;
      stream.fail("DRAINING");
    };
    const pending = rig.fetch();
    await until(() => rig.tunnel.waiterCount === 1, "it waits");
    serving(rig.connect(["tickets"], { slot: 1 }));
    expect((await pending).status).toBe(200);
  });

  it("shares the load", async () => {
    const sessions = ["a", "b"].map((id) => rig.connect(["tickets"], { id }));
    for (const session of sessions) {
      session.onStream = (stream) => {
        session.openStreamCount += 1;
        setImmediate(() => stream.answer("{}"));
      };
    }
    for (let i = 0; i < 6; i += 1) await (await rig.fetch()).text();
    expect(sessions.map(({ streams }) => streams.length)).toEqual([3, 3]);
  });
});

describe("a newcomer", () => {
  it("C31 replaces only the session of the same gateway, id and slot, at once", async () => {
    const old = rig.connect(["tickets"], { id: "a", slot: 0 });
    const others = [rig.connect(["tickets"], { id: "a", slot: 1 }), rig.connect(["tickets"], { id: "b", slot: 0 })];
    const foreign = new FakeSession(["tickets"], { id: "a", slot: 0 });
    rig.tunnel.add("another-credential", foreign);
    const fresh = rig.connect(["tickets"], { id: "a", slot: 0 });
    expect((await old.ended).reason).toBe("REPLACED");
    expect([...rig.tunnel.sessions].map(({ session }) => session)).toEqual([fresh, ...others, foreign]);
  });
});

describe("a successor", () => {
  const identity = { id: "a", slot: 0 };

  it("leaves the session that drains its streams, and takes the new ones", async () => {
    const old = rig.connect(["tickets"], identity);
    const running = rig.fetch();
    await until(() => old.streams.length === 1, "a call runs");
    old.goAway("MAX_AGE");
    const fresh = rig.connect(["tickets"], identity);
    fresh.onStream = (stream) => stream.answer('"fresh"');
    expect(await (await rig.fetch()).text()).toBe('"fresh"');
    old.last.answer('"old"');
    expect(await (await running).text()).toBe('"old"');
    old.terminate("MAX_AGE", "drained");
    await until(() => [...rig.tunnel.sessions].length === 1, "the old one is forgotten");
    expect([...rig.tunnel.sessions][0]?.session).toBe(fresh);
  });

  it("bounds how many of its predecessors drain", async () => {
    const first = rig.connect(["tickets"], identity);
    first.goAway("MAX_AGE");
    rig.connect(["tickets"], identity).goAway("MAX_AGE");
    rig.connect(["tickets"], identity);
    expect((await first.ended).reason).toBe("REPLACED");
    expect([...rig.tunnel.sessions]).toHaveLength(2);
  });
});

describe("caps", () => {
  it("an agent has so many streams, and its neighbour is not hurt", async () => {
    await rig.close();
    rig = await new Rig({ limits: { streamsPerAgent: 3 } }).listen();
    const session = rig.connect();
    const pending = Array.from({ length: 3 }, () => rig.fetch());
    await until(() => session.streams.length === 3, "three are open");
    expect(await codeOf(await rig.fetch())).toEqual([503, -33011, "1"]);
    const neighbour = rig.fetch({ headers: { authorization: `Bearer ${rig.wildcardKey.token.reveal()}` } });
    await until(() => session.streams.length === 4, "the neighbour's is open");
    for (const stream of session.streams) stream.answer("{}");
    for (const answer of await Promise.all([...pending, neighbour])) expect(answer.status).toBe(200);
    const next = rig.fetch();
    await until(() => session.streams.length === 5, "there is room again");
    session.last.answer("{}");
    expect((await next).status).toBe(200);
  });

  it("too many connections are told so, strangers after the 401", async () => {
    await rig.close();
    rig = await new Rig({ limits: { connections: 2 } }).listen();
    serving(rig.connect());
    const clients = Array.from({ length: 3 }, () => rig.raw());
    await until(() => rig.ingress.connections.size === 3, "all are here");
    const [, , client] = clients;
    client?.send(rig.request("POST /acme/tickets/mcp HTTP/1.1", [], "{}"));
    await client?.has("HTTP/1.1 503");
    client?.send(rig.request("POST /acme/tickets/mcp HTTP/1.1", ["Authorization: x"], "{}"));
    await client?.has("HTTP/1.1 401");
  });
});

describe("an MCP session", () => {
  /** Two gateways that say who they are. */
  const connectTwo = (): [FakeSession, FakeSession] => {
    const connect = (id: string) => serving(rig.connect(["tickets"], { id, instance: `of-${id}` }));
    return [connect("a"), connect("b")];
  };
  const call = (instance: string, method = "POST"): Promise<Response> =>
    rig.fetch({ method, headers: { "mcp-session-id": `${instance}.mac.upstream-1` } });
  const gone = (session: FakeSession): Promise<void> =>
    until(() => ![...rig.tunnel.sessions].some((entry) => entry.session === session), "the session is gone");

  it("stays with the gateway that made its id, however busy that is", async () => {
    const [a, b] = connectTwo();
    b.openStreamCount = 1_000;
    for (const method of ["POST", "GET", "DELETE"]) expect(await (await call("of-b", method)).text()).toBe('"b"');
    expect(await (await call("of-a")).text()).toBe('"a"');
    expect([a.streams.length, b.streams.length]).toEqual([1, 3]);
  });

  it("of no gateway that is known, or with an id of another form, goes anywhere", async () => {
    const [a] = connectTwo();
    a.openStreamCount = 1;
    for (const id of ["of-c.mac.x", "of-a", ".of-a", "x"]) {
      expect(await (await rig.fetch({ headers: { "mcp-session-id": id } })).text()).toBe('"b"');
    }
  });

  it("whose gateway takes no more streams is told so, and not that it has ended", async () => {
    const [a, b] = connectTwo();
    a.refusal = { code: "OVERLOADED", message: "full" };
    expect((await codeOf(await call("of-a")))[0]).toBe(503);
    expect(b.streams).toHaveLength(0);
  });

  it("C30 whose gateway was lost waits for it a moment", async () => {
    const [a, b] = connectTwo();
    a.terminate("LOST", "gone");
    await gone(a);
    const pending = call("of-a");
    await until(() => rig.tunnel.waiterCount === 1, "it waits");
    expect(await (await rig.fetch()).text()).toBe('"b"');
    const back = serving(rig.connect(["tickets"], { id: "a", instance: "of-a" }));
    expect(await (await pending).text()).toBe('"a"');
    expect([back.streams.length, b.streams.length]).toEqual([1, 1]);
  });

  it("C30 whose gateway does not come back goes to another, which says that it has ended", async () => {
    const [a] = connectTwo();
    a.terminate("LOST", "gone");
    await gone(a);
    const started = performance.now();
    expect(await (await call("of-a")).text()).toBe('"b"');
    expect(performance.now() - started).toBeGreaterThan(1_300);
    expect(rig.tunnel.waiterCount).toBe(0);
  });

  it.each([
    ["has stopped", "SHUTDOWN", undefined],
    ["has a successor", "LOST", "a"],
  ] as const)("whose gateway %s waits for nothing", async (_what, reason, successor) => {
    const [a] = connectTwo();
    a.terminate(reason, "gone");
    await gone(a);
    if (successor !== undefined) rig.connect(["other"], { id: successor, instance: "another" });
    const started = performance.now();
    expect(await (await call("of-a")).text()).toBe('"b"');
    expect(performance.now() - started).toBeLessThan(1_000);
  });

  it("whose gateway is about to stop waits for nothing", async () => {
    const [a] = connectTwo();
    a.goAway("SHUTDOWN");
    const started = performance.now();
    expect(await (await call("of-a")).text()).toBe('"b"');
    expect(performance.now() - started).toBeLessThan(1_000);
  });

  it("C30 waits while its gateway moves to another connection", async () => {
    const [a] = connectTwo();
    a.goAway("MAX_AGE");
    const pending = call("of-a");
    await until(() => rig.tunnel.waiterCount === 1, "it waits");
    const back = serving(rig.connect(["tickets"], { id: "a", instance: "of-a" }));
    expect(await (await pending).text()).toBe('"a"');
    expect(back.streams).toHaveLength(1);
  });
});
