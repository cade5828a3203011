/** Shapes of MCP messages as Postern judges them. */

/** `legacy`: up to 2025-11-25 (initialize, sessions). `modern`: 2026-07-28 and later (per-request metadata). */
export type Era = "legacy" | "modern";

export type JsonObject = { readonly [key: string]: unknown };

/** A JSON-RPC message of an agent, parsed once; the bytes it came from are what is forwarded. */
export interface AgentMessage {
  readonly kind: "request" | "notification" | "response";
  /**
   * The id as it stands in the bytes, `7`, `7.0` and `"7"` being different. Undefined for a notification and for an
   * error response that names no id. `idKeyOf` tells which of them a server cannot tell apart.
   */
  readonly idText: string | undefined;
  /** Undefined for a response. */
  readonly method: string | undefined;
  /**
   * The members of `params` that are judged: `name`, `uri`, `taskId`, `task`, `ref`, `notifications`, `_meta`. The rest,
   * `arguments` above all, is checked but not built. Undefined without `params`, and for a response.
   */
  readonly params: JsonObject | undefined;
}

/** What is wrong with a request, as an HTTP status and a JSON-RPC error. */
export interface Refusal {
  readonly kind: "refusal";
  readonly status: number;
  readonly code: number;
  readonly message: string;
}

/** Kinds of request that a server may make of an agent. */
export type ClientKind = "sampling" | "elicitation" | "roots";

/** The four kinds of list, as the member of a result that holds them. */
export type ListKind = "tools" | "prompts" | "resources" | "resourceTemplates";

/** What a message asks for, in the terms of the policy (DESIGN 4.3). */
export type Subject =
  /** Admitted for everybody with a grant on the server: initialize, server/discover, ping, the four lists, … */
  | { readonly kind: "open" }
  /** `name` undefined: missing, or no string. */
  | { readonly kind: "tool"; readonly name: string | undefined }
  | { readonly kind: "prompt"; readonly name: string | undefined }
  /** One URI (read, subscribe, unsubscribe) or several (subscriptions/listen); one denied URI denies all. */
  | { readonly kind: "resource"; readonly uris: readonly (string | undefined)[] }
  /** completion/complete of a resource template. */
  | { readonly kind: "template"; readonly uriTemplate: string | undefined }
  /** A notification that needs a `client` kind: notifications/roots/list_changed. */
  | { readonly kind: "client"; readonly ask: ClientKind }
  /** Tasks, `params.task` on a call, and every method that no revision names. */
  | { readonly kind: "unknown" };
