import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { until } from "./until.ts";

export interface BaoHelperOptions {
  /** Of the store. */
  readonly address: string;
  /** For its files. */
  readonly folder: string;
  readonly roleId: string;
  readonly secretId: string;
  /** More of `auto_auth`, in HCL. */
  readonly autoAuth?: string;
  /** More of its file, in HCL. */
  readonly config?: string;
  /** What is there as soon as it serves: a file or a socket. */
  readonly makes: string;
}

/** OpenBao's own agent or proxy, which logs in by role and keeps the token alive. Resolves with how to stop it. */
export async function startBaoHelper(
  binary: string,
  kind: "agent" | "proxy",
  options: BaoHelperOptions,
): Promise<() => Promise<void>> {
  const { address, folder, roleId, secretId, autoAuth = "", config = "", makes } = options;
  const at = (name: string): string => join(folder, name);
  await writeFile(at("role-id"), roleId, { mode: 0o600 });
  await writeFile(at("secret-id"), secretId, { mode: 0o600 });
  await writeFile(
    at(`${kind}.hcl`),
    `
vault { address = "${address}" }
auto_auth {
  method "approle" {
    config = {
      role_id_file_path = "${at("role-id")}"
      secret_id_file_path = "${at("secret-id")}"
      remove_secret_id_file_after_reading = false
    }
  }
${autoAuth}
}
${config}`,
  );
  const child = spawn(binary, [kind, `-config=${at(`${kind}.hcl`)}`], { env: { HOME: folder }, stdio: "ignore" });
  const stop = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await ended;
  };
  try {
    await until(() => child.exitCode !== null || existsSync(makes), `bao ${kind} makes ${makes}`, 20_000);
  } catch (error) {
    await stop();
    throw error;
  }
  return stop;
}
