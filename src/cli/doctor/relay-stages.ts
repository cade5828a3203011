/** What a relay needs: its two ports, a public address that leads to it, the issuers that it believes in. */
import { tryListen } from "../../admin/index.ts";
import type { RelayConfig } from "../../config/index.ts";
import { tunnelPath } from "../../tunnel/index.ts";
import { adminOrigin, askAdmin } from "../ask-admin.ts";
import { issuerStages } from "./gateway-stages.ts";
import { codeOf, netStages } from "./net-stages.ts";
import { NotTried, type Stage, Trouble } from "./stages.ts";

const httpDeadlineMs = 8_000;
const upgradeRequired = 426;

export function relayStages(config: RelayConfig): readonly Stage[] {
  let isRunning = false;
  const admin: Stage = {
    name: "admin port",
    run: async () => {
      isRunning = await isAlive(config);
      if (isRunning) return `${adminOrigin(config.admin.listen)}: a relay runs there`;
      return await free(config.admin.listen, "admin.listen");
    },
  };
  const listen: Stage = {
    name: "listen port",
    needs: [admin.name],
    run: async () => {
      if (!isRunning) return await free(config.listen, "listen");
      const problem = await tryListen(config.listen);
      if (problem === "EADDRINUSE") return "taken, by the relay that runs";
      const cure = "restart the relay, or diagnose with the file that it was started with";
      throw new Trouble("a relay runs, yet nothing listens at `listen`", cure);
    },
  };
  const net = netStages({ label: "publicUrl", url: new URL(config.publicUrl), key: "publicUrl" });
  const leads: Stage = {
    name: "publicUrl relay",
    needs: [admin.name, net.last],
    run: async () => {
      if (!isRunning) throw new NotTried("no relay runs here to answer");
      return await askPublic(config.publicUrl);
    },
  };
  return [admin, listen, ...net.stages, leads, ...issuerStages(issuersOf(config))];
}

async function isAlive(config: RelayConfig): Promise<boolean> {
  const answer = await askAdmin(config.admin.listen, "/livez");
  return answer.kind === "answer" && answer.body["alive"] === true;
}

async function free(address: { readonly host: string; readonly port: number }, key: string): Promise<string> {
  const problem = await tryListen(address);
  const shown = `${address.host}:${address.port}`;
  if (problem === undefined) return `${shown} is free`;
  const cures: Readonly<Record<string, string>> = {
    EADDRINUSE: "stop the other program, or choose another port",
    EACCES: "a port above 1023, or the right to bind this one",
    EADDRNOTAVAIL: "an address of this machine",
  };
  throw new Trouble(`${key} ${shown} cannot be had: ${problem}`, cures[problem] ?? `another ${key}`);
}

/** The gateways' door tells a plain GET that it wants an upgrade: nothing else answers so. */
async function askPublic(publicUrl: string): Promise<string> {
  const cure = "the load balancer's route to the relay, with the Host header as it came";
  try {
    const url = `${publicUrl}${tunnelPath}`;
    const { status, body } = await fetch(url, { redirect: "manual", signal: AbortSignal.timeout(httpDeadlineMs) });
    await body?.cancel();
    if (status === upgradeRequired) return "leads to a relay";
    throw new Trouble(`what answers is no relay: ${status}`, cure);
  } catch (error) {
    if (error instanceof Trouble) throw error;
    throw new Trouble(`no answer: ${codeOf(error instanceof Error ? error.cause : undefined)}`, cure);
  }
}

function issuersOf(config: RelayConfig) {
  return Object.values(config.tunnels).flatMap(({ agents, gateways }) => [
    ...agents.flatMap((agent) => ("oauth" in agent ? [agent.oauth] : [])),
    ...gateways.flatMap((gateway) => ("jwt" in gateway ? [gateway.jwt] : [])),
  ]);
}
