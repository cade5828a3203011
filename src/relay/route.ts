/** What a request target names. Everything but the two names is forgotten here, the query too (DESIGN, invariant 2). */
export type Route =
  /** `/_postern/v1/tunnel`. */
  | { readonly kind: "tunnel" }
  /** Metadata of the resource that an agent's URL is (RFC 9728, section 3.1). */
  | { readonly kind: "metadata"; readonly tunnel: string; readonly server: string }
  /** Not below any tunnel: 404 for everybody. */
  | { readonly kind: "other" }
  /** `/{tunnel}/…`. `server` undefined: no well-formed path, so 404 for those who may know. */
  | {
      readonly kind: "below";
      readonly tunnel: string;
      readonly server: string | undefined;
      /** Exactly `/{tunnel}/{server}/mcp`, or that with a slash behind. */
      readonly isEndpoint: boolean;
    };

const namePattern = /^[a-z0-9][a-z0-9-]{0,62}$/;
const metadataPattern =
  /^\/\.well-known\/oauth-protected-resource\/([a-z0-9][a-z0-9-]{0,62})\/([a-z0-9][a-z0-9-]{0,62})\/mcp\/?$/;
const encodedPattern = /[%\\#]/;
const other: Route = { kind: "other" };
const tunnelRoute: Route = { kind: "tunnel" };

/** DESIGN 4.5. */
export function isName(text: string): boolean {
  return namePattern.test(text);
}

/** `target` as it stands in the request line; only origin form is known here. `tunnelPath` is the gateways' own. */
export function parseRoute(target: string, tunnelPath: string): Route {
  const queryAt = target.indexOf("?");
  const path = queryAt < 0 ? target : target.slice(0, queryAt);
  const tunnelEnd = path.indexOf("/", 1);
  if (path.charCodeAt(0) !== 0x2f || tunnelEnd < 0) return other;
  if (path === tunnelPath) return tunnelRoute;
  const tunnel = path.slice(1, tunnelEnd);
  if (!namePattern.test(tunnel)) return parseMetadataRoute(path) ?? other;
  const serverEnd = path.indexOf("/", tunnelEnd + 1);
  const server = path.slice(tunnelEnd + 1, serverEnd < 0 ? undefined : serverEnd);
  if (server === "" || encodedPattern.test(path)) {
    return { kind: "below", tunnel, server: undefined, isEndpoint: false };
  }
  const rest = serverEnd < 0 ? "" : path.slice(serverEnd);
  return { kind: "below", tunnel, server, isEndpoint: rest === "/mcp" || rest === "/mcp/" };
}

function parseMetadataRoute(path: string): Route | undefined {
  const [, tunnel, server] = metadataPattern.exec(path) ?? [];
  return tunnel === undefined || server === undefined ? undefined : { kind: "metadata", tunnel, server };
}
