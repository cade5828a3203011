/** An upstream that refuses the credential: one re-read, one more try, then 502 (DESIGN 4.6, case C26). */
import type { ServerResponse } from "node:http";
import { afterEach, describe, expect, it } from "vitest";
import { createCredentials } from "../../src/credentials/index.ts";
import type { Injector } from "../../src/gateway/index.ts";
import { Secret, systemClock } from "../../src/lib/index.ts";
import { silentLogger } from "../../src/telemetry/index.ts";
import { until } from "../support/until.ts";
import { VaultFake } from "../support/vault-fake.ts";
import { canary, errorOf, Harness, toolCall } from "./harness.ts";
import { type Behaviour, echoResult, json } from "./scripted-upstream.ts";

let harness: Harness | undefined;
let vault: VaultFake | undefined;

afterEach(async () => {
  await harness?.stop();
  await vault?.stop();
  harness = undefined;
  vault = undefined;
});

interface Rotated extends Injector {
  readonly rereads: () => number;
}

const injection = (token: string) => ({ headers: ["Authorization", `Bearer ${token}`], secrets: [new Secret(token)] });

/** A credential that is `next` once it was read anew; the same as before without one. */
function rotating(next?: string): Rotated {
  let rereads = 0;
  let current = injection(canary);
  return {
    inject: () => current,
    refresh: async () => {
      rereads += 1;
      await Promise.resolve();
      current = injection(next ?? canary);
      return current;
    },
    rereads: () => rereads,
  };
}

const refuse = (response: ServerResponse, status = 401): void =>
  json(response, '{"error":"invalid_token"}', status, { "www-authenticate": "Bearer realm=private" });

/** Takes `token` and nothing else. */
function demanding(token: string, then: Behaviour = echoResult, status = 401): Behaviour {
  return (request, response) => {
    if (request.headers.authorization === `Bearer ${token}`) then(request, response);
    else refuse(response, status);
  };
}

async function start(behave: Behaviour, credential: Injector): Promise<Harness> {
  harness = await Harness.start(behave, { credential });
  return harness;
}

