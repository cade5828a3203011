import { isAmbiguousUri, isUnsafeName } from "../lib/index.ts";
import type { ClientKind, ListKind, Subject } from "../mcp/types.ts";
import { type RulePlace, RuleSet } from "./rules.ts";
import type { Decision, DenyReason, GrantSource, Policy, PolicySource, ServerPolicySource } from "./types.ts";

/** Compiles the allowlist once; judging then costs a look-up and a few string comparisons. No I/O, clock or logger. */
export function compilePolicy(source: PolicySource): Policy {
  const servers = new Map<string, ServerPolicy>();
  for (const [name, server] of Object.entries(source.servers)) {
    if (server.grants.length > 0) servers.set(name, compileServer(name, server));
  }
  const decide = (server: string, subject: Subject): Decision => {
    const policy = servers.get(server);
    if (policy === undefined) return deny("no-grant");
    try {
      return judge(policy, subject);
    } catch {
      return deny("error");
    }
  };
  return {
    hasGrant: (server) => servers.has(server),
    decide,
    shows: (server, kind, name) => decide(server, listSubjects[kind](name)).kind === "allow",
    admitsAsk: (server, ask) => decide(server, { kind: "client", ask }).kind === "allow",
  };
}

/** A list shows what could be called, so an entry is judged as the call that it invites. */
const listSubjects: Readonly<Record<ListKind, (name: unknown) => Subject>> = {
  tools: (name) => ({ kind: "tool", name: stringOf(name) }),
  prompts: (name) => ({ kind: "prompt", name: stringOf(name) }),
  resources: (uri) => ({ kind: "resource", uris: [stringOf(uri)] }),
  resourceTemplates: (uriTemplate) => ({ kind: "template", uriTemplate: stringOf(uriTemplate) }),
};

function stringOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

type AskRules = ReadonlyMap<ClientKind, RulePlace>;

interface Rules {
  readonly tools: RuleSet;
  readonly prompts: RuleSet;
  readonly resources: RuleSet;
  readonly resourceTemplates: RuleSet;
}

interface ServerPolicy {
  /** The first grant: what admits the methods that need no rule. */
  readonly entry: RulePlace;
  readonly allow: Rules;
  readonly deny: Rules;
  readonly asks: AskRules;
  readonly deniedAsks: ReadonlySet<ClientKind>;
  readonly deniedAsksPath: string;
}

const uriKinds = ["resources", "resourceTemplates"] as const;
const nameKinds = ["tools", "prompts"] as const;

function compileServer(name: string, source: ServerPolicySource): ServerPolicy {
  const path = `servers.${name}`;
  const allow = emptyRules();
  const denied = emptyRules();
  const asks = new Map<ClientKind, RulePlace>();
  const places = source.grants.map((grant, index) => {
    const place = { rule: grant.path ?? `${path}.grants[${index}]`, at: grant.at };
    addGrant(grant, place, allow, asks);
    return place;
  });
  const [entry] = places;
  if (entry === undefined) throw new TypeError("a server without grants has no policy");
  for (const kind of [...nameKinds, ...uriKinds])
    denied[kind].add(source.deny[kind], `${path}.deny.${kind}`, "spanning");
  const deniedAsks = new Set(source.deny.client);
  return { entry, allow, deny: denied, asks, deniedAsks, deniedAsksPath: `${path}.deny.client` };
}

function emptyRules(): Rules {
  return { tools: new RuleSet(), prompts: new RuleSet(), resources: new RuleSet(), resourceTemplates: new RuleSet() };
}

function addGrant(grant: GrantSource, place: RulePlace, allow: Rules, asks: Map<ClientKind, RulePlace>): void {
  for (const kind of nameKinds) allow[kind].add(grant[kind], `${place.rule}.${kind}`, "spanning");
  for (const kind of uriKinds) allow[kind].add(grant[kind], `${place.rule}.${kind}`, "segmented");
  for (const ask of grant.client) {
    if (!asks.has(ask)) asks.set(ask, { rule: `${place.rule}.client`, at: grant.at });
  }
}

function judge(policy: ServerPolicy, subject: Subject): Decision {
  switch (subject.kind) {
    case "open":
      return allow(policy.entry);
    case "tool":
      return judgeName(policy.allow.tools, policy.deny.tools, subject.name);
    case "prompt":
      return judgeName(policy.allow.prompts, policy.deny.prompts, subject.name);
    case "resource":
      return judgeUris(policy, subject.uris);
    case "template":
      return judgeTemplate(policy, subject.uriTemplate);
    case "client":
      return judgeAsk(policy, subject.ask);
    case "unknown":
      return deny("method");
  }
}

function allow(place: RulePlace): Decision {
  return { kind: "allow", rule: place.rule, at: place.at };
}

function deny(reason: DenyReason, place?: RulePlace): Decision {
  return { kind: "deny", reason, rule: place?.rule, at: place?.at };
}

function judgeName(rules: RuleSet, denied: RuleSet, name: string | undefined): Decision {
  if (name === undefined || isUnsafeName(name)) return deny("malformed");
  const against = denied.find(name);
  if (against !== undefined) return deny("denied", against);
  const rule = rules.find(name);
  return rule === undefined ? deny("not-allowed") : allow(rule);
}

function judgeUris(policy: ServerPolicy, uris: readonly (string | undefined)[]): Decision {
  let first: Decision | undefined;
  for (const uri of uris) {
    const decision = judgeUri(policy, uri);
    if (decision.kind === "deny") return uri === undefined ? decision : { ...decision, uri };
    first ??= decision;
  }
  // A subscription to no resource at all asks for nothing that a rule names.
  return first ?? allow(policy.entry);
}

function judgeUri(policy: ServerPolicy, uri: string | undefined): Decision {
  if (uri === undefined || isAmbiguousUri(uri)) return deny("malformed");
  return judgeName(policy.allow.resources, policy.deny.resources, uri);
}

/**
 * A template is admitted by its text, or as the URI that it looks like. A `deny` of either kind that matches its text
 * takes it out.
 */
function judgeTemplate(policy: ServerPolicy, template: string | undefined): Decision {
  const byText = judgeName(policy.allow.resourceTemplates, policy.deny.resourceTemplates, template);
  if (template === undefined || (byText.kind === "deny" && byText.reason !== "not-allowed")) return byText;
  const against = policy.deny.resources.find(template);
  if (against !== undefined) return deny("denied", against);
  if (byText.kind === "allow") return byText;
  return judgeUri(policy, template);
}

function judgeAsk(policy: ServerPolicy, ask: ClientKind): Decision {
  if (policy.deniedAsks.has(ask)) {
    return { kind: "deny", reason: "denied", rule: policy.deniedAsksPath, at: undefined };
  }
  const rule = policy.asks.get(ask);
  return rule === undefined ? deny("not-allowed") : allow(rule);
}
