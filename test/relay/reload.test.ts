import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createToken } from "../../src/identity/index.ts";
import { fixedLimits } from "../../src/relay/index.ts";
import type { RelayLimits } from "../../src/relay/options.ts";
import type { StreamHandler, TunnelStream } from "../../src/tunnel/index.ts";
import { until } from "../support/until.ts";
import { TokenRig } from "./token-rig.ts";

let rig: TokenRig;
let streams: TunnelStream[];
let resets: string[];

beforeEach(async () => {
  rig = await new TokenRig().start();
  streams = [];
  resets = [];
});

afterEach(() => rig.close());

/** Opens an event stream for each call, and leaves it open. `rpcId` is what a POST's gateway says. */
const events: StreamHandler = (open, stream) => {
  streams.push(stream);
  const rpcId = open.method === "POST" ? { rpcId: "7" } : {};
  setImmediate(() =>
    stream.sendHead({ status: 200, headers: ["content-type", "text/event-stream"], by: "upstream", ...rpcId }),
  );
  return {
    onData: (chunk) => stream.consumed(chunk.length),
    onEnd: () => undefined,
    onReset: ({ code }) => void resets.push(code),
  };
};

function send(text: string, stream = streams.at(-1)): void {
  stream?.write(Buffer.from(text));
}

/** Reads what comes until the stream ends. */
function reader(answer: Response): { text: () => string; done: Promise<string> } {
  let text = "";
  const read = async (): Promise<string> => {
    for await (const chunk of answer.body ?? []) text += Buffer.from(chunk as Uint8Array).toString();
    return text;
  };
  return {
    text: () => text.replaceAll(": keepalive\n\n", ""),
    done: read().then((all) => all.replaceAll(": keepalive\n\n", "")),
  };
}

async function listen(bearer: string): Promise<ReturnType<typeof reader>> {
  const answer = await rig.fetch("/acme/tickets/mcp", bearer);
  expect(answer.status).toBe(200);
  return reader(answer);
}

