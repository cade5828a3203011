import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, it } from "vitest";
import { startGateway } from "../../src/cli/start-gateway.ts";
import { loadGatewayConfig } from "../../src/config/index.ts";
import { createLogger } from "../../src/telemetry/index.ts";
import { writeConfig } from "../config/traps.ts";
import { until } from "../support/until.ts";

const lines: string[] = [];
const logger = createLogger({ level: "info", destination: { write: (line) => void lines.push(line) } });

function configWith(adminPort: number, relay = "url: ws://127.0.0.1:9, token: { file: /nowhere/tunnel-token }") {
  const file = writeConfig(
    "gateway.yaml",
    [
      `relay: { ${relay}, tunnel: acme }`,
      "servers: { tickets: { url: http://127.0.0.1:9/mcp } }",
      "policy: { version: 1, servers: {} }",
      `admin: { listen: "127.0.0.1:${adminPort}" }`,
    ].join("\n"),
  );
  const loaded = loadGatewayConfig(file);
  if (loaded.kind === "bad") throw new Error(JSON.stringify(loaded.problems));
  return loaded.config;
}

afterEach(() => {
  lines.length = 0;
});

it("a tunnel token that cannot be read is named, with what to do", async () => {
  const part = await startGateway(configWith(0), {}, logger);
  await until(() => lines.some((line) => line.includes("relay.token")), "the log line");
  await part.stop(0);
  expect(lines.map((line) => JSON.parse(line))).toContainEqual(
    expect.objectContaining({
      level: "error",
      msg: "relay.token cannot be used",
      code: "source-missing",
      reason: "file /nowhere/tunnel-token does not exist",
      cure: "mount the secret there, or correct the path",
    }),
  );
});

it("what is no tunnel token is named by its kind, and never sent to the relay", async () => {
  let count = 0;
  const relay = createServer().on("connection", () => {
    count += 1;
  });
  await new Promise<void>((resolve) => relay.listen(0, "127.0.0.1", resolve));
  const { port } = relay.address() as AddressInfo;
  const secret = "some-other-secret-supersecret";
  const config = configWith(0, `url: "ws://127.0.0.1:${port}", token: { env: OTHER_SECRET }`);
  const part = await startGateway(config, { OTHER_SECRET: secret }, logger);
  // Said before the first waiting time, so by then a dial would have been made.
  await until(() => lines.some((line) => line.includes("relay not reached")), "the log line");
  await part.stop(0);
  await new Promise((resolve) => relay.close(resolve));
  expect(count).toBe(0);
  expect(lines.map((line) => JSON.parse(line))).toContainEqual(
    expect.objectContaining({
      msg: "relay.token cannot be used",
      code: "value-invalid",
      reason: "relay.token leads to something that is neither a tunnel token (ptk_ and 43 characters) nor a JWT",
    }),
  );
  expect(lines.join("")).not.toContain(secret);
});

it("an admin port that is taken ends the start", async () => {
  const other = createServer();
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  const { port } = other.address() as AddressInfo;
  await expect(startGateway(configWith(port), {}, logger)).rejects.toMatchObject({ code: "EADDRINUSE" });
  other.close();
});
