import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";

/**
 * MCP session ids as agents see them: `<instance>.<mac>.<upstream's id>` (DESIGN 5). The MAC binds the upstream's id to
 * this boot of this gateway, the tunnel, the server and the principal, so an id opens only for whom it was made. The
 * instance in front lets a relay send the exchange to the gateway that made it.
 */

/** Header values are limited far below a header block; servers that keep state in their ids stay well under this. */
const maxUpstreamIdLength = 4096;
/** 16 bytes, the first half of HMAC-SHA256, in base64url. */
const macBytes = 16;
const macLength = 22;
const maxRemembered = 4096;
const visibleAscii = /^[\x21-\x7e]+$/;

interface Remembered {
  readonly server: string;
  readonly principalId: string;
  readonly upstreamId: string;
}

export class SessionIds {
  readonly #instance: string;
  readonly #tunnel: string;
  readonly #key = randomBytes(32);
  /** Ids that checked out, oldest first: a session's every call would pay for an HMAC otherwise. */
  readonly #remembered = new Map<string, Remembered>();

  /** `instance`: visible ASCII without a dot, new for each boot. */
  constructor(options: { readonly instance: string; readonly tunnel: string }) {
    if (!/^[A-Za-z0-9_-]+$/.test(options.instance)) throw new TypeError("invalid instance");
    this.#instance = options.instance;
    this.#tunnel = options.tunnel;
  }

  /** The id to show to the agent; undefined for an upstream id that is no visible ASCII or too long. */
  seal(server: string, principalId: string, upstreamId: string): string | undefined {
    if (upstreamId.length > maxUpstreamIdLength || !visibleAscii.test(upstreamId)) return undefined;
    const mac = this.#mac(server, principalId, upstreamId).toString("base64url");
    const sealed = `${this.#instance}.${mac}.${upstreamId}`;
    this.#remember(sealed, { server, principalId, upstreamId });
    return sealed;
  }

  /** The upstream's id, or undefined if this id was not made here for this server and principal. */
  open(server: string, principalId: string, sealed: string): string | undefined {
    const known = this.#remembered.get(sealed);
    if (known !== undefined) {
      return known.server === server && known.principalId === principalId ? known.upstreamId : undefined;
    }
    const upstreamId = this.#check(server, principalId, sealed);
    if (upstreamId !== undefined) this.#remember(sealed, { server, principalId, upstreamId });
    return upstreamId;
  }

  #check(server: string, principalId: string, sealed: string): string | undefined {
    const macAt = this.#instance.length + 1;
    const idAt = macAt + macLength + 1;
    if (sealed.length <= idAt || sealed.length > idAt + maxUpstreamIdLength) return undefined;
    if (!sealed.startsWith(`${this.#instance}.`) || sealed[idAt - 1] !== ".") return undefined;
    const upstreamId = sealed.slice(idAt);
    if (!visibleAscii.test(upstreamId)) return undefined;
    // Compared as text: several base64url texts decode to the same bytes, and only one of them was given out.
    const expected = Buffer.from(this.#mac(server, principalId, upstreamId).toString("base64url"), "latin1");
    const given = Buffer.from(sealed.slice(macAt, idAt - 1), "latin1");
    return given.length === expected.length && timingSafeEqual(given, expected) ? upstreamId : undefined;
  }

  #mac(server: string, principalId: string, upstreamId: string): Buffer {
    const hmac = createHmac("sha256", this.#key);
    for (const part of [this.#instance, this.#tunnel, server, principalId, upstreamId]) {
      const bytes = Buffer.from(part, "utf8");
      const length = Buffer.alloc(4);
      length.writeUInt32BE(bytes.length);
      hmac.update(length).update(bytes);
    }
    return hmac.digest().subarray(0, macBytes);
  }

  #remember(sealed: string, entry: Remembered): void {
    if (this.#remembered.size >= maxRemembered) {
      const oldest = this.#remembered.keys().next();
      if (oldest.done !== true) this.#remembered.delete(oldest.value);
    }
    this.#remembered.set(sealed, entry);
  }
}
