import type { RawHeaders } from "../lib/index.ts";
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

/** Undefined when a header that has one value stands there twice. Challenges, cookies, locations and the like never pass. */
export function readAnswerHeaders(status: number, headers: RawHeaders): AnswerHeaders | undefined {
  if (findRepeatedHeader(headers) !== undefined) return undefined;
  const found = new Map<string, string>();
  for (let i = 0; i + 1 < headers.length; i += 2) {
    const name = (headers[i] ?? "").toLowerCase();
    const value = headers[i + 1] ?? "";
    const earlier = found.get(name);
    found.set(name, earlier === undefined ? value : `${earlier}, ${value}`);
  }
  const encoding = found.get("content-encoding");
  const body = bodyKind(found.get("content-type"));
  return {
    body,
    isEncoded: encoding !== undefined && encoding.trim().toLowerCase() !== "identity" && encoding.trim() !== "",
    hasChallenge: found.has("www-authenticate"),
    location: found.get("location"),
    sessionId: found.get("mcp-session-id"),
    forward: forwardable(status, body, found),
  };
}

function forwardable(status: number, body: AnswerHeaders["body"], found: ReadonlyMap<string, string>): string[] {
  const forward: string[] = [];
  const copy = (name: string): void => {
    const value = found.get(name);
    if (value !== undefined) forward.push(name, value);
  };
  copy("content-type");
  if (body === "events") {
    // An intermediary that holds events back makes clients hang (cases.md C05).
    forward.push("cache-control", "no-cache, no-transform", "x-accel-buffering", "no");
  } else {
    forward.push("cache-control", found.get("cache-control") ?? "no-store");
    copy("x-accel-buffering");
  }
  copy("retry-after");
  if (status === 405) copy("allow");
  return forward;
}
