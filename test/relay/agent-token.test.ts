/** The agent's own bearer behind the relay: for a gateway that asked for it, in a field of its own, and nowhere else. */
import { inspect } from "node:util";
import { afterEach, beforeEach, expect, it } from "vitest";
import type { FakeSession } from "../support/fake-tunnel.ts";
import { Rig } from "./rig.ts";

let rig: Rig;
let session: FakeSession;

beforeEach(async () => {
  rig = await new Rig().listen();
  session = rig.connect();
  session.onStream = (stream) => stream.answer("{}");
});
afterEach(() => rig.close());

it.each(["POST", "GET", "DELETE"])("C24 a %s carries it as a secret to a gateway that asked", async (method) => {
  session.carriesAgentTokens = true;
  await rig.fetch({ method, ...(method === "POST" ? { body: "{}" } : {}) });
  const { open } = session.last;
  expect(open.agentToken?.reveal()).toBe(rig.key.token.reveal());
  expect(inspect(open, { depth: null }) + JSON.stringify(open)).not.toContain(rig.key.token.reveal());
  expect(open.headers.map((text) => text.toLowerCase())).not.toContain("authorization");
});

it("C24 a gateway that did not ask is told who calls, and not by what", async () => {
  await rig.fetch({ body: "{}" });
  const { open } = session.last;
  expect(open.principal.id).toBe("key:claude");
  expect("agentToken" in open).toBe(false);
});

it("C24 of two gateways only the one that asked is given it, although one request is tried at both", async () => {
  session.carriesAgentTokens = true;
  session.openStreamCount = 1;
  const other = rig.connect(["tickets"], { id: "edge-2" });
  other.onStream = (stream) => stream.fail("REFUSED");
  await rig.fetch({ body: "{}" });
  expect(other.last.open.agentToken).toBeUndefined();
  expect(session.last.open.agentToken?.reveal()).toBe(rig.key.token.reveal());
});
