import { readBearer } from "../identity/index.ts";
import { Secret } from "../lib/index.ts";
import type { Open, TunnelSession } from "../tunnel/index.ts";
import type { JudgedRequest } from "./exchange.ts";

/** The head of a judged request as it crosses the tunnel. `deadlineMs`: how long its answer may take to begin. */
export function openOf(request: JudgedRequest, session: TunnelSession, deadlineMs: number): Open {
  const { res, agent, server, method, headers, hasBody } = request;
  return {
    server,
    method,
    headers: headers.forwarded,
    hasBody,
    deadlineMs,
    requestId: res.requestId,
    principal: agent.principal,
    ...(session.carriesAgentTokens ? { agentToken: agentTokenOf(request) } : {}),
  };
}

/** For a gateway that checks again who calls; it travels in no header and stands in no log. */
function agentTokenOf({ headers }: JudgedRequest): Secret | undefined {
  const bearer = readBearer(headers.authorization);
  return bearer === undefined ? undefined : new Secret(bearer, "passing");
}
