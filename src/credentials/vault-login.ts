import { Secret } from "../lib/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { CredentialError } from "./errors.ts";
import {
  type AppRoleAuthOptions,
  type CertAuthOptions,
  describeSource,
  type JwtAuthOptions,
  type TokenAuthOptions,
  type VaultAuthOptions,
} from "./options.ts";
import type { LocalReader } from "./sources.ts";
import { explainFailure, VaultFailure } from "./vault-failure.ts";
import { encodePath, requirePlain } from "./vault-path.ts";
import { asObject, type VaultAnswer, type VaultTransport } from "./vault-transport.ts";
import { WrappedSecretId } from "./wrapped-secret.ts";

/** A token as the store granted it. */
export interface Grant {
  readonly token: Secret;
  /** The lease granted, never the one asked for; 0 is for ever. */
  readonly leaseMs: number;
  readonly renewable: boolean;
  /** Whoever wrote it where we read it may renew it, or write another: to be looked at again before it is renewed. */
  readonly isShared?: boolean;
}

export interface VaultLogin {
  /** A new grant; rejects with `CredentialError`. The local sources are read anew each time. */
  logIn(): Promise<Grant>;
  /** Whether a token that we got this way is ours to revoke. */
  readonly ownsToken: boolean;
  /** Whether another token stands where the last one was read. Absent where none could. Rejects with `CredentialError`. */
  readonly isReplaced?: () => Promise<boolean>;
}

export interface LoginDeps {
  readonly transport: VaultTransport;
  /** Another transport to the same store, whose connections are new. */
  readonly reconnect: () => VaultTransport;
  readonly reader: LocalReader;
  readonly logger: Logger;
}

export function createLogin(auth: VaultAuthOptions, deps: LoginDeps): VaultLogin {
  const { transport, reader } = deps;
  switch (auth.method) {
    case "token":
      return tokenLogin(auth, transport, reader);
    case "agent":
      return { ownsToken: false, logIn: () => Promise.resolve(agentGrant) };
    case "cert":
      return { ownsToken: true, logIn: () => logInByCertificate(auth, deps) };
    case "approle": {
      const prove = proverOfRole(auth, deps);
      return { ownsToken: true, logIn: async () => await exchange(await prove(), transport) };
    }
    case "kubernetes":
    case "jwt":
      return { ownsToken: true, logIn: async () => await exchange(await proveByJwt(auth, reader), transport) };
  }
}

/** Stands for the token that the agent adds; it is never sent. */
const agentGrant: Grant = { token: new Secret("the agent's", "passing"), leaseMs: 0, renewable: false };

/** A connection that is kept alive still shows the certificate of its beginning, hence a new one. */
async function logInByCertificate(auth: CertAuthOptions, deps: LoginDeps): Promise<Grant> {
  const { method, mount = method } = auth;
  const cure = `check vault.auth.mount, and that a role there trusts the certificate of ${describeSource(auth.certificate)}, which may have expired`;
  const transport = deps.reconnect();
  try {
    return await exchange({ method, mount, body: {}, cure }, transport);
  } finally {
    await transport.close();
  }
}

/** What is shown to a login of the store to get a token. */
interface Proof {
  readonly method: string;
  readonly mount: string;
  readonly body: Readonly<Record<string, unknown>>;
  /** What to look into when it is refused. */
  readonly cure: string;
}

function proverOfRole(auth: AppRoleAuthOptions, deps: LoginDeps): () => Promise<Proof> {
  const { reader } = deps;
  const { method, mount = method, roleId } = auth;
  const source = "secretId" in auth ? auth.secretId : auth.wrappedSecretId;
  const wrapped = "secretId" in auth ? undefined : new WrappedSecretId(source, mount, deps);
  const cure = `check vault.auth.mount, roleId and the secret id in ${describeSource(source)}, which may have expired or been used up`;
  return async () => {
    const role = typeof roleId === "string" ? roleId : (await reader.read(roleId)).reveal();
    const secretId = await (wrapped?.read() ?? reader.read(source));
    return { method, mount, body: { role_id: role, secret_id: secretId.reveal() }, cure };
  };
}

async function proveByJwt(auth: JwtAuthOptions, reader: LocalReader): Promise<Proof> {
  const { method, mount = method } = auth;
  const jwt = await reader.read(auth.jwt);
  requirePlain(jwt, describeSource(auth.jwt));
  const cure = `check vault.auth.mount, that the role ${auth.role} exists and binds the subject and audience of the token in ${describeSource(auth.jwt)}, and that it has not expired`;
  return { method, mount, body: { role: auth.role, jwt: jwt.reveal() }, cure };
}

