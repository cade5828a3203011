/** The public door: judges every request in the order of the error contract (mcp.md section 9) before its body is read. */
import { randomUUID } from "node:crypto";
import { createServer, type Server } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { readBearer } from "../identity/index.ts";
import type { Clock } from "../lib/index.ts";
import { type AgentError, type Answer, agentErrors, errorAnswer, rpcCodes } from "../mcp/index.ts";
import { type ExchangeMethod, tunnelPath } from "../tunnel/index.ts";
import type { Agent, TokenAnswer } from "./agents.ts";
import { AgentRequest, AgentResponse, finishRequest, sendAnswer } from "./answer.ts";
import { insufficientScope, metadataAnswer, resourceUrl, unauthorized } from "./challenge.ts";
import { answerClientError } from "./client-error.ts";
import { AgentConnection } from "./connection.ts";
import { Exchange, type ExchangeContext } from "./exchange.ts";
import { type HostRules, preflightHeaders } from "./hosts.ts";
import { type RequestHeaders, scanRequestHeaders } from "./request-headers.ts";
import { isName, parseRoute, type Route } from "./route.ts";
import type { Tunnel } from "./tunnels.ts";

export interface IngressOptions {
  readonly hosts: HostRules;
  readonly tunnels: ReadonlyMap<string, Tunnel>;
  readonly onUpgrade: (req: AgentRequest, socket: Duplex, head: Buffer) => void;
}

type BelowRoute = Extract<Route, { kind: "below" }>;

/** One arrived request, while it is judged. */
interface Arrival {
  readonly req: AgentRequest;
  readonly res: AgentResponse;
  readonly connection: AgentConnection;
  readonly headers: RequestHeaders;
  readonly hasBody: boolean;
}

const gatewayConnections = 1_024;
const headerSlackBytes = 16 * 1024;
const socketBufferBytes = 64 * 1024;
const upgradeRequired: AgentError = {
  status: 426,
  code: rpcCodes.invalidRequest,
  message: "Upgrade required",
  headers: ["upgrade", "websocket"],
};
/** A body that gives GET or DELETE a meaning of its own is nothing that MCP knows. */
const unexpectedBody: AgentError = {
  status: 400,
  code: rpcCodes.invalidRequest,
  message: "Invalid Request: GET and DELETE have no body",
};
const onlyGet: AgentError = { ...agentErrors.verbNotAllowed, headers: ["allow", "GET, HEAD"] };
const oddTransferEncoding: AgentError = {
  status: 501,
  code: rpcCodes.invalidRequest,
  message: "Invalid Request: Transfer-Encoding is chunked or absent",
};
const badExpectation: AgentError = { status: 417, code: rpcCodes.invalidRequest, message: "Expectation failed" };

export class Ingress {
  readonly server: Server<typeof AgentRequest, typeof AgentResponse>;
  readonly connections = new Set<AgentConnection>();
  isDraining = false;
  readonly #context: ExchangeContext;
  readonly #options: IngressOptions;
  /** A reload may change them. */
  hosts: HostRules;
  readonly #bySocket = new WeakMap<Duplex, AgentConnection>();

  constructor(context: ExchangeContext, options: IngressOptions) {
    this.#context = context;
    this.#options = options;
    this.hosts = options.hosts;
    const { limits, timeouts } = context;
    this.server = createServer({
      IncomingMessage: AgentRequest,
      ServerResponse: AgentResponse,
      maxHeaderSize: limits.headerBytes + headerSlackBytes,
      headersTimeout: timeouts.headersMs,
      requestTimeout: timeouts.requestMs,
      keepAliveTimeout: timeouts.idleConnectionMs,
      connectionsCheckingInterval: Math.min(5_000, timeouts.headersMs),
      highWaterMark: socketBufferBytes,
      // Both are judged here, with an answer of the contract.
      requireHostHeader: false,
      joinDuplicateHeaders: false,
      keepAlive: true,
      keepAliveInitialDelay: 30_000,
      noDelay: true,
    });
    // Beyond a count Node drops headers in silence, Authorization too; ours is `limits.headerCount`.
    this.server.maxHeadersCount = 0;
    this.changeConnections(limits.connections);
    this.#listen(context.clock);
  }

  /** The last resort, before the process runs out of descriptors: gateways need room beside agents that are told 503. */
  changeConnections(connections: number): void {
    this.server.maxConnections = 2 * connections + gatewayConnections;
  }

