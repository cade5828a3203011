import { describe, expect, it } from "vitest";
import { McpSessions } from "../../src/gateway/mcp-sessions.ts";
import { ManualClock } from "../support/manual-clock.ts";

describe("MCP sessions", () => {
  it("C12 an id is in flight once per session, and free again afterwards", () => {
    const sessions = new McpSessions(new ManualClock());
    expect(sessions.begin("a", "1")).toBe(true);
    expect(sessions.begin("a", "1")).toBe(false);
    expect(sessions.begin("a", '"1"')).toBe(true);
    expect(sessions.begin("b", "1")).toBe(true);
    sessions.finish("a", "1");
    expect(sessions.begin("a", "1")).toBe(true);
    for (const [session, id] of [
      ["a", "1"],
      ["a", '"1"'],
      ["b", "1"],
      ["b", "1"],
    ] as const)
      sessions.finish(session, id);
    expect(sessions.size).toBe(0);
  });

  it("C09 a request of the server is answered once, in its own session", () => {
    const sessions = new McpSessions(new ManualClock());
    expect(sessions.ask("a", "0")).toBe(true);
    expect(sessions.claimAsk("b", "0")).toBe(false);
    expect(sessions.claimAsk("a", "0")).toBe(true);
    expect(sessions.claimAsk("a", "0")).toBe(false);
    sessions.dropAsk("a", "0");
    expect(sessions.claimAsk("a", "0")).toBe(false);
    expect(sessions.size).toBe(0);
  });

  it("C09 an answer that did not leave can be given again, unless the request has gone meanwhile", () => {
    const clock = new ManualClock();
    const sessions = new McpSessions(clock);
    sessions.ask("a", "0");
    expect(sessions.claimAsk("a", "0")).toBe(true);
    sessions.releaseAsk("a", "0");
    expect(sessions.claimAsk("a", "0")).toBe(true);
    sessions.lingerAsk("a", "0");
    expect(sessions.claimAsk("a", "0")).toBe(false);
    clock.advance(5 * 60_000);
    sessions.releaseAsk("a", "0");
    expect(sessions.claimAsk("a", "0")).toBe(false);
    expect(sessions.size).toBe(0);
  });

  it("a request that a broken stream carried can be answered for five minutes, then it is gone", () => {
    const clock = new ManualClock();
    const sessions = new McpSessions(clock);
    sessions.ask("a", "1");
    sessions.ask("a", "2");
    sessions.lingerAsk("a", "1");
    sessions.lingerAsk("a", "2");
    clock.advance(4 * 60_000);
    expect(sessions.claimAsk("a", "1")).toBe(true);
    sessions.dropAsk("a", "1");
    clock.advance(2 * 60_000);
    expect(sessions.size).toBe(0);
    expect(sessions.claimAsk("a", "2")).toBe(false);
  });

  it("C09 pending requests are bounded: the oldest of a session gives way, then all new ones", () => {
    const sessions = new McpSessions(new ManualClock());
    for (let i = 0; i < 300; i += 1) expect(sessions.ask("a", String(i))).toBe(true);
    expect(sessions.claimAsk("a", "0")).toBe(false);
    expect(sessions.claimAsk("a", "299")).toBe(true);
    let accepted = 0;
    for (let s = 0; s < 100; s += 1)
      for (let i = 0; i < 256; i += 1) accepted += sessions.ask(`s${s}`, String(i)) ? 1 : 0;
    expect(accepted).toBeLessThan(16_400);
    for (let s = 0; s < 100; s += 1) sessions.forget(`s${s}`);
    sessions.forget("a");
    expect(sessions.size).toBe(0);
    expect(sessions.ask("b", "1")).toBe(true);
  });
});
