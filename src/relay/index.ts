export {
  type AgentOptions,
  defaultRelayLimits,
  defaultRelayTimeouts,
  type RelayDeps,
  type RelayLimits,
  type RelayOptions,
  type RelayTimeouts,
  type TunnelOptions,
} from "./options.ts";
export { createRelay, type Relay, type RelayStatus, type TunnelStatus } from "./relay.ts";
