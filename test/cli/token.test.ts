import { createHash } from "node:crypto";
import { expect, it } from "vitest";
import { token } from "../../src/cli/token.ts";
import { run } from "./command-io.ts";

it.each([
  [["new"], "ptk_", "tokenSha256"],
  [["new", "--kind", "tunnel"], "ptk_", "tokenSha256"],
  [["new", "--kind", "agent"], "pak_", "keySha256"],
])("%j: a secret on standard output, its hash and its place on standard error", async (args, prefix, key) => {
  const { code, out, err } = await run(token, ...args);
  const secret = out[0] ?? "";
  expect([code, out.length]).toEqual([0, 1]);
  expect(secret).toMatch(new RegExp(`^${prefix}[A-Za-z0-9_-]{43}$`));
  expect(err[0]).toBe(createHash("sha256").update(secret).digest("hex"));
  expect(err[1]).toContain(key);
  expect(err.join("\n")).not.toContain(secret);
});

it("--json: both", async () => {
  const { out, err } = await run(token, "new", "--json");
  const made = JSON.parse(out[0] ?? "");
  expect(made).toEqual({
    kind: "tunnel",
    token: expect.stringMatching(/^ptk_/),
    sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
  });
  expect(made.sha256).toBe(createHash("sha256").update(made.token).digest("hex"));
  expect(err).toEqual([]);
});

it("no two are alike", async () => {
  const made = await Promise.all(Array.from({ length: 50 }, () => run(token, "new")));
  expect(new Set(made.map(({ out }) => out[0])).size).toBe(50);
});

it.each([[[]], [["old"]], [["new", "more"]], [["new", "--kind", "server"]], [["new", "--secret", "x"]]])(
  "%j is bad usage",
  async (args) => {
    const { code, out, err } = await run(token, ...args);
    expect([code, out, err.length]).toEqual([2, [], 1]);
  },
);
