export type { AgentsOptions } from "./agent-verifier.ts";
export type { AuditOptions } from "./audit.ts";
export type { Injector } from "./context.ts";
export { createGateway, type Gateway, type GatewayDeps, type GatewayStatus, type ServerStatus } from "./gateway.ts";
export type { LineTarget } from "./line-writer.ts";
export { gatewayMetrics } from "./metrics.ts";
export type { GatewayOptions, ServerOptions, TimeoutOptions } from "./options.ts";
export type { SupervisorStatus } from "./supervisor.ts";
export { upstreamCure } from "./upstream-cures.ts";
