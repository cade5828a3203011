export { fillPath, isPerCaller } from "./caller-path.ts";
export { type Credentials, createCredentials } from "./credentials.ts";
export { CredentialError } from "./errors.ts";
export { credentialMetrics } from "./metrics.ts";
export { type Needles, needlesOf, secretTextsOf } from "./needles.ts";
export type { CredentialOptions, VaultOptions } from "./options.ts";
export type { StoreProbe } from "./probe.ts";
export type { Caller, ServerCredential } from "./server-credential.ts";
export type { Injection } from "./shapes.ts";
export { LocalReader, readSecret } from "./sources.ts";
export {
  type CredentialState,
  type CredentialStates,
  type LastError,
  labelCallers,
  labelOf,
  type StateLabel,
  type StoreState,
} from "./states.ts";
