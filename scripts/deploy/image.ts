import { randomBytes } from "node:crypto";
import {
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startFixtureServer } from "../../test/fixtures/fixture-server/server.ts";
import { type Child, startChild } from "../../test/support/child.ts";
import { connectClient } from "../../test/support/clients.ts";
import { mintToken } from "../../test/support/stack.ts";
import { until } from "../../test/support/until.ts";
import { configFiles } from "./charts.ts";
import { type Checks, expect } from "./checks.ts";
import { renderChart, writeProjectedVolume } from "./helm.ts";

const project = fileURLToPath(new URL("../../", import.meta.url));
const script = fileURLToPath(new URL("container.sh", import.meta.url));

interface Image {
  /** Where its files are mounted. */
  readonly root: string;
  readonly config: {
    readonly User: string;
    readonly Env: readonly string[];
    readonly Entrypoint: readonly string[];
    readonly Cmd: readonly string[];
  };
}

/** One container: the image's own user, environment and entry point, and the chart's mounts. */
interface Container {
  readonly name: string;
  readonly image: Image;
  readonly config: string;
  readonly secrets: string;
  readonly args: readonly string[];
  readonly withTmp: boolean;
}

function startContainer({ name, image, config, secrets, args, withTmp }: Container): Child {
  const { User, Env, Entrypoint } = image.config;
  const mounts = [image.root, User, withTmp ? "yes" : "no", config, secrets];
  return startChild({
    name,
    command: "unshare",
    args: ["--mount", "--pid", "--fork", "--kill-child", script, ...mounts, ...Env, "--", ...Entrypoint, ...args],
  });
}

/** The process inside: what `unshare` forked has become it. */
function innerPid(child: Child): number {
  const children = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8").trim();
  return Number(children.split(" ")[0]);
}

async function stopContainer(child: Child): Promise<number> {
  if (child.exitCode() === undefined) process.kill(innerPid(child), "SIGTERM");
  const timer = setTimeout(() => child.signal("SIGKILL"), 30_000);
  const code = await child.ended;
  clearTimeout(timer);
  return code;
}

function readImage(): Image {
  const [root = "", inspect = ""] = readFileSync(join(project, ".cache/image.paths"), "utf8").trim().split("\n");
  const { OCIv1 } = JSON.parse(readFileSync(inspect, "utf8")) as { OCIv1: { config: Image["config"] } };
  return { root, config: OCIv1.config };
}

async function checkContents(checks: Checks, { root, config }: Image): Promise<void> {
  await checks.check("image: numeric user that is not root, and the entry point of the charts", () => {
    expect(/^[1-9]\d*:[1-9]\d*$/.test(config.User), `User is ${config.User}`);
    const entry = JSON.stringify(config.Entrypoint);
    expect(entry === '["node","/app/dist/cli/main.js"]', `Entrypoint is ${entry}`);
  });
  await checks.check("image: production dependencies and built code only, and no shell in this build of it", () => {
    const app = readdirSync(join(root, "app")).sort().join(" ");
    expect(app === "LICENSE dist node_modules package.json", `/app holds ${app}`);
    for (const name of ["ws", "undici", "yaml"]) {
      expect(existsSync(join(root, "app/node_modules", name)), `${name} is missing`);
    }
    for (const name of ["typescript", "vitest", "vite", "tsx", "@biomejs"]) {
      expect(!existsSync(join(root, "app/node_modules", name)), `${name} is there`);
    }
    expect(!existsSync(join(root, "bin/sh")) && !existsSync(join(root, "usr/bin/sh")), "there is a shell");
  });
}

interface Volumes {
  readonly dir: string;
  readonly config: { readonly gateway: string; readonly relay: string };
  readonly secrets: string;
  readonly none: string;
  readonly agentKey: string;
}

const publicUrl = "http://127.0.0.1:8080";

/** The charts' own files for a relay, a gateway and one server on loopback, laid as the kubelet lays them. */
function layVolumes(userId: number, upstream: { readonly url: string; readonly token: string }): Volumes {
  const dir = mkdtempSync(join(tmpdir(), "postern-image-"));
  const [tunnel, agent] = [mintToken("ptk_"), mintToken("pak_")];
  const render = (part: "gateway" | "relay", values: unknown): string => {
    const file = join(dir, `${part}-values.json`);
    writeFileSync(file, JSON.stringify(values));
    const volume = join(dir, `${part}-config`);
    writeProjectedVolume(volume, configFiles(renderChart(part, { files: [file] })), 0o444);
    return volume;
  };
  const gateway = render("gateway", {
    config: {
      relay: { url: "ws://127.0.0.1:8080", tunnel: "acme" },
      servers: {
        fixture: {
          url: upstream.url,
          credential: { type: "bearer", token: { file: "/run/secrets/postern/upstream-token" } },
        },
      },
    },
    policy: { version: 1, servers: { fixture: { tools: ["test_simple_text"] } } },
    tunnelToken: { existingSecret: "postern-tunnel" },
    secretFiles: [{ secret: "upstream", key: "token", file: "upstream-token" }],
  });
  const gateways = [{ name: "edge", tokenSha256: [tunnel.sha256] }];
  const agents = [{ name: "tester", keySha256: [agent.sha256], servers: ["fixture"] }];
  const relay = render("relay", { config: { publicUrl, tunnels: { acme: { gateways, agents } } } });
  const secrets = join(dir, "secrets");
  const values = { "tunnel-token": `${tunnel.token}\n`, "upstream-token": upstream.token };
  writeProjectedVolume(secrets, values, 0o440);
  // Owner root, group fsGroup.
  for (const name of Object.keys(values)) chownSync(join(secrets, "..data", name), 0, userId);
  const none = join(dir, "none");
  mkdirSync(none);
  return { dir, config: { gateway, relay }, secrets, none, agentKey: agent.token };
}

