/**
 * What a tunnel session needs of the WebSocket under it: whole binary messages, in order. `ws-carrier.ts` is the real one,
 * tests have another in memory.
 */
export interface Carrier {
  /** Who hears from now on. Nothing is delivered before the first call, which must come in the tick of construction. */
  listen(listener: CarrierListener): void;
  /** Takes one message. The caller leaves its bytes alone until `bufferedBytes` is 0. A no-op once closed. */
  send(message: Buffer): void;
  /** What is sent from here to `uncork` leaves in one write. Calls do not nest. */
  cork(): void;
  uncork(): void;
  /** Bytes taken but not yet handed to the kernel. */
  readonly bufferedBytes: number;
  /** Messages taken but not yet reported by `onSent`. */
  readonly pendingMessages: number;
  /** Lets what was sent go out, then the closing handshake; after `lingerMs` the socket is destroyed in any case. */
  close(code: CloseCode): void;
  /** Destroys the socket now. Safe twice. */
  terminate(): void;
}

export type CloseCode = 1000 | 1001 | 1002;

export const lingerMs = 1_000;

export interface CarrierListener {
  onMessage(message: Buffer): void;
  /** A text message came. */
  onText(): void;
  /** Some bytes came, perhaps only a part of a message. Called after the messages that they completed. */
  onBytes(): void;
  /** The oldest message that was sent and not yet reported has been handed to the kernel. */
  onSent(): void;
  /** Once, unless this side closed first. `isViolation`: the peer broke the WebSocket protocol or the message limit. `detail` holds none of its input. */
  onClose(detail: string, isViolation: boolean): void;
}
