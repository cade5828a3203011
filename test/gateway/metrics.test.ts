import { afterEach, describe, expect, it } from "vitest";
import { gatewayMetrics } from "../../src/gateway/index.ts";
import { renderMetrics } from "../../src/telemetry/index.ts";
import { until } from "../support/until.ts";
import { canary, Harness, toolCall } from "./harness.ts";
import { echoResult, json } from "./scripted-upstream.ts";

let harness: Harness | undefined;
afterEach(async () => {
  await harness?.stop();
  harness = undefined;
});

async function scrape(h: Harness): Promise<string[]> {
  await until(() => h.gateway.status().openExchanges === 0, "every call is over");
  const { text } = await renderMetrics(gatewayMetrics(h.gateway.status()));
  return text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
}

/** The outcomes of `server` that have happened. */
async function outcomes(h: Harness, server = "tickets"): Promise<Record<string, number>> {
  const start = `postern_gateway_calls_total{server="${server}",outcome="`;
  const found = (await scrape(h)).filter((line) => line.startsWith(start) && !line.endsWith(" 0"));
  return Object.fromEntries(found.map((line) => line.slice(start.length).split('"} ')).map(([k, v]) => [k, Number(v)]));
}

describe("metrics of a gateway", () => {
  it("count each call once, by server and by what it came to", async () => {
    harness = await Harness.start((request, response) => {
      if (request.body.includes("get_broken")) response.destroy();
      else if (request.body.includes("get_500")) json(response, '{"jsonrpc":"2.0","id":1,"result":{}}', 500);
      else if (request.body.includes("get_slow")) response.flushHeaders();
      else echoResult(request, response);
    });
    const h = harness;
    for (const tool of ["get_x", "get_x", "drop_x", "get_broken", "get_500"]) await h.call({ body: toolCall(tool) });
    await h.call({ body: "no json" });
    await h.call({ body: toolCall("get_x"), server: "made-up-by-the-relay" });
    await h.call({ body: toolCall("get_x"), server: "ungranted" });
    const slow = h.begin({ body: toolCall("get_slow") });
    await until(() => h.gateway.status().openUpstreamCalls === 1, "the server has it");
    slow.cancel();
    expect(await outcomes(h)).toEqual({
      ok: 2,
      denied: 1,
      refused: 1,
      upstreamFailed: 1,
      upstreamStatus: 1,
      cancelled: 1,
    });
    expect(await outcomes(h, "_unknown")).toEqual({ refused: 2 });
    expect(await outcomes(h, "ungranted")).toEqual({});
    expect((await scrape(h)).join("\n")).not.toContain("made-up-by-the-relay");
  });

  it("tell apart a call for want of a credential", async () => {
    const failing = {
      inject: () => Promise.reject(new Error("none")),
      refresh: () => Promise.reject(new Error("none")),
    };
    harness = await Harness.start(echoResult, { credential: failing });
    await harness.call({ body: toolCall("get_x") });
    expect(await outcomes(harness)).toEqual({ noCredential: 1 });
  });

  it("hold durations of answered POSTs, scrubs and retries by server, and never what stands in a call", async () => {
    const reflect = `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"${canary} ${canary}"}]}}`;
    harness = await Harness.start((request, response) => {
      if (request.method === "GET") response.writeHead(200, { "content-type": "text/event-stream" }).end();
      else json(response, reflect);
    });
    await harness.call({ body: toolCall("get_secret_name") });
    await harness.call({ method: "GET" });
    await harness.call({ body: toolCall("drop_x") });
    const lines = await scrape(harness);
    expect(lines).toContain('postern_gateway_call_duration_seconds_count{server="tickets"} 1');
    expect(lines).toContain('postern_gateway_scrubs_total{server="tickets"} 2');
    expect(lines).toContain('postern_gateway_credential_retries_total{server="tickets"} 0');
    expect(lines).toContain("postern_gateway_audit_writable 1");
    expect(lines).toContain("postern_gateway_tunnels 0");
    expect(lines.join("\n")).not.toMatch(/get_secret_name|drop_x|key:claude|canary/);
  });
});
