export { relayMetrics } from "./metrics.ts";
export type { RelayOptions } from "./options.ts";
export { createRelay, fixedLimits, type Relay, type RelayStatus, type ReloadOptions } from "./relay.ts";
export { requestGroups } from "./tally.ts";
