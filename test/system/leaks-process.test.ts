import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { callTool } from "../support/agent-requests.ts";
import { findLeaks } from "../support/canary.ts";
import { type Child, startChild } from "../support/child.ts";
import { json, type ScriptedUpstream, startScriptedUpstream } from "../support/scripted-upstream.ts";
import { type Stack, type StackOptions, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { mintSecret } from "../support/vault-backed.ts";

/**
 * The ways out through the process itself, as docs/threat-model.md numbers them: what Node prints, writes and opens when it is
 * told to, or when something goes wrong. Real processes only; what they run with is what an operator may have left switched on.
 */
const token = mintSecret("process");
const fromEnvironment = mintSecret("environment");
/** Stands in messages of errors, and is no secret that the gateway has read: nothing could recognise it. */
const unknown = mintSecret("unknown");
const faults = fileURLToPath(new URL("../fixtures/faults/by-signal.mjs", import.meta.url));
const binary = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));

describe("the ways out through the process", () => {
  let upstream: ScriptedUpstream;
  let folder: string;
  let stack: Stack | undefined;

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "postern-leaks-"));
    writeFileSync(join(folder, "unknown"), unknown);
    upstream = await startScriptedUpstream();
    upstream.answer("a", (res) => json(res, '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'));
  });
  afterEach(async () => {
    await stack?.stop();
    stack = undefined;
  });
  afterAll(async () => {
    await upstream?.close();
    rmSync(folder, { recursive: true, force: true });
  });

  async function start(options: Partial<StackOptions> = {}): Promise<{ stack: Stack; gateway: Child }> {
    const credential = (source: object): object => ({ type: "bearer", token: source });
    const started = await startStack({
      secretFiles: { token },
      servers: {
        file: { url: upstream.url("a"), credential: credential({ file: "./token" }) },
        variable: { url: upstream.url("a"), credential: credential({ env: "LEAK_TOKEN" }) },
      },
      policy: { file: { tools: ["*"] }, variable: { tools: ["*"] } },
      ...options,
      env: { LEAK_TOKEN: fromEnvironment, FAULT_SECRET_FILE: join(folder, "unknown"), ...options.env },
    });
    stack = started;
    for (const server of ["file", "variable"]) {
      expect((await callTool(started.agentUrl(server), started.agentKey, "get_x")).status).toBe(200);
    }
    const gateway = started.gateway();
    if (gateway === undefined) throw new Error("no gateway");
    return { stack: started, gateway };
  }

  const all = (of: Stack): Record<string, string> => ({
    token,
    fromEnvironment,
    unknown,
    tunnelToken: of.tunnelToken,
    agentKey: of.agentKey,
  });

  /** A gateway that loads the module of faults, with a folder of its own for whatever Node may write. */
  async function startFaulty(nodeOptions: string, env: Readonly<Record<string, string>> = {}) {
    const written = join(folder, `written-${Math.random()}`);
    mkdirSync(written);
    const started = await start({
      env: {
        NODE_OPTIONS: `--import=${faults} ${nodeOptions} --diagnostic-dir=${written} --report-directory=${written}`,
        ...env,
      },
    });
    return { ...started, written: () => readdirSync(written) };
  }

  it("L50 arguments and title hold no secret; the environment holds what it was given, and nothing that came from a file", async () => {
    const { stack: running, gateway } = await start();
    const read = (name: string): string => readFileSync(`/proc/${gateway.pid}/${name}`, "utf8");
    expect(findLeaks([{ name: "cmdline", text: read("cmdline") + read("comm") }], all(running))).toEqual([]);
    const environment = read("environ");
    const { fromEnvironment: given, ...others } = all(running);
    expect(findLeaks([{ name: "environ", text: environment }], others)).toEqual([]);
    // The truth that docs/threat-model.md tells: the kernel keeps what a process was started with.
    expect(environment).toContain(given);
  });

  describe.runIf(existsSync("/proc/self"))("when an error is caught by nobody", () => {
    it.each([
      ["SIGWINCH", "exception"],
      ["SIGURG", "rejection"],
    ] as const)("L52 after %s (an %s) the log has its kind, code and place, and not its message", async (signal, _) => {
      const { stack: running, gateway } = await startFaulty("");
      gateway.signal(signal);
      expect(await gateway.ended).toBe(1);
      expect(findLeaks(running.outputs(), all(running))).toEqual([]);
      const last = gateway.stderr().trim().split("\n").at(-1) ?? "";
      expect(JSON.parse(last)).toMatchObject({ level: "error", reason: "Error", code: "ERR_INVALID_CHAR" });
      expect(gateway.stderr()).not.toMatch(/Invalid header|Node\.js v/);
    });

    it("L60 a warning of the process is told without its text", async () => {
      const { stack: running, gateway } = await startFaulty("");
      gateway.signal("SIGIO");
      await until(() => gateway.stderr().includes("process warning"), "the warning");
      expect(gateway.stderr()).toMatch(/"reason":"Warning","code":"DEP_TEST"/);
      expect(findLeaks(running.outputs(), all(running))).toEqual([]);
      expect(gateway.exitCode()).toBeUndefined();
    });

    it("L51 no diagnostic report is written, by a signal, an error or the end of memory", async () => {
      const switches = "--report-on-signal --report-uncaught-exception --report-on-fatalerror";
      const first = await startFaulty(switches);
      first.gateway.signal("SIGUSR2");
      await until(() => first.gateway.stderr().includes("signal ignored"), "the signal was taken");
      first.gateway.signal("SIGWINCH");
      await first.gateway.ended;
      expect(first.written()).toEqual([]);
      expect(first.gateway.stderr()).toContain("a debugging switch is on, which may show secrets");
      expect(findLeaks(first.stack.outputs(), all(first.stack))).toEqual([]);
      await first.stack.stop();
      const second = await startFaulty(`${switches} --max-old-space-size=64`);
      second.gateway.signal("SIGXCPU");
      expect(await second.gateway.ended).not.toBe(0);
      expect(second.gateway.stderr()).toContain("heap out of memory");
      expect(second.written().filter((name) => name.endsWith(".json"))).toEqual([]);
      expect(findLeaks(second.stack.outputs(), all(second.stack))).toEqual([]);
    });

    it("L55 no signal writes a heap snapshot", async () => {
      const { gateway, written } = await startFaulty("--heapsnapshot-signal=SIGUSR2");
      gateway.signal("SIGUSR2");
      await until(() => /"signal":"SIGUSR2".*"signal ignored"/.test(gateway.stderr()), "the signal was taken");
      expect(written()).toEqual([]);
      expect(gateway.exitCode()).toBeUndefined();
    });

    it("L56 SIGUSR1 opens no inspector", async () => {
      const port = 9229;
      const { gateway } = await start();
      gateway.signal("SIGUSR1");
      await until(() => /"signal":"SIGUSR1".*"signal ignored"/.test(gateway.stderr()), "the signal was taken");
      expect(gateway.stderr()).not.toMatch(/Debugger listening|inspector/);
      const code = await new Promise((resolve) => {
        const socket = connect(port, "127.0.0.1", () => resolve("open"));
        socket.on("error", (error: NodeJS.ErrnoException) => resolve(error.code));
      });
      expect(code).toBe("ECONNREFUSED");
    });
  });

  it.each([
    ["L53 NODE_DEBUG", { NODE_DEBUG: "http,https,net,tls,stream,undici,fetch,websocket,dns,timer" }],
    ["L53 NODE_DEBUG of everything", { NODE_DEBUG: "*" }],
    [
      "DEBUG (what has secrets and heeds it, the store's library, is tried with L58)",
      { DEBUG: "*", DEBUG_DEPTH: "9", NODE_ENV: "development" },
    ],
  ])("%s prints no secret", async (_, env) => {
    const quiet = { POSTERN_LOG_LEVEL: "debug", ...env };
    const { stack: running } = await start({ env: quiet, relayEnv: quiet });
    expect(findLeaks(running.outputs(), all(running))).toEqual([]);
    expect(running.gateway()?.stderr()).toContain("a debugging switch is on");
  });

  it.each([
    ["a line break", `${token}\nX-Injected: 1`],
    ["a character that no header may carry", `${token}\u0001`],
    ["other than ASCII", `${token}é`],
    ["a space", `Bearer ${token}`],
    ["more than 8 KiB", token.repeat(300)],
  ])("L57 a value with %s is refused without being quoted", async (_, value) => {
    stack = await startStack({
      secretFiles: { token: value },
      env: { POSTERN_LOG_LEVEL: "debug" },
      servers: { file: { url: upstream.url("a"), credential: { type: "bearer", token: { file: "./token" } } } },
      policy: { file: { tools: ["*"] } },
    });
    const answer = await callTool(stack.agentUrl("file"), stack.agentKey, "get_x");
    expect(answer.status).toBe(502);
    expect(stack.gateway()?.stderr()).toMatch(/"code":"value-invalid".*credential failed/);
    // Nothing had to be cut out of a line (L62).
    expect(stack.gateway()?.stderr()).not.toContain("[secret]");
    expect(findLeaks([...stack.outputs(), { name: "answer", text: answer.text }], { token })).toEqual([]);
  });

  it("L57 a gateway that cannot start says why without its secrets", async () => {
    const running = await startStack({
      servers: { a: { url: upstream.url("a") } },
      policy: { a: {} },
      withoutGateway: true,
    });
    stack = running;
    const yaml = readFileSync(join(running.dir, "gateway.yaml"), "utf8");
    const broken = join(running.dir, "broken.yaml");
    writeFileSync(broken, yaml.replace(/listen: .*/, `listen: 127.0.0.1:${running.relayPort}`));
    const child = startChild({ name: "gateway", command: process.execPath, args: [binary, "gateway", "-c", broken] });
    expect(await child.ended).toBe(1);
    expect(child.stderr()).toContain("EADDRINUSE");
    expect(child.stderr()).not.toContain("[secret]");
    expect(findLeaks([{ name: "gateway", text: child.stderr() }], { tunnelToken: running.tunnelToken })).toEqual([]);
  });

  it.each([
    ["a URL with a password", "url: http://user:SECRET@tickets.internal/mcp"],
    ["a URL with a key", "url: http://tickets.internal/mcp?api_key=SECRET"],
    ["a literal for a source", "url: http://tickets.internal/mcp, credential: { type: bearer, token: SECRET }"],
    ["a secret for a key", "url: http://tickets.internal/mcp, SECRET: 1"],
    ["broken YAML around it", "url: http://tickets.internal/mcp, credential: { type: bearer, token: { SECRET"],
  ])("L61 a complaint about the configuration does not quote %s", async (_, server) => {
    const file = join(folder, "gateway.yaml");
    const text = `relay: { url: wss://relay.example.com, tunnel: acme, token: { file: t } }\nservers: { tickets: { ${server.replace("SECRET", token)} } }\npolicy: { version: 1 }\n`;
    writeFileSync(file, text);
    for (const command of ["check", "gateway"]) {
      const child = startChild({ name: command, command: process.execPath, args: [binary, command, "-c", file] });
      expect(await child.ended).toBe(2);
      expect(findLeaks([{ name: command, text: child.stdout() + child.stderr() }], { token })).toEqual([]);
    }
  });
});
