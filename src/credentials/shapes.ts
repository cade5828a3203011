import type { RawHeaders, Secret } from "../lib/index.ts";
import { CredentialError } from "./errors.ts";
import type { CredentialOptions } from "./options.ts";

/** What one upstream call gets. The values are live secrets in plain text: write them to the request and nowhere else. */
export interface Injection {
  readonly headers: RawHeaders;
}

/** How a secret becomes headers; the name is fixed by the configuration, only the value comes from a store. */
export interface Shape {
  /** As it is sent. */
  readonly name: string;
  /** Throws `value-invalid` for what must not stand in a header. `place` names the source, for the message. */
  build(secret: Secret, place: string): Injection;
}

const maxValueBytes = 8 * 1024;
const tokenPattern = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const prefixPattern = /^[\x20-\x7e]*$/;
const valuePattern = /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/;
/** What a template or a script writes when it had no value. */
const nonValues: ReadonlySet<string> = new Set(["undefined", "null", "NaN", "[object Object]"]);
/** Includes whatever the gateway forwards from agents, so that no header can come from both. */
const deniedNames: ReadonlySet<string> = new Set([
  "host",
  "connection",
  "keep-alive",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "expect",
  "accept",
  "accept-encoding",
  "last-event-id",
  "forwarded",
  "traceparent",
  "tracestate",
]);
const deniedPrefixes = ["mcp-", "proxy-", "content-", "x-forwarded-"];

/** Why a credential may not use the header `name`, or undefined where it may. Field names: RFC 9110, 5.1. */
export function headerNameProblem(name: string): string | undefined {
  if (!tokenPattern.test(name)) return "is not a header name";
  const lower = name.toLowerCase();
  if (deniedNames.has(lower) || deniedPrefixes.some((start) => lower.startsWith(start))) {
    return "belongs to HTTP or MCP itself";
  }
  return undefined;
}

/** The shape of `options`; throws `not-configured` for a header name or prefix that cannot be sent. */
export function shapeOf(options: CredentialOptions): Shape {
  if (options.type === "bearer") return bearerShape;
  const { name, prefix = "" } = options;
  const problem =
    headerNameProblem(name) ?? (prefixPattern.test(prefix) ? undefined : "has a prefix that cannot be sent");
  if (problem !== undefined) {
    throw new CredentialError(
      "not-configured",
      `the credential header ${problem}`,
      "choose another header name or prefix",
    );
  }
  return { name, build: (secret, place) => ({ headers: [name, prefix + headerText(secret, place)] }) };
}

const bearerShape: Shape = {
  name: "Authorization",
  build(secret, place) {
    const text = headerText(secret, place);
    if (text.includes(" ")) {
      throw invalid(place, "holds a space", "store the token alone, without the word Bearer before it");
    }
    return { headers: ["Authorization", `Bearer ${text}`] };
  },
};

/** One trailing newline is cut, since `vault kv put k=@file` stores it; anything else unprintable is refused. */
function headerText(secret: Secret, place: string): string {
  const text = cutNewline(secret.reveal());
  if (text === "") throw new CredentialError("value-empty", `${place} is empty`, `store a value in ${place}`);
  if (text.length > maxValueBytes) throw invalid(place, "is longer than 8 KiB", "store the token alone");
  if (!valuePattern.test(text)) {
    throw invalid(place, "holds characters that no header may carry", "store it as printable ASCII on one line");
  }
  if (nonValues.has(text)) throw invalid(place, "is the word of a missing value", "store the real token");
  return text;
}

/** Cuts one trailing `\n` or `\r\n`. */
export function cutNewline(text: string): string {
  if (text.endsWith("\r\n")) return text.slice(0, -2);
  return text.endsWith("\n") ? text.slice(0, -1) : text;
}

function invalid(place: string, what: string, cure: string): CredentialError {
  return new CredentialError("value-invalid", `${place} ${what}`, cure);
}
