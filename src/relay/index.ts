export type { RelayOptions } from "./options.ts";
export { createRelay, type Relay, type ReloadOptions } from "./relay.ts";
