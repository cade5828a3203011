import { ByName, type RawHeaders } from "../lib/index.ts";
import { findRepeatedHeader, isEventStream, isJson } from "../mcp/index.ts";

/** What an upstream's response head comes down to. */
export interface AnswerHeaders {
  /** `other`: a body of this kind never passes (DESIGN 4.6). `none`: no content type, so there should be no body. */
  readonly body: "json" | "events" | "other" | "none";
  /** The body is encoded although identity was asked for. */
  readonly isEncoded: boolean;
  readonly hasChallenge: boolean;
  readonly location: string | undefined;
  readonly sessionId: string | undefined;
  /** Name, value, …: what the agent may see, but for the session id. */
  readonly forward: string[];
}

function bodyKind(contentType: string | undefined): AnswerHeaders["body"] {
  if (contentType === undefined) return "none";
  if (isJson(contentType)) return "json";
  return isEventStream(contentType) ? "events" : "other";
}

/** What is read of an upstream's headers; all else is dropped. */
const known = [
  "content-type",
  "content-encoding",
  "www-authenticate",
  "location",
  "mcp-session-id",
  "cache-control",
  "x-accel-buffering",
  "retry-after",
  "allow",
] as const;
type Known = (typeof known)[number];
const names = new ByName<Known | "dropped">((lower) => known.find((name) => name === lower) ?? "dropped");

/** Undefined when a header that has one value stands there twice. Challenges, cookies, locations and the like never pass. */
export function readAnswerHeaders(status: number, headers: RawHeaders): AnswerHeaders | undefined {
  if (findRepeatedHeader(headers) !== undefined) return undefined;
  const found: Partial<Record<Known, string>> = {};
  for (let i = 0; i + 1 < headers.length; i += 2) {
    const name = names.get(headers[i] ?? "");
    if (name === "dropped") continue;
    const value = headers[i + 1] ?? "";
    const earlier = found[name];
    found[name] = earlier === undefined ? value : `${earlier}, ${value}`;
  }
  const encoding = found["content-encoding"]?.trim().toLowerCase();
  const body = bodyKind(found["content-type"]);
  return {
    body,
    isEncoded: encoding !== undefined && encoding !== "identity" && encoding !== "",
    hasChallenge: found["www-authenticate"] !== undefined,
    location: found.location,
    sessionId: found["mcp-session-id"],
    forward: forwardable(status, body, found),
  };
}

function forwardable(
  status: number,
  body: AnswerHeaders["body"],
  found: Readonly<Partial<Record<Known, string>>>,
): string[] {
  const forward: string[] = [];
  const copy = (name: Known): void => {
    const value = found[name];
    if (value !== undefined) forward.push(name, value);
  };
  copy("content-type");
  if (body === "events") {
    // An intermediary that holds events back makes clients hang (cases.md C05).
    forward.push("cache-control", "no-cache, no-transform", "x-accel-buffering", "no");
  } else {
    forward.push("cache-control", found["cache-control"] ?? "no-store");
    copy("x-accel-buffering");
  }
  copy("retry-after");
  if (status === 405) copy("allow");
  return forward;
}