  #listen(clock: Clock): void {
    const { server } = this;
    server.on("connection", (socket) => this.#onConnection(socket));
    server.on("request", (req, res) => this.#onRequest(req, res, false));
    server.on("checkContinue", (req, res) => this.#onRequest(req, res, true));
    server.on("checkExpectation", (req, res) => this.#onExpectation(req, res));
    server.on("clientError", (error, socket) => answerClientError(error, socket, this.#bySocket.get(socket), clock));
    server.on("upgrade", (req, socket, head) => {
      const connection = this.#bySocket.get(socket);
      // Node gives the socket away though answers are still due on it: what comes next would overtake them.
      if (connection === undefined || connection.busyCount > 0) {
        socket.destroy();
        return;
      }
      this.connections.delete(connection);
      this.#options.onUpgrade(req, socket, head);
    });
  }

  #onConnection(socket: Socket): void {
    const known = this.#bySocket.get(socket);
    if (known !== undefined) {
      // Given back after an offer to upgrade.
      this.connections.add(known);
      return;
    }
    const connection = new AgentConnection(socket);
    this.#bySocket.set(socket, connection);
    this.connections.add(connection);
    socket.once("close", () => {
      this.connections.delete(connection);
      connection.closed();
    });
  }

  #onRequest(req: AgentRequest, res: AgentResponse, expectsContinue: boolean): void {
    const arrival = this.#arrive(req, res, expectsContinue);
    if (arrival !== undefined) this.#guard(arrival, () => this.#judge(arrival));
  }

  /** A fault of ours is the caller's 503, and nobody else's. */
  #guard(arrival: Arrival, judge: () => void): void {
    const { req, res } = arrival;
    try {
      judge();
    } catch (error) {
      this.#context.logger.error("request could not be judged", {
        requestId: res.requestId,
        reason: error instanceof Error ? error.name : "unknown",
      });
      if (res.headersSent) req.socket.destroy();
      else this.#refuse(arrival, agentErrors.unavailable);
    }
  }

