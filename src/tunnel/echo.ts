import type { Clock, Timer } from "../lib/index.ts";
import { encodeOpaque } from "./encode.ts";
import { frameTypes } from "./frame.ts";

/** Where PINGs and PONGs wait to be sent. */
export interface EchoOutbox {
  queueControl(frame: Buffer): void;
  /** Throws a `ProtocolFault` when the peer has asked for too much. */
  queueReply(frame: Buffer): void;
}

interface PendingEcho {
  readonly sentAt: number;
  readonly timer: Timer;
  readonly resolve: (roundTripMs: number) => void;
  readonly reject: (error: Error) => void;
}

/** PINGs under way, and answers to those of the peer. A PONG counts only if it answers a PING of ours that no later PONG has overtaken. */
export class Echoes {
  readonly #clock: Clock;
  readonly #outbox: EchoOutbox;
  readonly #pending = new Map<number, PendingEcho>();
  #lastSent = 0;
  #lastAnswered = 0;
  #lastEchoAt: number | undefined;

  constructor(clock: Clock, outbox: EchoOutbox) {
    this.#clock = clock;
    this.#outbox = outbox;
  }

  /** Clock time of the last PONG that counted. */
  get lastEchoAt(): number | undefined {
    return this.#lastEchoAt;
  }

  /** A PING that nobody waits for. */
  ping(): void {
    const opaque = Buffer.alloc(8);
    this.#lastSent += 1;
    opaque.writeUIntBE(this.#lastSent, 2, 6);
    this.#outbox.queueControl(encodeOpaque(frameTypes.PING, opaque));
  }

  /** Milliseconds from PING to PONG. */
  measure(timeoutMs: number): Promise<number> {
    return new Promise((resolve, reject) => {
      const serial = this.#lastSent + 1;
      const timer = this.#clock.after(timeoutMs, () => this.#expire(serial));
      this.#pending.set(serial, { sentAt: this.#clock.now(), timer, resolve, reject });
      this.ping();
    });
  }

  onPing(opaque: Buffer): void {
    this.#outbox.queueReply(encodeOpaque(frameTypes.PONG, opaque));
  }

  onPong(opaque: Buffer): void {
    const serial = opaque.readUIntBE(2, 6);
    if (serial <= this.#lastAnswered || serial > this.#lastSent) return;
    this.#lastAnswered = serial;
    this.#lastEchoAt = this.#clock.now();
    const echo = this.#take(serial);
    echo?.resolve(this.#lastEchoAt - echo.sentAt);
  }

  /** The session is over. */
  close(): void {
    for (const serial of [...this.#pending.keys()]) this.#take(serial)?.reject(new Error("the tunnel session ended"));
  }

  #expire(serial: number): void {
    this.#take(serial)?.reject(new Error("no echo in time"));
  }

  #take(serial: number): PendingEcho | undefined {
    const echo = this.#pending.get(serial);
    this.#pending.delete(serial);
    echo?.timer.cancel();
    return echo;
  }
}
