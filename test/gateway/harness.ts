import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createGateway, type Gateway, type GatewayOptions, type Injector } from "../../src/gateway/index.ts";
import { type Clock, Secret, systemClock } from "../../src/lib/index.ts";
import { compilePolicy, type PolicySource } from "../../src/policy/index.ts";
import { createLogger } from "../../src/telemetry/index.ts";
import type { ExchangeMethod, Open } from "../../src/tunnel/index.ts";
import { until } from "../support/until.ts";
import { ScriptedStream } from "./scripted-stream.ts";
import { type Behaviour, ScriptedUpstream } from "./scripted-upstream.ts";

const at = { file: "policy.yaml", line: 7, column: 9 };
export const canary = "canary-5f3a-secret";

export const openPolicy: PolicySource = {
  servers: {
    tickets: {
      grants: [
        {
          at,
          tools: [{ pattern: "get_*", at, except: [] }],
          prompts: [],
          resources: [{ pattern: "ticket://open/*", at, except: [] }],
          resourceTemplates: [],
          client: ["elicitation"],
        },
      ],
      deny: { tools: [{ pattern: "get_secret", at }], prompts: [], resources: [], resourceTemplates: [], client: [] },
    },
  },
};

const injected = { headers: ["Authorization", `Bearer ${canary}`], secrets: [new Secret(canary)] };
export const bearer: Injector = { inject: () => injected, refresh: () => injected };
/** Of a server that is called without a credential. */
export const noCredential: Injector = {
  inject: () => ({ headers: [], secrets: [] }),
  refresh: (failed) => failed,
};

export interface Call {
  readonly method?: ExchangeMethod;
  readonly headers?: readonly string[];
  /** These and no others, instead of the usual ones. */
  readonly plainHeaders?: readonly string[];
  readonly body?: string | Buffer;
  readonly server?: string;
  readonly principal?: string;
  /** The agent's own bearer, where the gateway asks for it. */
  readonly agentToken?: string;
  readonly deadlineMs?: number;
  /** The body never ends. */
  readonly isEndless?: boolean;
  /** Size of the pieces that the body arrives in. */
  readonly pieces?: number;
}

export interface Audited {
  readonly event: string;
  readonly [key: string]: unknown;
}

/** A gateway without a tunnel: the test plays the relay, a scripted HTTP server the upstream. */
export class Harness {
  readonly upstream: ScriptedUpstream;
  readonly gateway: Gateway;
  readonly auditFile: string;
  readonly #log: string[];
  #requestCount = 0;

  private constructor(upstream: ScriptedUpstream, gateway: Gateway, auditFile: string, log: string[]) {
    this.upstream = upstream;
    this.gateway = gateway;
    this.auditFile = auditFile;
    this.#log = log;
  }

  static async start(
    behave: Behaviour,
    options: {
      readonly policy?: PolicySource;
      readonly credential?: Injector;
      readonly gateway?: Partial<GatewayOptions>;
      readonly onReflect?: "redact" | "block";
      readonly url?: (url: string) => string;
      readonly clock?: Clock;
    } = {},
  ): Promise<Harness> {
    const upstream = await ScriptedUpstream.start(behave);
    const auditFile = join(mkdtempSync(join(tmpdir(), "postern-audit-")), "audit.jsonl");
    const log: string[] = [];
    const url = options.url?.(upstream.url) ?? upstream.url;
    const gateway = createGateway(
      {
        relay: { url: "ws://127.0.0.1:1", tunnel: "acme", readToken: () => new Secret("unused") },
        id: "edge-1",
        software: "postern/test",
        servers: { tickets: { url, onReflect: options.onReflect }, ungranted: { url } },
        audit: { target: { file: auditFile }, onError: "deny" },
        ...options.gateway,
      },
      {
        policy: compilePolicy(options.policy ?? openPolicy),
        credentials: { forServer: () => options.credential ?? bearer },
        clock: options.clock ?? systemClock,
        random: Math.random,
        logger: createLogger({ level: "debug", destination: { write: (line) => log.push(line) } }),
      },
    );
    return new Harness(upstream, gateway, auditFile, log);
  }

  get log(): string {
    return this.#log.join("");
  }

  get audit(): Audited[] {
    const lines = this.#auditText().split("\n");
    return lines.filter((line) => line !== "").map((line) => JSON.parse(line) as Audited);
  }

  #auditText(): string {
    return existsSync(this.auditFile) ? readFileSync(this.auditFile, "utf8") : "";
  }

  /** Opens an exchange and sends its body, without waiting for anything. */
  begin(call: Call = {}): ScriptedStream {
    const method = call.method ?? "POST";
    this.#requestCount += 1;
    const open: Open = {
      server: call.server ?? "tickets",
      method,
      headers: call.plainHeaders ?? [
        ...(method === "POST" ? ["Content-Type", "application/json"] : []),
        "Accept",
        "application/json, text/event-stream",
        ...(call.headers ?? []),
      ],
      hasBody: call.body !== undefined,
      deadlineMs: call.deadlineMs ?? 300_000,
      requestId: `req-${this.#requestCount}`,
      principal: { id: call.principal ?? "key:claude", kind: "key", claims: {} },
      ...(call.agentToken === undefined ? {} : { agentToken: new Secret(call.agentToken) }),
    };
    const stream = new ScriptedStream(this.gateway.onStream, open);
    const bytes = typeof call.body === "string" ? Buffer.from(call.body) : call.body;
    if (bytes !== undefined && call.isEndless === true) stream.push(bytes);
    else if (bytes !== undefined) stream.send(bytes, call.pieces ?? Math.max(1, bytes.length));
    return stream;
  }

  /** One exchange to its end. */
  async call(call: Call = {}): Promise<ScriptedStream> {
    const stream = this.begin(call);
    await until(() => stream.isOver, "the exchange ends");
    return stream;
  }

  /** Stops everything and fails if anything of an exchange is left behind. */
  async stop(): Promise<void> {
    await until(() => this.gateway.status().openExchanges === 0, "no exchange is open");
    const { openUpstreamCalls, bodyBytes, answerBytes } = this.gateway.status();
    if (openUpstreamCalls !== 0 || bodyBytes !== 0 || answerBytes !== 0)
      throw new Error(`left: ${openUpstreamCalls} calls, ${bodyBytes} and ${answerBytes} bytes`);
    await this.gateway.stop(0);
    await this.upstream.stop();
    const printed = this.log + this.#auditText();
    rmSync(dirname(this.auditFile), { recursive: true });
    if (printed.includes(canary)) throw new Error("the credential was printed");
  }
}

export function toolCall(name: string, id: string | number = 1, extra = ""): string {
  return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"method":"tools/call","params":{"name":${JSON.stringify(name)},"arguments":{}${extra}}}`;
}

export function header(stream: ScriptedStream, name: string): string | undefined {
  const headers = stream.head?.headers ?? [];
  const index = headers.findIndex((text, i) => i % 2 === 0 && text.toLowerCase() === name);
  return index < 0 ? undefined : headers[index + 1];
}

/** The JSON-RPC error of an answer. */
export function errorOf(stream: ScriptedStream): { id: unknown; code: number; message: string; data: unknown } {
  const body = JSON.parse(stream.text) as { id: unknown; error: { code: number; message: string; data: unknown } };
  return { id: body.id, ...body.error };
}
