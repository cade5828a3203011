import { maxCredit } from "./frame.ts";

/** Credit arithmetic of docs/protocol.md section 6. Pure; used once per stream and direction, and once per session and direction. */

/** What this side may still send. Never negative. */
export class SendCredit {
  #available: number;

  constructor(windowBytes: number) {
    this.#available = windowBytes;
  }

  get available(): number {
    return this.#available;
  }

  /** `bytes` must not exceed `available`. */
  spend(bytes: number): void {
    if (bytes > this.#available) throw new RangeError("more than the credit");
    this.#available -= bytes;
  }

  /** False: the sum would exceed 2^31 − 1, which the peer must not cause. */
  add(bytes: number): boolean {
    if (this.#available + bytes > maxCredit) return false;
    this.#available += bytes;
    return true;
  }
}

/**
 * What the peer may still send. Always: available + outstanding + held = window, where *outstanding* was received and not yet
 * released, and *held* was released and not yet granted again.
 */
export class ReceiveCredit {
  readonly windowBytes: number;
  readonly #batchBytes: number;
  #available: number;
  #outstanding = 0;
  #held = 0;

  constructor(windowBytes: number) {
    this.windowBytes = windowBytes;
    this.#batchBytes = Math.max(1, Math.floor(windowBytes / 4));
    this.#available = windowBytes;
  }

  get available(): number {
    return this.#available;
  }

  get outstanding(): number {
    return this.#outstanding;
  }

  get held(): number {
    return this.#held;
  }

  /** False: the peer sent more than it may. */
  receive(bytes: number): boolean {
    if (bytes > this.#available) return false;
    this.#available -= bytes;
    this.#outstanding += bytes;
    return true;
  }

  /** Bytes are out of the way, at most those outstanding. True: enough is held to be worth a WINDOW. */
  release(bytes: number): boolean {
    const released = Math.min(Math.max(bytes, 0), this.#outstanding);
    this.#outstanding -= released;
    this.#held += released;
    return this.#held >= this.#batchBytes;
  }

  /** The increment for a WINDOW that goes out now; 0 for none. */
  takeGrant(): number {
    const grant = this.#held;
    this.#held = 0;
    this.#available += grant;
    return grant;
  }
}
