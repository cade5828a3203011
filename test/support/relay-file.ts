import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parse, stringify } from "yaml";
import type { Stack } from "./stack.ts";
import { until } from "./until.ts";

/** The parts of relay.yaml that tests change while the relay runs. */
export interface RelayFile {
  listen: string;
  limits?: Record<string, number | string> | undefined;
  tunnels: Record<string, { gateways: object[]; agents: Record<string, unknown>[] }>;
}

export const relayFileOf = (stack: Stack): string => join(stack.dir, "relay.yaml");

export function readRelayFile(stack: Stack): RelayFile {
  return parse(readFileSync(relayFileOf(stack), "utf8")) as RelayFile;
}

export function acmeOf(file: RelayFile): RelayFile["tunnels"][string] {
  const tunnel = file.tunnels["acme"];
  if (tunnel === undefined) throw new Error("no tunnel acme");
  return tunnel;
}

/** Has the relay read its file again; resolves when it has said, once more, what came of it. */
export async function hupRelay(stack: Stack, says = '"reloaded"'): Promise<void> {
  const count = (): number => stack.relay.stderr().split(says).length;
  const before = count();
  stack.relay.signal("SIGHUP");
  await until(() => count() > before, `the relay says ${says}`);
}

export async function changeRelayFile(stack: Stack, change: (file: RelayFile) => void): Promise<void> {
  const file = readRelayFile(stack);
  change(file);
  writeFileSync(relayFileOf(stack), stringify(file, { aliasDuplicateObjects: false }));
  await hupRelay(stack);
}

/** Lets in at the relay whoever comes with a token of this issuer, at every server. */
export async function admitIssuer(
  stack: Stack,
  oauth: { readonly issuer: string; readonly audience?: string },
): Promise<void> {
  await changeRelayFile(stack, (file) => acmeOf(file).agents.push({ oauth, servers: ["*"] }));
}
