import type { Duplex } from "node:stream";
import type { ClientOptions, RawData, WebSocket } from "ws";
import { type Carrier, type CarrierListener, type CloseCode, lingerMs } from "./carrier.ts";
import { maxMessageBytes } from "./frame.ts";

/** The settings of both ends; ws's own defaults are wrong for a tunnel (compression on, 100 MiB messages, 30 s to close). */
export const wsOptions = {
  perMessageDeflate: false,
  maxPayload: maxMessageBytes,
  skipUTF8Validation: true,
  closeTimeout: lingerMs,
} as const satisfies ClientOptions & { readonly closeTimeout: number };

const silent: CarrierListener = {
  onMessage: () => undefined,
  onText: () => undefined,
  onBytes: () => undefined,
  onSent: () => undefined,
  onClose: () => undefined,
};

/** A carrier over an open WebSocket. Must be made in the tick in which `ws` opened, or the peer's first message is lost. */
export class WsCarrier implements Carrier {
  readonly #ws: WebSocket;
  readonly #socket: Duplex;
  #listener: CarrierListener = silent;
  #pendingMessages = 0;
  /** One for all messages: no closure for each. */
  readonly #onSent = (): void => {
    this.#pendingMessages -= 1;
    this.#listener.onSent();
  };

  constructor(ws: WebSocket, socket: Duplex) {
    this.#ws = ws;
    this.#socket = socket;
    ws.on("message", (data: RawData, isBinary: boolean) => {
      if (isBinary) this.#listener.onMessage(data as Buffer);
      else this.#listener.onText();
    });
    ws.on("error", (error: NodeJS.ErrnoException) => this.#closed(describe(error), isViolation(error)));
    ws.on("close", () => this.#closed("the carrier was closed", false));
    socket.on("data", () => this.#listener.onBytes());
  }

  listen(listener: CarrierListener): void {
    this.#listener = listener;
  }

  send(message: Buffer): void {
    // In any other state ws only fails the callback; the close event tells all there is to tell.
    if (this.#ws.readyState !== this.#ws.OPEN) return;
    this.#pendingMessages += 1;
    this.#ws.send(message, this.#onSent);
  }

  cork(): void {
    this.#socket.cork();
  }

  uncork(): void {
    this.#socket.uncork();
  }

  get bufferedBytes(): number {
    return this.#ws.bufferedAmount;
  }

  get pendingMessages(): number {
    return this.#pendingMessages;
  }

  close(code: CloseCode): void {
    this.#listener = silent;
    this.#ws.close(code);
  }

  terminate(): void {
    this.#listener = silent;
    this.#ws.terminate();
  }

  #closed(detail: string, violation: boolean): void {
    const listener = this.#listener;
    this.#listener = silent;
    listener.onClose(detail, violation);
    // After a violation ws sends its close code itself and destroys the socket when `closeTimeout` has passed.
    if (!violation) this.#ws.terminate();
  }
}

function isViolation(error: NodeJS.ErrnoException): boolean {
  return error.code?.startsWith("WS_ERR_") === true;
}

/** A code or a fixed phrase: messages of foreign errors may quote the peer. */
function describe(error: NodeJS.ErrnoException): string {
  if (error.code === "WS_ERR_UNSUPPORTED_MESSAGE_LENGTH") return "a message above 128 KiB";
  return error.code ?? "the carrier failed";
}
