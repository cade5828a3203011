import type { Fault } from "./cures.ts";

/** Tunnels, servers, gateways and agents (DESIGN 4.5). */
export const urlNamePattern = /^[a-z0-9][a-z0-9-]{0,62}$/;

export function badNameFault(label: string, name: string): Fault {
  return { message: `${label} is no name: a-z, 0-9 and -, at most 63, not beginning with -`, cure: bendName(name) };
}

/** `name` bent until it is one. */
function bendName(name: string): string {
  // What looks like a token got here by mistake, and is not to be shown.
  if (name.length > 63 || /^(?:ptk|pak)_|^hv[a-z]\./.test(name)) return "tickets";
  const bent = name
    .toLowerCase()
    .replace(/[^a-z0-9-]+/g, "-")
    .replace(/^-+/, "")
    .replace(/-+$/, "");
  return bent === "" ? "tickets" : bent;
}
