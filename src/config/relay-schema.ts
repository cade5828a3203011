import { z } from "zod";
import { address } from "./addresses.ts";
import { type AdminSettings, adminSection } from "./admin-section.ts";
import {
  byName,
  type Listen,
  listenAddress,
  section,
  sha256,
  size,
  textField,
  urlName,
  wholeNumber,
} from "./fields.ts";
import { type JwtSettings, jwtSection, type OAuthSettings, oauthSection } from "./token-fields.ts";

/** relay.yaml (DESIGN 4.4) with every default set. */
export interface RelayConfig {
  readonly listen: Listen;
  /** Origin only: `https://relay.example.com`. */
  readonly publicUrl: string;
  readonly allowedHosts: readonly string[];
  readonly allowedOrigins: readonly string[];
  readonly admin: AdminSettings;
  readonly tunnels: { readonly [name: string]: TunnelSettings };
  readonly limits: {
    readonly streamsPerAgent: number;
    readonly streamsPerConnection: number;
    readonly headerBytes: number;
    readonly connections: number;
    readonly upgradesPerMinute: number;
  };
}

export interface TunnelSettings {
  readonly gateways: readonly GatewayEntry[];
  readonly agents: readonly AgentEntry[];
}

export type GatewayEntry =
  | { readonly name: string; readonly tokenSha256: readonly string[] }
  | { readonly name: string; readonly jwt: JwtSettings };

export type AgentEntry = (
  | { readonly name: string; readonly keySha256: readonly string[] }
  | { readonly oauth: OAuthSettings }
) & {
  /** Server names; `*` is all of them. */
  readonly servers: readonly string[];
};

/** `base`: the directory that relative paths start from. */
export function createRelaySchema(base: string): z.ZodType<RelayConfig, unknown> {
  return relayShape(base).transform(
    (file): RelayConfig => ({
      listen: file.listen ?? { host: "0.0.0.0", port: 8080 },
      publicUrl: file.publicUrl,
      allowedHosts: file.allowedHosts,
      allowedOrigins: file.allowedOrigins,
      admin: file.admin,
      tunnels: file.tunnels,
      limits: {
        streamsPerAgent: file.limits?.streamsPerAgent ?? 256,
        streamsPerConnection: file.limits?.streamsPerConnection ?? 2048,
        headerBytes: file.limits?.headerBytes ?? 64 * 1024,
        connections: file.limits?.connections ?? 10_000,
        upgradesPerMinute: file.limits?.upgradesPerMinute ?? 60,
      },
    }),
  );
}

function relayShape(base: string) {
  return section({
    listen: listenAddress().optional(),
    publicUrl: address({ schemes: ["https", "http"], isPlainLocal: true, hasPath: false }),
    allowedHosts: z.array(hostName()).default([]),
    allowedOrigins: z.array(origin()).default([]),
    trustedProxies: noProxies().optional(),
    admin: adminSection(base, 9465),
    tunnels: byName(section({ gateways: z.array(gatewayEntry(base)), agents: z.array(agentEntry(base)) })),
    limits: section({
      streamsPerAgent: wholeNumber(65_536).default(256),
      streamsPerConnection: wholeNumber(65_536).default(2048),
      headerBytes: size(1024, 64 * 1024).optional(),
      connections: wholeNumber(65_536).default(10_000),
      upgradesPerMinute: wholeNumber(65_536).default(60),
    }).optional(),
  });
}

/** By a tunnel token, of which the file knows the hash, or by a JWT. */
function gatewayEntry(base: string) {
  return section({
    name: urlName(),
    tokenSha256: hashes("postern token new").optional(),
    jwt: jwtSection(base).optional(),
  }).transform(({ name, tokenSha256, jwt }, ctx): GatewayEntry => {
    if (jwt === undefined) return { name, tokenSha256: tokenSha256 ?? missing(ctx, "tokenSha256") };
    if (tokenSha256 === undefined) return { name, jwt };
    return refuse(ctx, "tokenSha256", "{}: a gateway comes with a token or with a JWT", "an entry of its own for each");
  });
}

/** By a key, of which the file knows the hash, or by an access token, which says itself who calls. */
function agentEntry(base: string) {
  return section({
    name: urlName().optional(),
    keySha256: hashes("postern token new --kind agent").optional(),
    oauth: oauthSection(base).optional(),
    servers: z.array(serverReference()),
  }).transform(({ name, keySha256, oauth, servers }, ctx): AgentEntry => {
    if (oauth === undefined) {
      return { name: name ?? missing(ctx, "name"), keySha256: keySha256 ?? missing(ctx, "keySha256"), servers };
    }
    if (keySha256 !== undefined) {
      return refuse(ctx, "keySha256", "{}: agents come with a key or with a token", "an entry of its own for each");
    }
    if (name === undefined) return { oauth, servers };
    return refuse(ctx, "name", "{}: who calls is said by the token", "{ oauth: { issuer: … }, servers: [tickets] }");
  });
}

/** The words are those of cures.ts for what is missing. */
function missing(ctx: z.RefinementCtx, key: string): typeof z.NEVER {
  ctx.addIssue({ code: "custom", message: "missing", path: [key] });
  return z.NEVER;
}

function refuse(ctx: z.RefinementCtx, key: string, message: string, cure: string): typeof z.NEVER {
  ctx.addIssue({ code: "custom", message, path: [key], params: { cure } });
  return z.NEVER;
}

/** One hash, two while a key is rotated; a few more do no harm. */
function hashes(command: string) {
  return z.array(sha256(command)).min(1).max(8);
}

function serverReference() {
  const name = urlName();
  return z.union([z.literal("*"), name]).meta({ type: "string" }) as z.ZodType<string, unknown>;
}

function hostName() {
  return textField({ pattern: "^[^/]+$" }, (raw, fail) => {
    if (raw.includes("*")) return fail("{}: wildcards are not matched here", "each host by its name");
    if (/^[a-z+.-]+:\/\//i.test(raw)) return fail("{} is a URL, not a host", hostOf(raw) ?? "relay.internal");
    const isHost = /^(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::\d{1,5})?$/.test(raw);
    return isHost ? raw.toLowerCase() : fail("{} is no host", "relay.internal, or relay.internal:8443");
  });
}

function hostOf(url: string): string | undefined {
  return URL.canParse(url) ? new URL(url).host : undefined;
}

function origin() {
  return textField({ pattern: "^https?://[^/]+$" }, (raw, fail) => {
    if (raw.includes("*")) return fail("{}: wildcards are not matched here", "each origin in full");
    const url = /^https?:\/\/[^/?#@\\\s]+/i.test(raw) && URL.canParse(raw) ? new URL(raw) : undefined;
    if (url === undefined) return fail("{} is no origin (scheme, host, port)", "https://console.example.com");
    // Browsers send exactly this text; a slash at the end would match none of them.
    return url.origin === raw ? raw : fail("{} is not what a browser sends as Origin", url.origin);
  });
}

function noProxies() {
  return z.array(z.unknown()).superRefine((list, ctx) => {
    if (list.length === 0) return;
    const message = "`trustedProxies` is not in this version yet";
    ctx.addIssue({ code: "custom", message, params: { cure: "trustedProxies: []" } });
  });
}
