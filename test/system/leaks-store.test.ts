import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { callTool } from "../support/agent-requests.ts";
import { findLeaks } from "../support/canary.ts";
import { answerText, type RawAnswer, RawUpstream } from "../support/raw-upstream.ts";
import { type Stack, startStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { mintSecret } from "../support/vault-backed.ts";

/**
 * The ways out through those who hand the secrets out, as docs/threat-model.md numbers them: a store and a token endpoint that fail in
 * every way and quote all that they were sent, and all that they hold, while they do.
 */
const secrets = {
  secretId: mintSecret("secret-id"),
  storeToken: `hvs.${mintSecret("store")}`,
  stored: mintSecret("stored"),
  clientSecret: mintSecret("client"),
  issued: mintSecret("issued"),
};
const everything = Object.values(secrets).join(" ");
const json = (status: number, body: unknown, head = ""): string =>
  answerText(`${status} ${everything}\nContent-Type: application/json\n${head}`, JSON.stringify(body));

/** How either of them may fail; each says what it was sent and what it knows. */
const failures: { readonly [name: string]: RawAnswer } = {
  "a refusal": (socket, { text }) => socket.write(json(403, { errors: [everything, text], error: everything })),
  "a bad request": (socket, { text }) =>
    socket.write(json(400, { errors: [text], error: "invalid_client", error_description: `${text} ${everything}` })),
  "a failure": (socket, { text }) => socket.write(json(500, { errors: [text, everything] })),
  "a sealed store": (socket, { text }) => socket.write(json(503, { errors: [text], error: everything })),
  "a rate limit": (socket) => socket.write(json(429, { errors: [everything] }, `Retry-After: ${everything}`)),
  "a redirect": (socket) =>
    socket.write(json(307, {}, `Location: http://127.0.0.1:1/${encodeURIComponent(everything)}`)),
  "a challenge": (socket) =>
    socket.write(json(401, { error: everything }, `WWW-Authenticate: Bearer realm="${everything}"`)),
  "a page": (socket, { text }) =>
    socket.write(answerText("200 OK\nContent-Type: text/html", `<pre>${text}${everything}`)),
  "broken JSON": (socket) =>
    socket.write(answerText("200 OK\nContent-Type: application/json", `{"data":"${everything}`)),
  "a value that is no text": (socket) =>
    socket.write(
      json(200, { data: { data: { token: { is: everything } }, metadata: {} }, access_token: [everything] }),
    ),
  "a token that no header may carry": (socket) =>
    socket.write(
      json(200, {
        data: { data: { token: `${everything}\n${everything}` }, metadata: { version: 1 } },
        access_token: `${everything}\n`,
        token_type: "bearer",
      }),
    ),
  "a token of another type": (socket) =>
    socket.write(json(200, { access_token: secrets.issued, token_type: everything, data: { data: {}, metadata: {} } })),
  "broken HTTP": (socket) => socket.end(`HTTP/1.1 2x0 ${everything}\r\n${everything}\r\n\r\n`),
  "no HTTP": (socket) => socket.end(everything),
  "an end amid the answer": (socket) =>
    socket.end(`HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{"data":"${everything}`),
};

describe("the ways out through the store and the token endpoint", () => {
  let store: RawUpstream;
  let endpoint: RawUpstream;
  let server: RawUpstream;
  let stack: Stack;

  const login = json(200, { auth: { client_token: secrets.storeToken, lease_duration: 3600, renewable: true } });
  const entry = json(200, { data: { data: { token: secrets.stored }, metadata: { version: 1 } } });
  let failStore: RawAnswer | undefined;
  let failLogin: RawAnswer | undefined;

  beforeAll(async () => {
    store = await RawUpstream.start((socket, request) => {
      const isLogin = request.line.includes("/auth/approle/login");
      const isEntry = request.line.includes("/data/");
      const fault = isLogin ? failLogin : isEntry ? failStore : undefined;
      if (fault !== undefined) fault(socket, request);
      else if (isLogin) socket.write(login);
      else if (isEntry) socket.write(entry);
      else socket.write(json(404, { errors: [everything] }));
    });
    const granted = json(200, { access_token: secrets.issued, token_type: "bearer", expires_in: 3600 });
    endpoint = await RawUpstream.start((socket) => socket.write(granted));
    server = await RawUpstream.start((socket) =>
      socket.write(json(200, { jsonrpc: "2.0", id: 1, result: { content: [] } }).replace(everything, "OK")),
    );
    const url = `${server.origin}/mcp`;
    // The last one never fails, and so waits for nothing.
    const names = [...Object.keys(failures), "none"];
    // One server for each way to fail: what was read once would serve on.
    const servers = Object.fromEntries(
      names.flatMap((_, i) => [
        [
          `store-${i}`,
          {
            url,
            credential: { type: "bearer", token: { vault: { mount: "secret", path: `mcp/${i}`, field: "token" } } },
          },
        ],
        [
          `grant-${i}`,
          {
            url,
            credential: {
              type: "oauthClientCredentials",
              tokenEndpoint: `${endpoint.origin}/token`,
              clientId: "postern",
              clientSecret: { file: "./client-secret" },
              clientAuth: i % 2 === 0 ? "post" : "basic",
            },
          },
        ],
      ]),
    );
    stack = await startStack({
      secretFiles: { "secret-id": secrets.secretId, "client-secret": secrets.clientSecret },
      env: { POSTERN_LOG_LEVEL: "debug", NODE_DEBUG: "http,net,tls,undici,fetch,stream", DEBUG: "*" },
      vault: {
        address: store.origin,
        auth: { method: "approle", roleId: "postern", secretId: { file: "./secret-id" } },
        staleFor: "0s",
        ttl: "1s",
      },
      servers,
      policy: Object.fromEntries(Object.keys(servers).map((name) => [name, { tools: ["*"] }])),
    });
    await until(() => store.seen.some(({ text }) => text.includes(secrets.secretId)), "the login");
  });

  afterAll(async () => {
    await stack?.stop();
    await Promise.all([store?.stop(), endpoint?.stop(), server?.stop()]);
  });

  const clean = (text: string): void => {
    const outputs = [...stack.outputs(), { name: "answer", text }];
    expect(findLeaks(outputs, { ...secrets, tunnelToken: stack.tunnelToken })).toEqual([]);
    // Nor did the last defence of the log (L62) have to cut anything out of a line.
    expect(outputs.filter((output) => output.text.includes("[secret]"))).toEqual([]);
  };

  it.each(Object.keys(failures))("L54 L58 the store answers a read with %s", async (name) => {
    const i = Object.keys(failures).indexOf(name);
    failStore = failures[name];
    const before = store.seen.length;
    const answer = await callTool(stack.agentUrl(`store-${i}`), stack.agentKey, "get_x");
    failStore = undefined;
    expect(answer.status).toBe(502);
    expect(store.seen.slice(before).some(({ text }) => text.includes(secrets.storeToken))).toBe(true);
    clean(`${answer.text} ${JSON.stringify([...answer.headers])}`);
  });

  it.each(Object.keys(failures))("L59 the token endpoint answers a grant with %s", async (name) => {
    const i = Object.keys(failures).indexOf(name);
    const granting = endpoint.answer;
    endpoint.answer = failures[name] ?? granting;
    const before = endpoint.seen.length;
    const answer = await callTool(stack.agentUrl(`grant-${i}`), stack.agentKey, "get_x");
    endpoint.answer = granting;
    expect(answer.status).toBe(502);
    expect(endpoint.seen.length).toBeGreaterThan(before);
    clean(`${answer.text} ${JSON.stringify([...answer.headers])}`);
  });

  it("L58 L59 what both give in the end is used, and in no output either", async () => {
    const { length } = Object.keys(failures);
    for (const name of [`store-${length}`, `grant-${length}`]) {
      await until(
        async () => (await callTool(stack.agentUrl(name), stack.agentKey, "get_x")).status === 200,
        name,
        15_000,
      );
    }
    const sent = server.seen.map(({ headers }) => headers["authorization"]?.[0]);
    expect(new Set(sent)).toEqual(new Set([`Bearer ${secrets.stored}`, `Bearer ${secrets.issued}`]));
    clean("");
  });

  it("L54 L58 the store refuses a login, and quotes the secret id", async () => {
    for (const fault of Object.values(failures)) {
      failLogin = fault;
      // A refused token makes the gateway log in again.
      failStore = (socket) => socket.write(json(403, { errors: [everything] }));
      await callTool(stack.agentUrl("store-1"), stack.agentKey, "get_x");
      clean("");
    }
    failLogin = undefined;
    failStore = undefined;
  });
});
