/** Freezes plain data all the way down, and hands it back. */
export function freezeConfig<T>(value: T): T {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  Object.freeze(value);
  for (const entry of Object.values(value)) freezeConfig(entry);
  return value;
}
