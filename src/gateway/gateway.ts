import { randomBytes } from "node:crypto";
import type { Clock } from "../lib/index.ts";
import type { Policy } from "../policy/index.ts";
import type { Logger } from "../telemetry/index.ts";
import { type DialOptions, type DialOutcome, dialTunnel, type StreamHandler } from "../tunnel/index.ts";
import { createUpstream } from "../upstream/index.ts";
import { createAgentVerifier } from "./agent-verifier.ts";
import { defaultAnswerLimits } from "./answer-types.ts";
import { AuditLog } from "./audit.ts";
import { BodyWatch } from "./body-watch.ts";
import { ByteBudget } from "./byte-budget.ts";
import { CallTally } from "./call-tally.ts";
import type { GatewayServer, Injector, PipelineContext } from "./context.ts";
import { Exchange } from "./exchange.ts";
import { LeakGuard } from "./leak-guard.ts";
import { McpSessions } from "./mcp-sessions.ts";
import { defaultLimits, type GatewayOptions, type ServerOptions } from "./options.ts";
import { SessionIds } from "./session-id.ts";
import { Supervisor, type SupervisorStatus } from "./supervisor.ts";

export interface GatewayDeps {
  readonly policy: Policy;
  /** Credentials by server name (credentials room). */
  readonly credentials: { forServer(server: string): Injector };
  readonly clock: Clock;
  /** Numbers in [0, 1), like `Math.random`. */
  readonly random: () => number;
  readonly logger: Logger;
  /** Another way to the relay than the tunnel's own, for tests. */
  readonly dial?: (options: DialOptions) => Promise<DialOutcome>;
}

export interface GatewayStatus {
  readonly id: string;
  readonly instance: string;
  readonly tunnel: SupervisorStatus;
  readonly isReady: boolean;
  readonly openExchanges: number;
  readonly openUpstreamCalls: number;
  /** MCP sessions that something is remembered of. */
  readonly mcpSessions: number;
  readonly bodyBytes: number;
  readonly answerBytes: number;
  /** Places in answers where a credential was found, since the start. */
  readonly scrubbedCount: number;
  readonly audit: { readonly isWritable: boolean; readonly lostCount: number };
  readonly servers: readonly ServerStatus[];
  /** Exchanges for a server that the policy keeps from everybody, or that is not there. */
  readonly unknownServer: CallTally;
}

export interface ServerStatus {
  readonly name: string;
  readonly openCalls: number;
  /** As `GatewayStatus.scrubbedCount`, of this one. */
  readonly scrubbedCount: number;
  readonly calls: CallTally;
}

export interface Gateway {
  /** Begins to dial; returns at once. */
  start(): void;
  /** An echo through the relay came back lately, and calls can be recorded. */
  ready(): boolean;
  status(): GatewayStatus;
  /** Takes no new streams, lets open ones run for `drainMs`, then closes everything. Safe twice. */
  stop(drainMs: number): Promise<void>;
  /** Opens the audit file anew, after it was moved away. */
  reopenAudit(): void;
  /** What a front door calls for each exchange; the tunnel is the first front door. */
  readonly onStream: StreamHandler;
}

