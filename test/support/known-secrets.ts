/**
 * What the system tests have in play, kept per test file: every secret that the helpers make, and every answer that an agent got.
 * A stack that stops searches all that its processes wrote, and all that agents heard, for all of them.
 */
import { findLeaks } from "./canary.ts";

interface Output {
  readonly name: string;
  readonly text: string;
}

const minLength = 12;
const secrets = new Map<string, string>();
/** What the agents themselves hold is no secret to them. */
const agentsOwn = new Set<string>();
const heard: Output[] = [];
const relayPorts = new Set<string>();

/** Returns `value`. A text of several lines, such as a key, is a secret in each of its long lines. */
export function noteSecret(name: string, value: string, isAgents = false): string {
  for (const line of value.split("\n")) {
    const isSecret = line.length >= minLength && !line.startsWith("-----");
    if (isSecret) secrets.set(`${name} ${secrets.size}`, line);
    if (isSecret && isAgents) agentsOwn.add(line);
  }
  return value;
}

export function noteRelay(port: number): void {
  relayPorts.add(String(port));
}

/** Kept if a relay of this file answered. */
export function noteAnswer(url: string, headers: Headers, text: string): void {
  if (!relayPorts.has(new URL(url).port)) return;
  heard.push({ name: "an agent", text: `${[...headers].map((pair) => pair.join(": ")).join("\n")}\n${text}` });
}

/** Throws when any secret stands in `outputs`, or in what an agent heard. */
export function searchEverything(outputs: readonly Output[]): void {
  const all = Object.fromEntries(secrets);
  const others = Object.fromEntries([...secrets].filter(([, value]) => !agentsOwn.has(value)));
  const texts = outputs.filter(({ text }) => text !== "");
  const leaks = [
    ...(secrets.size > 0 && texts.length > 0 ? findLeaks(texts, all) : []),
    ...(Object.keys(others).length > 0 && heard.length > 0 ? findLeaks(heard, others) : []),
  ];
  if (leaks.length === 0) return;
  throw new Error(
    `secrets got out: ${leaks.map((leak) => `${leak.secret} in ${leak.where} (${leak.encoding})`).join(", ")}`,
  );
}
