import type { Position } from "../lib/index.ts";
import type { ClientKind, ListKind, Subject } from "../mcp/types.ts";

/** The policy document after its shape was checked (DESIGN 4.3), each rule with the place where it stands. */
export interface PolicySource {
  readonly servers: { readonly [server: string]: ServerPolicySource };
}

export interface ServerPolicySource {
  readonly grants: readonly GrantSource[];
  readonly deny: DenySource;
}

export interface GrantSource {
  readonly at: Position;
  /** Where it stands in the document, `servers.tickets.grants[0]`, or `servers.tickets` for the short form. */
  readonly path?: string;
  readonly tools: readonly RuleSource[];
  readonly prompts: readonly RuleSource[];
  readonly resources: readonly RuleSource[];
  readonly resourceTemplates: readonly RuleSource[];
  readonly client: readonly ClientKind[];
}

export interface DenySource {
  readonly tools: readonly PatternSource[];
  readonly prompts: readonly PatternSource[];
  readonly resources: readonly PatternSource[];
  readonly resourceTemplates: readonly PatternSource[];
  readonly client: readonly ClientKind[];
}

export interface PatternSource {
  readonly pattern: string;
  readonly at: Position;
  /** Where it stands in the document, `servers.tickets.tools[1]`; when absent, made of the grant's or server's path. */
  readonly path?: string;
}

export interface RuleSource extends PatternSource {
  readonly except: readonly PatternSource[];
}

/** One judgement. `rule` is a path into the document such as `servers.tickets.tools[1]`. */
export type Decision =
  | { readonly kind: "allow"; readonly rule: string; readonly at: Position | undefined }
  | {
      readonly kind: "deny";
      readonly reason: DenyReason;
      readonly rule: string | undefined;
      readonly at: Position | undefined;
      /** Of a subject with several URIs, the first that is denied. */
      readonly uri?: string;
    };

export type DenyReason =
  /** The server has no entry, or no grant: 403. */
  | "no-grant"
  /** No rule allows it. */
  | "not-allowed"
  /** A `deny` pattern matches. */
  | "denied"
  /** Name missing, not a string, too long, or with control characters; a URI that the rules of DESIGN 4.3 refuse. */
  | "malformed"
  /** A method that no rule can allow. */
  | "method"
  /** An exception while deciding. */
  | "error";

export interface Policy {
  /** Whether anybody may use this server at all. */
  hasGrant(server: string): boolean;
  /** Judges one message. Never throws: an error while deciding denies. */
  decide(server: string, subject: Subject): Decision;
  /** Whether a list of `kind` shows the entry (DESIGN invariant 4: the same function judges the call). `name` is the tool's or prompt's name, the resource's uri, the template's uriTemplate. */
  shows(server: string, kind: ListKind, name: unknown): boolean;
  /** Whether the server may ask this of the agent. */
  admitsAsk(server: string, ask: ClientKind): boolean;
}
