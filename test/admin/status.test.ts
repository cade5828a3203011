import { afterEach, describe, expect, it } from "vitest";
import { type AdminListener, listenAdmin } from "../../src/admin/index.ts";
import { Secret } from "../../src/lib/index.ts";

const token = "an-admin-token-of-some-length";
let listener: AdminListener | undefined;

afterEach(async () => {
  await listener?.close();
  listener = undefined;
});

async function start(
  readToken?: () => Promise<Secret>,
): Promise<(path: string, init?: RequestInit) => Promise<Response>> {
  const opened = await listenAdmin(
    { host: "127.0.0.1", port: 0, allowedHosts: [], readToken },
    {
      readiness: () => ({ isReady: true, detail: {} }),
      metrics: () =>
        Promise.resolve({ contentType: "text/plain; version=0.0.4; charset=utf-8", text: "postern_x 1\n" }),
      status: () => ({ part: "gateway" }),
    },
  );
  listener = opened;
  return (path, init) => fetch(`http://127.0.0.1:${opened.port}${path}`, init);
}

const bearer = (text: string): RequestInit => ({ headers: { authorization: `Bearer ${text}` } });

describe("/metrics", () => {
  it("is answered without a token, to GET alone", async () => {
    const get = await start(() => Promise.resolve(new Secret(token)));
    const page = await get("/metrics");
    expect([page.status, page.headers.get("content-type")]).toEqual([200, "text/plain; version=0.0.4; charset=utf-8"]);
    expect(await page.text()).toBe("postern_x 1\n");
    expect((await get("/metrics", { method: "POST" })).status).toBe(405);
  });
});

describe("/status", () => {
  it("opens to the token and to nothing else", async () => {
    const get = await start(() => Promise.resolve(new Secret(token)));
    expect(await (await get("/status", bearer(token))).json()).toEqual({ part: "gateway" });
    const refused = [
      undefined,
      bearer(`${token}x`),
      bearer(token.slice(1)),
      bearer(""),
      { headers: { authorization: token } },
    ];
    for (const init of refused) {
      const answer = await get("/status", init);
      expect([answer.status, answer.headers.get("www-authenticate")]).toEqual([401, "Bearer"]);
      expect(await answer.text()).not.toContain(token);
    }
    expect((await get("/status", { ...bearer(token), method: "POST" })).status).toBe(405);
  });

  it("opens to nobody without a configured token", async () => {
    const get = await start();
    for (const init of [undefined, bearer(""), bearer("undefined")])
      expect((await get("/status", init)).status).toBe(403);
  });

  it("stays shut while the token cannot be read, or is short enough to be guessed", async () => {
    const reads = [() => Promise.reject(new Error("no file")), () => Promise.resolve(new Secret("short"))];
    const get = await start(() => (reads.shift() ?? (() => Promise.resolve(new Secret(""))))());
    for (const text of ["x", "short", ""]) expect((await get("/status", bearer(text))).status).toBe(503);
  });

  it("takes a token that was changed in its place", async () => {
    let current = token;
    const get = await start(() => Promise.resolve(new Secret(current)));
    current = "another-token-of-some-length";
    expect((await get("/status", bearer(token))).status).toBe(401);
    expect((await get("/status", bearer(current))).status).toBe(200);
  });
});
