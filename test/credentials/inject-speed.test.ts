import { afterAll, beforeAll, expect, it } from "vitest";
import { medianInjectUs, type WarmCredentials, warmCredentials } from "../support/warm-credentials.ts";

let warm: WarmCredentials;

beforeAll(async () => {
  warm = await warmCredentials();
});
afterAll(() => warm.stop());

/** `bench/inject.ts` shows that they take less than one microsecond, so that a busy machine does not spoil this. */
it("an injection from a warm cache is at once, and under 20 µs at the median, whatever the shape", () => {
  const slow = warm.shapes.map((shape) => ({ shape, us: medianInjectUs(warm, shape) })).filter(({ us }) => us >= 20);
  expect(slow).toEqual([]);
  expect(warm.shapes.length).toBeGreaterThan(10);
});
