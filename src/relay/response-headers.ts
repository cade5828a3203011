import { ByName, type RawHeaders } from "../lib/index.ts";
import { isEventStream } from "../mcp/index.ts";
import type { Head } from "../tunnel/index.ts";

/** The head of an answer as it goes to the agent, before what the relay itself adds. */
export interface ResponseHead {
  readonly status: number;
  /** The allow-list of mcp.md section 7. */
  readonly headers: string[];
  readonly isEventStream: boolean;
}

const names = ["Content-Type", "Mcp-Session-Id", "Cache-Control", "Retry-After", "X-Accel-Buffering", "Allow"] as const;
const lowerNames = names.map((name) => name.toLowerCase());
/** A place in `names`; negative: dropped. */
const slots = new ByName<number>((lower) => lowerNames.indexOf(lower));
// What node:http itself would refuse with an exception.
const unsafePattern = /[^\t\x20-\x7e\x80-\xff]/;

/**
 * Undefined when no honest gateway can have sent this head: a status that ends no exchange, a repeated single-value
 * header, a character that cannot stand in a header.
 */
export function readResponseHead(head: Head): ResponseHead | undefined {
  if (!Number.isInteger(head.status) || head.status < 200 || head.status > 599) return undefined;
  const values = pickValues(head.headers);
  if (values === undefined) return undefined;
  const eventStream = isEventStream(values[0]);
  const headers: string[] = [];
  for (let slot = 0; slot < names.length; slot += 1) {
    const value = slot === 2 || slot === 4 ? undefined : values[slot];
    if (value !== undefined && (slot !== 5 || head.status === 405)) headers.push(names[slot] ?? "", value);
  }
  headers.push("Cache-Control", eventStream ? "no-cache, no-transform" : (values[2] ?? "no-store"));
  const accel = eventStream ? "no" : values[4];
  if (accel !== undefined) headers.push("X-Accel-Buffering", accel);
  return { status: head.status, headers, isEventStream: eventStream };
}

/** One value per slot; undefined when one of them repeats or cannot be written. */
function pickValues(raw: RawHeaders): (string | undefined)[] | undefined {
  const values: (string | undefined)[] = [undefined, undefined, undefined, undefined, undefined, undefined];
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const slot = slots.get(raw[i] ?? "");
    if (slot < 0) continue;
    const value = raw[i + 1] ?? "";
    // Allow and Cache-Control are lists (RFC 9110, 10.2.1; RFC 9111, 5.2): several lines are one list.
    const before = values[slot];
    if (before !== undefined && slot !== 2 && slot !== 5) return undefined;
    if (unsafePattern.test(value)) return undefined;
    values[slot] = before === undefined ? value : `${before}, ${value}`;
  }
  return values;
}
