/** A server that answers with its own credential (case C24), through the gateway without a tunnel. */
import { afterEach, describe, expect, it } from "vitest";
import type { Injector } from "../../src/gateway/index.ts";
import { Secret } from "../../src/lib/index.ts";
import { until } from "../support/until.ts";
import { canary, errorOf, Harness, header, toolCall } from "./harness.ts";
import { type Behaviour, json } from "./scripted-upstream.ts";

let harness: Harness | undefined;
afterEach(async () => {
  await harness?.stop();
  harness = undefined;
});

async function start(behave: Behaviour, onReflect?: "redact" | "block", credential?: Injector): Promise<Harness> {
  const options = credential === undefined ? {} : { credential };
  harness = await Harness.start(behave, { ...options, ...(onReflect === undefined ? {} : { onReflect }) });
  return harness;
}

const result = (text: string): string =>
  `{"jsonrpc":"2.0","id":1,"result":{"n":12345678901234567890,"content":[{"type":"text","text":"${text}"}]}}`;
const answering =
  (body: string): Behaviour =>
  (_, response) =>
    json(response, body);
const streaming =
  (...pieces: string[]): Behaviour =>
  (_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const next = (): void => {
      const piece = pieces.shift();
      if (piece === undefined) response.end();
      else response.write(piece, () => setImmediate(next));
    };
    next();
  };

async function outcome(h: Harness): Promise<Record<string, unknown>> {
  await until(() => h.audit.length === 2, "both records");
  return h.audit[1] ?? {};
}

