export { type Credentials, createCredentials } from "./credentials.ts";
export { CredentialError } from "./errors.ts";
export { credentialMetrics } from "./metrics.ts";
export { type Needles, needlesOf } from "./needles.ts";
export type { CredentialOptions, VaultOptions } from "./options.ts";
export type { Caller, ServerCredential } from "./server-credential.ts";
export type { Injection } from "./shapes.ts";
export { readSecret } from "./sources.ts";
export type { Condition, CredentialState, CredentialStates, LastError, StoreState } from "./states.ts";
