import type { DocumentKind } from "./cures.ts";

/**
 * Keys and values of DESIGN 4.2 to 4.4 whose feature this version does not have. They are refused by name: a condition
 * or a limit that is read and not kept would allow what its author forbade. The values are cures.
 */
type LaterTable = { readonly [pattern: string]: string };

const noRuleKey = 'a pattern, or { name: "get_*", except: [get_secret] }';
const noLimits = "the entry without `limits`";
const everybody = "the grant without it: in this version a grant is for everybody whom the relay lets use the server";

function ruleKeys(prefix: string): LaterTable {
  const table: Record<string, string> = {};
  for (const kind of ["tools", "prompts", "resources", "resourceTemplates"]) {
    table[`${prefix}.${kind}[].when`] = noRuleKey;
    table[`${prefix}.${kind}[].limits`] = noRuleKey;
  }
  for (const kind of ["tools", "prompts"]) {
    table[`${prefix}.${kind}[].arguments`] = noRuleKey;
    table[`${prefix}.${kind}[].require`] = noRuleKey;
  }
  return table;
}

const httpServer = "url: http://tickets.internal:8080/mcp   (a Streamable HTTP server)";

/** The cure for the key at `pattern`, if it belongs to a feature of a later version. */
export function laterCure(kind: DocumentKind, pattern: string): string | undefined {
  return Object.hasOwn(laterKeys[kind], pattern) ? laterKeys[kind][pattern] : undefined;
}

export const laterKeys: { readonly [kind in DocumentKind]: LaterTable } = {
  gateway: {
    "servers.*.command": httpServer,
    "servers.*.args": httpServer,
    "servers.*.env": httpServer,
    "servers.*.cwd": httpServer,
    "servers.*.unix": httpServer,
    "servers.*.socket": httpServer,
    "servers.*.sse": httpServer,
    "servers.*.transport": httpServer,
    "servers.*.timeouts": "timeouts: { … } at the top of the file, for all servers",
  },
  relay: {
    tls: 'listen: "127.0.0.1:8080" behind a load balancer that ends TLS',
    "tunnels.*.gateways[].servers": "the gateway without `servers`: its own file says which it has",
  },
  policy: {
    mode: "the file without `mode`: it is always enforced",
    onDeny: "the file without `onDeny`: what is denied is hidden",
    "servers.*.lock": "the server without `lock`",
    "servers.*.hygiene": "the server without `hygiene`",
    "servers.*.limits": noLimits,
    "servers.*.for": everybody,
    "servers.*.when": everybody,
    "servers.*.grants[].for": everybody,
    "servers.*.grants[].when": everybody,
    "servers.*.grants[].limits": noLimits,
    ...ruleKeys("servers.*"),
    ...ruleKeys("servers.*.grants[]"),
  },
  cases: {},
};
