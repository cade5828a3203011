export type { PolicyCase } from "./cases.ts";
export { type GatewayConfig, loadAny, loadCases, loadGatewayConfig, loadPolicy, loadRelayConfig } from "./load.ts";
export { formatProblem, type Loaded, type Problem } from "./problem.ts";
export type { RelayConfig } from "./relay-schema.ts";
export { renderSchemas } from "./schemas.ts";
