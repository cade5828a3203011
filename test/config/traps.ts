import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";

/** A document with faults, and everything that must be said of it, in the order of the file. */
export interface Trap {
  readonly title: string;
  /** HASH_A, HASH_B, HASH_D and HASH_CAPITAL stand for hashes. */
  readonly yaml: string;
  readonly says: readonly (readonly [placeAndMessage: string, cure: string])[];
}

const gatewayLines = [
  "relay: { url: wss://r.example.com, tunnel: acme, token: { file: t } }",
  "servers: { tickets: { url: http://t.internal/mcp } }",
  "policy: { version: 1, servers: { tickets: { tools: [a] } } }",
];
const relayLines = [
  "publicUrl: https://r.example.com",
  "tunnels:",
  "  acme:",
  "    gateways: [{ name: edge, tokenSha256: [HASH_A] }]",
  "    agents: [{ name: bot, keySha256: [HASH_B], servers: [tickets] }]",
];

/** A sound gateway.yaml of three lines (relay, servers, policy) with line `number` replaced or added. */
export function gatewayWith(number: number, text: string): string {
  return gatewayLines.toSpliced(number - 1, 1, text).join("\n");
}

/** A sound relay.yaml of five lines (publicUrl, tunnels, acme, gateways, agents) with line `number` replaced or added. */
export function relayWith(number: number, text: string): string {
  return relayLines.toSpliced(number - 1, 1, text).join("\n");
}

/** A policy.yaml whose server `tickets` has `lines`, from line 4 on, indented by four. */
export function ticketsPolicy(lines: string): string {
  return `version: 1\nservers:\n  tickets:\n${lines}`;
}

const hashes: readonly (readonly [string, string])[] = [
  ["HASH_A", "a".repeat(64)],
  ["HASH_B", "b".repeat(64)],
  ["HASH_D", "d".repeat(64)],
  ["HASH_CAPITAL", "AB".repeat(32)],
];

const root = mkdtempSync(join(tmpdir(), "postern-config-"));
let folders = 0;
afterAll(() => rmSync(root, { recursive: true, force: true }));

/** Writes `yaml` as `name` into a directory of its own and gives the path. */
export function writeConfig(name: string, yaml: string | Buffer): string {
  folders += 1;
  const folder = join(root, String(folders));
  mkdirSync(folder);
  const file = join(folder, name);
  const text = typeof yaml === "string" ? hashes.reduce((all, [word, hash]) => all.replaceAll(word, hash), yaml) : yaml;
  writeFileSync(file, text);
  return file;
}
