/** What is reached by TLS under a CA of one's own, through the real processes. */
import { rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { callTool } from "../support/agent-requests.ts";
import { startChild } from "../support/child.ts";
import { internalCa, serverPairs } from "../support/internal-ca.ts";
import { type Stack, startStack } from "../support/stack.ts";
import { json } from "../support/token-endpoint.ts";
import { until } from "../support/until.ts";
import { loopbackCertificate } from "../tunnel/loopback-cert.ts";

const main = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));
const [first, renewed] = serverPairs;

describe("a CA of one's own, through the real processes", () => {
  let server: Server;
  let stack: Stack;

  beforeAll(async () => {
    server = createServer(first, (req, res) => {
      let body = "";
      req.on("data", (chunk: Buffer) => {
        body += chunk.toString();
      });
      req.on("end", () => {
        const { id } = JSON.parse(body) as { id: number };
        json(res, 200, { jsonrpc: "2.0", id, result: { content: [{ type: "text", text: "here" }] } });
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const url = `https://localhost:${(server.address() as AddressInfo).port}/mcp`;
    stack = await startStack({
      secretFiles: { "internal.pem": internalCa, "other.pem": loopbackCertificate },
      servers: { right: { url, ca: "./internal.pem" }, unnamed: { url }, wrong: { url, ca: "./other.pem" } },
      policy: Object.fromEntries(["right", "unnamed", "wrong"].map((name) => [name, { tools: ["*"] }])),
    });
  });
  afterAll(async () => {
    await stack?.stop();
    server?.closeAllConnections();
    server?.close();
  });

  const call = async (name: string): Promise<{ status: number; text: string }> => {
    const { status, text } = await callTool(stack.agentUrl(name), stack.agentKey, "look", {});
    return { status, text };
  };
  const cureFor = (name: string): string | undefined => {
    const line = (stack.gateway()?.stderr() ?? "").split("\n").findLast((one) => {
      return one.includes(`"server":"${name}"`) && one.includes('"cure"');
    });
    return line === undefined ? undefined : (JSON.parse(line) as { cure: string }).cure;
  };
  const run = async (command: string) => {
    const args = [main, command, "-c", join(stack.dir, "gateway.yaml"), "--json"];
    const child = startChild({ name: command, command: process.execPath, args });
    const code = await child.ended;
    return { code, json: JSON.parse(child.stdout()) as Record<string, { [key: string]: string }[]> };
  };

  it("a server is reached under it, and goes on when it renews its certificate", async () => {
    expect(await call("right")).toMatchObject({ status: 200, text: expect.stringContaining("here") });
    server.setSecureContext(renewed);
    server.closeAllConnections();
    expect(await call("right")).toMatchObject({ status: 200, text: expect.stringContaining("here") });
  });

  it.each(["unnamed", "wrong"])("a server whose CA is %s fails, and the log says which key to write", async (name) => {
    expect(await call(name)).toMatchObject({ status: 502, text: expect.not.stringContaining("localhost") });
    await until(() => cureFor(name) !== undefined, "the line of the log");
    expect(cureFor(name)).toBe(
      `name a PEM file with the CA that signed the server's certificate as servers.${name}.ca`,
    );
  });

  it("the doctor says the same", async () => {
    const { code, json } = await run("doctor");
    expect(code).toBe(1);
    const stage = (name: string) => json["stages"]?.find((one) => one["name"] === name);
    expect(stage("server right tls")).toMatchObject({ state: "ok" });
    expect(stage("server right mcp")).toMatchObject({ state: "ok" });
    for (const name of ["unnamed", "wrong"]) {
      expect(stage(`server ${name} tls`)).toMatchObject({
        state: "failed",
        cure: expect.stringContaining(`as servers.${name}.ca;`),
      });
    }
  });

  it("a file that is gone fails the next connection, and check; once it is back, calls go on", async () => {
    const file = join(stack.dir, "internal.pem");
    rmSync(file);
    server.closeAllConnections();
    await until(async () => (await call("right")).status === 502, "the connection is made anew");
    await until(() => cureFor("right") !== undefined, "the line of the log");
    expect(cureFor("right")).toBe("the file that servers.right.ca names must be there and hold PEM certificates");
    const { code, json } = await run("check");
    expect([code, json["problems"]?.map(({ message }) => message)]).toEqual([
      2,
      [`\`servers.right.ca\` names ${file}: this file does not exist`],
    ]);
    writeFileSync(file, internalCa);
    expect(await call("right")).toMatchObject({ status: 200 });
  });
});
