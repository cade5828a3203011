import type { Clock } from "../lib/index.ts";
import { dynamicRequest, identityRequest, type LeaseRequest, pkiRequest } from "./lease.ts";
import type { CredentialOptions, GrantOptions, IssuedOptions, StaticOptions } from "./options.ts";
import type { Shape } from "./shapes.ts";
import { mtlsShape } from "./tls-identity.ts";

export function isIssued(options: CredentialOptions): options is IssuedOptions {
  return options.type === "mtls" || options.type === "vaultDynamic" || options.type === "vaultIdentity";
}

interface IssuedCredential {
  /** What to ask of the store; undefined for a certificate that is stored. */
  readonly request: LeaseRequest | undefined;
  /** What becomes of it; its sources may read the lease. */
  readonly way: Shape | StaticOptions | GrantOptions;
}

/** Throws `not-configured` for a path, mount or role that is none. */
export function issuedBy(options: IssuedOptions, clock: Clock): IssuedCredential {
  switch (options.type) {
    case "mtls":
      return { request: "pki" in options ? pkiRequest(options) : undefined, way: mtlsShape(options, clock) };
    case "vaultDynamic":
      return { request: dynamicRequest(options), way: options.as };
    case "vaultIdentity": {
      const token = { lease: "token" };
      const { as } = options;
      const request = identityRequest(options);
      if (as === "bearer") return { request, way: { type: "bearer", token } };
      return { request, way: { ...as, client: { auth: "assertion", assertion: token } } };
    }
  }
}