  #arrive(req: AgentRequest, res: AgentResponse, expectsContinue: boolean): Arrival | undefined {
    const connection = this.#bySocket.get(req.socket);
    if (connection === undefined || connection.isClosing) {
      req.socket.destroy();
      return undefined;
    }
    connection.busyCount += 1;
    res.requestId = randomUUID();
    res.owesContinue = expectsContinue;
    if (this.isDraining) res.shouldKeepAlive = false;
    const headers = scanRequestHeaders(req.rawHeaders);
    const hasBody = headers.hasTransferEncoding || (headers.contentLength ?? 0) > 0;
    return { req, res, connection, headers, hasBody };
  }

  #onExpectation(req: AgentRequest, res: AgentResponse): void {
    const arrival = this.#arrive(req, res, true);
    if (arrival === undefined) return;
    this.#refuse(arrival, badExpectation);
  }

  #judge(arrival: Arrival): void {
    const { req, res, headers } = arrival;
    const refusal = this.#judgeHead(res, headers);
    if (refusal !== undefined) {
      this.#refuse(arrival, refusal);
      return;
    }
    const route = parseRoute(req.url ?? "", tunnelPath);
    const isUnder = route.kind === "below" || route.kind === "metadata";
    if (isUnder && req.method === "OPTIONS" && res.allowedOrigin !== undefined) {
      this.#answer(arrival, { status: 204, headers: preflightHeaders(headers.asked), body: Buffer.alloc(0) });
    } else if (route.kind === "below") {
      this.#judgeBelow(arrival, route);
    } else if (route.kind === "metadata") {
      this.#tellMetadata(arrival, route);
    } else {
      this.#refuse(arrival, route.kind === "tunnel" ? upgradeRequired : agentErrors.pathNotFound);
    }
  }

  /** What is wrong with the head itself, whoever sent it. */
  #judgeHead(res: AgentResponse, headers: RequestHeaders): AgentError | undefined {
    const { limits } = this.#context;
    if (headers.bytes > limits.headerBytes || headers.count > limits.headerCount) return agentErrors.headersTooLarge;
    if (headers.repeatsOwn) return agentErrors.headerRepeats;
    if (headers.hasOddTransferEncoding) {
      // What follows may be body or request: nothing on this connection is to be believed any more.
      res.shouldKeepAlive = false;
      return oddTransferEncoding;
    }
    const { host, origin } = headers;
    if (host === undefined || !this.hosts.allowsHost(host)) return agentErrors.originNotAllowed;
    if (origin === undefined) return undefined;
    if (!this.hosts.allowsOrigin(origin)) return agentErrors.originNotAllowed;
    res.allowedOrigin = origin;
    return undefined;
  }

  #judgeBelow(arrival: Arrival, route: BelowRoute): void {
    const tunnel = this.#options.tunnels.get(route.tunnel);
    // The token is read and hashed for an unknown tunnel too: the answer and its cost are the same.
    const bearer = readBearer(arrival.headers.authorization);
    const agent = (tunnel ?? this.#anyTunnel())?.agents.find(bearer);
    if (tunnel === undefined || bearer === undefined) this.#refuseStranger(arrival, route, tunnel);
    else if (agent !== undefined) this.#admit(arrival, route, tunnel, agent);
    else if (tunnel.agents.takesTokens) this.#judgeToken(arrival, route, tunnel, bearer);
    else this.#refuseStranger(arrival, route, tunnel);
  }

  #refuseStranger(arrival: Arrival, route: BelowRoute, tunnel: Tunnel | undefined): void {
    this.#context.tally.authFailures += 1;
    this.#refuse(arrival, unauthorized(this.hosts.publicUrl, tunnel, route.server));
  }

  /** The body waits unread while the token is verified. */
  #judgeToken(arrival: Arrival, route: BelowRoute, tunnel: Tunnel, bearer: string): void {
    const audience = resourceUrl(this.hosts.publicUrl, route.tunnel, route.server);
    const answer = tunnel.agents.findByToken(bearer, audience, route.server);
    if (answer instanceof Promise) {
      void answer.then((late) => this.#guard(arrival, () => this.#onTokenJudged(arrival, route, tunnel, late)));
    } else {
      this.#onTokenJudged(arrival, route, tunnel, answer);
    }
  }

  #onTokenJudged(arrival: Arrival, route: BelowRoute, tunnel: Tunnel, answer: TokenAnswer): void {
    const { req, res, connection } = arrival;
    if (req.destroyed || req.socket.destroyed) {
      connection.busyCount -= 1;
      return;
    }
    const wallMs = this.#context.clock.wall();
    if (answer.kind === "agent" && !answer.agent.isOver(wallMs)) {
      this.#admit(arrival, route, tunnel, answer.agent);
    } else if (answer.kind === "insufficientScope") {
      const { publicUrl } = this.hosts;
      this.#refuse(arrival, insufficientScope(publicUrl, tunnel.name, route.server ?? "", answer.scopes));
    } else if (answer.kind === "unavailable") {
      this.#refuse(arrival, agentErrors.unavailable);
    } else {
      const reason = answer.kind === "refused" ? answer.reason : "revoked";
      this.#context.logger.debug("token refused", { requestId: res.requestId, tunnel: tunnel.name, reason });
      this.#refuseStranger(arrival, route, tunnel);
    }
  }

  #admit(arrival: Arrival, route: BelowRoute, tunnel: Tunnel, agent: Agent): void {
    const refusal = this.#judgeAuthorised(agent, route, arrival);
    if (refusal !== undefined) {
      this.#refuse(arrival, refusal);
      return;
    }
    const { req, res, connection, headers, hasBody } = arrival;
    const server = route.server ?? "";
    const method = req.method as ExchangeMethod;
    new Exchange(this.#context, { req, res, connection, headers, hasBody, tunnel, agent, server, method }).start();
  }

  /** A tunnel that takes no tokens has no metadata, and so looks like one that is not there. */
  #tellMetadata(arrival: Arrival, route: Extract<Route, { kind: "metadata" }>): void {
    const tunnel = this.#options.tunnels.get(route.tunnel);
    const resource = resourceUrl(this.hosts.publicUrl, route.tunnel, route.server);
    const { method } = arrival.req;
    if (tunnel === undefined || !tunnel.agents.takesTokens || resource === undefined) {
      this.#refuse(arrival, agentErrors.pathNotFound);
    } else if (method !== "GET" && method !== "HEAD") {
      this.#refuse(arrival, onlyGet);
    } else {
      this.#answer(arrival, metadataAnswer(resource, tunnel.agents));
    }
  }

  #anyTunnel(): Tunnel | undefined {
    for (const tunnel of this.#options.tunnels.values()) return tunnel;
    return undefined;
  }

  #judgeAuthorised(agent: Agent, route: BelowRoute, { req, headers, hasBody }: Arrival): AgentError | undefined {
    if (route.server === undefined) return agentErrors.pathNotFound;
    if (!isName(route.server) || !agent.mayUse(route.server)) return agentErrors.forbidden;
    if (!route.isEndpoint) return agentErrors.pathNotFound;
    const isPost = req.method === "POST";
    if (!isPost && req.method !== "GET" && req.method !== "DELETE") return agentErrors.verbNotAllowed;
    if (headers.repeatsForwarded) return agentErrors.headerRepeats;
    if (hasBody && !isPost) return unexpectedBody;
    const { limits } = this.#context;
    if (this.isDraining || agent.openStreams >= limits.streamsPerAgent) return agentErrors.overloaded;
    return this.connections.size > limits.connections ? agentErrors.overloaded : undefined;
  }

  #refuse(arrival: Arrival, error: AgentError): void {
    this.#answer(arrival, errorAnswer({ ...error, requestId: arrival.res.requestId }));
  }

  #answer(arrival: Arrival, answer: Answer): void {
    const { req, res, connection, hasBody } = arrival;
    this.#context.logger.debug("request refused", { requestId: res.requestId, status: answer.status });
    this.#context.tally.answered(answer.status);
    sendAnswer(res, answer);
    finishRequest(req, hasBody, connection, this.#context.clock);
  }
}
