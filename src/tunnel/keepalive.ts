import type { Timer } from "../lib/index.ts";
import type { KeepaliveOptions, TunnelContext } from "./options.ts";

const jitter = 0.2;

export interface KeepaliveOwner extends Pick<TunnelContext, "clock" | "random"> {
  readonly keepalive: KeepaliveOptions;
  sendPing(): void;
  /** When the oldest unfinished send last made progress; undefined with none under way. */
  sendStalledSince(): number | undefined;
  onDead(detail: string): void;
}

/**
 * The ping rhythm and the two death rules of docs/protocol.md section 7. One timer is armed from `start` to `stop`: no
 * state exists from which nothing leads on.
 */
export class Keepalive {
  readonly #owner: KeepaliveOwner;
  #timer: Timer | undefined;
  #heardAt: number;
  /** When this side last pinged or heard something: silence is counted from here. */
  #quietSince: number;
  #pingAfterMs: number;

  constructor(owner: KeepaliveOwner) {
    this.#owner = owner;
    this.#heardAt = owner.clock.now();
    this.#quietSince = this.#heardAt;
    this.#pingAfterMs = this.#draw();
  }

  start(): void {
    this.stop();
    this.#arm();
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /** Some byte came in. */
  heard(): void {
    this.#heardAt = this.#owner.clock.now();
    this.#quietSince = this.#heardAt;
  }

  #draw(): number {
    return this.#owner.keepalive.intervalMs * (1 - jitter + 2 * jitter * this.#owner.random());
  }

  #deadline(): number {
    const stalledSince = this.#owner.sendStalledSince() ?? this.#heardAt;
    return Math.min(this.#heardAt, stalledSince) + this.#owner.keepalive.deadAfterMs;
  }

  #arm(): void {
    const next = Math.min(this.#quietSince + this.#pingAfterMs, this.#deadline());
    // At least a millisecond: a clock that rounds down must not make this spin.
    this.#timer = this.#owner.clock.after(Math.max(1, next - this.#owner.clock.now()), () => this.#fire());
  }

  #fire(): void {
    const now = this.#owner.clock.now();
    if (now >= this.#deadline()) {
      this.stop();
      const silentForMs = now - this.#heardAt;
      const isSilent = silentForMs >= this.#owner.keepalive.deadAfterMs;
      this.#owner.onDead(isSilent ? "nothing was received for too long" : "a send was stuck for too long");
      return;
    }
    if (now >= this.#quietSince + this.#pingAfterMs) {
      this.#quietSince = now;
      this.#pingAfterMs = this.#draw();
      this.#owner.sendPing();
    }
    this.#arm();
  }
}
