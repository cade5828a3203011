/** What a configured credential is made of, and how: once for everybody, or once for each caller. */
import type { Clock } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { isPerCaller } from "./caller-path.ts";
import type { GrantHttp } from "./grant-http.ts";
import { grantOf, isGrant } from "./grants.ts";
import type { AnySource, GrantOptions, StaticOptions, TokenExchangeOptions, VaultSource } from "./options.ts";
import { type Caller, type SecretReader, type ServerCredential, ShapedCredential } from "./server-credential.ts";
import { type Shape, shapeOf, tokenShape } from "./shapes.ts";
import { CallerExchange, TokenExchange } from "./token-exchange.ts";
import { type Grant, TokenReader, type TokenReaderDeps } from "./token-reader.ts";

export type OpenReader = (source: AnySource) => SecretReader;

/** How secrets become what is sent. */
export type Way = Shape | StaticOptions | GrantOptions | TokenExchangeOptions;

export interface PlanDeps {
  readonly http: GrantHttp;
  readonly clock: Clock;
  /** Numbers in [0, 1). */
  readonly random: () => number;
}

export interface Plan {
  /** Of the headers that it sets. */
  readonly names: readonly string[];
  readonly sources: readonly AnySource[];
  /** Tells callers apart who differ by more than their id. */
  readonly keyOf?: (caller: Caller) => string;
  /** Throws `caller-unfit` for a caller who can have none. */
  open(openReader: OpenReader, logger: Logger, caller: Caller): ServerCredential;
}

/** Of access tokens. */
const tokenNames = ["Authorization"];

/** Throws `not-configured` for options that cannot work. */
export function planOf(way: Way, deps: PlanDeps): Plan {
  if (!("type" in way)) return shapePlan(way, deps);
  if (way.type === "tokenExchange") {
    const exchange = new TokenExchange(way, deps.clock);
    return {
      names: tokenNames,
      sources: exchange.sources,
      keyOf: (caller) => exchange.keyOf(caller),
      open: (openReader, logger, caller) =>
        new CallerExchange(exchange, caller, (grant) => openToken(grant, { ...deps, openReader, logger })),
    };
  }
  if (!isGrant(way)) return shapePlan(shapeOf(way), deps);
  const grant = grantOf(way, deps.clock);
  return {
    names: tokenNames,
    sources: grant.sources,
    open: (openReader, logger) => openToken(grant, { ...deps, openReader, logger }),
  };
}

function shapePlan(shape: Shape, { clock }: PlanDeps): Plan {
  const { names, sources } = shape;
  return {
    names,
    sources,
    open: (openReader, logger) => new ShapedCredential(shape, sources.map(openReader), { clock, logger }),
  };
}

function openToken(grant: Grant, deps: TokenReaderDeps): ServerCredential {
  const token = new TokenReader(grant, deps);
  return new ShapedCredential(tokenShape(token), [token], { clock: deps.clock, logger: deps.logger });
}

/** Whether it lies somewhere else for each caller. */
export function isTemplated(source: AnySource): source is VaultSource {
  return "vault" in source && isPerCaller(source.vault.path);
}
