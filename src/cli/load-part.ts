import {
  type GatewayConfig,
  type Loaded,
  loadAny,
  loadGatewayConfig,
  loadRelayConfig,
  type Problem,
  type RelayConfig,
} from "../config/index.ts";

export type Part =
  | { readonly kind: "gateway"; readonly config: GatewayConfig; readonly warnings: readonly Problem[] }
  | { readonly kind: "relay"; readonly config: RelayConfig; readonly warnings: readonly Problem[] };

/** The gateway's or the relay's file, whichever it is; a policy alone is neither. */
export function loadPart(file: string): Part | { readonly kind: "bad"; readonly problems: readonly Problem[] } {
  const { document, loaded } = loadAny(file);
  if (document === "gateway") return name("gateway", loadGatewayConfig(file));
  if (document === "relay") return name("relay", loadRelayConfig(file));
  if (loaded.kind === "bad") return loaded;
  const at = { file, line: 1, column: 1 };
  return { kind: "bad", problems: [{ at, message: "this is a policy", cure: "the gateway's file, which names it" }] };
}

function name<K extends "gateway" | "relay", T>(kind: K, loaded: Loaded<T>) {
  if (loaded.kind === "bad") return loaded;
  return { kind, config: loaded.config, warnings: loaded.warnings } as const;
}
