export type { PolicyCase } from "./cases.ts";
export type { DocumentKind } from "./cures.ts";
export type { CredentialSettings, GatewaySettings, ServerSettings, VaultSettings } from "./gateway-schema.ts";
export { type GatewayConfig, loadAny, loadCases, loadGatewayConfig, loadPolicy, loadRelayConfig } from "./load.ts";
export type { PolicySource } from "./policy-source.ts";
export { formatProblem, type Loaded, type Problem } from "./problem.ts";
export type { RelayConfig, TunnelSettings } from "./relay-schema.ts";
export { renderSchemas } from "./schemas.ts";
export type { LocalSource, Source } from "./source.ts";
