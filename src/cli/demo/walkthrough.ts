/** What the demo's agent does and what it prints: list, an allowed call, a denied call, and the proof about the credential. */
import { ProtocolError } from "@modelcontextprotocol/client";
import type { Secret } from "../../lib/index.ts";
import { connectAgent } from "./agent.ts";

export interface WalkthroughOptions {
  readonly agentUrl: string;
  readonly agentKey: string;
  /** The credential that the gateway injects; the agent side must not hold it in any spelling. */
  readonly credential: Secret;
  /** What the private server offers when asked directly. */
  readonly offeredTools: readonly string[];
  readonly say: (line: string) => void;
}

/** Runs the steps; false when one did not end as it must. */
export async function walkThrough(options: WalkthroughOptions): Promise<boolean> {
  const { say } = options;
  const agent = await connectAgent(options.agentUrl, options.agentKey);
  try {
    say(`   connected, protocol ${agent.protocolVersion() ?? "?"}`);
    const checks = [
      await showList(agent.toolNames, options),
      await showAllowedCall(agent.call, say),
      await showDeniedCall(agent.call, say),
      showNothingLeaked(agent.received(), options),
    ];
    return checks.every(Boolean);
  } finally {
    await agent.close();
  }
}

type Call = (tool: string, args: Record<string, unknown>) => Promise<string>;

async function showList(toolNames: () => Promise<string[]>, options: WalkthroughOptions): Promise<boolean> {
  const shown = await toolNames();
  const hidden = options.offeredTools.filter((name) => !shown.includes(name));
  options.say(`4. tools/list: ${shown.join(", ")}`);
  options.say(
    `   the server also has ${hidden.join(", ")}; no rule of policy.yaml names them, so they do not exist here`,
  );
  return shown.length > 0 && hidden.length > 0;
}

async function showAllowedCall(call: Call, say: (line: string) => void): Promise<boolean> {
  const answer = await call("search_issues", { query: "printer" });
  say(`5. tools/call search_issues {"query":"printer"}  → ${answer}`);
  say("   the private server accepted it, because the gateway added the bearer token on the last hop");
  return answer.includes("OPS-2");
}

async function showDeniedCall(call: Call, say: (line: string) => void): Promise<boolean> {
  try {
    const answer = await call("delete_issue", { key: "OPS-1" });
    say(`6. tools/call delete_issue was NOT denied: ${answer}`);
    return false;
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    say(`6. tools/call delete_issue {"key":"OPS-1"}  → ${error.code} ${error.message}`);
    say("   denied in the gateway: the private server never saw it");
    return error.message.includes("Unknown tool");
  }
}

function showNothingLeaked(received: string, options: WalkthroughOptions): boolean {
  const found = spellings(options.credential.reveal()).filter((needle) => received.includes(needle));
  const size = Buffer.byteLength(received);
  options.say(`7. searched ${size} bytes of statuses, headers and bodies that the agent received, for the credential`);
  options.say(
    `   (plain, base64, base64url, hex, percent-encoded): ${found.length === 0 ? "not found" : "FOUND, this is a fault"}`,
  );
  return found.length === 0 && size > 0;
}

function spellings(secret: string): string[] {
  const bytes = Buffer.from(secret);
  const percent = [...bytes].map((byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");
  // The last characters of a base64 text depend on what follows the secret, so they are left out.
  const cores = ["base64", "base64url"].map((name) => bytes.toString(name as BufferEncoding).slice(0, -4));
  return [secret, bytes.toString("hex"), percent, ...cores];
}