/** Connects to nothing. Throws what opening the audit file throws. */
export function createGateway(options: GatewayOptions, deps: GatewayDeps): Gateway {
  const { clock, logger, policy } = deps;
  const instance = randomBytes(8).toString("hex");
  const { tunnel } = options.relay;
  const audit = new AuditLog(options.audit, { tunnel, gateway: options.id, clock, logger });
  const agents = options.agents === undefined ? undefined : createAgentVerifier(options.agents, deps);
  const servers = createServers(options, deps);
  const requestBytes = options.limits?.requestBytes ?? defaultLimits.requestBytes;
  const bodyBudgetBytes = options.limits?.bodyBudgetBytes ?? defaultLimits.bodyBudgetBytes;
  const answerBudgetBytes = options.limits?.answerBudgetBytes ?? defaultLimits.answerBudgetBytes;
  let exchangeCount = 0;
  const ctx: PipelineContext = {
    servers,
    unknownServer: new CallTally(),
    policy,
    agents,
    audit,
    sessionIds: new SessionIds({ instance, tunnel }),
    sessions: new McpSessions(clock),
    bodies: new BodyWatch(clock),
    budget: new ByteBudget(bodyBudgetBytes, Math.max(requestBytes, bodyBudgetBytes / 2)),
    answerBudget: new ByteBudget(answerBudgetBytes),
    requestBytes,
    clock,
    logger: logger.with({ tunnel, gateway: options.id }),
    nextExchangeId() {
      exchangeCount += 1;
      return `${instance}-${exchangeCount.toString(36)}`;
    },
    open: new Set(),
  };
  // What a server asks of agents is remembered up to a number: a hostile one must not use up that of the others.
  // Nor may one that begins answers and never ends them use up the memory for answers.
  const answerShare = Math.max(defaultAnswerLimits.listBytes, answerBudgetBytes / 2);
  const contexts = new Map(
    [...servers.keys()].map((name) => {
      const own = { sessions: new McpSessions(clock), answerBudget: ctx.answerBudget.part(answerShare) };
      return [name, { ...ctx, ...own }];
    }),
  );
  const onStream: StreamHandler = (open, stream) => {
    const exchange = new Exchange(contexts.get(open.server) ?? ctx, open, stream);
    exchange.start();
    return exchange;
  };
  const supervisor = createSupervisor(options, deps, instance, onStream);
  return {
    onStream,
    start() {
      agents?.warm();
      supervisor.start();
    },
    ready: () => supervisor.isReady() && audit.isWritable,
    status: () => ({
      id: options.id,
      instance,
      tunnel: supervisor.status(),
      isReady: supervisor.isReady() && audit.isWritable,
      openExchanges: ctx.open.size,
      openUpstreamCalls: [...servers.values()].reduce((sum, { upstream }) => sum + upstream.openCount, 0),
      mcpSessions: [...contexts.values()].reduce((sum, { sessions }) => sum + sessions.size, 0),
      bodyBytes: ctx.budget.used,
      answerBytes: ctx.answerBudget.used,
      scrubbedCount: [...servers.values()].reduce((sum, { leaks }) => sum + leaks.hitCount, 0),
      audit: { isWritable: audit.isWritable, lostCount: audit.lostCount },
      servers: [...servers.values()].map(serverStatus),
      unknownServer: ctx.unknownServer,
    }),
    reopenAudit: () => audit.reopen(),
    async stop(drainMs) {
      // The tunnel first, since it brings work; the audit last, since every end of an exchange is recorded.
      const isDrained = supervisor.stop(drainMs);
      for (const exchange of [...ctx.open]) exchange.leave();
      await isDrained;
      await Promise.all([...servers.values()].map(({ upstream }) => upstream.close()));
      await agents?.close();
      await audit.close();
    },
  };
}

function serverStatus({ name, upstream, leaks, calls }: GatewayServer): ServerStatus {
  return { name, openCalls: upstream.openCount, scrubbedCount: leaks.hitCount, calls };
}

function createServers(options: GatewayOptions, deps: GatewayDeps): ReadonlyMap<string, GatewayServer> {
  const servers = new Map<string, GatewayServer>();
  for (const [name, server] of Object.entries(options.servers)) {
    const credential = deps.credentials.forServer(name);
    const leaks = new LeakGuard({
      server: name,
      onReflect: server.onReflect ?? "redact",
      isPerCaller: credential.isPerCaller ?? false,
      clock: deps.clock,
      logger: deps.logger,
    });
    const upstream = openUpstream(server, options, deps);
    servers.set(name, { name, credential, leaks, upstream, calls: new CallTally() });
  }
  return servers;
}

function openUpstream(server: ServerOptions, options: GatewayOptions, deps: GatewayDeps): GatewayServer["upstream"] {
  const firstByteMs = server.timeouts?.firstByteMs ?? options.timeouts?.firstByteMs;
  const idleMs = server.timeouts?.idleMs ?? options.timeouts?.idleMs;
  return createUpstream({
    url: server.url,
    caFile: server.ca,
    timeouts: {
      ...(firstByteMs === undefined ? {} : { firstByteMs }),
      ...(idleMs === undefined ? {} : { idleMs }),
    },
    clock: deps.clock,
    logger: deps.logger,
  });
}

function createSupervisor(
  options: GatewayOptions,
  deps: GatewayDeps,
  instance: string,
  onStream: StreamHandler,
): Supervisor {
  const { url, tunnel, ca, readToken } = options.relay;
  const maxStreams = options.limits?.streams;
  return new Supervisor({
    dial: deps.dial ?? dialTunnel,
    target: {
      url,
      tunnel,
      gateway: { id: options.id, instance, slot: 0, software: options.software },
      servers: Object.keys(options.servers),
      onStream,
      ...(options.agents === undefined ? {} : { needsAgentTokens: true }),
      ...(ca === undefined ? {} : { ca }),
      ...(maxStreams === undefined ? {} : { limits: { maxStreams } }),
    },
    readToken,
    clock: deps.clock,
    random: deps.random,
    logger: deps.logger,
  });
}
