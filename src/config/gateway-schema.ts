import { hostname } from "node:os";
import { z } from "zod";
import { address } from "./addresses.ts";
import { type AdminSettings, adminSection } from "./admin-section.ts";
import { type TokenExchangeSettings, tokenExchange } from "./exchange-fields.ts";
import { byName, duration, filePath, section, sha256, size, textField, urlName, wholeNumber } from "./fields.ts";
import { clientCredentials, type GrantSettings, githubApp, jwtBearer, refreshToken } from "./grant-fields.ts";
import { type StaticSettings, staticCredentials } from "./header-fields.ts";
import { type IssuedSettings, mtls, vaultDynamic, vaultIdentity } from "./issued-fields.ts";
import { type Source, source } from "./source.ts";
import { type OAuthSettings, oauthSection } from "./token-fields.ts";
import { type VaultSettings, vaultSection } from "./vault-section.ts";

/** gateway.yaml (DESIGN 4.2) without the policy: every default set, paths absolute, durations in milliseconds. */
export interface GatewaySettings {
  readonly relay: {
    /** Origin only: `wss://relay.example.com`. */
    readonly url: string;
    readonly tunnel: string;
    readonly token: Source;
    readonly connections: 1;
    /** Path of a PEM file. */
    readonly ca: string | undefined;
  };
  readonly vault: VaultSettings | undefined;
  readonly servers: { readonly [name: string]: ServerSettings };
  readonly agents: AgentSettings;
  readonly gateway: { readonly id: string };
  readonly admin: AdminSettings;
  /** Without a file: standard output. */
  readonly audit: { readonly file: string | undefined; readonly onError: "deny" | "continue" };
  readonly limits: { readonly requestBytes: number; readonly streams: number };
  readonly timeouts: { readonly firstByteMs: number; readonly idleMs: number };
}

/** Who says who calls: the relay, or the gateway itself by the agents' own keys and tokens. */
export type AgentSettings =
  | { readonly verify: "relay" }
  | {
      readonly verify: "edge";
      readonly keys: readonly { readonly name: string; readonly sha256: readonly string[] }[];
      readonly issuers: readonly (OAuthSettings & { readonly audience: string })[];
    };

export interface ServerSettings {
  readonly url: string;
  /** Path of a PEM file, trusted beside the system's roots. */
  readonly ca: string | undefined;
  /** Undefined: calls go out without one. */
  readonly credential: CredentialSettings | undefined;
  /** What becomes of an answer that holds the credential. */
  readonly onReflect: "redact" | "block";
}

export type CredentialSettings = StaticSettings<Source> | GrantSettings | TokenExchangeSettings | IssuedSettings;

const minute = 60_000;
const mebibyte = 1024 ** 2;

/** `base`: the directory that relative paths start from. */
export function createGatewaySchema(base: string): z.ZodType<GatewaySettings, unknown> {
  const shape = section({
    relay: relaySection(base),
    vault: vaultSection(base).optional(),
    servers: byName(serverSection(base)),
    // Read by policy-schema.ts; here only so that the key is known and demanded.
    policy: z.unknown().meta({ anyOf: [{ type: "string" }, { $ref: "policy.schema.json" }] }),
    agents: agentsSection(base).optional(),
    gateway: section({ id: replicaId().optional() }).optional(),
    admin: adminSection(base, 9464),
    audit: section({
      file: filePath(base).optional(),
      onError: z.enum(["deny", "continue"]).default("deny"),
    }).optional(),
    limits: section({
      requestBytes: size(1024, 256 * mebibyte).optional(),
      streams: wholeNumber(65_536).optional(),
    }).optional(),
    timeouts: section({ firstByte: duration().optional(), idle: duration().optional() }).optional(),
  });
  return shape.transform(
    (file): GatewaySettings => ({
      relay: { ...file.relay, ca: file.relay.ca },
      vault: file.vault,
      servers: file.servers,
      agents: file.agents ?? { verify: "relay" },
      gateway: { id: file.gateway?.id ?? hostname() },
      admin: file.admin,
      audit: { file: file.audit?.file, onError: file.audit?.onError ?? "deny" },
      limits: { requestBytes: file.limits?.requestBytes ?? 4 * mebibyte, streams: file.limits?.streams ?? 2048 },
      timeouts: { firstByteMs: file.timeouts?.firstByte ?? 5 * minute, idleMs: file.timeouts?.idle ?? 10 * minute },
    }),
  );
}

