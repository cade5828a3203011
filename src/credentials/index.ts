export { type Credentials, createCredentials } from "./credentials.ts";
export { CredentialError } from "./errors.ts";
export type { CredentialOptions, VaultOptions } from "./options.ts";
export { readSecret } from "./sources.ts";
