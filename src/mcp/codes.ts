import type { Refusal } from "./types.ts";

/** JSON-RPC error codes on the wire (JSON-RPC 2.0 section 5.1, MCP 2026-07-28, and Postern's own outside the reserved range). */
export const rpcCodes = {
  parseError: -32700,
  invalidRequest: -32600,
  methodNotFound: -32601,
  invalidParams: -32602,
  internalError: -32603,
  /** MCP session unknown, foreign or stale; the SDKs' own code for it. */
  sessionNotFound: -32001,
  /** Up to 2025-11-25; later revisions say `invalidParams`. */
  legacyResourceNotFound: -32002,
  headerMismatch: -32020,
  missingClientCapability: -32021,
  unsupportedProtocolVersion: -32022,
  deniedByPolicy: -33001,
  forbidden: -33002,
  limited: -33004,
  tunnelDown: -33010,
  overloaded: -33011,
  unavailable: -33012,
  credentialFailed: -33020,
  upstreamFailed: -33021,
  upstreamTimeout: -33022,
  resultTooLarge: -33023,
} as const;

export function refuse(status: number, code: number, message: string): Refusal {
  return { kind: "refusal", status, code, message };
}
