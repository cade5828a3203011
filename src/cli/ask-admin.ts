/** Asking a running part at its admin port. */

export interface Listen {
  readonly host: string;
  readonly port: number;
}

export type AdminAnswer =
  | { readonly kind: "answer"; readonly status: number; readonly body: Readonly<Record<string, unknown>> }
  /** Nothing listens there, or nothing answers. */
  | { readonly kind: "away"; readonly reason: string }
  /** What answers does not speak as a part of Postern does. */
  | { readonly kind: "stranger"; readonly reason: string };

const deadlineMs = 5_000;
const maxBytes = 8 * 1024 * 1024;

/** Where a listener on every interface is to be found from here. */
export function adminOrigin({ host, port }: Listen): string {
  const near = host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host;
  return `http://${near.includes(":") ? `[${near}]` : near}:${port}`;
}

/** Never rejects. `path` is `/livez` and the like; the token goes to nobody that has not answered `/livez` as a part does. */
export async function askAdmin(listen: Listen, path: string, token?: string): Promise<AdminAnswer> {
  if (token !== undefined) {
    const alive = await askAdmin(listen, "/livez");
    if (alive.kind !== "answer") return alive;
    if (alive.body["alive"] !== true) return { kind: "stranger", reason: "/livez is not there" };
  }
  try {
    const response = await fetch(`${adminOrigin(listen)}${path}`, {
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      redirect: "error",
      signal: AbortSignal.timeout(deadlineMs),
    });
    const text = await readCapped(response);
    const body: unknown = JSON.parse(text);
    if (typeof body !== "object" || body === null || Array.isArray(body)) return stranger("no JSON object");
    return { kind: "answer", status: response.status, body: body as Record<string, unknown> };
  } catch (error) {
    return explain(error);
  }
}

async function readCapped(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw new SyntaxError("too large");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function stranger(reason: string): AdminAnswer {
  return { kind: "stranger", reason };
}

function explain(error: unknown): AdminAnswer {
  if (error instanceof SyntaxError) return stranger("no JSON");
  if (error instanceof Error && error.name === "TimeoutError") return { kind: "away", reason: "no answer in time" };
  const code = codeOf(error);
  if (code === undefined || code.startsWith("HPE_") || code === "UND_ERR_SOCKET") return stranger(code ?? "no HTTP");
  return { kind: "away", reason: code };
}

/** The system's code, which fetch puts into `cause`. */
function codeOf(error: unknown): string | undefined {
  const cause = error instanceof Error ? error.cause : undefined;
  const code = typeof cause === "object" && cause !== null && "code" in cause ? cause.code : undefined;
  return typeof code === "string" ? code : undefined;
}
