import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ReceiveCredit, SendCredit } from "../../src/tunnel/credit.ts";

describe("credit", () => {
  it("whatever happens, sender and receiver together hold one window, and nothing is negative", () => {
    const steps = fc.array(fc.tuple(fc.constantFrom("send", "release", "grant"), fc.integer({ min: 0, max: 40_000 })), {
      maxLength: 200,
    });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 300_000 }), steps, (window, list) => {
        const send = new SendCredit(window);
        const receive = new ReceiveCredit(window);
        for (const [step, bytes] of list) {
          if (step === "send") {
            const sent = Math.min(bytes, send.available);
            send.spend(sent);
            expect(receive.receive(sent)).toBe(true);
          } else if (step === "release") receive.release(bytes);
          else expect(send.add(receive.takeGrant())).toBe(true);
          expect(send.available + receive.outstanding + receive.held).toBe(window);
          expect(receive.available).toBe(send.available);
          expect(Math.min(send.available, receive.outstanding, receive.held)).toBeGreaterThanOrEqual(0);
        }
      }),
    );
  });

  it("one byte beyond the window is refused and changes nothing", () => {
    const receive = new ReceiveCredit(10);
    expect(receive.receive(11)).toBe(false);
    expect(receive.receive(10)).toBe(true);
    expect(receive.receive(1)).toBe(false);
    expect(receive.outstanding).toBe(10);
  });

  it("a sum above 2^31 − 1 is refused", () => {
    const send = new SendCredit(0x7fff_fffe);
    expect(send.add(2)).toBe(false);
    expect(send.add(1)).toBe(true);
    expect(send.available).toBe(0x7fff_ffff);
    expect(() => new SendCredit(1).spend(2)).toThrow(RangeError);
  });

  it("is given back in quarters, and never more than was taken", () => {
    const receive = new ReceiveCredit(400);
    receive.receive(300);
    expect(receive.release(99)).toBe(false);
    expect(receive.release(1)).toBe(true);
    expect(receive.takeGrant()).toBe(100);
    receive.release(1_000_000);
    expect(receive.takeGrant()).toBe(200);
    expect(receive.available).toBe(400);
    receive.release(-5);
    expect(receive.held).toBe(0);
  });
});
