import type { TunnelLimits } from "./options.ts";

/** What a gateway says of itself. Nothing in it is proof of anything: the credential of the upgrade is. */
export interface Hello {
  readonly versions: readonly number[];
  readonly features: readonly string[];
  readonly gateway: GatewayIdentity;
  readonly limits: TunnelLimits;
  readonly servers: readonly string[];
}

export interface GatewayIdentity {
  /** Distinguishes replicas that share a credential. */
  readonly id: string;
  /** New at every start of the process. */
  readonly instance: string;
  /** Which of its connections this is, from 0. */
  readonly slot: number;
  readonly software: string;
}
