import type { ServerResponse } from "node:http";
import { afterEach, describe, expect, it } from "vitest";
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
});
