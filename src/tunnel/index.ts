export { type AcceptOptions, type AcceptOutcome, acceptTunnel, type HelloVerdict } from "./accept.ts";
export {
  type DialFailure,
  type DialOptions,
  type DialOutcome,
  type DialTimeouts,
  dialTunnel,
  type GatewaySession,
} from "./dial.ts";
export type { GatewayIdentity, Hello } from "./hello.ts";
export {
  type KeepaliveOptions,
  type TunnelContext,
  type TunnelLimits,
  tunnelNameHeader,
  tunnelPath,
} from "./options.ts";
export { type Problem, refuseUpgrade } from "./refuse.ts";
export {
  type ExchangeMethod,
  type GoAwayReason,
  type Head,
  isNotProcessed,
  type Leave,
  type Open,
  type Principal,
  type Reset,
  type ResetCode,
  type SessionEnd,
  type StreamHandler,
  type StreamSink,
  type TunnelSession,
  type TunnelStream,
} from "./types.ts";
