import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { netStages } from "../../src/cli/doctor/net-stages.ts";
import { runStages } from "../../src/cli/doctor/stages.ts";
import type { ResolveAll } from "../../src/lib/index.ts";

const server = createServer((socket) => socket.destroy());
let port: number;

beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  ({ port } = server.address() as AddressInfo);
});
afterAll(() => server.close());

/** A name server that says each of these in turn, and goes on with the last. */
function saying(...answers: string[][]): ResolveAll {
  return (_name, _options, done) => {
    const [now = [], ...rest] = answers;
    if (rest.length > 0) answers.shift();
    const addresses = now.map((address) => ({ address, family: 4 }));
    if (addresses.length > 0) done(null, addresses);
    else done(Object.assign(new Error("no"), { code: "ENOTFOUND" }), []);
  };
}

async function look(host: string, resolve?: ResolveAll): Promise<string[]> {
  const url = new URL(`http://${host}:${port}/mcp`);
  const { stages } = netStages({ label: "server a", url, key: "servers.a.url", resolve });
  const results = await runStages(stages, () => undefined);
  return results.map(({ name, state, detail }) => `${name}: ${state}, ${detail}`);
}

const refused = "leads where nothing is dialled, as to a cloud's metadata service";

describe("the way to a host, as a doctor tries it", () => {
  it("is its name and its port", async () => {
    expect(await look("tickets.internal", saying(["127.0.0.1"]))).toEqual([
      "server a dns: ok, tickets.internal is 127.0.0.1",
      `server a tcp: ok, port ${port} answers at 127.0.0.1`,
    ]);
    expect(await look("tickets.internal", saying([]))).toEqual([
      "server a dns: failed, tickets.internal has no address: ENOTFOUND",
      'server a tcp: skipped, waits for "server a dns"',
    ]);
  });

  it("ends before a metadata service, which the gateway would not dial either", async () => {
    const skipped = 'server a tcp: skipped, waits for "server a dns"';
    expect(await look("169.254.169.254")).toEqual([`server a dns: failed, 169.254.169.254 ${refused}`, skipped]);
    expect(await look("tickets.internal", saying(["127.0.0.1", "169.254.169.254"]))).toEqual([
      `server a dns: failed, tickets.internal ${refused}`,
      skipped,
    ]);
    // A name that means something else a moment later.
    expect(await look("tickets.internal", saying(["127.0.0.1"], ["169.254.169.254"]))).toEqual([
      "server a dns: ok, tickets.internal is 127.0.0.1",
      `server a tcp: failed, port ${port} of tickets.internal is not reached: ADDRESS_REFUSED`,
    ]);
  });
});