/** A file may be the sink of a Vault Agent, which renews its token there and at its maximum writes the next. */
function tokenLogin(auth: TokenAuthOptions, transport: VaultTransport, reader: LocalReader): VaultLogin {
  if ("env" in auth.token) return { ownsToken: false, logIn: () => adoptToken(auth, transport, reader) };
  let last: Secret | undefined;
  const readToken = async (): Promise<Secret> => {
    last = await reader.read(auth.token);
    return last;
  };
  return {
    ownsToken: false,
    logIn: async () => ({ ...(await adoptToken(auth, transport, { read: readToken })), isShared: true }),
    isReplaced: async () => (await reader.read(auth.token)).reveal() !== last?.reveal(),
  };
}

/** A token made by somebody else: only the store knows its life. */
async function adoptToken(
  auth: TokenAuthOptions,
  transport: VaultTransport,
  reader: Pick<LocalReader, "read">,
): Promise<Grant> {
  const token = await reader.read(auth.token);
  requirePlain(token, describeSource(auth.token));
  try {
    const data = asObject((await transport.read("auth/token/lookup-self", token))?.["data"]);
    return grantOf(token, data, tokenLeaseMs(data), transport.address);
  } catch (error) {
    if (!isRefusal(error)) throw explainFailure(error, transport.address);
    throw new CredentialError(
      "login-denied",
      `store ${transport.address} does not accept the token of ${describeSource(auth.token)}`,
      `put a living token there; it needs "read" on auth/token/lookup-self, which the default policy grants`,
      { status: 403 },
    );
  }
}

/** A last fraction of a second is reported as 0 too, so only the missing end tells that there is none. */
function tokenLeaseMs(data: VaultAnswer): unknown {
  const ttl = data?.["ttl"];
  const isEndless = ttl === 0 && (data?.["expire_time"] ?? null) === null;
  return ttl === 0 && !isEndless ? 1 : ttl;
}

async function exchange(proof: Proof, transport: VaultTransport): Promise<Grant> {
  try {
    const path = `auth/${encodePath(proof.mount, "vault.auth.mount")}/login`;
    const answer = await transport.write(path, proof.body, undefined);
    const granted = asObject(answer?.["auth"]);
    const token = granted?.["client_token"];
    if (typeof token !== "string" || token === "") throw noGrant(transport.address);
    const secret = new Secret(token);
    requirePlain(secret, "the token granted");
    return grantOf(secret, granted, granted?.["lease_duration"], transport.address);
  } catch (error) {
    if (!isRefusal(error)) throw explainFailure(error, transport.address);
    throw new CredentialError(
      "login-denied",
      `store ${transport.address} refused the ${proof.method} login at auth/${proof.mount}`,
      proof.cure,
      { status: error.status },
    );
  }
}

/** 400 is what the store says to a wrong role, secret id or signed token, 404 to a mount that is not there. */
function isRefusal(error: unknown): error is VaultFailure {
  return error instanceof VaultFailure && (error.status === 400 || error.status === 403 || error.status === 404);
}

function grantOf(token: Secret, data: VaultAnswer, leaseSeconds: unknown, address: string): Grant {
  if (typeof leaseSeconds !== "number" || !Number.isFinite(leaseSeconds) || leaseSeconds < 0) throw noGrant(address);
  const uses = data?.["num_uses"];
  if (typeof uses === "number" && uses > 0) {
    throw new CredentialError(
      "token-limited",
      "the store's token may be used a limited number of times only",
      "set token_num_uses of the role to 0, since the gateway reads for as long as it runs",
    );
  }
  const isBatch = data?.["token_type"] === "batch" || data?.["type"] === "batch";
  return { token, leaseMs: leaseSeconds * 1_000, renewable: data?.["renewable"] === true && !isBatch };
}

/** The grant that `renew-self` answered with; the token stays the same. */
export function renewedGrant(token: Secret, answer: VaultAnswer, address: string): Grant {
  const granted = asObject(answer?.["auth"]);
  return grantOf(token, granted, granted?.["lease_duration"], address);
}

function noGrant(address: string): CredentialError {
  return new CredentialError(
    "store-bad-answer",
    `store ${address} gave no usable answer to a login`,
    "check that vault.address names Vault or OpenBao itself and no proxy",
  );
}
