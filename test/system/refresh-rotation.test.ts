/**
 * Two gateways that share one refresh token, against a server that takes the second use of one for theft. They die at
 * every step, without warning; the grant is lost only with what the endpoint gave to nobody but the dead.
 */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { send } from "../support/agent-requests.ts";
import { type Bao, startBao } from "../support/bao.ts";
import { findLeaks } from "../support/canary.ts";
import { type Child, startChild } from "../support/child.ts";
import { fatal, type Moment, moments, type Steps, startSteps } from "../support/refresh-steps.ts";
import { RotatingServer } from "../support/rotating-server.ts";
import { type Stack, startStack } from "../support/stack.ts";
import { json } from "../support/token-endpoint.ts";
import { until } from "../support/until.ts";
import { requireBao } from "../support/vault-backed.ts";

const binary = requireBao();
const rotations = 200;
/** Short, since four of seven deaths leave a claim that must run out; long enough for a busy machine to keep to it. */
const claimMs = 2_400;
const dist = (room: string): string => fileURLToPath(new URL(`../../dist/${room}/index.js`, import.meta.url));

/** Nothing but the credential layer: takes a credential, which is used up at once, and the next. */
const layer = `
import { createCredentials } from ${JSON.stringify(dist("credentials"))};
import { systemClock } from ${JSON.stringify(dist("lib"))};
import { createLogger } from ${JSON.stringify(dist("telemetry"))};
const options = JSON.parse(process.env.OPTIONS);
const logger = createLogger({ level: "info", destination: process.stdout });
const env = { SECRET_ID: process.env.SECRET_ID };
const credentials = createCredentials({ ...options, env, clock: systemClock, random: Math.random, logger });
setInterval(() => undefined, 1_000);
let isEnding = false;
process.on("SIGTERM", () => {
  isEnding = true;
  credentials.close().then(() => process.exit(0));
});
while (!isEnding) {
  try { await credentials.forServer("a").inject(); }
  catch { await new Promise((resolve) => setTimeout(resolve, 100)); }
}`;

/** Numbers in [0, 1) that a failed run can be repeated with. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const seed = Number(process.env["ROTATION_SEED"] ?? Math.floor(Math.random() * 1e9));

/** One of the gateways: can be killed at the next `moment` that it reaches. */
interface Runner {
  steps: Steps;
  child: Child | undefined;
  dieAt: Moment | undefined;
  start(): Promise<void>;
}

/** Both gateways, and who of them dies when. */
class Rotation {
  readonly server = new RotatingServer();
  readonly runners: Runner[] = [];
  readonly outputs: (() => string)[] = [];
  readonly kills = new Map<Moment, number>();
  readonly path: string;
  readonly #entry: string;
  readonly #bao: Bao;
  readonly #random: () => number;
  #bag: Moment[] = [];

  constructor(bao: Bao, name: string, random: () => number) {
    this.path = `rotated/${name}`;
    this.#entry = `secret/data/${this.path}`;
    this.#bao = bao;
    this.#random = random;
    // Used up at once: each call needs a refresh.
    this.server.expiresIn = 0;
  }

