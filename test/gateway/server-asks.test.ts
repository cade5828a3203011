import { renameSync, rmSync, symlinkSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { afterEach, describe, expect, it } from "vitest";
import type { Injected } from "../../src/gateway/context.ts";
import { until } from "../support/until.ts";
import { Harness, openPolicy } from "./harness.ts";
import type { Behaviour, SeenRequest } from "./scripted-upstream.ts";

let harness: Harness | undefined;
afterEach(async () => {
  await harness?.stop();
  harness = undefined;
});

const ping = (id: number): string => `data: {"jsonrpc":"2.0","id":${id},"method":"ping"}\n\n`;
const pong = (id: number): string => `{"jsonrpc":"2.0","id":${id},"result":{}}`;

/** An upstream whose every GET stream asks `count` times, and that writes down what it is answered. */
function asker(count: number): { behave: Behaviour; answers: string[]; streams: ServerResponse[]; bytes: number } {
  const answers: string[] = [];
  const streams: ServerResponse[] = [];
  const text = Array.from({ length: count }, (_, id) => ping(id)).join("");
  const behave: Behaviour = (request: SeenRequest, response) => {
    if (request.method === "GET") {
      streams.push(response);
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(text);
    } else {
      answers.push(request.body.toString());
      response.writeHead(202).end();
    }
  };
  return { behave, answers, streams, bytes: text.length };
}

describe("requests of servers that wait for an answer", () => {
  it("C09 a server that asks all it may takes nothing from the others", async () => {
    const { behave, answers, bytes } = asker(256);
    const [grants] = Object.values(openPolicy.servers);
    if (grants === undefined) throw new Error("no policy");
    const policy = { servers: { tickets: grants, ungranted: grants } };
    const h = await Harness.start(behave, { policy });
    harness = h;
    const greedy = Array.from({ length: 65 }, (_, i) => h.begin({ method: "GET", principal: `key:p${i}` }));
    await until(() => greedy.every(({ body }) => body.length === bytes), "all requests are out");
    expect((await h.call({ body: pong(0), principal: "key:p64" })).head?.by).toBe("gateway");
    const modest = h.begin({ method: "GET", server: "ungranted", principal: "key:p64" });
    await until(() => modest.body.length === bytes, "the other server's requests are out");
    await h.call({ body: pong(0), server: "ungranted", principal: "key:p64" });
    expect(answers).toEqual([pong(0)]);
    for (const stream of [...greedy, modest]) stream.cancel();
  });

  it("C09 an answer that could not leave for want of a credential may be sent again, and passes once", async () => {
    let isSealed = true;
    const { behave, answers, bytes } = asker(1);
    const inject = (): Injected => {
      if (isSealed) throw new Error("sealed");
      return { headers: [], secrets: [] };
    };
    const h = await Harness.start(behave, { credential: { inject, refresh: inject } });
    harness = h;
    isSealed = false;
    const stream = h.begin({ method: "GET" });
    await until(() => stream.body.length === bytes, "the request is out");
    isSealed = true;
    expect((await h.call({ body: pong(0) })).head?.status).toBe(502);
    isSealed = false;
    expect((await h.call({ body: pong(0) })).head).toMatchObject({ status: 202, by: "upstream" });
    expect((await h.call({ body: pong(0) })).head).toMatchObject({ status: 202, by: "gateway" });
    expect(answers).toEqual([pong(0)]);
    stream.cancel();
  });

  it("C09 an answer passes once also while the first one waits for its credential; one that is cut off there counts as none", async () => {
    const { behave, answers, bytes } = asker(1);
    const waiting: (() => void)[] = [];
    const none = { headers: [], secrets: [] };
    let isSlow = false;
    const inject = (): Injected | Promise<Injected> =>
      isSlow ? new Promise((resolve) => waiting.push(() => resolve(none))) : none;
    const h = await Harness.start(behave, { credential: { inject, refresh: inject } });
    harness = h;
    const stream = h.begin({ method: "GET" });
    await until(() => stream.body.length === bytes, "the request is out");
    isSlow = true;
    const first = h.begin({ body: pong(0) });
    await until(() => waiting.length === 1, "the first answer waits");
    expect((await h.call({ body: pong(0) })).head).toMatchObject({ status: 202, by: "gateway" });
    first.cancel();
    isSlow = false;
    expect((await h.call({ body: pong(0) })).head).toMatchObject({ status: 202, by: "upstream" });
    waiting[0]?.();
    expect(answers).toEqual([pong(0)]);
    stream.cancel();
  });

  it("C09 an answer that could not be recorded may be sent again", async () => {
    const { behave, answers, bytes } = asker(1);
    const h = await Harness.start(behave);
    harness = h;
    const stream = h.begin({ method: "GET" });
    await until(() => stream.body.length === bytes, "the request is out");
    const { auditFile } = h;
    renameSync(auditFile, `${auditFile}.1`);
    symlinkSync("/dev/full", auditFile);
    h.gateway.reopenAudit();
    expect((await h.call({ body: pong(0) })).head?.status).toBe(503);
    rmSync(auditFile);
    h.gateway.reopenAudit();
    expect((await h.call({ body: pong(0) })).head).toMatchObject({ status: 202, by: "upstream" });
    expect(answers).toEqual([pong(0)]);
    stream.cancel();
  });
});
