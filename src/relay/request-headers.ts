import { ByName, type RawHeaders } from "../lib/index.ts";

/** One pass over an agent's header block: what the relay judges by, and what may travel on. */
export interface RequestHeaders {
  /** Names and values with separators, as they stood on the wire. */
  readonly bytes: number;
  readonly count: number;
  readonly host: string | undefined;
  readonly origin: string | undefined;
  readonly authorization: string | undefined;
  /** Access-Control-Request-Headers, of a preflight. */
  readonly asked: string | undefined;
  /** Infinite when it is no number of a sane length; undefined when absent. */
  readonly contentLength: number | undefined;
  readonly hasTransferEncoding: boolean;
  /** A transfer coding other than `chunked` alone: nobody can say where such a body ends (RFC 9112, section 6.3). */
  readonly hasOddTransferEncoding: boolean;
  /** Host, Origin or Authorization came more than once. */
  readonly repeatsOwn: boolean;
  /** A single-value header that would travel on came more than once. */
  readonly repeatsForwarded: boolean;
  /** The allow-list of mcp.md section 7, spelled as sent. */
  readonly forwarded: RawHeaders;
}

type Role =
  | "single"
  | "list"
  | "param"
  | "host"
  | "origin"
  | "authorization"
  | "asked"
  | "length"
  | "encoding"
  | "drop";

const known: ReadonlyMap<string, Role> = new Map<string, Role>([
  ["content-type", "single"],
  // Travels so that the gateway can refuse it: 415 is its answer to every encoding.
  ["content-encoding", "single"],
  ["accept", "list"],
  ["mcp-protocol-version", "single"],
  ["mcp-method", "single"],
  ["mcp-name", "single"],
  ["mcp-session-id", "single"],
  ["last-event-id", "single"],
  ["traceparent", "single"],
  ["tracestate", "list"],
  ["host", "host"],
  ["origin", "origin"],
  ["authorization", "authorization"],
  ["access-control-request-headers", "asked"],
  ["content-length", "length"],
  ["transfer-encoding", "encoding"],
]);
const paramPrefix = "mcp-param-";
const roles = new ByName<Role>((lower) => known.get(lower) ?? (lower.startsWith(paramPrefix) ? "param" : "drop"));

/** `raw` as Node's `rawHeaders`. */
export function scanRequestHeaders(raw: readonly string[]): RequestHeaders {
  const scan = new Scan();
  for (let i = 0; i + 1 < raw.length; i += 2) scan.take(raw[i] ?? "", raw[i + 1] ?? "");
  return scan;
}

/** A mutable class rather than an object literal: one shape, no closures, on every request. */
class Scan implements RequestHeaders {
  bytes = 0;
  count = 0;
  host: string | undefined = undefined;
  origin: string | undefined = undefined;
  authorization: string | undefined = undefined;
  asked: string | undefined = undefined;
  contentLength: number | undefined = undefined;
  hasTransferEncoding = false;
  hasOddTransferEncoding = false;
  repeatsOwn = false;
  repeatsForwarded = false;
  readonly forwarded: string[] = [];

  take(name: string, value: string): void {
    // ": " and CRLF stand around every pair.
    this.bytes += name.length + value.length + 4;
    this.count += 1;
    const role = roles.get(name);
    if (role !== "drop") this.#note(role, name, value);
  }

  #note(role: Exclude<Role, "drop">, name: string, value: string): void {
    switch (role) {
      case "single":
      case "param":
        if (this.#has(name)) this.repeatsForwarded = true;
        this.forwarded.push(name, value);
        return;
      case "list":
        this.forwarded.push(name, value);
        return;
      case "host":
        this.repeatsOwn ||= this.host !== undefined;
        this.host = value;
        return;
      case "origin":
        this.repeatsOwn ||= this.origin !== undefined;
        this.origin = value;
        return;
      case "authorization":
        this.repeatsOwn ||= this.authorization !== undefined;
        this.authorization = value;
        return;
      case "asked":
        this.asked = value;
        return;
      case "length":
        this.contentLength = /^\d{1,15}$/.test(value) ? Number(value) : Number.POSITIVE_INFINITY;
        return;
      case "encoding":
        this.hasOddTransferEncoding ||= this.hasTransferEncoding || value.toLowerCase() !== "chunked";
        this.hasTransferEncoding = true;
        return;
    }
  }

  #has(name: string): boolean {
    const { forwarded } = this;
    for (let i = 0; i < forwarded.length; i += 2) {
      const other = forwarded[i] ?? "";
      // Lengths differ nearly always, so lower-casing is rare.
      if (other.length === name.length && other.toLowerCase() === name.toLowerCase()) return true;
    }
    return false;
  }
}
