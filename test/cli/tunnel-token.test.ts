import { describe, expect, it } from "vitest";
import { checkTunnelToken } from "../../src/cli/tunnel-token.ts";
import { createToken } from "../../src/identity/index.ts";
import { Secret } from "../../src/lib/index.ts";

const { token, sha256 } = createToken("tunnel");
const text = token.reveal();

describe("what relay.token leads to", () => {
  it.each([
    ["a tunnel token", text],
    ["a JWT", "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln"],
  ])("%s is taken", (_what, taken) => {
    expect(checkTunnelToken(new Secret(taken)).reveal()).toBe(taken);
  });

  it.each([
    ["an agent's key", createToken("agent").token.reveal(), /an agent's key \(pak_…\)/],
    ["the hash", sha256, /the hash of a token/],
    ["token and hash", `${text}\n${sha256}`, /several lines/],
    ["the token in quotes", `"${text}"`, /neither a tunnel token/],
    ["half a token", text.slice(0, 30), /neither a tunnel token/],
  ])("%s is refused by name", (_what, refused, says) => {
    const attempt = () => checkTunnelToken(new Secret(refused));
    expect(attempt).toThrow(says);
    expect(attempt).not.toThrow(refused);
    expect(attempt).toThrow(expect.objectContaining({ code: "value-invalid" }));
  });
});
