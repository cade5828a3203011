export type { RelayOptions } from "./options.ts";
export { createRelay, type Relay } from "./relay.ts";
