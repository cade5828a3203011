export { fillPath, isPerCaller } from "./caller-path.ts";
export { type Credentials, createCredentials } from "./credentials.ts";
export { CredentialError } from "./errors.ts";
export { type Needles, needlesOf } from "./needles.ts";
export type { CredentialOptions, VaultOptions } from "./options.ts";
export type { Caller, ServerCredential } from "./server-credential.ts";
export type { Injection } from "./shapes.ts";
export { readSecret } from "./sources.ts";
