import { ByName } from "../lib/index.ts";
import type { Head, Open } from "./types.ts";

/** What the values in an OPEN or HEAD must be (docs/protocol.md section 5, "Bad heads"). Pure. */

const serverName = /^[a-z0-9][a-z0-9-]{0,62}$/;
const printable = /^[\x21-\x7e]{1,128}$/;
const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
// Tab is the one control character that a field value may hold (RFC 9110 5.5).
const fieldValue = /^[\t\x20-\x7e\x80-\xff]*$/;
const methods: ReadonlySet<string> = new Set(["POST", "GET", "DELETE"]);
const agentToken = /^[\x21-\x7e]{1,16384}$/;
const maxPrincipalIdLength = 1_024;
const maxRpcIdLength = 4_096;
const names = new ByName((_lower, name) => token.test(name));
const maxDurationMs = 0x7fff_ffff;

export function isServerName(text: string): boolean {
  return serverName.test(text);
}

export function isWireId(text: string): boolean {
  return printable.test(text);
}

function faultOfHeaders(headers: readonly string[]): string | undefined {
  if (headers.length % 2 !== 0) return "a header without a value";
  // One look at all values together: a match has a price of its own, however short the text.
  let values = "";
  for (let i = 0; i < headers.length; i += 2) {
    if (!names.get(headers[i] ?? "")) return "a header name that is no token";
    values += headers[i + 1] ?? "";
  }
  return fieldValue.test(values) ? undefined : "a header value with a forbidden character";
}

/** What is wrong with `open`, in words without its values; undefined when nothing is. */
export function faultOfOpen(open: Open): string | undefined {
  if (!serverName.test(open.server)) return "a server name of a wrong form";
  if (!methods.has(open.method)) return "a method other than POST, GET, DELETE";
  if (!printable.test(open.requestId)) return "a request id of a wrong form";
  if (!Number.isInteger(open.deadlineMs) || open.deadlineMs < 0 || open.deadlineMs > maxDurationMs) {
    return "a deadline out of range";
  }
  const { id, kind } = open.principal;
  if (id.length === 0 || id.length > maxPrincipalIdLength) return "a principal id of a wrong length";
  if (kind !== "key" && kind !== "oauth") return "a principal of an unknown kind";
  if (open.agentToken !== undefined && !agentToken.test(open.agentToken.reveal())) {
    return "an agent token of a wrong form";
  }
  return faultOfHeaders(open.headers);
}

/** As `faultOfOpen`, for a response. */
export function faultOfHead(head: Head): string | undefined {
  if (!Number.isInteger(head.status) || head.status < 200 || head.status > 599) return "a status out of range";
  if (head.by !== "upstream" && head.by !== "gateway") return "an unknown maker of the response";
  if (head.rpcId !== undefined && head.rpcId.length > maxRpcIdLength) return "a request id that is too long";
  return faultOfHeaders(head.headers);
}
