import type { Position } from "../../src/lib/index.ts";
import type { ClientKind } from "../../src/mcp/index.ts";
import {
  compilePolicy,
  type DenySource,
  type GrantSource,
  type PatternSource,
  type Policy,
  type RuleSource,
} from "../../src/policy/index.ts";

/** Policies in the words of policy.yaml, as the config room would hand them over. */

export type WrittenRule = string | { readonly name: string; readonly except: readonly string[] };

export interface WrittenGrant {
  readonly tools?: readonly WrittenRule[];
  readonly prompts?: readonly WrittenRule[];
  readonly resources?: readonly WrittenRule[];
  readonly resourceTemplates?: readonly WrittenRule[];
  readonly client?: readonly ClientKind[];
}

export interface WrittenDeny {
  readonly tools?: readonly string[];
  readonly prompts?: readonly string[];
  readonly resources?: readonly string[];
  readonly resourceTemplates?: readonly string[];
  readonly client?: readonly ClientKind[];
}

let line = 0;

export function at(): Position {
  line += 1;
  return { file: "policy.yaml", line, column: 7 };
}

function pattern(text: string): PatternSource {
  return { pattern: text, at: at() };
}

function rules(written: readonly WrittenRule[] = []): RuleSource[] {
  return written.map((rule) =>
    typeof rule === "string"
      ? { ...pattern(rule), except: [] }
      : { ...pattern(rule.name), except: rule.except.map(pattern) },
  );
}

export function grant(written: WrittenGrant): GrantSource {
  return {
    at: at(),
    tools: rules(written.tools),
    prompts: rules(written.prompts),
    resources: rules(written.resources),
    resourceTemplates: rules(written.resourceTemplates),
    client: written.client ?? [],
  };
}

export function denial(written: WrittenDeny = {}): DenySource {
  return {
    tools: (written.tools ?? []).map(pattern),
    prompts: (written.prompts ?? []).map(pattern),
    resources: (written.resources ?? []).map(pattern),
    resourceTemplates: (written.resourceTemplates ?? []).map(pattern),
    client: written.client ?? [],
  };
}

/** A policy for one server, `tickets`. */
export function policyOf(grants: WrittenGrant | readonly WrittenGrant[], deny: WrittenDeny = {}): Policy {
  const list = Array.isArray(grants) ? (grants as readonly WrittenGrant[]) : [grants as WrittenGrant];
  return compilePolicy({ servers: { tickets: { grants: list.map(grant), deny: denial(deny) } } });
}

/** Whether a call of the tool is allowed; the list must show the same. */
export function admitsTool(policy: Policy, name: string | undefined): boolean {
  const isAllowed = policy.decide("tickets", { kind: "tool", name }).kind === "allow";
  if (policy.shows("tickets", "tools", name) !== isAllowed) throw new Error("list and call disagree");
  return isAllowed;
}

/** Whether a read of the resource is allowed; the list must show the same. */
export function admitsUri(policy: Policy, uri: string): boolean {
  const isAllowed = policy.decide("tickets", { kind: "resource", uris: [uri] }).kind === "allow";
  if (policy.shows("tickets", "resources", uri) !== isAllowed) throw new Error("list and read disagree");
  return isAllowed;
}

export function admitsTemplate(policy: Policy, uriTemplate: string): boolean {
  const isAllowed = policy.decide("tickets", { kind: "template", uriTemplate }).kind === "allow";
  if (policy.shows("tickets", "resourceTemplates", uriTemplate) !== isAllowed) {
    throw new Error("list and completion disagree");
  }
  return isAllowed;
}
