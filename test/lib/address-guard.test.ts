import { connect, createServer, type Server, type Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { guardedLookup, hostRefusal, type Reach, type ResolveAll, reachOf } from "../../src/lib/index.ts";

/** Answers the addresses in turn; the last one for ever. */
function scripted(...answers: readonly string[][]): { resolve: ResolveAll; asked: string[] } {
  const asked: string[] = [];
  const resolve: ResolveAll = (hostname, _, done) => {
    const addresses = answers[Math.min(asked.length, answers.length - 1)] ?? [];
    asked.push(hostname);
    const found = addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
    setImmediate(() => done(null, found));
  };
  return { resolve, asked };
}

describe("a connection through the guard", () => {
  let server: Server;
  const accepted: Socket[] = [];

  beforeAll(async () => {
    server = createServer((socket) => accepted.push(socket));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  });
  afterAll(() => {
    for (const socket of accepted) socket.destroy();
    server.close();
  });

  /** Where it went, or the code of what stopped it; the attempt itself is not waited for. */
  function dial(reach: Reach, resolve: ResolveAll): Promise<string> {
    const { port } = server.address() as { port: number };
    return new Promise((done) => {
      const socket = connect({ host: "rebind.example", port, lookup: guardedLookup(reach, resolve) });
      socket.on("lookup", (_, address) => {
        if (address === "127.0.0.1" || address === undefined) return;
        done(`tried ${address}`);
        socket.destroy();
      });
      socket.on("connect", () => {
        done(`connected ${socket.remoteAddress}`);
        socket.destroy();
      });
      socket.on("error", (error: NodeJS.ErrnoException) => done(error.code ?? ""));
    });
  }

  it("L65 goes where it was checked to go: a name that changes its meaning gains nothing", async () => {
    const { resolve, asked } = scripted(["1.1.1.1"], ["127.0.0.1"]);
    expect(await dial("public", resolve)).toBe("tried 1.1.1.1");
    // One look-up for the check and for the connection.
    expect(asked).toEqual(["rebind.example"]);
    expect(await dial("public", resolve)).toBe("ADDRESS_REFUSED");
    expect(accepted).toHaveLength(0);
  });

  it("L65 is refused where any of several addresses is", async () => {
    for (const mixed of [
      ["1.1.1.1", "127.0.0.1"],
      ["2606:4700::1111", "::ffff:10.0.0.1"],
      ["169.254.169.254", "1.1.1.1"],
    ]) {
      expect(await dial("public", scripted(mixed).resolve)).toBe("ADDRESS_REFUSED");
    }
    expect(accepted).toHaveLength(0);
  });

  it("is made where the operator wants it, but never to a metadata service", async () => {
    expect(await dial("pinned", scripted(["127.0.0.1"]).resolve)).toBe("connected 127.0.0.1");
    expect(await dial("local", scripted(["127.0.0.1"]).resolve)).toBe("connected 127.0.0.1");
    expect(await dial("local", scripted(["10.0.0.1"]).resolve)).toBe("ADDRESS_REFUSED");
    expect(await dial("pinned", scripted(["169.254.169.254"]).resolve)).toBe("ADDRESS_REFUSED");
    expect(await dial("pinned", scripted([]).resolve)).toBe("ADDRESS_REFUSED");
  });

  it("L63 is refused by name before anybody is asked", () => {
    const { resolve, asked } = scripted(["1.1.1.1"]);
    const codes: (string | undefined)[] = [];
    guardedLookup("pinned", resolve)("metadata.google.internal", {}, (error) => codes.push(error?.code));
    expect([codes, asked]).toEqual([["ADDRESS_REFUSED"], []]);
  });

  it("L63 L64 checks hosts that are addresses, which no look-up is made for", () => {
    const refused = (reach: Reach, host: string): boolean => hostRefusal(reach, host) !== undefined;
    expect(refused("pinned", "[::ffff:a9fe:a9fe]")).toBe(true);
    expect(refused("pinned", "10.0.0.1")).toBe(false);
    expect(refused("local", "10.0.0.1")).toBe(true);
    expect(refused("public", "127.0.0.1")).toBe(true);
    expect(refused("public", "1.1.1.1")).toBe(false);
    expect(refused("public", "any.example")).toBe(false);
  });
});

describe("reachOf", () => {
  it.each([
    ["https://idp.corp/token", undefined, "pinned"],
    ["https://idp.corp:8443/token", "https://idp.corp", "pinned"],
    ["https://10.0.0.1/token", "https://10.0.0.1/realm", "pinned"],
    ["https://api.corp/token", "https://idp.corp", "public"],
    ["https://api.corp/token", "http://127.0.0.1:8080", "local"],
    ["https://api.corp/token", "http://localhost", "local"],
  ])("%s as named by %s reaches as far as %s", (url, by, reach) => {
    expect(reachOf(url, by)).toBe(reach);
  });
});
