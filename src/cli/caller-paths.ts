import type { GatewayConfig } from "../config/index.ts";
import { fillPath, isPerCaller } from "../credentials/index.ts";

export interface CallerPath {
  readonly server: string;
  readonly mount: string;
  readonly path: string;
}

/** Where the secrets of one principal lie, by server. Throws `CredentialError` for an id that has no path. */
export function callerPaths({ servers }: GatewayConfig, id: string): CallerPath[] {
  return Object.entries(servers).flatMap(([server, { credential }]) => {
    const found = new Map<string, CallerPath>();
    for (const { mount, path } of vaultPlaces(credential)) {
      if (isPerCaller(path)) found.set(`${mount} ${path}`, { server, mount, path: fillPath(path, id) });
    }
    return [...found.values()];
  });
}

/** Every `{ vault: { mount, path } }` within `value`. */
function vaultPlaces(value: unknown): { readonly mount: string; readonly path: string }[] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]: [string, unknown]) => {
    if (key !== "vault" || typeof inner !== "object" || inner === null) return vaultPlaces(inner);
    const { mount, path } = inner as { readonly mount?: unknown; readonly path?: unknown };
    return typeof mount === "string" && typeof path === "string" ? [{ mount, path }] : [];
  });
}
