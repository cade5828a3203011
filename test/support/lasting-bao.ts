import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fetch } from "undici";
import { type Bao, baoAt, freePort } from "./bao.ts";
import { until } from "./until.ts";

/** An OpenBao that keeps on disk what it knows, so that it can die and come back; KV version 2 is at `secret/`. */
export interface LastingBao extends Omit<Bao, "caFile"> {
  /** SIGKILL. */
  kill(): Promise<void>;
  /** Starts it again, sealed. */
  restart(): Promise<void>;
  unseal(): Promise<void>;
  /** SIGSTOP: it takes connections and answers nothing. */
  pause(): void;
  resume(): void;
}

export async function startLastingBao(binary: string): Promise<LastingBao> {
  const home = await mkdtemp(join(tmpdir(), "bao-"));
  const host = `127.0.0.1:${await freePort()}`;
  const address = `http://${host}`;
  const config = `
storage "raft" {
  path = "${home}"
  node_id = "only"
}
api_addr = "${address}"
cluster_addr = "http://127.0.0.1:${await freePort()}"
listener "tcp" {
  address = "${host}"
  tls_disable = true
}`;
  await writeFile(join(home, "bao.hcl"), config);
  let child: ChildProcess | undefined;
  const ask = async (method: string, path: string, body?: object): Promise<Record<string, unknown>> => {
    const answer = await fetch(
      `${address}/v1/${path}`,
      body === undefined ? { method } : { method, body: JSON.stringify(body) },
    );
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status}`);
    return (await answer.json()) as Record<string, unknown>;
  };
  const isUp = async (): Promise<boolean> => {
    if (child?.exitCode !== null) throw new Error(`bao ended with ${child?.exitCode}`);
    return ask("GET", "sys/seal-status").then(
      () => true,
      () => false,
    );
  };
  const start = async (): Promise<void> => {
    child = spawn(binary, ["server", `-config=${join(home, "bao.hcl")}`], { env: { HOME: home }, stdio: "ignore" });
    await until(isUp, "bao to be up", 20_000);
  };
  const kill = async (): Promise<void> => {
    const ending = child;
    if (ending === undefined || ending.exitCode !== null || ending.signalCode !== null) return;
    const ended = new Promise((resolve) => ending.once("exit", resolve));
    ending.kill("SIGKILL");
    await ended;
  };
  const stop = async (): Promise<void> => {
    await kill();
    await rm(home, { recursive: true, force: true });
  };
  try {
    await start();
    const made = await ask("PUT", "sys/init", { secret_shares: 1, secret_threshold: 1 });
    const { keys, root_token: token } = made as { keys: string[]; root_token: string };
    const isUnsealed = (): Promise<boolean> =>
      ask("GET", "sys/health").then(
        () => true,
        () => false,
      );
    const unseal = async (): Promise<void> => {
      await ask("PUT", "sys/unseal", { key: keys[0] });
      await until(isUnsealed, "bao to be unsealed", 20_000);
    };
    await unseal();
    const bao = baoAt({ address, caFile: undefined, token }, stop);
    await bao.call("POST", "sys/mounts/secret", { type: "kv", options: { version: "2" } });
    return {
      ...bao,
      kill,
      restart: start,
      unseal,
      pause: () => void child?.kill("SIGSTOP"),
      resume: () => void child?.kill("SIGCONT"),
    };
  } catch (error) {
    await stop();
    throw error;
  }
}
