/** What a configured credential is made of, and how: once for everybody, or once for each caller. */
import type { Clock } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { isPerCaller } from "./caller-path.ts";
import type { GrantHttp } from "./grant-http.ts";
import { grantOf, isGrant } from "./grants.ts";
import type { CredentialOptions, Source, VaultSource } from "./options.ts";
import { type Caller, type SecretReader, type ServerCredential, ShapedCredential } from "./server-credential.ts";
import { type Shape, shapeOf, tokenShape } from "./shapes.ts";
import { CallerExchange, TokenExchange } from "./token-exchange.ts";
import { type Grant, TokenReader, type TokenReaderDeps } from "./token-reader.ts";

export type OpenReader = (source: Source) => SecretReader;

export interface PlanDeps {
  readonly http: GrantHttp;
  readonly clock: Clock;
  /** Numbers in [0, 1). */
  readonly random: () => number;
}

export interface Plan {
  /** Of the headers that it sets. */
  readonly names: readonly string[];
  readonly sources: readonly Source[];
  /** Tells callers apart who differ by more than their id. */
  readonly keyOf?: (caller: Caller) => string;
  /** Throws `caller-unfit` for a caller who can have none. */
  open(openReader: OpenReader, logger: Logger, caller: Caller): ServerCredential;
}

/** Throws `not-configured` for options that cannot work. */
export function planOf(credential: CredentialOptions, deps: PlanDeps): Plan {
  if (credential.type === "tokenExchange") {
    const exchange = new TokenExchange(credential, deps.clock);
    const shape = tokenShape(exchange.place);
    return {
      names: shape.names,
      sources: exchange.sources,
      keyOf: (caller) => exchange.keyOf(caller),
      open: (openReader, logger, caller) =>
        new CallerExchange(exchange, caller, (grant) => openToken(shape, grant, { ...deps, openReader, logger })),
    };
  }
  if (isGrant(credential)) {
    const grant = grantOf(credential, deps.clock);
    const shape = tokenShape(grant.place);
    return {
      names: shape.names,
      sources: grant.sources,
      open: (openReader, logger) => openToken(shape, grant, { ...deps, openReader, logger }),
    };
  }
  const shape = shapeOf(credential);
  const { names, sources } = shape;
  return {
    names,
    sources,
    open: (openReader, logger) => new ShapedCredential(shape, sources.map(openReader), { clock: deps.clock, logger }),
  };
}

function openToken(shape: Shape, grant: Grant, deps: TokenReaderDeps): ServerCredential {
  return new ShapedCredential(shape, [new TokenReader(grant, deps)], { clock: deps.clock, logger: deps.logger });
}

/** Whether it lies somewhere else for each caller. */
export function isTemplated(source: Source): source is VaultSource {
  return "vault" in source && isPerCaller(source.vault.path);
}