  async add(run: (steps: Steps) => Promise<Child> | Child): Promise<void> {
    const runner: Runner = {
      steps: undefined as unknown as Steps,
      child: undefined,
      dieAt: undefined,
      start: async () => {
        const child = await run(runner.steps);
        runner.child = child;
        this.outputs.push(() => child.stdout() + child.stderr());
      },
    };
    const reached = (moment: Moment): boolean => this.#reached(runner, moment);
    const { address: storeAddress } = this.#bao;
    runner.steps = await startSteps({ storeAddress, entry: this.#entry, server: this.server, reached });
    this.runners.push(runner);
  }

  #reached(runner: Runner, moment: Moment): boolean {
    if (runner.dieAt !== moment || runner.child?.exitCode() !== undefined) return false;
    runner.child?.signal("SIGKILL");
    runner.dieAt = undefined;
    this.kills.set(moment, (this.kills.get(moment) ?? 0) + 1);
    return true;
  }

  count(event: string): number {
    return this.outputs.reduce((sum, output) => sum + output().split(event).length - 1, 0);
  }

  /** As somebody does who authorises the client anew: over whatever version stands there. */
  async authorise(): Promise<void> {
    const token = this.server.authorise();
    await until(async () => {
      try {
        const { fields, version } = await this.record();
        const data = { ...fields, refresh_token: token };
        await this.#bao.call("POST", this.#entry, { options: { cas: version }, data });
        return true;
      } catch (error) {
        if (String(error).includes("check-and-set")) return false;
        throw error;
      }
    }, "a new refresh token to be written");
  }

  async record(): Promise<{ fields: Record<string, unknown>; version: number }> {
    const { data: answer } = await this.#bao.call("GET", this.#entry);
    const { data, metadata } = answer as { data: Record<string, unknown>; metadata: { version: number } };
    return { fields: data, version: metadata.version };
  }

  /** Writes the record, and gives a role that may do with it what it needs to. */
  async begin(): Promise<{ readonly roleId: string; readonly secretId: string }> {
    await this.#bao.call("POST", `secret/metadata/${this.path}`, { max_versions: 3, cas_required: true });
    const data = { refresh_token: this.server.authorise(), note: "by hand" };
    await this.#bao.call("POST", this.#entry, { options: { cas: 0 }, data });
    return await this.#bao.enableApprole(`path "${this.#entry}" { capabilities = ["read", "create", "update"] }`);
  }

  /** Lets any one die at the next of `of`, in random order and each as often as the others. */
  async killOne(of: readonly Moment[]): Promise<{ readonly moment: Moment; readonly runner: Runner }> {
    if (this.#bag.length === 0) this.#bag = [...of].sort(() => this.#random() - 0.5);
    const moment = this.#bag.pop() ?? "read arrives";
    const runner = this.runners[Math.floor(this.#random() * this.runners.length)];
    if (runner === undefined) throw new Error("nobody to kill");
    runner.dieAt = moment;
    await this.#until(() => runner.dieAt === undefined, `a gateway to die at: ${moment}`);
    await runner.child?.ended;
    return { moment, runner };
  }

  async #until(condition: () => boolean, what: string): Promise<void> {
    const said = (): string => this.outputs.map((output) => output().slice(-1_500)).join("\n");
    await until(condition, what, 20_000).catch((error: unknown) => {
      throw new Error(`${String(error)}; ${this.server.revocations} families lost; ${said()}`);
    });
  }

  async rotateOn(by: number): Promise<void> {
    const goal = this.server.rotations + by;
    await this.#until(() => this.server.rotations >= goal, `${by} more rotations`);
  }

  /** Stops all in order: then the one in the record must be good, and what is not ours still there. */
  async endWell(): Promise<void> {
    for (const { child } of this.runners) child?.signal("SIGTERM");
    await Promise.all(this.runners.map(async ({ child }) => child?.ended));
    const { fields } = await this.record();
    expect([fields["note"], fields["refresh_claim"]]).toEqual(["by hand", undefined]);
    expect(this.server.isNew(String(fields["refresh_token"]))).toBe(true);
    const secrets = Object.fromEntries(this.server.issued.slice(-40).map((token, i) => [`token ${i}`, token]));
    const text = this.outputs.map((output) => output()).join("");
    expect(findLeaks([{ name: "log", text: `${text}.` }], secrets)).toEqual([]);
  }

  async close(): Promise<void> {
    for (const { child, steps } of this.runners) {
      child?.signal("SIGKILL");
      await child?.ended;
      await steps.close();
    }
  }
}

const random = seeded(seed);

describe.skipIf(binary === undefined)(`C26 a shared refresh token (seed ${seed})`, { timeout: 120_000 }, () => {
  let bao: Bao;

  beforeAll(async () => {
    bao = await startBao(binary ?? "");
  });
  afterAll(() => bao?.stop());

  async function startLayers(title: string): Promise<Rotation> {
    const rotation = new Rotation(bao, title, random);
    onTestFinished(() => rotation.close());
    const { roleId, secretId } = await rotation.begin();
    for (const name of ["one", "two"]) {
      await rotation.add(({ storeAddress, tokenEndpoint }) => {
        const auth = { method: "approle", roleId, secretId: { env: "SECRET_ID" } };
        const record = { vault: { mount: "secret", path: rotation.path } };
        const credential = { type: "oauthRefreshToken", at: { tokenEndpoint }, clientId: "postern", record, claimMs };
        const options = { vault: { address: storeAddress, auth }, servers: { a: credential } };
        return startChild({
          name,
          command: process.execPath,
          args: ["--input-type=module", "--eval", layer],
          env: { OPTIONS: JSON.stringify(options), SECRET_ID: secretId },
        });
      });
    }
    await Promise.all(rotation.runners.map(async (runner) => runner.start()));
    return rotation;
  }

  const claimless: readonly Moment[] = ["read arrives", "claim arrives", "settle done"];
  const stacks: Stack[] = [];
  let upstream: Server;
  let rotation: Rotation;
  let waiting: Promise<number> | undefined;

  beforeAll(async () => {
    rotation = new Rotation(bao, "gateways", random);
    const { roleId, secretId } = await rotation.begin();
    upstream = createServer((req, res) => {
      const token = String(req.headers.authorization).replace("Bearer ", "");
      req.resume().on("end", () => {
        // Every other word is one of the last tokens: the access token, and the refresh token that came with it.
        const text = `Bearer ${rotation.server.issued.slice(-2).join(" and ")}`;
        const result = { content: [{ type: "text", text }] };
        if (rotation.server.issued.includes(token)) json(res, 200, { jsonrpc: "2.0", id: 1, result });
        else res.writeHead(401).end();
      });
    });
    await new Promise<void>((resolve) => upstream.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}/mcp`;
    for (const i of [0, 1]) {
      await rotation.add(async ({ storeAddress, tokenEndpoint }) => {
        const running = stacks[i];
        if (running !== undefined) return await running.startGateway();
        const record = { vault: { mount: "secret", path: rotation.path } };
        const stack = await startStack({
          vault: { address: storeAddress, auth: { method: "approle", roleId, secretId: { file: "./secret-id" } } },
          secretFiles: { "secret-id": secretId },
          servers: {
            a: { url, credential: { type: "oauthRefreshToken", tokenEndpoint, clientId: "postern", record } },
          },
          policy: { a: { tools: ["*"] } },
        });
        stacks[i] = stack;
        const child = stack.gateway();
        if (child === undefined) throw new Error("no gateway");
        return child;
      });
    }
    for (const runner of rotation.runners) await runner.start();
  });

  afterAll(async () => {
    for (const stack of stacks) await stack.stop();
    await rotation?.close();
    upstream?.closeAllConnections();
    upstream?.close();
  });

  const call = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "who", arguments: {} } };
  const ask = async (stack: Stack): Promise<number> =>
    (await send(stack.agentUrl("a"), { bearer: stack.agentKey, body: call })).status;

  /** Calls one after the other until the end is said; what a dying gateway answers is not looked at. */
  async function keepAsking(stack: Stack, isDone: () => boolean): Promise<number> {
    let good = 0;
    while (!isDone()) if ((await ask(stack).catch(() => 0)) === 200) good += 1;
    return good;
  }

  it("outlives their deaths before the claim and after the write", async () => {
    let isDone = false;
    const asking = stacks.map(async (stack) => await keepAsking(stack, () => isDone));
    while (rotation.server.rotations < rotations || rotation.kills.size < claimless.length) {
      await rotation.rotateOn(66);
      const { runner } = await rotation.killOne(claimless);
      await runner.start();
    }
    isDone = true;
    const good = await Promise.all(asking);
    for (const count of good) expect(count).toBeGreaterThan(10);
    expect(good[0] ?? 0).toBeLessThanOrEqual(rotation.server.rotations);
    expect(rotation.server.revocations).toBe(0);
  });

  it("shows neither token of it in what a server says that has learned both", async () => {
    const [stack] = stacks;
    if (stack === undefined) throw new Error("no gateway");
    const { status, text } = await send(stack.agentUrl("a"), { bearer: stack.agentKey, body: call });
    expect(status).toBe(200);
    expect(text).toContain("Bearer [REDACTED:credential] and [REDACTED:credential]");
  });

  it("is claimed by one that dies, while the other calls", async () => {
    const [dying] = rotation.runners;
    const [first, other] = stacks;
    if (dying === undefined || first === undefined || other === undefined) throw new Error("not two gateways");
    dying.dieAt = "claim done";
    await ask(first).catch(() => 0);
    await dying.child?.ended;
    expect((await rotation.record()).fields["refresh_claim"]).toBeDefined();
    const before = rotation.server.rotations;
    // A claim of 30 s: the tests between this one and the last have the time for it.
    waiting = until(async () => (await ask(other).catch(() => 0)) === 200, "the claim to be over", 60_000).then(
      () => rotation.server.rotations - before,
    );
    waiting.catch(() => undefined);
  });

  it("is lost only between the endpoint's answer and the write, and that is counted", async () => {
    const rotation = await startLayers("bare");
    const { server } = rotation;
    let losses = 0;
    while (server.rotations < rotations || rotation.kills.size < moments.length) {
      await rotation.rotateOn(28);
      const { moment, runner } = await rotation.killOne(moments);
      if (fatal.has(moment)) {
        losses += 1;
        const word = "refresh token needs a new authorisation";
        await until(() => rotation.count(word) >= losses, `${losses} losses to be counted, after ${moment}`, 20_000);
        await rotation.authorise();
        for (const { child } of rotation.runners) child?.signal("SIGKILL");
        await Promise.all(rotation.runners.map(async ({ child }) => child?.ended));
        await Promise.all(rotation.runners.map(async (one) => one.start()));
      } else {
        await runner.start();
      }
      expect(server.revocations, `families lost after ${[...rotation.kills.keys()]}`).toBe(losses);
    }
    await rotation.rotateOn(5);
    await rotation.endWell();
    expect(losses).toBe((rotation.kills.get("spend done") ?? 0) + (rotation.kills.get("settle arrives") ?? 0));
  });

  it("is never lost with a server that has a reuse grace", async () => {
    const rotation = await startLayers("grace");
    const { server } = rotation;
    server.graceMs = 60_000;
    while (server.rotations < rotations || rotation.kills.size < moments.length) {
      await rotation.rotateOn(28);
      const { runner } = await rotation.killOne(moments);
      await runner.start();
    }
    await rotation.rotateOn(5);
    await rotation.endWell();
    expect([server.revocations, rotation.count("refresh token needs a new authorisation")]).toEqual([0, 0]);
  });

  it("goes on with the other when that claim is over", async () => {
    expect(await waiting).toBeGreaterThan(0);
    expect(rotation.server.revocations).toBe(0);
  });
});
