import { z } from "zod";
import { address, isLoopback } from "./addresses.ts";
import { duration, filePath, section, textField } from "./fields.ts";
import { type LocalSource, localSource, vaultPath } from "./source.ts";

/** `vault` of gateway.yaml (DESIGN 4.2): every default set, paths absolute, durations in milliseconds. */
export interface VaultSettings {
  readonly address: string;
  readonly namespace: string | undefined;
  /** Path of a PEM file. */
  readonly ca: string | undefined;
  readonly auth: VaultAuthSettings;
  readonly ttlMs: number;
  readonly staleForMs: number;
}

export type VaultAuthSettings =
  | { readonly method: "token"; readonly token: LocalSource }
  | ({ readonly method: "approle"; readonly roleId: string | LocalSource; readonly mount: string } & (
      | { readonly secretId: LocalSource }
      | { readonly wrappedSecretId: LocalSource }
    ))
  | {
      readonly method: "kubernetes" | "jwt";
      readonly role: string;
      readonly jwt: LocalSource;
      readonly mount: string;
    }
  | {
      readonly method: "cert";
      readonly certificate: LocalSource;
      readonly privateKey: LocalSource;
      readonly mount: string;
    }
  /** `unix:/path`, or an origin on loopback. */
  | { readonly method: "agent"; readonly agent: { readonly address: string } };

const minute = 60_000;

/** Where Kubernetes puts the token of a pod's service account. */
const podToken: LocalSource = { file: "/var/run/secrets/kubernetes.io/serviceaccount/token" };

/** `base`: the directory that relative paths start from. */
export function vaultSection(base: string) {
  return section({
    address: address({ schemes: ["https", "http"], isPlainLocal: true, hasPath: false }),
    namespace: namespaceName().optional(),
    ca: filePath(base).optional(),
    auth: authSection(base),
    ttl: duration().optional(),
    staleFor: duration({ zero: true }).optional(),
  }).transform((file, ctx): VaultSettings => {
    if (file.auth.method === "cert" && !file.address.startsWith("https:")) {
      const params = { cure: file.address.replace(/^http:/, "https:") };
      ctx.addIssue({
        code: "custom",
        message: "{} must begin with https:// for a certificate to be shown",
        path: ["address"],
        params,
      });
    }
    return {
      address: file.address,
      namespace: file.namespace,
      ca: file.ca,
      auth: file.auth,
      ttlMs: file.ttl ?? minute,
      staleForMs: file.staleFor ?? 120 * minute,
    };
  });
}

function authSection(base: string) {
  const mount = vaultPath().optional();
  const byJwt = { role: z.string().min(1), jwt: localSource(base).optional(), mount };
  const auth = z.discriminatedUnion("method", [
    section({ method: z.literal("token"), token: localSource(base) }),
    section({
      method: z.literal("approle"),
      roleId: z.union([z.string().min(1), localSource(base)]),
      secretId: localSource(base).optional(),
      wrappedSecretId: localSource(base).optional(),
      mount,
    }),
    section({ method: z.literal("kubernetes"), ...byJwt }),
    section({ method: z.literal("jwt"), ...byJwt }),
    section({
      method: z.literal("cert"),
      certificate: localSource(base),
      privateKey: localSource(base),
      mount,
    }),
    section({ method: z.literal("agent"), agent: section({ address: agentAddress() }) }),
  ]);
  return auth.transform((keys, ctx): VaultAuthSettings => {
    switch (keys.method) {
      case "token":
        return { method: keys.method, token: keys.token };
      case "approle":
        return approleSettings(keys, ctx);
      case "kubernetes":
      case "jwt":
        return { method: keys.method, role: keys.role, jwt: keys.jwt ?? podToken, mount: keys.mount ?? keys.method };
      case "cert":
        return { ...keys, mount: keys.mount ?? keys.method };
      case "agent":
        return keys;
    }
  });
}

/** An agent adds a token for whoever asks it, so it is never asked over a network. */
function agentAddress(): z.ZodType<string, unknown> {
  return textField({ pattern: "^(https?://|unix:/)" }, (raw, fail) => {
    const path = /^unix:(?:\/\/)?(\/[^\s?#]+)$/.exec(raw)?.[1];
    if (path !== undefined) return `unix:${path}`;
    const url = URL.canParse(raw) ? new URL(raw) : undefined;
    const isBare = url !== undefined && /^https?:$/.test(url.protocol) && url.href === `${url.origin}/`;
    if (isBare && isLoopback(url.hostname)) return url.origin;
    return fail("{} must be a unix socket or an address on loopback", "address: unix:/run/vault-agent/agent.sock");
  });
}

interface ApproleKeys {
  readonly roleId: string | LocalSource;
  readonly secretId?: LocalSource | undefined;
  readonly wrappedSecretId?: LocalSource | undefined;
  readonly mount?: string | undefined;
}

function approleSettings(keys: ApproleKeys, ctx: z.RefinementCtx): VaultAuthSettings {
  const { roleId, secretId, wrappedSecretId, mount = "approle" } = keys;
  const method = "approle" as const;
  if (secretId !== undefined && wrappedSecretId === undefined) return { method, roleId, secretId, mount };
  if (wrappedSecretId !== undefined && secretId === undefined) return { method, roleId, wrappedSecretId, mount };
  if (secretId === undefined) {
    ctx.addIssue({ code: "custom", message: "missing", path: ["secretId"] });
  } else {
    const params = { cure: "one of secretId and wrappedSecretId" };
    ctx.addIssue({ code: "custom", message: "{} stands beside secretId", path: ["wrappedSecretId"], params });
  }
  return z.NEVER;
}

function namespaceName() {
  return textField({ minLength: 1 }, (raw, fail) => {
    return /^[\x21-\x7e]+$/.test(raw) ? raw : fail("{} holds what no header may carry", "namespace: platform/team-a");
  });
}