const unicode = [...canary].map((c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");
const disguises: [string, string][] = [
  ["plain", canary],
  ["in base64", Buffer.from(`Bearer ${canary}`).toString("base64")],
  ["in base64url", Buffer.from(`??${canary}`).toString("base64url")],
  ["in hex", Buffer.from(canary).toString("hex")],
  ["in capital hex", Buffer.from(canary).toString("hex").toUpperCase()],
  ["in JSON escapes", unicode],
  ["in JSON within JSON", unicode.replaceAll("\\", "\\\\")],
];

describe("an answer that holds the credential", () => {
  it.each(disguises)("C24 %s: is cut out of JSON, and the rest stays byte for byte", async (_, text) => {
    const h = await start(answering(result(`before ${text} after`)));
    const stream = await h.call({ body: toolCall("get_x") });
    expect(stream.head?.status).toBe(200);
    expect(stream.text).toMatch(/"text":"before [\w=]*\[REDACTED:credential\][\w=]* after"/);
    expect(stream.text).toContain('"n":12345678901234567890');
    expect(stream.text).not.toContain(text);
    expect(await outcome(h)).toMatchObject({ end: "complete", scrubbed: 1 });
    expect(h.log).toContain("credential in an answer");
    expect(h.gateway.status().scrubbedCount).toBe(1);
  });

  it.each(disguises)("C24 %s: is cut out of an event, in pieces", async (_, text) => {
    const event = `id: 1\nevent: message\ndata: ${result(`before ${text} after`)}\n\n`;
    const half = event.indexOf(text) + 5;
    const h = await start(
      streaming(": hi\n\n", event.slice(0, half), event.slice(half, half + 3), event.slice(half + 3)),
    );
    const stream = await h.call({ body: toolCall("get_x") });
    expect(stream.text).toMatch(/"text":"before [\w=]*\[REDACTED:credential\][\w=]* after"/);
    expect(stream.text.startsWith(": hi\n\nid: 1\nevent: message\ndata: {")).toBe(true);
    expect(stream.text).not.toContain(text);
    expect(await outcome(h)).toMatchObject({ end: "complete", scrubbed: 1 });
  });

  it("C24 is cut out of a body and an event too large to be held, across chunks", async () => {
    const filler = "y".repeat(1_500_000);
    const body = result(`${filler}${canary}${filler}${canary}`);
    const h = await start((request, response) => {
      if (request.headers["accept"] === undefined) throw new Error("no accept");
      if (h.upstream.seen.length === 1) json(response, body);
      else response.writeHead(200, { "content-type": "text/event-stream" }).end(`data: ${body}\n\n`);
    });
    const expected = result(`${filler}[REDACTED:credential]${filler}[REDACTED:credential]`);
    const first = await h.call({ body: toolCall("get_x") });
    expect(first.text === expected).toBe(true);
    const second = await h.call({ body: toolCall("get_x") });
    expect(second.text === `data: ${expected}\n\n`).toBe(true);
    expect(h.gateway.status().scrubbedCount).toBe(4);
  });

  it("C24 is found in an error's text as well", async () => {
    const error = `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"bad key ${canary}"}}`;
    const h = await start((_, response) => json(response, error, 400));
    const stream = await h.call({ body: toolCall("get_x") });
    expect(stream.head?.status).toBe(400);
    expect(errorOf(stream).message).toBe("bad key [REDACTED:credential]");
  });

  it.each(["redact", "block"] as const)("C24 in a header is 502 under %s", async (onReflect) => {
    const h = await start(
      (_, response) => json(response, result("x"), 200, { "cache-control": `private, x=${canary}` }),
      onReflect,
    );
    const stream = await h.call({ body: toolCall("get_x") });
    expect([stream.head?.status, stream.head?.by, errorOf(stream).code]).toEqual([502, "gateway", -33021]);
    expect(header(stream, "cache-control")).toBe("no-store");
    expect(await outcome(h)).toMatchObject({ end: "UPSTREAM_FAILED", scrubbed: 1 });
  });

  it("is 502 where JSON would not stay JSON without it", async () => {
    const number = "1234567890123";
    const injected = { headers: ["X-Key", number], secrets: [new Secret(number)] };
    const credential: Injector = { inject: () => injected, refresh: () => injected };
    const h = await start(answering(`{"jsonrpc":"2.0","id":1,"result":{"key":${number}}}`), "redact", credential);
    const stream = await h.call({ body: toolCall("get_x") });
    expect([stream.head?.status, errorOf(stream).code]).toEqual([502, -33021]);
    expect(stream.text).not.toContain(number);
  });
});

describe("onReflect: block", () => {
  it("C24 turns JSON into 502, before anything has left", async () => {
    const h = await start(answering(result(`${"z".repeat(100_000)} ${canary}`)), "block");
    const stream = await h.call({ body: toolCall("get_x") });
    expect([stream.head?.status, stream.head?.by, errorOf(stream).code]).toEqual([502, "gateway", -33021]);
    expect(await outcome(h)).toMatchObject({ status: 502, end: "UPSTREAM_FAILED", scrubbed: 1 });
  });

  it("C24 cuts a body that is streaming, and never ends it", async () => {
    const filler = "y".repeat(1_500_000);
    const h = await start(answering(result(`${filler}${canary}${filler}`)), "block");
    const stream = await h.call({ body: toolCall("get_x") });
    expect(stream.text).not.toContain(canary);
    expect(stream.resetBy?.code).toBe("UPSTREAM_FAILED");
  });

  it("C24 puts an error in the place of an event, after those before it", async () => {
    const progress =
      'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}\n\n';
    const h = await start(streaming(progress, `data: ${result(canary)}\n\n`), "block");
    const stream = await h.call({ body: toolCall("get_x") });
    expect(stream.text.startsWith(progress)).toBe(true);
    expect(stream.text.slice(progress.length)).toMatch(/^event: message\ndata: .*"code":-33021/);
    expect(stream.text).not.toContain(canary);
    expect(await outcome(h)).toMatchObject({ end: "UPSTREAM_FAILED", scrubbed: 1 });
  });
});

describe("an answer without the credential", () => {
  const ordinary = `{ "jsonrpc":"2.0", "id":1, "result":{"a":1e400,"a":"\\u00e9\\/ ${canary.slice(0, -1)}","n":12345678901234567890}}`;

  it.each(["redact", "block"] as const)("passes byte for byte under %s", async (onReflect) => {
    const h = await start(answering(ordinary), onReflect);
    const stream = await h.call({ body: toolCall("get_x") });
    expect([stream.head?.status, stream.text]).toEqual([200, ordinary]);
    expect(await outcome(h)).not.toHaveProperty("scrubbed");
  });

  it("C05 leaves with its last byte, even where it ends like a beginning of the credential", async () => {
    const first = `data: {"jsonrpc":"2.0","method":"notifications/message","params":{}}\n\n: ${canary.slice(0, 9)}\n\n`;
    let finish: () => void = () => undefined;
    const h = await start((_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).write(first);
      finish = () => response.end(`data: ${result("ok")}\n\n`);
    });
    const stream = h.begin({ body: toolCall("get_x") });
    await until(() => stream.text === first, "both events, while the stream is open");
    finish();
    await until(() => stream.isOver, "the end");
  });
});

describe("a credential that changed", () => {
  it("C24 stays a needle for a while, and the new one is one at once on streams that are open", async () => {
    const injection = (token: string) => ({
      headers: ["Authorization", `Bearer ${token}`],
      secrets: [new Secret(token)],
    });
    const [old, next] = [injection(canary), injection("canary-next-secret")];
    let current = old;
    let say: (text: string) => void = () => undefined;
    const h = await start(
      (request, response) => {
        if (request.method === "GET") {
          response.writeHead(200, { "content-type": "text/event-stream" }).write(": open\n\n");
          say = (text) => response.end(`: ${text}\n\n`);
        } else {
          json(response, result(`${canary} canary-next-secret`));
        }
      },
      "redact",
      { inject: () => current, refresh: () => current },
    );
    const listening = h.begin({ method: "GET" });
    await until(() => listening.text !== "", "the stream is open");
    current = next;
    const stream = await h.call({ body: toolCall("get_x") });
    expect(stream.text).toBe(result("[REDACTED:credential] [REDACTED:credential]"));
    say("canary-next-secret");
    await until(() => listening.isOver, "the end");
    expect(listening.text).toBe(": open\n\n: [REDACTED:credential]\n\n");
  });

  it("that is too short is said in the log, and looked for nowhere", async () => {
    const short = { headers: ["X-Key", "abc"], secrets: [new Secret("abc")] };
    const h = await start(answering(result("abc")), "block", { inject: () => short, refresh: () => short });
    const stream = await h.call({ body: toolCall("get_x") });
    expect(stream.text).toBe(result("abc"));
    expect(h.log).toContain("too short to be found in answers");
  });
});
