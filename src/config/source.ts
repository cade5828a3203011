import { z } from "zod";
import { filePath, section, textField } from "./fields.ts";

/** Where a secret is read from (DESIGN 4.2). Paths of files are absolute. */
export type Source = LocalSource | VaultSource;

/** A source that needs no store: what the store's own login must use. */
export type LocalSource = { readonly file: string } | { readonly env: string };

export interface VaultSource {
  readonly vault: { readonly mount: string; readonly path: string; readonly field: string };
}

const placeholder = "{principal.id}";

/**
 * Mounts and paths of Vault: no slash at either end, no empty or dot segment. A template may hold `{principal.id}`, for which
 * each caller has another segment; cross-checks.ts says where that may be.
 */
export function vaultPath(options: { readonly isTemplate?: boolean } = {}): z.ZodType<string, unknown> {
  return textField({ minLength: 1 }, (raw, fail) => {
    if (raw.includes("${")) return fail("{}: variables are not expanded here", raw.replaceAll("${", "{"));
    if (options.isTemplate !== true && /[{}]/.test(raw))
      return fail("{} is the same for every principal", "a fixed path");
    if (/[{}]/.test(raw.replaceAll(placeholder, "")))
      return fail(`{} may hold ${placeholder} and no other braces`, `mcp/tickets/${placeholder}`);
    if (/^\/|\/$/.test(raw))
      return fail("{} must not begin or end with /", raw.replace(/^\/+|\/+$/g, "") || "mcp/tickets");
    const isBroken = raw.split("/").some((segment) => segment === "" || segment === "." || segment === "..");
    return isBroken ? fail("{} has an empty or dot segment", "segments joined by single slashes: mcp/tickets") : raw;
  });
}

function fieldName(): z.ZodType<string, unknown> {
  return textField({ minLength: 1 }, (raw, fail) => (raw.trim() === "" ? fail("{} is empty", "field: token") : raw));
}

function environmentName(): z.ZodType<string, unknown> {
  return textField({ pattern: "^[A-Za-z_][A-Za-z0-9_]*$" }, (raw, fail) => {
    if (/^[A-Za-z_][A-Za-z0-9_]*$/.test(raw)) return raw;
    // Not shown: whoever writes more than a name here may have written the value.
    return fail("{} is no name of an environment variable", "the bare name, such as TICKETS_TOKEN, without $ or =");
  });
}

const exactlyOne = { minProperties: 1, maxProperties: 1 };

/** Exactly one of vault, file and env. A literal is refused in the words of check-shape.ts. */
export function source(base: string): z.ZodType<Source, unknown> {
  const vault = section({ mount: vaultPath(), path: vaultPath({ isTemplate: true }), field: fieldName() });
  const keys = section({ vault: vault.optional(), file: filePath(base).optional(), env: environmentName().optional() });
  return keys
    .transform(({ vault, file, env }, ctx): Source => {
      const given: Source[] = [];
      if (vault !== undefined) given.push({ vault: { mount: vault.mount, path: vault.path, field: vault.field } });
      if (file !== undefined) given.push({ file });
      if (env !== undefined) given.push({ env });
      return only(given, ctx, "one of { file: PATH }, { env: NAME }, { vault: { mount, path, field } }");
    })
    .meta(exactlyOne) as z.ZodType<Source, unknown>;
}

/** A field of what the store issues for the credential (`vaultDynamic`). */
interface LeaseSource {
  readonly lease: string;
}

export type AnySource = Source | LeaseSource;

/** Exactly one of lease, vault, file and env. */
export function leasedSource(base: string): z.ZodType<AnySource, unknown> {
  const vault = section({ mount: vaultPath(), path: vaultPath(), field: fieldName() });
  const lease = textField({ minLength: 1 }, (raw, fail) =>
    raw.trim() === "" ? fail("{} is empty", "lease: token") : raw,
  );
  const keys = section({
    lease: lease.optional(),
    vault: vault.optional(),
    file: filePath(base).optional(),
    env: environmentName().optional(),
  });
  return keys
    .transform(({ lease, vault, file, env }, ctx): AnySource => {
      const given: AnySource[] = [];
      if (lease !== undefined) given.push({ lease });
      if (vault !== undefined) given.push({ vault: { mount: vault.mount, path: vault.path, field: vault.field } });
      if (file !== undefined) given.push({ file });
      if (env !== undefined) given.push({ env });
      return only(given, ctx, "{ lease: FIELD }");
    })
    .meta(exactlyOne) as z.ZodType<AnySource, unknown>;
}

/** Exactly one of file and env. `whyNot` says why it cannot be read from Vault. */
export function localSource(
  base: string,
  whyNot = "what opens Vault cannot be read from Vault",
): z.ZodType<LocalSource, unknown> {
  const vault = z.unknown().optional();
  const keys = section({ vault, file: filePath(base).optional(), env: environmentName().optional() });
  return keys
    .transform(({ vault, file, env }, ctx): LocalSource => {
      const cure = "{ file: PATH } or { env: NAME }";
      if (vault !== undefined) {
        ctx.addIssue({ code: "custom", message: `{}: ${whyNot}`, params: { cure } });
        return z.NEVER;
      }
      const given: LocalSource[] = [];
      if (file !== undefined) given.push({ file });
      if (env !== undefined) given.push({ env });
      return only(given, ctx, cure);
    })
    .meta(exactlyOne) as z.ZodType<LocalSource, unknown>;
}

function only<T>(given: readonly T[], ctx: z.RefinementCtx, cure: string): T {
  const [first, second] = given;
  if (first !== undefined && second === undefined) return first;
  const message = first === undefined ? "{} names no source" : "{} names several sources";
  ctx.addIssue({ code: "custom", message, params: { cure } });
  return z.NEVER;
}