describe("a refused credential", () => {
  it.each([401, 403])(
    "C26 a %d with a challenge is tried again with the rotated value, byte for byte",
    async (status) => {
      const credential = rotating("new-value");
      const h = await start(demanding("new-value", echoResult, status), credential);
      const body = toolCall("get_x", "i-1");
      const stream = await h.call({ body, pieces: 7 });
      expect([stream.head?.status, stream.head?.by]).toEqual([200, "upstream"]);
      expect(JSON.parse(stream.text)).toEqual({ jsonrpc: "2.0", id: "i-1", result: { content: [] } });
      expect(h.upstream.seen.map(({ body }) => body.toString())).toEqual([body, body]);
      expect(credential.rereads()).toBe(1);
      await until(() => h.audit.length === 2, "both records");
      expect(h.audit.map(({ event, end }) => [event, end])).toEqual([
        ["decision", undefined],
        ["outcome", "complete"],
      ]);
    },
  );

  it.each(["GET", "DELETE"] as const)("a %s is tried again as well", async (method) => {
    const then: Behaviour = (_, response) => {
      if (method === "DELETE") response.writeHead(204).end();
      else response.writeHead(200, { "content-type": "text/event-stream" }).end("data: {}\n\n");
    };
    const h = await start(demanding("new-value", then), rotating("new-value"));
    const stream = await h.call({ method });
    expect(stream.head?.status).toBe(method === "DELETE" ? 204 : 200);
    expect(h.upstream.seen.map((seen) => seen.method)).toEqual([method, method]);
  });

  it("C26 one that did not change is read anew once and is 502, and the challenge stays here", async () => {
    const credential = rotating();
    const h = await start((_, response) => refuse(response), credential);
    const stream = await h.call({ body: toolCall("get_x") });
    expect([stream.head?.status, errorOf(stream).code]).toEqual([502, -33021]);
    expect(stream.head?.headers.join(" ")).not.toMatch(/www-authenticate|realm/i);
    expect(credential.rereads()).toBe(1);
    expect(h.upstream.seen).toHaveLength(1);
    expect(h.log).toContain("the server refused the credential");
    await until(() => h.audit.length === 2, "both records");
    expect(h.audit[1]).toMatchObject({ event: "outcome", status: 502, by: "gateway", end: "UPSTREAM_FAILED" });
  });

  it("a second refusal is final, whatever the credential says by then", async () => {
    const credential = rotating("new-value");
    const h = await start((_, response) => refuse(response), credential);
    const stream = await h.call({ body: toolCall("get_x") });
    expect([stream.head?.status, errorOf(stream).code]).toEqual([502, -33021]);
    expect([credential.rereads(), h.upstream.seen.length]).toEqual([1, 2]);
  });

  it.each(["throws", "rejects"])("a re-read that %s is 502", async (how) => {
    const fail = (): Promise<never> => {
      const error = new Error("vault at 10.0.0.7 sealed");
      if (how === "throws") throw error;
      return Promise.reject(error);
    };
    const h = await start((_, response) => refuse(response), { ...rotating(), refresh: fail });
    const stream = await h.call({ body: toolCall("get_x") });
    expect([stream.head?.status, errorOf(stream).code]).toEqual([502, -33021]);
    expect(stream.text).not.toContain("10.0.0.7");
  });

  it("a 403 without a challenge is the server's own answer", async () => {
    const credential = rotating("new-value");
    const h = await start((request, response) => {
      const id = (JSON.parse(request.body.toString()) as { id: number }).id;
      json(response, `{"jsonrpc":"2.0","id":${id},"error":{"code":1,"message":"no"}}`, 403);
    }, credential);
    const stream = await h.call({ body: toolCall("get_x") });
    expect([stream.head?.status, stream.head?.by]).toEqual([403, "upstream"]);
    expect(credential.rereads()).toBe(0);
  });

  it("a stream that has started is never started again", async () => {
    const credential = rotating("new-value");
    const h = await start((_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write('data: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}\n\n', () => {
        response.destroy();
      });
    }, credential);
    const stream = await h.call({ body: toolCall("get_x") });
    expect(stream.text).toContain('"code":-33021');
    expect([credential.rereads(), h.upstream.seen.length]).toEqual([0, 1]);
  });

  it("an agent that leaves during the re-read costs no second call", async () => {
    const waiting: ((found: ReturnType<typeof injection>) => void)[] = [];
    const h = await start((_, response) => refuse(response), {
      inject: () => injection(canary),
      refresh: () => new Promise((resolve) => waiting.push(resolve)),
    });
    const stream = h.begin({ body: toolCall("get_x") });
    await until(() => waiting.length === 1, "the re-read");
    stream.cancel();
    waiting[0]?.(injection("new-value"));
    await until(() => h.audit.length === 2, "both records");
    expect(h.audit[1]).toMatchObject({ event: "outcome", end: "CANCEL" });
    expect(h.upstream.seen).toHaveLength(1);
  });

  it("the agent's deadline holds for both tries together", async () => {
    const waiting: ((found: ReturnType<typeof injection>) => void)[] = [];
    const h = await start((_, response) => refuse(response), {
      inject: () => injection(canary),
      refresh: () => new Promise((resolve) => waiting.push(resolve)),
    });
    const stream = h.begin({ body: toolCall("get_x"), deadlineMs: 300 });
    const startedAt = performance.now();
    await until(() => waiting.length === 1, "the re-read");
    await until(() => performance.now() - startedAt > 300, "the deadline");
    waiting[0]?.(injection("new-value"));
    await until(() => stream.isOver, "the end");
    expect([stream.head?.status, errorOf(stream).code]).toEqual([502, -33021]);
    expect(h.upstream.seen).toHaveLength(1);
  });
});

describe("with a store behind it", () => {
  it("C26 ten calls that meet a 401 together cause one read of the store, and ten successes", async () => {
    vault = await VaultFake.start();
    await vault.putSecret("secret", "mcp/a", { token: "old-value" });
    const { roleId, secretId } = await vault.enableApprole('path "secret/data/mcp/*" { capabilities = ["read"] }');
    const credentials = createCredentials({
      vault: { address: vault.address, auth: { method: "approle", roleId, secretId: { env: "S" } } },
      servers: { tickets: { type: "bearer", token: { vault: { mount: "secret", path: "mcp/a", field: "token" } } } },
      clock: systemClock,
      random: () => 0.5,
      logger: silentLogger,
      env: { S: secretId },
    });
    // All ten are refused before the first of them asks for another value.
    const parked: (() => void)[] = [];
    const h = await start((request, response) => {
      if (request.headers.authorization === "Bearer new-value") {
        echoResult(request, response);
        return;
      }
      parked.push(() => refuse(response));
      if (parked.length === 10) for (const answer of parked) answer();
    }, credentials.forServer("tickets"));
    try {
      await credentials.forServer("tickets").inject({ id: "key:claude" });
      await vault.putSecret("secret", "mcp/a", { token: "new-value" });
      const streams = await Promise.all(Array.from({ length: 10 }, (_, i) => h.call({ body: toolCall("get_x", i) })));
      expect(streams.map((stream) => stream.head?.status)).toEqual(Array(10).fill(200));
      expect(vault.count("secret/data/mcp/a")).toBe(2);
      expect(h.upstream.seen).toHaveLength(20);
      await until(() => h.audit.length === 20, "every record");
    } finally {
      await credentials.close();
    }
  });
});
