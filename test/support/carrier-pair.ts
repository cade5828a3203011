import type { Carrier, CarrierListener, CloseCode } from "../../src/tunnel/carrier.ts";

/**
 * Two carriers in memory, joined: message boundaries are kept, delivery happens in a later turn, and each direction can stall
 * (nothing leaves the sender), vanish (what is sent is lost without a word) or be cut at an exact byte.
 */
export interface CarrierPair {
  readonly relay: MemoryCarrier;
  readonly gateway: MemoryCarrier;
}

type Line = "open" | "stalled" | "vanishing";

export class MemoryCarrier implements Carrier {
  #peer: MemoryCarrier | undefined;
  #listener: CarrierListener | undefined;
  readonly #queue: Buffer[] = [];
  #line: Line = "open";
  #isScheduled = false;
  #isClosed = false;
  #cutAfter = Number.POSITIVE_INFINITY;
  /** Every message this side sent, whether it arrived or not. */
  readonly sent: Buffer[] = [];
  closeCode: CloseCode | "terminated" | undefined;

  join(peer: MemoryCarrier): void {
    this.#peer = peer;
  }

  listen(listener: CarrierListener): void {
    this.#listener = listener;
    this.#schedule();
  }

  send(message: Buffer): void {
    if (this.#isClosed) return;
    this.sent.push(Buffer.from(message));
    this.#queue.push(message);
    this.#schedule();
  }

  cork(): void {}

  uncork(): void {}

  /** A text message, as only a broken peer would send one. */
  sendText(): void {
    setImmediate(() => this.#far()?.onText());
  }

  /** Bytes that are no whole message yet. */
  trickle(): void {
    this.#far()?.onBytes();
  }

  get bufferedBytes(): number {
    return this.#queue.reduce((sum, message) => sum + message.length, 0);
  }

  get pendingMessages(): number {
    return this.#queue.length;
  }

  close(code: CloseCode): void {
    this.closeCode ??= code;
    this.#listener = undefined;
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#schedule();
  }

  terminate(): void {
    this.closeCode ??= "terminated";
    this.#listener = undefined;
    this.cut();
  }

  /** What is sent waits here; the sender sees its buffer grow. */
  stall(): void {
    this.#line = "stalled";
  }

  /** What is sent is gone; the sender sees nothing. */
  vanish(): void {
    this.#line = "vanishing";
  }

  flow(): void {
    this.#line = "open";
    this.#schedule();
  }

  /** The connection breaks, both ways, once this side has sent `bytes` more; a message that is not whole by then never arrives. */
  cutAfter(bytes: number): void {
    this.#cutAfter = bytes;
  }

  /** The connection breaks now. */
  cut(): void {
    const peer = this.#peer;
    this.#peer = undefined;
    this.#isClosed = true;
    this.#queue.length = 0;
    this.#hangUp();
    peer?.cut();
  }

  #hangUp(): void {
    const listener = this.#listener;
    this.#listener = undefined;
    if (listener !== undefined) setImmediate(() => listener.onClose("the carrier was closed", false));
  }

  #far(): CarrierListener | undefined {
    return this.#peer === undefined ? undefined : this.#peer.#listener;
  }

  /** The other side is there but does not listen yet. */
  #isFarDeaf(): boolean {
    return this.#peer !== undefined && !this.#peer.#isClosed && this.#peer.#listener === undefined;
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#deliver();
    });
  }

  #deliver(): void {
    if (this.#line === "stalled") return;
    while (this.#queue.length > 0) {
      if (this.#line === "open" && this.#isFarDeaf()) return;
      const message = this.#queue.shift();
      if (message === undefined || !this.#carry(message)) return;
    }
    if (this.#isClosed && this.#peer !== undefined) this.cut();
  }

  #carry(message: Buffer): boolean {
    this.#cutAfter -= message.length;
    if (this.#cutAfter < 0) {
      this.#far()?.onBytes();
      this.cut();
      return false;
    }
    this.#listener?.onSent();
    if (this.#line === "vanishing") return true;
    // A copy, made late: a sender that reuses its buffer shows.
    const listener = this.#far();
    listener?.onMessage(Buffer.from(message));
    listener?.onBytes();
    return true;
  }
}

export function createCarrierPair(): CarrierPair {
  const relay = new MemoryCarrier();
  const gateway = new MemoryCarrier();
  relay.join(gateway);
  gateway.join(relay);
  return { relay, gateway };
}