describe("an event stream whose token expires", () => {
  it("ends at once between two events, and the gateway hears of it", async () => {
    await rig.connect({ onStream: events });
    const stream = await listen(await rig.token());
    send("data: 1\n\n");
    await until(() => stream.text() === "data: 1\n\n", "an event came");
    rig.aheadMs = 300_000;
    await until(() => rig.relay.status().exchanges === 1, "the minute of leeway holds");
    expect((await rig.call(await rig.token())).status).toBe(200);
    rig.aheadMs = 361_000;
    expect(await stream.done).toBe("data: 1\n\n");
    await until(() => resets.includes("CANCEL"), "the gateway heard");
  });

  it("within an event, ends behind it, and what follows is dropped", async () => {
    await rig.connect({ onStream: events });
    const stream = await listen(await rig.token());
    send("data: ha");
    await until(() => stream.text() === "data: ha", "half an event came");
    rig.aheadMs = 361_000;
    await rig.looked();
    expect(rig.relay.status().exchanges).toBe(1);
    send("lf\r\n\r\ndata: next\n\n");
    expect(await stream.done).toBe("data: half\r\n\r\n");
  });

  it("of a call that waits for its result, says so: the client would wait for its timeout", async () => {
    await rig.connect({ onStream: events });
    const answer = await rig.call(await rig.token());
    const stream = reader(answer);
    send("data: progress\n\n");
    await until(() => stream.text() !== "", "progress");
    rig.aheadMs = 361_000;
    const text = await stream.done;
    expect(text).toMatch(/^data: progress\n\nevent: message\ndata: \{"jsonrpc":"2.0","id":7,"error":\{"code":-33002/);
    expect(text.endsWith("\n\n")).toBe(true);
  });

  it("an answer that is no event stream finishes", async () => {
    let finish: () => void = () => undefined;
    await rig.connect({
      onStream: (_open, stream) => {
        setImmediate(() => {
          stream.sendHead({ status: 200, headers: ["content-type", "application/json"], by: "upstream" });
          stream.write(Buffer.from('{"half":'));
        });
        finish = () => {
          stream.write(Buffer.from("true}"));
          stream.end();
        };
        return { onData: () => undefined, onEnd: () => undefined, onReset: () => undefined };
      },
    });
    const answer = await rig.call(await rig.token());
    rig.aheadMs = 400_000;
    await rig.looked();
    finish();
    expect(await answer.json()).toEqual({ half: true });
  });
});

describe("a reload", () => {
  it("takes keys away: their streams end, others and the tunnel go on", async () => {
    const session = await rig.connect({ onStream: events });
    const [mine, byToken] = [await listen(rig.key.token.reveal()), await listen(await rig.token())];
    rig.reload({ acme: rig.tunnel({ agents: [{ oauth: { issuer: rig.issuer.url }, servers: ["tickets"] }] }) });
    expect(await mine.done).toBe("");
    expect((await rig.call(rig.key.token.reveal())).status).toBe(401);
    send("data: still\n\n");
    await until(() => byToken.text() === "data: still\n\n", "the other stream lives");
    expect(session.isAccepting).toBe(true);
    rig.reload({ acme: rig.tunnel({ agents: [] }) });
    expect(await byToken.done).toBe("data: still\n\n");
    expect((await rig.fetch("/acme/tickets/mcp", await rig.token())).headers.get("www-authenticate")).toBe("Bearer");
  });

  it("rotates a key without a gap: a stream that came with the old one ends with it, not before", async () => {
    await rig.connect({ onStream: events });
    const fresh = createToken("agent");
    const agent = (keySha256: string[]) => ({ agents: [{ name: "claude", keySha256, servers: ["tickets"] }] });
    const old = await listen(rig.key.token.reveal());
    rig.reload({ acme: rig.tunnel(agent([rig.key.sha256, fresh.sha256])) });
    const young = await listen(fresh.token.reveal());
    send("data: 1\n\n", streams[0]);
    await until(() => old.text() === "data: 1\n\n", "the old stream lives");
    rig.reload({ acme: rig.tunnel(agent([fresh.sha256])) });
    expect(await old.done).toBe("data: 1\n\n");
    send("data: 2\n\n");
    await until(() => young.text() === "data: 2\n\n", "the young stream lives");
  });

  it("takes a server away from a key that stays", async () => {
    await rig.connect({ onStream: events });
    const agent = (servers: string[]) => ({ agents: [{ name: "claude", keySha256: [rig.key.sha256], servers }] });
    const stream = await listen(rig.key.token.reveal());
    rig.reload({ acme: rig.tunnel(agent(["wiki"])) });
    expect(await stream.done).toBe("");
    expect((await rig.call(rig.key.token.reveal())).status).toBe(403);
    rig.reload({ acme: rig.tunnel(agent(["*"])) });
    expect((await rig.call(rig.key.token.reveal())).status).toBe(200);
  });

  it("takes a gateway's token away: GOAWAY with REVOKED, and its calls end", async () => {
    const session = await rig.connect({ onStream: events });
    const stream = await listen(rig.key.token.reveal());
    const next = createToken("tunnel");
    const gateways = [{ name: "k8s", tokenSha256: [next.sha256] }];
    rig.reload({ acme: rig.tunnel({ gateways }) });
    expect(await session.ended).toMatchObject({ reason: "REVOKED", by: "peer" });
    expect(await stream.done).toBe("");
    expect(await rig.dial()).toMatchObject({ kind: "refused", status: 401 });
    await rig.connect({ token: next.token.reveal() });
    expect((await rig.call(rig.key.token.reveal())).status).toBe(200);
  });

  it("takes a whole tunnel away, and brings one", async () => {
    const session = await rig.connect({ onStream: events });
    const stream = await listen(rig.key.token.reveal());
    rig.reload({ other: rig.tunnel() });
    expect((await session.ended).reason).toBe("REVOKED");
    await stream.done;
    expect((await rig.call(rig.key.token.reveal())).status).toBe(401);
    const init = { method: "POST", body: "{}" };
    expect((await rig.fetch("/other/tickets/mcp", rig.key.token.reveal(), init)).status).toBe(503);
    expect(rig.relay.status().tunnels.map(({ name }) => name)).toEqual(["plain", "other"]);
  });

  it("takes a key, or a server, away while a body comes: the request is not sent on", async () => {
    await rig.connect({ onStream: events });
    const agent = (servers: string[], sha256 = rig.key.sha256) => ({
      agents: [{ name: "claude", keySha256: [sha256], servers }],
    });
    for (const [change, status, challenge] of [
      [agent(["tickets"], rig.otherKey.sha256), 401, "Bearer"],
      [agent(["wiki"]), 403, null],
    ] as const) {
      rig.reload({ acme: rig.tunnel(agent(["tickets"])) });
      const { writable, readable } = new TransformStream<Uint8Array, Uint8Array>();
      const writer = writable.getWriter();
      void writer.write(Buffer.from("{"));
      const answer = rig.fetch("/acme/tickets/mcp", rig.key.token.reveal(), {
        method: "POST",
        body: readable,
        duplex: "half",
      });
      await until(() => rig.relay.status().exchanges === 1, "the request is there");
      rig.reload({ acme: rig.tunnel(change) });
      await writer.write(Buffer.from("}"));
      await writer.close();
      const { headers, status: told } = await answer;
      expect([told, headers.get("www-authenticate"), streams.length]).toEqual([status, challenge, 0]);
    }
  });

  it("that cannot be changes nothing", async () => {
    const session = await rig.connect();
    const bad = { agents: [{ name: "x", keySha256: ["short"], servers: ["*"] }] };
    expect(() => rig.reload({ acme: rig.tunnel({ gateways: [] }), other: rig.tunnel(bad) })).toThrow(
      "64 lower-case hex",
    );
    expect(() => rig.reload({ Acme: rig.tunnel() })).toThrow("a name that cannot stand in a URL");
    expect(() => rig.relay.reload({ ...rig.options({}), publicUrl: "nonsense" })).toThrow();
    expect((await rig.call(rig.key.token.reveal())).status).toBe(200);
    expect([session.isAccepting, rig.relay.status().tunnels.length]).toEqual([true, 2]);
  });

  it("of the same file changes nothing, and asks no issuer again", async () => {
    const session = await rig.connect({ onStream: events });
    const stream = await listen(await rig.token());
    const asked = rig.issuer.asked.length;
    for (let i = 0; i < 5; i += 1) rig.reload({ acme: rig.tunnel() });
    expect((await rig.call(await rig.token())).status).toBe(200);
    send("data: 1\n\n", streams[0]);
    await until(() => stream.text() === "data: 1\n\n", "the stream lives");
    expect([session.isAccepting, rig.issuer.asked.length]).toEqual([true, asked]);
  });

  const limit = (limits: Partial<RelayLimits>) =>
    rig.relay.reload({ ...rig.options({ acme: rig.tunnel() }), limits: limits });

  it("changes how many streams an agent may have, for agents that are there", async () => {
    await rig.connect({ onStream: events });
    const key = rig.key.token.reveal();
    const first = await listen(key);
    limit({ streamsPerAgent: 1 });
    expect((await rig.fetch("/acme/tickets/mcp", key)).status).toBe(503);
    limit({ streamsPerAgent: 2 });
    const second = await listen(key);
    limit({});
    expect((await rig.fetch("/acme/tickets/mcp", key)).status).toBe(503);
    send("data: 1\n\n", streams[0]);
    send("data: 2\n\n", streams[1]);
    await until(() => first.text() + second.text() === "data: 1\n\ndata: 2\n\n", "both go on");
  });

  it("changes how many connections there may be", async () => {
    await rig.connect({ onStream: events });
    const key = rig.key.token.reveal();
    await Promise.all([listen(key), listen(key)]);
    limit({ connections: 2 });
    expect((await rig.fetch("/acme/tickets/mcp", key)).status).toBe(503);
    limit({ connections: 10 });
    await listen(key);
  });

  it("changes how often a gateway may dial, whatever it has used up, and with a token that is new as well", async () => {
    const dials = async (count: number, token?: string) => {
      const outcomes = [];
      for (let i = 0; i < count; i += 1) outcomes.push(await rig.dial(token === undefined ? {} : { token }));
      return outcomes.map((outcome) => (outcome.kind === "refused" ? outcome.status : outcome.kind));
    };
    limit({ upgradesPerMinute: 2 });
    expect(await dials(3)).toEqual(["session", "session", 429]);
    limit({ upgradesPerMinute: 60_000 });
    await until(async () => (await dials(1))[0] === "session", "there is room again");
    const fresh = createToken("tunnel");
    const gateways = [{ name: "fresh", tokenSha256: [fresh.sha256] }];
    rig.relay.reload({ ...rig.options({ acme: rig.tunnel({ gateways }) }), limits: { upgradesPerMinute: 1 } });
    expect(await dials(2, fresh.token.reveal())).toEqual(["session", 429]);
  });

  it("changes how many streams the sessions have that come from now on", async () => {
    limit({ streamsPerConnection: 1 });
    await rig.connect({ onStream: events });
    const key = rig.key.token.reveal();
    await listen(key);
    expect((await rig.fetch("/acme/tickets/mcp", key)).status).toBe(503);
  });

  it("leaves the size of headers as it was, and says which limits wait", async () => {
    await rig.connect();
    const call = () =>
      rig.fetch("/acme/tickets/mcp", rig.key.token.reveal(), { headers: { "x-filler": "x".repeat(4_096) } });
    limit({ headerBytes: 1_024 });
    expect((await call()).status).toBe(200);
    expect(fixedLimits).toEqual(["headerBytes"]);
  });

  it("changes hosts and origins", async () => {
    await rig.connect();
    const origin = "https://app.example.com";
    const ask = () => rig.fetch("/acme/tickets/mcp", rig.key.token.reveal(), { headers: { origin } });
    expect((await ask()).status).toBe(200);
    rig.relay.reload({ ...rig.options({ acme: rig.tunnel() }), allowedOrigins: [] });
    expect((await ask()).status).toBe(403);
  });
});

describe("a gateway with a JWT", () => {
  const jwt = (more = {}) => ({
    gateways: [{ name: "west", jwt: { issuer: rig.issuer.url, audience: "relay", subject: "gw", ...more } }],
  });
  const token = (claims = {}) => rig.issuer.token({ claims: { aud: "relay", sub: "gw", ...claims } });

  beforeEach(() => rig.reload({ acme: rig.tunnel(jwt()) }));

  it("comes in, under the name of its entry", async () => {
    await rig.connect({ token: await token() });
    const acme = rig.relay.status().tunnels.find(({ name }) => name === "acme");
    expect(acme?.sessions.map(({ gateway }) => gateway)).toEqual(["west"]);
    expect((await rig.call(rig.key.token.reveal())).status).toBe(200);
  });

  it("does not, with a token for another subject or audience, expired, or of an agent", async () => {
    const now = Math.floor(Date.now() / 1000);
    const bad = [
      { sub: "gw2" },
      { aud: "x" },
      { exp: now - 61 },
      { iss: "https://x" },
      { sub: "alice", aud: rig.resource("tickets") },
    ];
    for (const claims of bad) {
      expect(await rig.dial({ token: await token(claims) })).toMatchObject({ kind: "refused", status: 401 });
    }
    expect(await rig.dial()).toMatchObject({ kind: "refused", status: 401 });
    // And no gateway's token is an agent's.
    rig.reload({ acme: rig.tunnel({ ...jwt(), agents: [{ oauth: { issuer: rig.issuer.url }, servers: ["*"] }] }) });
    expect((await rig.call(await token())).status).toBe(401);
  });

  it("is told to come again when its issuer is away", async () => {
    rig.issuer.override = (_req, res) => res.writeHead(503).end();
    const other = "http://127.0.0.1:1/none";
    rig.reload({ acme: rig.tunnel(jwt({ issuer: other })) });
    const refused = await rig.dial({ token: await token({ iss: other }) });
    expect(refused).toMatchObject({ kind: "refused", status: 503, retryAfterMs: 5_000 });
  });

  it("is revoked by a reload", async () => {
    const session = await rig.connect({ token: await token() });
    rig.reload({ acme: rig.tunnel(jwt()) });
    expect(session.isAccepting).toBe(true);
    rig.reload({ acme: rig.tunnel(jwt({ subject: "other" })) });
    expect((await session.ended).reason).toBe("REVOKED");
  });

  it("is asked to move when its token expires, and running calls finish", async () => {
    const now = Math.floor(Date.now() / 1000);
    const session = await rig.connect({ token: await token({ exp: now + 2 }), onStream: events });
    const stream = await listen(rig.key.token.reveal());
    await until(() => !session.isAccepting, "it was told");
    send("data: late\n\n");
    await until(() => stream.text() === "data: late\n\n", "the stream lives");
    streams[0]?.end();
    expect(await stream.done).toBe("data: late\n\n");
    expect((await session.ended).reason).toBe("MAX_AGE");
  });

  it("that came after the end of its token, within the leeway, is told AUTH_EXPIRED", async () => {
    const now = Math.floor(Date.now() / 1000);
    const session = await rig.connect({ token: await token({ exp: now - 58 }) });
    expect((await session.ended).reason).toBe("AUTH_EXPIRED");
  });
});
