import { z } from "zod";
import { duration, section, textField } from "./fields.ts";
import { type AssertionSettings, assertedClient } from "./grant-fields.ts";
import { type StaticSettings, staticCredentials } from "./header-fields.ts";
import { type AnySource, leasedSource, type Source, source, vaultPath } from "./source.ts";
import { plainText } from "./token-fields.ts";

/** Credentials that Vault issues, and client certificates, which it may issue (DESIGN 4.2). */

export type IssuedSettings = MtlsSettings | VaultDynamicSettings | VaultIdentitySettings;

type MtlsSettings = { readonly type: "mtls"; readonly ca?: Source | undefined } & (
  | { readonly certificate: Source; readonly privateKey: Source }
  | { readonly pki: PkiSettings }
);

interface PkiSettings {
  readonly mount: string;
  readonly role: string;
  readonly commonName: string;
  readonly ttlMs: number | undefined;
}

interface VaultDynamicSettings {
  readonly type: "vaultDynamic";
  readonly vault: {
    readonly path: string;
    readonly method: "read" | "write";
    readonly parameters: Readonly<Record<string, string | number | boolean>>;
  };
  readonly as: StaticSettings<AnySource>;
}

interface VaultIdentitySettings {
  readonly type: "vaultIdentity";
  readonly role: string;
  readonly as: "bearer" | AssertionSettings;
}

interface MtlsKeys {
  readonly certificate?: Source | undefined;
  readonly privateKey?: Source | undefined;
  readonly ca?: Source | undefined;
  readonly pki?: PkiSettings | undefined;
}

export function mtls(base: string) {
  const pki = section({
    mount: vaultPath(),
    role: roleName(),
    commonName: plainText("commonName: postern.internal"),
    ttl: duration().optional(),
  }).transform(({ mount, role, commonName, ttl }): PkiSettings => ({ mount, role, commonName, ttlMs: ttl }));
  return section({
    type: z.literal("mtls"),
    certificate: source(base).optional(),
    privateKey: source(base).optional(),
    ca: source(base).optional(),
    pki: pki.optional(),
  }).transform(mtlsSettings);
}

const either = "certificate: { file: PATH } and privateKey: { file: PATH }, or pki: { … } for one that Vault issues";

function mtlsSettings(keys: MtlsKeys, ctx: z.RefinementCtx): MtlsSettings {
  const { certificate, privateKey, ca, pki } = keys;
  const refuse = (key: string, message: string, params = {}): typeof z.NEVER => {
    ctx.addIssue({ code: "custom", message, path: [key], params });
    return z.NEVER;
  };
  if (pki !== undefined) {
    const other = certificate === undefined ? "privateKey" : "certificate";
    if (certificate === undefined && privateKey === undefined) return { type: "mtls", pki, ca };
    return refuse("pki", `{} stands beside \`${other}\``, { cure: "one of the two" });
  }
  if (certificate === undefined && privateKey === undefined) return refuse("certificate", "missing", { cure: either });
  if (certificate === undefined) return refuse("certificate", "missing");
  if (privateKey === undefined) return refuse("privateKey", "missing");
  return { type: "mtls", certificate, privateKey, ca };
}

const secretParameters = /secret|passw|private_?key|^token$|api_?key/i;

export function vaultDynamic(base: string) {
  const text = z.union([z.string(), z.number(), z.boolean()]);
  return section({
    type: z.literal("vaultDynamic"),
    vault: section({
      path: vaultPath(),
      method: z.enum(["read", "write"]).default("read"),
      parameters: z
        .record(z.string(), text)
        .refine((map) => !Object.keys(map).some((name) => secretParameters.test(name)), {
          message: "{} seems to hold a secret, which is never written into this file",
          params: { cure: "what is secret belongs into the engine's own configuration" },
        })
        .optional(),
    }).transform(({ path, method, parameters = {} }) => ({ path, method, parameters })),
    as: z.discriminatedUnion("type", staticCredentials(leasedSource(base))).refine(readsLease, {
      message: "{} reads nothing of what Vault issues",
      params: { cure: "as: { type: bearer, token: { lease: FIELD } }" },
    }),
  });
}

function readsLease(as: StaticSettings<AnySource>): boolean {
  const values: readonly unknown[] = as.type === "headers" ? Object.values(as.headers) : Object.values(as);
  return values.some((value) => typeof value === "object" && value !== null && "lease" in value);
}

export function vaultIdentity(base: string) {
  return section({
    type: z.literal("vaultIdentity"),
    role: roleName(),
    as: z.union([z.literal("bearer"), z.discriminatedUnion("type", [assertedClient(base)])]),
  });
}

function roleName(): z.ZodType<string, unknown> {
  const pattern = /^\w(?:[\w.@-]{0,254}\w)?$/;
  return textField({ pattern: pattern.source }, (raw, fail) => {
    return pattern.test(raw) ? raw : fail("{} is no name of a role", "role: postern");
  });
}
