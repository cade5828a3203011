export { type Credentials, type CredentialsOptions, createCredentials, type ServerCredential } from "./credentials.ts";
export { CredentialError, type CredentialErrorCode } from "./errors.ts";
export type {
  AppRoleAuthOptions,
  BearerOptions,
  CredentialOptions,
  EnvSource,
  FileSource,
  HeaderOptions,
  LocalSource,
  Source,
  TokenAuthOptions,
  VaultAuthOptions,
  VaultOptions,
  VaultSource,
} from "./options.ts";
export type { Injection } from "./shapes.ts";
export { type Environment, type ReadSecretDeps, readSecret } from "./sources.ts";
