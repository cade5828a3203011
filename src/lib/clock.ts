/** Time as the rooms see it: handed in, so that tests own it. */

export interface Timer {
  /** Safe to call twice, and after the timer has fired. */
  cancel(): void;
}

export interface Clock {
  /** Monotonic milliseconds; only differences mean anything. */
  now(): number;
  /** Wall time as milliseconds since the Unix epoch. */
  wall(): number;
  /** Calls `fire` once after `ms`; never keeps the process alive by itself. `ms` must not exceed 2^31-1. */
  after(ms: number, fire: () => void): Timer;
}

export const systemClock: Clock = {
  now: () => performance.now(),
  wall: () => Date.now(),
  after(ms, fire) {
    const handle = setTimeout(fire, ms);
    handle.unref();
    return { cancel: () => clearTimeout(handle) };
  },
};
