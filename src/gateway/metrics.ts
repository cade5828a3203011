import { type Family, type Sample, single } from "../telemetry/index.ts";
import { callOutcomes } from "./call-tally.ts";
import type { GatewayStatus, ServerStatus } from "./gateway.ts";

/** What a gateway tells whoever scrapes it. */
export function gatewayMetrics(status: GatewayStatus): Family[] {
  const { servers, unknownServer } = status;
  const byServer = (of: (server: ServerStatus) => number): Sample[] =>
    servers.map((server) => ({ labels: { server: server.name }, value: of(server) }));
  // No server can have this name. The names that the relay asked for are not ours to repeat.
  const tallies = [...servers, { name: "_unknown", calls: unknownServer }];
  return [
    ...tunnelMetrics(status),
    {
      kind: "counter",
      name: "postern_gateway_calls_total",
      help: "Exchanges that ended, by server and by what they came to.",
      samples: tallies.flatMap(({ name: server, calls }) =>
        callOutcomes.map((outcome) => ({ labels: { server, outcome }, value: calls.outcomes[outcome] })),
      ),
    },
    {
      kind: "histogram",
      name: "postern_gateway_call_duration_seconds",
      help: "From the arrival of a POST to the last byte of the server's answer.",
      samples: servers.map(({ name: server, calls }) => ({ labels: { server }, histogram: calls.durations })),
    },
    {
      kind: "gauge",
      name: "postern_gateway_upstream_calls",
      help: "Calls that are with the server now, open event streams included.",
      samples: byServer(({ openCalls }) => openCalls),
    },
    {
      kind: "counter",
      name: "postern_gateway_credential_retries_total",
      help: "Calls made a second time after the server refused the credential.",
      samples: byServer(({ calls }) => calls.retries),
    },
    {
      kind: "counter",
      name: "postern_gateway_scrubs_total",
      help: "Places in answers where the server's credential was found.",
      samples: byServer(({ scrubbedCount }) => scrubbedCount),
    },
    single("gauge", "postern_gateway_exchanges", "Exchanges that are not over.", status.openExchanges),
    single("gauge", "postern_gateway_mcp_sessions", "MCP sessions that are remembered.", status.mcpSessions),
    single("gauge", "postern_gateway_request_bytes", "Request bodies held in memory.", status.bodyBytes),
    single("gauge", "postern_gateway_answer_bytes", "Parts of answers held until judged.", status.answerBytes),
    single(
      "gauge",
      "postern_gateway_audit_writable",
      "1 while records can be written.",
      status.audit.isWritable ? 1 : 0,
    ),
    single("counter", "postern_gateway_audit_lost_total", "Records that were not written.", status.audit.lostCount),
  ];
}

function tunnelMetrics({ tunnel, isReady }: GatewayStatus): Family[] {
  const { counts } = tunnel;
  return [
    single("gauge", "postern_gateway_ready", "1 while an echo came back and records can be written.", isReady ? 1 : 0),
    single(
      "gauge",
      "postern_gateway_tunnels",
      "Tunnel sessions that take calls.",
      tunnel.state === "connected" ? 1 : 0,
    ),
    {
      kind: "gauge",
      name: "postern_gateway_tunnel_echo_age_seconds",
      help: "Since the relay last answered an echo.",
      samples: tunnel.lastEchoAgoMs === undefined ? [] : [{ value: tunnel.lastEchoAgoMs / 1000 }],
    },
    {
      kind: "counter",
      name: "postern_gateway_dials_total",
      help: "Attempts to reach the relay that ended, by how.",
      samples: [
        { labels: { result: "connected" }, value: counts.connected },
        { labels: { result: "refused" }, value: counts.refused },
        { labels: { result: "failed" }, value: counts.failed },
      ],
    },
    single("counter", "postern_gateway_tunnels_lost_total", "Sessions that ended without a successor.", counts.lost),
  ];
}
