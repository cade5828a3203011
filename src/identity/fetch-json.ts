import { type Dispatcher, request } from "undici";
import type { Clock } from "../lib/index.ts";

/** Why a document could not be had: short, lower case, with no byte of the answer in it. */
export class FetchFault extends Error {
  override readonly name = "FetchFault";
}

export interface FetchJsonOptions {
  readonly dispatcher: Dispatcher;
  readonly clock: Clock;
  /** For the whole of it, from the look-up of the name to the last byte. */
  readonly deadlineMs: number;
  readonly maxBytes: number;
}

/**
 * The JSON object at `url`. Follows no redirect: where keys come from is said by the configuration and by the issuer, never
 * by whoever answers for an address. Rejects with a `FetchFault` only.
 */
export async function fetchJson(url: string, options: FetchJsonOptions): Promise<Readonly<Record<string, unknown>>> {
  const abort = new AbortController();
  const timer = options.clock.after(options.deadlineMs, () => abort.abort());
  try {
    const { statusCode, body } = await request(url, {
      dispatcher: options.dispatcher,
      signal: abort.signal,
      headers: { accept: "application/json", "accept-encoding": "identity" },
    });
    // The rest of a refused body is not waited for.
    body.on("error", () => undefined);
    if (statusCode !== 200) {
      body.destroy();
      throw new FetchFault(`status ${statusCode}`);
    }
    return parseObject(await readCapped(body, options.maxBytes));
  } catch (error) {
    if (error instanceof FetchFault) throw error;
    throw new FetchFault(abort.signal.aborted ? "no answer in time" : describe(error));
  } finally {
    timer.cancel();
  }
}

async function readCapped(body: AsyncIterable<Buffer> & { destroy(): unknown }, maxBytes: number): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    if (bytes > maxBytes) {
      body.destroy();
      throw new FetchFault("answer too large");
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function parseObject(text: string): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new FetchFault("answer is no JSON");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new FetchFault("answer is no object");
  return value as Record<string, unknown>;
}

/** System errors have a code that names no byte of what was read. */
function describe(error: unknown): string {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" && /^[A-Z0-9_]{1,64}$/.test(code) ? code : "request failed";
}
