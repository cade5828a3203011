/**
 * What the secrets of 10,000 principals cost: `npm run bench -- principals`, with tokens of 1,000 characters. Prints JSON; MiB are of
 * heap and buffers after a collection, microseconds are medians. Exits 1 when caches and leak guard take more than 64 MiB.
 */
import { randomBytes } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Caller, Injection } from "../src/credentials/index.ts";

// What is built, since tsx gives every closure a name of its own, which thousands of them pay for.
const built = async (file: string): Promise<unknown> =>
  await import(new URL(`../dist/${file}.js`, import.meta.url).href);
const { createCredentials } = (await built("credentials/index")) as typeof import("../src/credentials/index.ts");
const { LeakGuard } = (await built("gateway/leak-guard")) as typeof import("../src/gateway/leak-guard.ts");
const { Secret, systemClock } = (await built("lib/index")) as typeof import("../src/lib/index.ts");
const { silentLogger } = (await built("telemetry/index")) as typeof import("../src/telemetry/index.ts");

const principals = 10_000;
const limitMib = 64;
const { gc } = globalThis;
if (gc === undefined) throw new Error("run it with --expose-gc");

/** As long as a signed access token with a handful of claims. */
const tokenBytes = 1_000;
const mintJwt = (): string => {
  const part = (length: number): string => randomBytes(length).toString("base64url");
  return `eyJ${part(30)}.${part(600)}.${part(64)}`.padEnd(tokenBytes, "x");
};

// One server that plays the store and the token endpoint.
const server = createServer((req, res) => {
  req.resume().on("end", () => {
    const answer = req.url?.startsWith("/token")
      ? {
          access_token: mintJwt(),
          token_type: "Bearer",
          expires_in: 36_000,
          issued_token_type: "urn:ietf:params:oauth:token-type:access_token",
        }
      : { data: { data: { token: mintJwt() }, metadata: { version: 1 } } };
    res.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
  });
});
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

const credentials = createCredentials({
  vault: { address: base, auth: { method: "agent", agent: { address: base } }, ttlMs: 36_000_000 },
  areCallersVerified: true,
  servers: {
    own: { type: "bearer", token: { vault: { mount: "secret", path: "mcp/{principal.id}", field: "token" } } },
    swapped: {
      type: "tokenExchange",
      at: { tokenEndpoint: `${base}/token` },
      clientId: "postern",
      client: { auth: "basic", secret: { env: "SECRET" } },
    },
  },
  clock: systemClock,
  random: Math.random,
  logger: silentLogger,
  env: { SECRET: "client-secret" },
});

function heldMib(): number {
  for (let i = 0; i < 4; i += 1) gc?.();
  const { heapUsed, external } = process.memoryUsage();
  return (heapUsed + external) / 1024 ** 2;
}

const idOf = (i: number): string => `oauth:https://idp.example.com#${"0".repeat(20)}${i}`;
const expiresAt = Date.now() + 36_000_000;
/** The tokens that agents come with are theirs; only what is kept of them counts. */
const subjects = Array.from({ length: principals }, mintJwt);
// A copy for each call, as it comes over the tunnel.
const callerAt = (i: number): Caller => ({
  id: idOf(i),
  token: new Secret(Buffer.from(subjects[i] ?? "").toString("latin1")),
  expiresAt,
});

async function measure(name: "own" | "swapped") {
  const credential = credentials.forServer(name);
  const guard = new LeakGuard({
    server: name,
    onReflect: "redact",
    isPerCaller: true,
    clock: systemClock,
    logger: silentLogger,
  });
  const before = heldMib();
  const injectAll = async (watches: boolean): Promise<void> => {
    for (let from = 0; from < principals; from += 50) {
      const some = Array.from({ length: 50 }, async (_, k) => {
        const caller = callerAt(from + k);
        const injection = await credential.inject(caller);
        // What is sent is flattened into one text, as undici does it.
        Buffer.from(injection.headers.join("\r\n"), "latin1");
        if (watches) guard.watch(injection, caller.id, "req-1");
      });
      await Promise.all(some);
    }
  };
  await injectAll(false);
  const cached = heldMib();
  await injectAll(true);
  const watched = heldMib();
  // A second value for each, within the ten minutes for which the first counts.
  for (let i = 0; i < principals; i += 1) {
    const token = mintJwt();
    guard.watch({ headers: ["Authorization", `Bearer ${token}`], secrets: [new Secret(token)] }, idOf(i), "req-1");
  }
  const rotated = heldMib();
  const warm = callers.map((caller) => credential.inject(caller));
  const watch = (i: number): void => {
    const at = i % callers.length;
    guard.watch(warm[at] as Injection, idOf(at), "req-1");
  };
  const round = (mib: number): number => Math.round(mib * 10) / 10;
  return {
    credential: name,
    cachesMib: round(cached - before),
    withGuardMib: round(watched - before),
    withOldValuesMib: round(rotated - before),
    warmInjectUs: median(2_000, (i) => void credential.inject(callers[i % callers.length] as Caller)),
    watchUs: median(2_000, (i) => void watch(i % hotCallers)),
    watchAmongManyUs: median(2_000, watch),
  };
}

const callers = Array.from({ length: 2_000 }, (_, i) => callerAt(i));
/** Few enough for their searches to be at hand. */
const hotCallers = 50;

function median(rounds: number, run: (i: number) => void): number {
  const times = Array.from({ length: rounds }, (_, i) => {
    const start = performance.now();
    run(i);
    return (performance.now() - start) * 1_000;
  }).toSorted((a, b) => a - b);
  return Math.round((times[rounds >> 1] ?? 0) * 10) / 10;
}

// Connections, code and the first collections are not the principals'.
for (const name of ["own", "swapped"]) {
  const credential = credentials.forServer(name);
  await Promise.all(
    Array.from({ length: 200 }, (_, i) => credential.inject({ ...callerAt(i), id: `oauth:warm#${i}` })),
  );
}
const figures = [await measure("own"), await measure("swapped")];
console.log(JSON.stringify(figures, undefined, 2));
await credentials.close();
server.close();
if (figures.some(({ withGuardMib }) => withGuardMib > limitMib)) process.exitCode = 1;
