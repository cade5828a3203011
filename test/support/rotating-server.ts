import { randomUUID } from "node:crypto";
import type { ServerResponse } from "node:http";
import { type Asked, json } from "./token-endpoint.ts";

interface Spendable {
  readonly family: Family;
  /** `now()` when it was first spent. */
  spentAt?: number;
}

interface Family {
  isRevoked: boolean;
}

/**
 * The token endpoint of a server that rotates refresh tokens and takes a second use of one for theft (RFC 9700, 4.14.2):
 * then every token of that family is gone, unless the second use comes within `graceMs` of the first.
 */
export class RotatingServer {
  graceMs = 0;
  /** Of access tokens, in seconds. */
  expiresIn = 3_600;
  /** Answers that brought tokens, and families that were revoked. */
  rotations = 0;
  revocations = 0;
  /** Every token, in the order in which it came into being. */
  readonly issued: string[] = [];
  readonly #now: () => number;
  readonly #known = new Map<string, Spendable>();

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Whether it was granted and never used. */
  isNew(refreshToken: string): boolean {
    const known = this.#known.get(refreshToken);
    return known !== undefined && known.spentAt === undefined;
  }

  /** What a user's consent gives: the first refresh token of a new family. */
  authorise(): string {
    return this.#issue({ isRevoked: false });
  }

  readonly answer = (res: ServerResponse, { form }: Asked): void => {
    const tokens = this.spend(form.get("refresh_token") ?? "");
    if (tokens === undefined) json(res, 400, { error: "invalid_grant" });
    else json(res, 200, tokens);
  };

  /** The body of the answer, or undefined for `invalid_grant`. */
  spend(refreshToken: string): Record<string, unknown> | undefined {
    const known = this.#known.get(refreshToken);
    if (known === undefined || known.family.isRevoked) return undefined;
    const now = this.#now();
    if (known.spentAt !== undefined && now - known.spentAt >= this.graceMs) {
      known.family.isRevoked = true;
      this.revocations += 1;
      return undefined;
    }
    known.spentAt ??= now;
    this.rotations += 1;
    const token = `access-${randomUUID()}`;
    this.issued.push(token);
    return {
      access_token: token,
      token_type: "Bearer",
      expires_in: this.expiresIn,
      refresh_token: this.#issue(known.family),
    };
  }

  #issue(family: Family): string {
    const token = `refresh-${randomUUID()}`;
    this.issued.push(token);
    this.#known.set(token, { family });
    return token;
  }
}
