/** What an agent is told about tokens: challenges (RFC 6750, RFC 9728 section 5.1) and the metadata of a resource (RFC 9728). */
import type { RawHeaders } from "../lib/index.ts";
import { type AgentError, type Answer, agentErrors, rpcCodes } from "../mcp/index.ts";
import type { Agents } from "./agents.ts";
import { isName } from "./route.ts";

const metadataPath = "/.well-known/oauth-protected-resource";
const plainChallenge: AgentError = { ...agentErrors.unauthorized, headers: ["www-authenticate", "Bearer"] };

/** The agent's URL, which is also the name of the resource. Undefined where no server can be. */
export function resourceUrl(publicUrl: string, tunnel: string, server: string | undefined): string | undefined {
  return server !== undefined && isName(server) ? `${publicUrl}/${tunnel}/${server}/mcp` : undefined;
}

/** Only where tokens are taken does the 401 tell more than that there was no valid key. */
export function unauthorized(
  publicUrl: string,
  tunnel: { readonly name: string; readonly agents: Agents } | undefined,
  server: string | undefined,
): AgentError {
  if (tunnel === undefined || !tunnel.agents.takesTokens || server === undefined || !isName(server)) {
    return plainChallenge;
  }
  const challenge = `Bearer resource_metadata="${metadataUrl(publicUrl, tunnel.name, server)}"`;
  return { ...agentErrors.unauthorized, headers: ["www-authenticate", challenge] };
}

/** All scopes of the operation in one challenge, so that the client asks for a token once. */
export function insufficientScope(
  publicUrl: string,
  tunnel: string,
  server: string,
  scopes: readonly string[],
): AgentError {
  const scope = scopes.join(" ");
  const metadata = metadataUrl(publicUrl, tunnel, server);
  const challenge = `Bearer error="insufficient_scope", scope="${scope}", resource_metadata="${metadata}"`;
  return {
    status: 403,
    code: rpcCodes.forbidden,
    message: "Insufficient scope",
    headers: ["www-authenticate", challenge],
  };
}

function metadataUrl(publicUrl: string, tunnel: string, server: string): string {
  return `${publicUrl}${metadataPath}/${tunnel}/${server}/mcp`;
}

const metadataHeaders: RawHeaders = [
  "content-type",
  "application/json",
  "x-content-type-options",
  "nosniff",
  "cache-control",
  "max-age=300",
];

/** The same for every name of a server: whether there is one behind it is nobody's business who has no token. */
export function metadataAnswer(resource: string, agents: Agents): Answer {
  const { scopes } = agents;
  const document = {
    resource,
    authorization_servers: agents.issuers,
    ...(scopes.length === 0 ? {} : { scopes_supported: scopes }),
    bearer_methods_supported: ["header"],
  };
  return { status: 200, headers: metadataHeaders, body: Buffer.from(JSON.stringify(document)) };
}
