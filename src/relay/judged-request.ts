import { readBearer } from "../identity/index.ts";
import { Secret } from "../lib/index.ts";
import type { ExchangeMethod, Open, TunnelSession } from "../tunnel/index.ts";
import type { Agent } from "./agents.ts";
import type { AgentRequest, AgentResponse } from "./answer.ts";
import type { AgentConnection } from "./connection.ts";
import type { RequestHeaders } from "./request-headers.ts";
import type { Tunnel } from "./tunnels.ts";

/** A request that was judged: it may use this server. */
export interface JudgedRequest {
  readonly req: AgentRequest;
  readonly res: AgentResponse;
  readonly connection: AgentConnection;
  readonly tunnel: Tunnel;
  readonly agent: Agent;
  readonly server: string;
  readonly method: ExchangeMethod;
  readonly headers: RequestHeaders;
  readonly hasBody: boolean;
}

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
