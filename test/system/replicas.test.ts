import { afterEach, describe, expect, it } from "vitest";
import { type Behaviour, json, ScriptedUpstream } from "../gateway/scripted-upstream.ts";
import { type Path, startPath } from "../support/path-in-process.ts";

/** Several gateways of one tunnel, as a chart with `replicas` makes them. */
describe("two gateways of one tunnel", () => {
  let upstream: ScriptedUpstream | undefined;
  let path: Path | undefined;

  afterEach(async () => {
    await path?.stop();
    await upstream?.stop();
  });

  /** Legacy sessions: 404 for an id that it did not give. */
  function sessionServer(): Behaviour {
    const sessions = new Set<string>();
    return (request, response) => {
      const session = request.headers["mcp-session-id"];
      const { id, method } = JSON.parse(request.body.toString()) as { id: number; method: string };
      if (method === "initialize") {
        sessions.add(`s-${sessions.size + 1}`);
        json(response, `{"jsonrpc":"2.0","id":${id},"result":{}}`, 200, { "mcp-session-id": `s-${sessions.size}` });
      } else if (typeof session === "string" && sessions.has(session)) {
        json(response, `{"jsonrpc":"2.0","id":${id},"result":{"content":[],"of":"${session}"}}`);
      } else {
        json(response, `{"jsonrpc":"2.0","id":${id},"error":{"code":-32001,"message":"Session not found"}}`, 404);
      }
    };
  }

  const send = (to: Path, body: string, session?: string): Promise<Response> =>
    fetch(to.url, {
      method: "POST",
      body,
      headers: {
        authorization: `Bearer ${to.agentKey}`,
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        ...(session === undefined ? {} : { "mcp-session-id": session }),
      },
    });

  it("serve MCP sessions side by side, each with the one that opened it", async () => {
    upstream = await ScriptedUpstream.start(sessionServer());
    path = await startPath({ upstreamUrl: upstream.url, replicas: 2 });
    const to = path;
    const initialize = '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}';
    const opened = await Promise.all(Array.from({ length: 8 }, () => send(to, initialize)));
    const sessions = opened.map(({ headers }) => headers.get("mcp-session-id") ?? "");
    expect(new Set(sessions.map((id) => id.split(".")[0])).size).toBe(2);
    const call = (id: number): string =>
      `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"get_x","arguments":{}}}`;
    const rounds = Array.from({ length: 5 }, (_, round) => round + 1);
    const answers = rounds.flatMap((round) =>
      sessions.map(async (session) => {
        const text = await (await send(to, call(round), session)).text();
        return text.includes(`"of":"${session.split(".")[2]}"`);
      }),
    );
    expect(await Promise.all(answers)).toEqual(Array(40).fill(true));
  });
});
