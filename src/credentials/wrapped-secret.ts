import { Secret } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { CredentialError } from "./errors.ts";
import { describeSource, type LocalSource } from "./options.ts";
import type { LocalReader } from "./sources.ts";
import { explainFailure, VaultFailure } from "./vault-failure.ts";
import { requirePlain } from "./vault-path.ts";
import { asObject, type VaultAnswer, type VaultTransport } from "./vault-transport.ts";

export interface WrappedSecretDeps {
  readonly transport: VaultTransport;
  readonly reader: LocalReader;
  readonly logger: Logger;
}

/**
 * A secret id that is handed over wrapped: in its place stands a token that gives it out once, so that a second taker is
 * noticed. A wrapping token that was refused, or that wraps something else, may have passed through other hands: it is
 * reported, and logins stop until another one stands in its place.
 */
export class WrappedSecretId {
  readonly #source: LocalSource;
  readonly #creationPath: RegExp;
  readonly #deps: WrappedSecretDeps;
  /** What became of the wrapping token that was shown last, whether good or bad. */
  #last: { readonly wrapping: string; readonly secretId: Promise<Secret> } | undefined;

  /** `mount` is that of the auth method, unencoded. */
  constructor(source: LocalSource, mount: string, deps: WrappedSecretDeps) {
    this.#source = source;
    const plain = mount.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    this.#creationPath = new RegExp(`^auth/${plain}/role/[^/]+/secret-id$`);
    this.#deps = deps;
  }

  /** Rejects with `CredentialError`; with `wrapping-refused` for the same wrapping token ever after. */
  async read(): Promise<Secret> {
    const wrapping = await this.#readWrapping();
    if (wrapping === undefined || this.#last?.wrapping === wrapping.reveal()) {
      // Without a wrapping token there is a last one.
      if (this.#last !== undefined) return await this.#last.secretId;
    }
    if (wrapping === undefined) throw this.#refused("is gone", undefined);
    const fault = await this.#inspect(wrapping);
    const secretId = fault === undefined ? this.#unwrap(wrapping) : Promise.reject(fault);
    secretId.catch(() => undefined);
    this.#last = { wrapping: wrapping.reveal(), secretId };
    return await secretId;
  }

  /** Undefined once the file is gone whose token has been unwrapped. */
  async #readWrapping(): Promise<Secret | undefined> {
    try {
      const wrapping = await this.#deps.reader.read(this.#source);
      requirePlain(wrapping, describeSource(this.#source));
      return wrapping;
    } catch (error) {
      if (this.#last === undefined) throw error;
      return undefined;
    }
  }

  /** Looking costs nothing, so it may be tried again while the store is away. */
  async #inspect(wrapping: Secret): Promise<CredentialError | undefined> {
    const { transport } = this.#deps;
    try {
      const answer = await transport.write("sys/wrapping/lookup", { token: wrapping.reveal() }, undefined);
      const path = asObject(answer?.["data"])?.["creation_path"];
      if (typeof path === "string" && this.#creationPath.test(path)) return undefined;
      return this.#alarm("wraps something else than a secret id of this auth method", undefined);
    } catch (error) {
      if (!isRefusal(error)) throw explainFailure(error, transport.address);
      return this.#alarm("is not valid: it has expired, or somebody else has unwrapped it", error.status);
    }
  }

  /** Once: whatever comes of it, the wrapping token is used up. */
  async #unwrap(wrapping: Secret): Promise<Secret> {
    let answer: VaultAnswer;
    try {
      answer = await this.#deps.transport.write("sys/wrapping/unwrap", {}, wrapping);
    } catch (error) {
      if (isRefusal(error)) throw this.#alarm("was unwrapped by somebody else in this moment", error.status);
      if (error instanceof VaultFailure && error.isUnsent) {
        this.#last = undefined;
        throw explainFailure(error, this.#deps.transport.address);
      }
      throw this.#refused("was used up, but the answer did not arrive", undefined);
    }
    const secretId = asObject(answer?.["data"])?.["secret_id"];
    if (typeof secretId === "string" && secretId !== "") return new Secret(secretId);
    throw this.#refused("was used up, but held no secret id", undefined);
  }

  #alarm(what: string, status: number | undefined): CredentialError {
    const error = this.#refused(what, status);
    const { logger, transport } = this.#deps;
    logger.error("wrapped secret id may be known to others", {
      store: transport.address,
      code: error.code,
      reason: error.message,
      cure: error.cure,
    });
    return error;
  }

  #refused(what: string, status: number | undefined): CredentialError {
    return new CredentialError(
      "wrapping-refused",
      `the wrapping token of ${describeSource(this.#source)} ${what}`,
      "find out who else had it, destroy the secret ids of the role, and put a new wrapping token there",
      { status },
    );
  }
}

function isRefusal(error: unknown): error is VaultFailure {
  return error instanceof VaultFailure && (error.status === 400 || error.status === 403 || error.status === 404);
}
