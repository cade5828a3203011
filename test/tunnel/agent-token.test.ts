/** The feature `agentToken` (docs/protocol.md, "Features"): negotiated by both, carried in OPEN alone. */
import { inspect } from "node:util";
import { afterEach, describe, expect, it } from "vitest";
import { Secret } from "../../src/lib/index.ts";
import { welcomeGateway } from "../../src/tunnel/accept.ts";
import { type DialOutcome, greetRelay } from "../../src/tunnel/dial.ts";
import { encodeHello, encodeOpen, encodeWelcome } from "../../src/tunnel/encode.ts";
import { Session } from "../../src/tunnel/session.ts";
import type { Open } from "../../src/tunnel/types.ts";
import { createCarrierPair, type MemoryCarrier } from "../support/carrier-pair.ts";
import { until } from "../support/until.ts";
import { gatewayIdentity, greetOptions, node, open, openWith, Recorder, welcomeOptions } from "./ends.ts";

const canary = "canary-7c1e.agent~token";
const limits = { streamWindowBytes: 65_536, tunnelWindowBytes: 65_536, maxStreams: 8 };
const advert = { rev: 1, draining: false, servers: ["tickets"] };
const started: Session[] = [];

afterEach(() => {
  for (const session of started.splice(0)) session.terminate("SHUTDOWN", "the test is over");
});

/** Both ends; the gateway asks for tokens or does not. */
async function connect(needsAgentTokens: boolean) {
  const pair = createCarrierPair();
  const seen: Open[] = [];
  const outcomes: DialOutcome[] = [];
  const relay = new Promise<Session>((resolve) => {
    welcomeGateway(pair.relay, welcomeOptions(), (outcome) => {
      if (outcome.kind === "session" && outcome.session instanceof Session) resolve(outcome.session);
    });
  });
  const onStream = (request: Open): Recorder => {
    seen.push(request);
    return new Recorder();
  };
  greetRelay(pair.gateway, greetOptions(onStream, { needsAgentTokens }), (outcome) => outcomes.push(outcome));
  const session = await relay;
  await until(() => outcomes.length > 0, "the welcome");
  const [outcome] = outcomes;
  if (outcome?.kind !== "session") throw new Error("no session");
  started.push(session);
  return { pair, seen, session, gateway: outcome.session };
}

function sentText(carrier: MemoryCarrier): string {
  return Buffer.concat(carrier.sent).toString("latin1");
}

describe("agentToken", () => {
  it("C24 reaches a gateway that asked for it, as a secret", async () => {
    const { session, gateway, seen } = await connect(true);
    expect([session.carriesAgentTokens, gateway.carriesAgentTokens]).toEqual([true, true]);
    openWith(session, new Recorder(), { agentToken: new Secret(canary) });
    openWith(session, new Recorder());
    await until(() => seen.length === 2, "both opens");
    expect(seen.map(({ agentToken }) => agentToken?.reveal())).toEqual([canary, undefined]);
    expect(inspect(seen, { depth: null }) + JSON.stringify(seen)).not.toContain(canary);
  });

  it("C24 is not sent to a gateway that did not ask", async () => {
    const { session, gateway, seen, pair } = await connect(false);
    expect([session.carriesAgentTokens, gateway.carriesAgentTokens]).toEqual([false, false]);
    openWith(session, new Recorder(), { agentToken: new Secret(canary) });
    await until(() => seen.length === 1, "the open");
    expect(sentText(pair.relay)).toContain('"requestId":"r-1"');
    expect(sentText(pair.relay)).not.toContain("agentToken");
    expect(seen[0]?.agentToken).toBeUndefined();
  });

  it("is not looked at by a gateway that did not ask", async () => {
    const { session, seen, pair } = await connect(false);
    await until(() => session.isAccepting, "the session");
    pair.relay.send(encodeOpen(1, open({ agentToken: new Secret(canary) })));
    await until(() => seen.length === 1, "the open");
    expect(seen[0]?.agentToken).toBeUndefined();
  });

  it("costs the stream when it has not the form of a token, with a reason that quotes nothing", async () => {
    const { session, seen } = await connect(true);
    for (const text of ["", `${canary} x`, `${canary}\n`, "ü", "a".repeat(16_385)]) {
      const refused = session.openStream(open({ agentToken: new Secret(text) }), new Recorder());
      expect(refused).toEqual({ code: "REFUSED", message: "the request has an agent token of a wrong form" });
    }
    openWith(session, new Recorder(), { agentToken: new Secret("a".repeat(16_384)) });
    await until(() => seen.length === 1, "the longest token");
  });

  it("a relay grants it only when it was asked for", async () => {
    const pair = createCarrierPair();
    welcomeGateway(pair.relay, welcomeOptions(), (outcome) => {
      if (outcome.kind === "session" && outcome.session instanceof Session) started.push(outcome.session);
    });
    const features = ["x", "agentToken", "raw"];
    pair.gateway.send(
      encodeHello({ versions: [1], features, gateway: gatewayIdentity, limits, servers: advert.servers, advert }),
    );
    await until(() => pair.relay.sent.length > 0, "the welcome");
    expect(sentText(pair.relay)).toContain('"features":["agentToken"]');
  });

  it("a gateway that needs it does not serve a relay without it", async () => {
    const pair = createCarrierPair();
    const outcomes: DialOutcome[] = [];
    const options = greetOptions(() => new Recorder(), { needsAgentTokens: true });
    greetRelay(pair.gateway, options, (outcome) => outcomes.push(outcome));
    pair.relay.send(encodeWelcome({ version: 1, features: ["x"], node, connId: "c-1", limits, heartbeatMs: 15_000 }));
    await until(() => outcomes.length > 0, "the outcome");
    expect(outcomes).toEqual([
      { kind: "failed", code: "FEATURE", detail: "the relay does not pass the agents' tokens on" },
    ]);
    expect(sentText(pair.gateway)).toContain('"reason":"SHUTDOWN"');
    expect(pair.gateway.closeCode).toBe(1001);
  });
});
