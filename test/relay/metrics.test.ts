import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createToken } from "../../src/identity/index.ts";
import { Secret, systemClock } from "../../src/lib/index.ts";
import { relayMetrics } from "../../src/relay/index.ts";
import { renderMetrics, silentLogger } from "../../src/telemetry/index.ts";
import { dialTunnel } from "../../src/tunnel/index.ts";
import { until } from "../support/until.ts";
import { TokenRig } from "./token-rig.ts";

let rig: TokenRig;

beforeEach(async () => {
  rig = await new TokenRig().start();
});

afterEach(() => rig.close());

/** Samples that are not 0. */
async function scrape(): Promise<string[]> {
  await until(() => rig.relay.status().exchanges === 0, "every request is over");
  const { text } = await renderMetrics(relayMetrics(rig.relay.status()));
  return text.split("\n").filter((line) => line !== "" && !line.startsWith("#") && !line.endsWith(" 0"));
}

describe("metrics of a relay", () => {
  it("count answers by class, strangers, tunnels and refused dials, by names of the file only", async () => {
    const key = rig.key.token.reveal();
    expect((await rig.call(key)).status).toBe(503);
    await rig.connect({ id: "edge-secret-id" });
    expect((await rig.call(key)).status).toBe(200);
    expect((await rig.call(key, "made-up")).status).toBe(403);
    expect((await rig.call(createToken("agent").token.reveal())).status).toBe(401);
    expect((await rig.call()).status).toBe(401);
    expect((await rig.dial({ token: createToken("tunnel").token.reveal() })).kind).toBe("refused");
    const lines = await scrape();
    expect(lines).toEqual(
      expect.arrayContaining([
        "postern_relay_ready 1",
        'postern_relay_tunnel_sessions{tunnel="acme"} 1',
        'postern_relay_requests_total{status="2xx"} 1',
        'postern_relay_requests_total{status="4xx"} 3',
        'postern_relay_requests_total{status="5xx"} 1',
        "postern_relay_auth_failures_total 2",
        "postern_relay_tunnels_connected_total 1",
        'postern_relay_upgrades_refused_total{reason="auth"} 1',
      ]),
    );
    expect(lines.join("\n")).not.toMatch(/edge-secret-id|made-up|claude|k8s/);
    expect(rig.relay.status().tunnels.find(({ name }) => name === "acme")?.agents).toEqual({
      keys: 1,
      issuers: 1,
      active: 0,
    });
  });

  it("count an agent that leaves before its answer", async () => {
    let isThere = false;
    await rig.connect({
      onStream: () => {
        isThere = true;
        return { onData: () => undefined, onEnd: () => undefined, onReset: () => undefined };
      },
    });
    const abort = new AbortController();
    const bearer = rig.key.token.reveal();
    const left = rig.fetch("/acme/tickets/mcp", bearer, { method: "POST", body: "{}", signal: abort.signal });
    await until(() => isThere, "the gateway has it");
    expect(rig.relay.status().tunnels.find(({ name }) => name === "acme")?.agents.active).toBe(1);
    abort.abort();
    await expect(left).rejects.toThrow();
    expect(await scrape()).toContain('postern_relay_requests_total{status="none"} 1');
  });
});

describe("a session that serves nothing, as a doctor's", () => {
  it("leaves agents with 503, not with a server that is not there", async () => {
    const outcome = await dialTunnel({
      clock: systemClock,
      random: Math.random,
      logger: silentLogger,
      url: `ws://127.0.0.1:${rig.port}`,
      tunnel: "acme",
      token: new Secret(rig.tunnelToken.token.reveal()),
      gateway: { id: "edge-1-doctor", instance: "i", slot: 0, software: "test" },
      servers: [],
      onStream: () => ({ onData: () => undefined, onEnd: () => undefined, onReset: () => undefined }),
    });
    if (outcome.kind !== "session") throw new Error(outcome.kind);
    await until(() => rig.relay.status().tunnels.some(({ sessions }) => sessions.length === 1), "registered");
    // Who may use every server is told that there is no such one, once a gateway is there.
    rig.reload({ acme: rig.tunnel({ agents: [{ name: "root", keySha256: [rig.otherKey.sha256], servers: ["*"] }] }) });
    expect((await rig.call(rig.otherKey.token.reveal())).status).toBe(503);
    outcome.session.terminate("SHUTDOWN", "done");
  });
});
