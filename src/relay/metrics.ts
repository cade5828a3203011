import { type Family, type Sample, single } from "../telemetry/index.ts";
import type { RelayStatus, TunnelStatus } from "./relay.ts";
import { requestGroups } from "./tally.ts";

/** What a relay tells whoever scrapes it: by the names of relay.yaml, never by agent, gateway id or server. */
export function relayMetrics(status: RelayStatus): Family[] {
  const { tunnels, counts } = status;
  const byTunnel = (of: (tunnel: TunnelStatus) => number): Sample[] =>
    tunnels.map((tunnel) => ({ labels: { tunnel: tunnel.name }, value: of(tunnel) }));
  return [
    single("gauge", "postern_relay_ready", "1 while it listens and does not drain.", status.isListening ? 1 : 0),
    {
      kind: "gauge",
      name: "postern_relay_tunnel_sessions",
      help: "Connected gateways that take calls.",
      samples: byTunnel(({ sessions }) => sessions.filter(({ isAccepting }) => isAccepting).length),
    },
    {
      kind: "gauge",
      name: "postern_relay_streams",
      help: "Exchanges that are with a gateway now.",
      samples: byTunnel(({ sessions }) => sessions.reduce((sum, { streams }) => sum + streams, 0)),
    },
    {
      kind: "gauge",
      name: "postern_relay_waiting_requests",
      help: "Requests that wait for a gateway which is likely to be back in a moment.",
      samples: byTunnel(({ waiting }) => waiting),
    },
    single("gauge", "postern_relay_agent_connections", "Connections of agents.", status.connections),
    single("gauge", "postern_relay_exchanges", "Requests that are not over.", status.exchanges),
    {
      kind: "counter",
      name: "postern_relay_requests_total",
      help: "Requests of agents that ended, by the first digit of the status; none: the agent left without an answer.",
      samples: requestGroups.map((group, i) => ({ labels: { status: group }, value: counts.requests[i] ?? 0 })),
    },
    single(
      "counter",
      "postern_relay_auth_failures_total",
      "Requests without a key or token that holds for the tunnel.",
      counts.authFailures,
    ),
    single(
      "counter",
      "postern_relay_tunnels_connected_total",
      "Tunnel sessions that were opened.",
      counts.tunnelsConnected,
    ),
    {
      kind: "counter",
      name: "postern_relay_upgrades_refused_total",
      help: "Dials of gateways that did not become a tunnel session, by reason.",
      samples: Object.entries(counts.refusedUpgrades).map(([reason, value]) => ({ labels: { reason }, value })),
    },
  ];
}
