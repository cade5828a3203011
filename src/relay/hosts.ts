/** Which Host and Origin values are ours: what keeps a web page from reaching the relay by DNS rebinding. */
export class HostRules {
  /** Without a slash at its end. */
  readonly publicUrl: string;
  readonly #names = new Set<string>();
  readonly #namesWithPort = new Set<string>();
  readonly #origins: ReadonlySet<string>;
  /** The Host that nearly every request carries. */
  #lastAllowed = "";

  /** Throws when `publicUrl` is no URL. */
  constructor(publicUrl: string, allowedHosts: readonly string[], allowedOrigins: readonly string[]) {
    this.publicUrl = publicUrl.replace(/\/$/, "");
    this.#names.add(new URL(publicUrl).hostname.toLowerCase());
    for (const host of allowedHosts) {
      const lower = host.toLowerCase();
      (portOf(lower) === undefined ? this.#names : this.#namesWithPort).add(lower);
    }
    this.#origins = new Set(allowedOrigins.map((origin) => origin.toLowerCase().replace(/\/$/, "")));
  }

  allowsHost(host: string): boolean {
    if (host === this.#lastAllowed) return true;
    const lower = host.toLowerCase();
    const port = portOf(lower);
    const name = port === undefined ? lower : lower.slice(0, -port.length - 1);
    if (!this.#names.has(name) && !this.#namesWithPort.has(lower)) return false;
    this.#lastAllowed = host;
    return true;
  }

  allowsOrigin(origin: string): boolean {
    return this.#origins.has(origin.toLowerCase());
  }
}

/** The port of `name:port` or `[v6]:port`. */
function portOf(host: string): string | undefined {
  return /^(?:\[[^\]]*\]|[^:]*):(\d{1,5})$/.exec(host)?.[1];
}

const allowedMethods = "POST, GET, DELETE";
const allowedHeaders =
  "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id, Last-Event-ID, traceparent, tracestate";
const paramPattern = /^mcp-param-[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/i;

/** Headers of every answer to a browser whose origin is allowed (Fetch standard, CORS protocol). */
export function pushCorsHeaders(into: string[], origin: string): void {
  into.push("Access-Control-Allow-Origin", origin, "Vary", "Origin");
  into.push("Access-Control-Expose-Headers", "Mcp-Session-Id, X-Request-Id, WWW-Authenticate");
}

/** Headers of the answer to a preflight. `asked` is Access-Control-Request-Headers; only Mcp-Param-* is taken from it. */
export function preflightHeaders(asked: string | undefined): string[] {
  const names = (asked ?? "").split(",", 64).map((name) => name.trim());
  const params = names.filter((name) => paramPattern.test(name));
  return [
    "Access-Control-Allow-Methods",
    allowedMethods,
    "Access-Control-Allow-Headers",
    [allowedHeaders, ...params].join(", "),
    "Access-Control-Max-Age",
    "600",
  ];
}
