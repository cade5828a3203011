/** What the store issues on demand: how it is asked for, what came, and how long it is good. */
import { Secret } from "../lib/index.ts";
import { CredentialError } from "./errors.ts";
import type { MtlsOptions, VaultDynamicOptions, VaultIdentityOptions } from "./options.ts";
import { VaultFailure } from "./vault-failure.ts";
import { encodePath } from "./vault-path.ts";
import { asObject, type VaultAnswer } from "./vault-transport.ts";

/** Where the store makes something for us. */
export interface LeaseRequest {
  /** As a policy names it. */
  readonly policyPath: string;
  /** Encoded, with its query. */
  readonly apiPath: string;
  /** Undefined: it is read. */
  readonly body: Readonly<Record<string, unknown>> | undefined;
  /** What to look into when the store refuses the request itself. */
  readonly cure: string;
  /** Throws `VaultFailure` for an answer that is none. `wallMs`: the time at which it was asked for. */
  parse(answer: VaultAnswer, wallMs: number): Issued;
}

export interface Issued {
  readonly fields: LeaseFields;
  /** Undefined: nothing is said of its end. */
  readonly lifeMs: number | undefined;
  /** Undefined: the store remembers nothing of it, so it outlives the token that it was asked with. */
  readonly leaseId: string | undefined;
  readonly renewable: boolean;
}

/** What was issued. The fields stay inside; what comes out is wrapped. */
export class LeaseFields {
  readonly #data: Readonly<Record<string, unknown>>;
  readonly #place: string;
  readonly #secrets = new Map<string, Secret>();

  constructor(data: Readonly<Record<string, unknown>>, place: string) {
    this.#data = data;
    this.#place = place;
  }

  /** The same `Secret` for the same field each time; `a.b` is the field `b` of `a`. Throws `CredentialError`. */
  field(name: string): Secret {
    const known = this.#secrets.get(name);
    if (known !== undefined) return known;
    const what = `field ${name} of what ${this.#place} issued`;
    const value = valueAt(this.#data, name);
    if (value === undefined || value === null) {
      throw new CredentialError("field-missing", `${what} is missing`, "correct its name in the configuration");
    }
    const isText = typeof value === "string" || Number.isSafeInteger(value);
    if (!isText) throw new CredentialError("field-not-string", `${what} is no text or number`, "name another field");
    if (value === "") throw new CredentialError("field-empty", `${what} is empty`, "name another field");
    const secret = new Secret(String(value));
    this.#secrets.set(name, secret);
    return secret;
  }
}

function valueAt(data: Readonly<Record<string, unknown>>, name: string): unknown {
  if (Object.hasOwn(data, name)) return data[name];
  const dot = name.indexOf(".");
  const inner = dot < 1 ? undefined : asObject(Object.hasOwn(data, name.slice(0, dot)) ? data[name.slice(0, dot)] : 0);
  return inner === undefined ? undefined : valueAt(inner, name.slice(dot + 1));
}

/** Throws `not-configured` for a path that is none. */
export function dynamicRequest({ vault }: VaultDynamicOptions): LeaseRequest {
  const { path, method = "read", parameters = {} } = vault;
  const encoded = encodePath(path, "vault.path");
  const query = queryOf(parameters);
  const isRead = method === "read";
  return {
    policyPath: path,
    apiPath: isRead && query !== "" ? `${encoded}?${query}` : encoded,
    body: isRead ? undefined : parameters,
    cure: "check vault.path, its role and vault.parameters",
    parse: (answer) => leasedBy(answer, path),
  };
}

function queryOf(parameters: Readonly<Record<string, string | number | boolean>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) query.set(name, String(value));
  return query.toString();
}

function leasedBy(answer: VaultAnswer, place: string): Issued {
  const { lease_id: id, lease_duration: seconds, renewable } = answer ?? {};
  return {
    fields: new LeaseFields(dataOf(answer), place),
    lifeMs: isPositive(seconds) ? seconds * 1_000 : undefined,
    leaseId: leaseIdOf(id),
    renewable: renewable === true && typeof id === "string" && id !== "",
  };
}

/** Throws `not-configured` for a role that is no path segment. */
export function identityRequest({ role }: VaultIdentityOptions): LeaseRequest {
  const path = `identity/oidc/token/${role}`;
  return {
    policyPath: path,
    apiPath: encodePath(path, "role"),
    body: undefined,
    cure: "check that the role and its key exist, and that vault.auth gives an entity, as a root token has none",
    parse(answer) {
      const data = dataOf(answer);
      if (!isPositive(data["ttl"])) throw new VaultFailure("bad-answer", "it has no ttl");
      const fields = new LeaseFields(data, path);
      return { fields, lifeMs: data["ttl"] * 1_000, leaseId: undefined, renewable: false };
    },
  };
}

/** Throws `not-configured` for a mount or role that is no path. */
export function pkiRequest({ pki }: Extract<MtlsOptions, { pki: unknown }>): LeaseRequest {
  const path = `${pki.mount}/issue/${pki.role}`;
  const ttl = pki.ttlMs === undefined ? {} : { ttl: `${Math.ceil(pki.ttlMs / 1_000)}s` };
  return {
    policyPath: path,
    apiPath: encodePath(path, "pki"),
    body: { common_name: pki.commonName, format: "pem", ...ttl },
    cure: "check pki.role, and that it admits pki.commonName and pki.ttl",
    parse(answer, wallMs) {
      const data = dataOf(answer);
      const { certificate, ca_chain: chain, expiration } = data;
      if (!isPositive(expiration)) throw new VaultFailure("bad-answer", "it has no expiration");
      const whole = [certificate, ...(Array.isArray(chain) ? chain : [])].join("\n");
      const fields = new LeaseFields({ ...data, certificate: whole }, path);
      const lifeMs = Math.max(0, expiration * 1_000 - wallMs);
      return { fields, lifeMs, leaseId: leaseIdOf(answer?.["lease_id"]), renewable: false };
    },
  };
}

function dataOf(answer: VaultAnswer): Readonly<Record<string, unknown>> {
  const data = asObject(answer?.["data"]);
  if (data === undefined) throw new VaultFailure("bad-answer", "it has no data");
  return data;
}

function leaseIdOf(id: unknown): string | undefined {
  return typeof id === "string" && id !== "" ? id : undefined;
}

export function isPositive(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value) && value > 0;
}
