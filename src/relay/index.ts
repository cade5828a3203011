export type { RelayOptions } from "./options.ts";
export { createRelay, fixedLimits, type Relay, type ReloadOptions } from "./relay.ts";