async function checkCommands(checks: Checks, image: Image, volumes: Volumes): Promise<void> {
  const run = async (args: readonly string[], config: string): Promise<string> => {
    const child = startContainer({ name: "postern", image, config, secrets: volumes.none, args, withTmp: true });
    const code = await child.ended;
    expect(code === 0, `exit code ${code}\n${child.stdout()}${child.stderr()}`);
    return child.stdout().trim();
  };
  await checks.check("image: postern --version, read-only root", async () => {
    const { version } = JSON.parse(readFileSync(join(project, "package.json"), "utf8")) as { version: string };
    const said = await run(["--version"], volumes.none);
    expect(said === version, `it says ${said}`);
  });
  for (const part of ["gateway", "relay"] as const) {
    await checks.check(`image: postern check on the ${part} chart's mounted files, read-only root`, async () => {
      const said = await run(["check", "-c", `/etc/postern/${part}.yaml`], volumes.config[part]);
      expect(said.includes(`a ${part} file without faults`), said);
    });
  }
}

function checkConfinement(child: Child, userId: number): void {
  const pid = innerPid(child);
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const field = (name: string): string => new RegExp(`^${name}:\\s*(.*)$`, "m").exec(status)?.[1] ?? "";
  expect(field("Uid") === `${userId}\t${userId}\t${userId}\t${userId}`, `Uid is ${field("Uid")}`);
  expect(/^0+$/.test(field("CapEff")), `CapEff is ${field("CapEff")}`);
  expect(field("NoNewPrivs") === "1", "it may gain privileges");
  expect(field("NSpid").split("\t").at(-1) === "1", `NSpid is ${field("NSpid")}`);
  const mounts = readFileSync(`/proc/${pid}/mountinfo`, "utf8").trim().split("\n");
  const writable = mounts
    .map((line) => line.split(" "))
    .filter(([, , , , path = "", options = ""]) => options.startsWith("rw") && !/^\/(?:proc|dev)(?:\/|$)/.test(path));
  expect(mounts.length > 0 && writable.length === 0, `writable: ${writable.map(([, , , , path]) => path).join(", ")}`);
}

async function waitReady(child: Child, port: number): Promise<void> {
  const isReady = async (): Promise<boolean> => {
    if (child.exitCode() !== undefined) return true;
    const url = `http://127.0.0.1:${port}/readyz`;
    return fetch(url, { signal: AbortSignal.timeout(1_000) }).then(
      ({ status }) => status === 200,
      () => false,
    );
  };
  await until(isReady, `${child.name} is ready\n${child.stderr()}`, 30_000).catch((error: Error) => {
    throw new Error(`${error.message}\n${child.stderr()}`);
  });
  expect(child.exitCode() === undefined, `${child.name} ended with ${child.exitCode()}\n${child.stderr()}`);
}

/** Both parts with nothing writable at all, not even /tmp: harder than the charts, which mount one. */
async function checkServing(checks: Checks, image: Image, volumes: Volumes): Promise<void> {
  const userId = Number(image.config.User.split(":")[0]);
  const start = (part: "gateway" | "relay", secrets: string): Child => {
    const args = [part, "-c", `/etc/postern/${part}.yaml`];
    return startContainer({ name: part, image, config: volumes.config[part], secrets, args, withTmp: false });
  };
  const relay = start("relay", volumes.none);
  let gateway: Child | undefined;
  try {
    await checks.check("C37 image: relay and gateway start and get ready on a read-only tree", async () => {
      await waitReady(relay, 9465);
      gateway = start("gateway", volumes.secrets);
      await waitReady(gateway, 9464);
    });
    for (const child of [relay, gateway]) {
      if (child === undefined) continue;
      await checks.check(`C37 image: ${child.name} is process 1, a numeric user, no capability, nothing writable`, () =>
        checkConfinement(child, userId),
      );
    }
    await checks.check(
      "C37 image: an agent's call goes the whole way, with the credential of the mounted Secret",
      async () => {
        const client = await connectClient("v2 auto", {
          url: `${publicUrl}/acme/fixture/mcp`,
          bearer: volumes.agentKey,
        });
        try {
          const tools = (await client.listTools()).tools.map(({ name }) => name).join(" ");
          expect(tools === "test_simple_text", `the tools are ${tools}`);
          const { content, isError } = await client.callTool("test_simple_text");
          expect(isError !== true && (content[0]?.text ?? "") !== "", "the call gave nothing");
        } finally {
          await client.close();
        }
      },
    );
  } finally {
    for (const child of [gateway, relay]) {
      if (child === undefined) continue;
      await checks.check(`image: ${child.name} as process 1 ends in order at SIGTERM`, async () => {
        const code = await stopContainer(child);
        expect(code === 0, `exit code ${code}\n${child.stderr()}`);
      });
    }
  }
}

export async function checkImage(checks: Checks): Promise<void> {
  const image = readImage();
  console.log(`image: the Dockerfile as buildah built it, run from ${image.root}`);
  await checkContents(checks, image);
  const token = randomBytes(24).toString("base64url");
  const fixture = await startFixtureServer({ bearer: token });
  const volumes = layVolumes(Number(image.config.User.split(":")[0]), { url: fixture.url, token });
  try {
    await checkCommands(checks, image, volumes);
    await checkServing(checks, image, volumes);
  } finally {
    await fixture.close();
    rmSync(volumes.dir, { recursive: true, force: true });
  }
}