function relaySection(base: string) {
  return section({
    url: address({ schemes: ["wss", "ws"], isPlainLocal: true, hasPath: false }),
    tunnel: urlName(),
    token: source(base),
    connections: oneConnection(),
    ca: filePath(base).optional(),
  });
}

function oneConnection() {
  const one = z.unknown().transform((raw, ctx): 1 => {
    if (raw === undefined || raw === 1) return 1;
    const isLater = typeof raw === "number" && Number.isSafeInteger(raw) && raw > 1 && raw <= 4;
    const message = isLater ? "`connections` above 1 is not in this version yet" : "{} must be 1";
    ctx.addIssue({ code: "custom", message, params: { cure: "connections: 1" } });
    return z.NEVER;
  });
  return one
    .optional()
    .transform((): 1 => 1)
    .meta({ const: 1 });
}

function agentsSection(base: string) {
  const key = section({ name: urlName(), sha256: keyHashes() });
  const issuer = oauthSection(base).transform((settings, ctx): OAuthSettings & { readonly audience: string } => {
    if (settings.audience !== undefined) return { ...settings, audience: settings.audience };
    // The gateway does not know under which URL agents come to the relay.
    ctx.addIssue({ code: "custom", message: "missing", path: ["audience"] });
    return z.NEVER;
  });
  return section({
    verify: z.enum(["relay", "edge"]).default("relay"),
    keys: z.array(key).optional(),
    issuers: z.array(issuer).optional(),
  }).transform(({ verify, keys, issuers }, ctx): AgentSettings => {
    const refuse = (path: string, message: string, cure: string): typeof z.NEVER => {
      ctx.addIssue({ code: "custom", message, path: [path], params: { cure } });
      return z.NEVER;
    };
    if (verify === "edge") {
      if ((keys ?? []).length + (issuers ?? []).length > 0) return { verify, keys: keys ?? [], issuers: issuers ?? [] };
      const cure = "keys: [ { name: claude-prod, sha256: HASH } ], or issuers: [ { issuer: …, audience: … } ]";
      return refuse("verify", "{} lets nobody in without `keys` or `issuers`", cure);
    }
    const unread = keys === undefined ? (issuers === undefined ? undefined : "issuers") : "keys";
    if (unread === undefined) return { verify };
    return refuse(unread, "{} is read with `verify: edge` only", "verify: edge beside it, or the file without it");
  });
}

/** One hash, or several while a key is rotated. */
function keyHashes() {
  const hash = sha256("postern token new --kind agent");
  return z.union([hash, z.array(hash).min(1).max(8)]).transform((one): readonly string[] => {
    return typeof one === "string" ? [one] : one;
  });
}

function serverSection(base: string) {
  const credential = z.discriminatedUnion("type", [
    ...staticCredentials(source(base)),
    clientCredentials(base),
    refreshToken(base),
    jwtBearer(base),
    githubApp(base),
    tokenExchange(base),
    mtls(base),
    vaultDynamic(base),
    vaultIdentity(base),
  ]);
  return section({
    url: address({ schemes: ["https", "http"], isPlainLocal: false, hasPath: true, later: ["unix", "stdio", "sse"] }),
    ca: filePath(base).optional(),
    credential: credential.optional(),
    onReflect: z.enum(["redact", "block"]).default("redact"),
  }).transform(({ url, ca, credential, onReflect }, ctx): ServerSettings => {
    if (credential?.type === "mtls" && !url.startsWith("https:")) {
      const message = "{} must begin with https:// for a certificate to be shown";
      const params = { cure: `url: ${url.replace(/^http:/, "https:")}` };
      ctx.addIssue({ code: "custom", message, path: ["url"], params });
    }
    return { url, ca, credential, onReflect };
  });
}

/** As long as an id may be on the wire (docs/protocol.md, HELLO). */
function replicaId() {
  const pattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
  return textField({ pattern: pattern.source }, (raw, fail) => {
    if (pattern.test(raw)) return raw;
    return fail("{} must be letters, digits, dots, _ and -, at most 128", "id: edge-1");
  });
}
