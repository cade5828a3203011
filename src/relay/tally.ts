/** Names for the places of `RelayTally.requests`. */
export const requestGroups = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"] as const;

/** What a relay counts since its start: plain numbers, added to where a thing happens and read when somebody asks. */
export class RelayTally {
  /** Answers by the first digit of their status; index 0 is for agents that left without one. */
  readonly requests: number[] = [0, 0, 0, 0, 0, 0];
  /** Agents whose key or token does not hold for the tunnel they named. */
  authFailures = 0;
  tunnelsConnected = 0;
  /** Dials of gateways that did not become a tunnel session. */
  readonly refusedUpgrades: Record<UpgradeRefusal, number> = {
    host: 0,
    auth: 0,
    rate: 0,
    unavailable: 0,
    hello: 0,
  };

  /** `status` is 0 for an agent that left before its answer. */
  answered(status: number): void {
    const group = Math.min(5, Math.floor(status / 100));
    this.requests[group] = (this.requests[group] ?? 0) + 1;
  }
}

export type UpgradeRefusal =
  /** A Host or Origin that is not ours. */
  | "host"
  | "auth"
  /** `upgradesPerMinute`. */
  | "rate"
  /** The relay drains, or an issuer's keys are not to be had. */
  | "unavailable"
  /** The protocol's own greeting failed or was refused. */
  | "hello";
