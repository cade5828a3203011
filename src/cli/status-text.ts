import type { LastError, StoreState } from "../credentials/index.ts";
import { printable } from "./printable.ts";
import type { GatewayReport, RelayReport, ServerReport } from "./status-documents.ts";

/** `postern status` for people. */
export function renderGateway(report: GatewayReport): string[] {
  const { tunnel, audit, vault } = report;
  const echo = tunnel.lastEchoAgoMs === undefined ? "no echo yet" : `echo ${age(tunnel.lastEchoAgoMs)} ago`;
  const state =
    tunnel.state === "connected"
      ? `connected for ${age(tunnel.connectedForMs)}, ${echo}, ${count(tunnel.openStreams, "stream")}`
      : `${tunnel.state}${tunnel.lastProblem === undefined ? "" : ` after ${tunnel.lastProblem}`}`;
  const { connected, refused, failed, lost } = tunnel.counts;
  const lines = [
    `gateway ${report.id}: ${report.isReady ? "ready" : "NOT READY"}, ${report.software}, up ${age(report.upMs)}`,
    `  tunnel  ${tunnel.name} at ${tunnel.url}: ${state}`,
    `          dials: ${connected} connected, ${refused} refused, ${failed} failed; ${lost} lost`,
    `  audit   ${audit.isWritable ? "writable" : "NOT WRITABLE"}, ${count(audit.lostCount, "record")} lost`,
    `  now     ${count(report.openExchanges, "exchange")}, ${count(report.mcpSessions, "MCP session")}`,
    ...(vault === undefined ? [] : renderStore(vault)),
    "",
    ...table(
      ["SERVER", "CREDENTIAL", "STATE", "AGE", "EXPIRES", "OPEN", "CALLS", "SCRUBBED"],
      report.servers.map(rowOf),
    ),
    ...report.servers.flatMap(({ name, credential }) => renderError(`  ${name}: `, credential?.lastError)),
  ];
  return lines.map(printable);
}

export function renderRelay(report: RelayReport): string[] {
  const { isListening, isDraining, tunnels } = report;
  const state = isListening ? "listening" : isDraining ? "draining" : "NOT LISTENING";
  const requests = Object.entries(report.requests).map(([group, n]) => `${n} ${group}`);
  const refused = Object.entries(report.refusedUpgrades).filter(([, n]) => n > 0);
  const lines = [
    `relay ${report.publicUrl}: ${state}, ${report.software}, up ${age(report.upMs)}`,
    `  now     ${count(report.connections, "agent connection")}, ${count(report.exchanges, "exchange")}`,
    `  so far  requests: ${requests.join(", ") || "none"}; without a valid key or token: ${report.authFailures}`,
    `          dials of gateways refused: ${refused.map(([reason, n]) => `${n} ${reason}`).join(", ") || "none"}`,
    "",
    ...table(
      ["TUNNEL", "AGENTS", "ACTIVE", "WAITING", "GATEWAY", "ID", "STATE", "ECHO", "STREAMS", "SERVERS"],
      tunnels.flatMap(rowsOf),
    ),
  ];
  return lines.map(printable);
}

function renderStore(store: StoreState): string[] {
  const { address, method, condition, tokenExpiresInMs, logins, loginFailures, renewals, renewalFailures } = store;
  const end = tokenExpiresInMs === undefined ? "" : `, token expires in ${age(tokenExpiresInMs)}`;
  const place = store.namespace === undefined ? address : `${address} namespace ${store.namespace}`;
  return [
    `  vault   ${place} by ${method}: ${condition}${end} (epoch ${store.epoch})`,
    ...renderCircuit(store.circuit),
    `          logins ${pair(logins, loginFailures)}, renewals ${pair(renewals, renewalFailures)}, reads ${pair(store.reads, store.readFailures)}`,
    ...renderError("          ", store.lastError),
  ];
}

/** Nothing while everything is asked. */
function renderCircuit({ openForMs, openParts, refused, lastDown }: StoreState["circuit"]): string[] {
  const whole = openForMs === undefined ? "" : `DOWN for ${age(openForMs)}`;
  const parts = openParts.length === 0 ? "" : `${whole === "" ? "" : ", "}DOWN in part: ${openParts.join(", ")}`;
  if (whole === "" && parts === "") return [];
  const start = "          ";
  return [
    `${start}${whole}${parts}; probed now and then, ${count(refused, "request")} not sent`,
    ...renderError(start, lastDown),
  ];
}

function rowOf({ name, openCalls, calls, scrubbed, credential }: ServerReport): string[] {
  const counts = Object.entries(calls).map(([outcome, n]) => `${n} ${outcome}`);
  return [
    name,
    credential?.type ?? "none",
    credential?.callers === undefined ? (credential?.state ?? "-") : callersOf(credential.callers),
    age(credential?.ageMs),
    age(credential?.expiresInMs),
    String(openCalls),
    counts.join(", ") || "none",
    String(scrubbed),
  ];
}

/** `12 valid, 1 failed`: where each principal has a secret of his own. */
function callersOf(callers: Readonly<Record<string, number>>): string {
  const parts = Object.entries(callers).flatMap(([state, n]) => (n > 0 ? [`${n} ${state}`] : []));
  return parts.join(", ") || "none";
}

function rowsOf({ name, agents, waiting, sessions }: RelayReport["tunnels"][number]): string[][] {
  const own = [name, String(agents.keys + agents.issuers), String(agents.active), String(waiting)];
  if (sessions.length === 0) return [[...own, "NONE", "-", "-", "-", "-", "-"]];
  return sessions.map(({ gateway, id, isAccepting, echoAgeMs, streams, servers }, i) => [
    ...(i === 0 ? own : ["", "", "", ""]),
    gateway,
    id,
    isAccepting ? "connected" : "leaving",
    age(echoAgeMs),
    String(streams),
    servers.join(", ") || "-",
  ]);
}

function renderError(start: string, error: LastError | undefined): string[] {
  if (error === undefined) return [];
  return [`${start}last error ${age(error.ageMs)} ago, ${error.code}: ${error.reason}`, `${start}cure: ${error.cure}`];
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const widths = head.map((title, i) => Math.max(title.length, ...rows.map((row) => row[i]?.length ?? 0)));
  return [head, ...rows].map((row) =>
    row
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join("  ")
      .trimEnd(),
  );
}

function pair(ok: number, failed: number): string {
  return `${ok} ok ${failed} failed`;
}

function count(n: number, noun: string): string {
  return `${n} ${noun}${n === 1 ? "" : "s"}`;
}

/** The two largest units of a duration. */
function age(ms: number | undefined): string {
  if (ms === undefined) return "-";
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m${seconds % 60}s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours}h${minutes % 60}m` : `${Math.floor(hours / 24)}d${hours % 24}h`;
}
