import type { JsonObject } from "./types.ts";

/** An object of a parsed JSON text; no array, not null. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
