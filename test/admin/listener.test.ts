import { request } from "node:http";
import { afterEach, describe, expect, it } from "vitest";
import { type AdminListener, listenAdmin } from "../../src/admin/index.ts";

let listener: AdminListener | undefined;
let isReady = false;

async function start(allowedHosts: string[] = []): Promise<AdminListener> {
  listener = await listenAdmin(
    { host: "127.0.0.1", port: 0, allowedHosts },
    { readiness: () => ({ isReady, detail: { tunnel: isReady ? "connected" : "dialling" } }) },
  );
  return listener;
}

async function get(path: string, host?: string, method = "GET"): Promise<{ status: number; body: string }> {
  const port = listener?.port;
  return new Promise((resolve, reject) => {
    const sent = request(
      { host: "127.0.0.1", port, path, method, headers: host === undefined ? {} : { host } },
      (response) => {
        let body = "";
        response.setEncoding("utf8");
        response.on("data", (chunk: string) => {
          body += chunk;
        });
        response.on("end", () => resolve({ status: response.statusCode ?? 0, body }));
      },
    );
    sent.on("error", reject);
    sent.end();
  });
}

afterEach(async () => {
  await listener?.close();
  listener = undefined;
});

describe("admin listener", () => {
  it("is alive while readiness says no, and ready only when its source says so", async () => {
    await start();
    isReady = false;
    expect((await get("/livez")).status).toBe(200);
    expect(await get("/readyz")).toEqual({ status: 503, body: '{"ready":false,"tunnel":"dialling"}\n' });
    isReady = true;
    expect((await get("/readyz")).status).toBe(200);
  });

  it.each([
    ["evil.example.com", 403],
    ["localhost:1", 200],
    ["[::1]:80", 200],
    ["10.1.2.3:9464", 200],
    ["127.0.0.1.evil.example.com", 403],
    ["probe.internal:9464", 200],
    ["ADMIN.internal:9464", 200],
  ])("checks the Host %s", async (host, status) => {
    await start(["probe.internal", "Admin.Internal"]);
    expect((await get("/livez", host)).status).toBe(status);
  });

  it("answers other verbs and paths with the right refusal", async () => {
    await start();
    expect((await get("/livez", undefined, "POST")).status).toBe(405);
    expect((await get("/metrics2")).status).toBe(404);
    expect((await get("/readyz?x=1")).status).toBe(404);
  });

  it("rejects when the port is taken", async () => {
    const first = await start();
    await expect(
      listenAdmin(
        { host: "127.0.0.1", port: first.port, allowedHosts: [] },
        { readiness: () => ({ isReady: true, detail: {} }) },
      ),
    ).rejects.toMatchObject({ code: "EADDRINUSE" });
  });
});
