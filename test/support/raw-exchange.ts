import { RawClient } from "./raw-client.ts";

/** What an agent receives, byte for byte, and what a client would make of it. */
export interface RawAnswerSeen {
  readonly text: string;
  readonly status: number;
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string>>;
  /** Without the framing of chunks. */
  readonly body: string;
  /** Everything that JSON's escapes hid, in the body and in its events. */
  readonly decoded: string;
}

export interface RawAgentRequest {
  readonly method?: string;
  readonly target: string;
  readonly headers?: readonly string[];
  readonly body?: string;
  readonly host?: string;
}

/** Sends one request on a connection of its own and reads until the other side closes. */
export async function rawExchange(port: number, request: RawAgentRequest): Promise<RawAnswerSeen> {
  const { method = "POST", target, headers = [], body = "", host = `127.0.0.1:${port}` } = request;
  const client = new RawClient(port);
  const lines = [
    `${method} ${target} HTTP/1.1`,
    `Host: ${host}`,
    "Connection: close",
    ...headers,
    ...(body === "" ? [] : [`Content-Length: ${Buffer.byteLength(body)}`]),
  ];
  client.send(`${lines.join("\r\n")}\r\n\r\n${body}`);
  await client.closed(20_000);
  client.destroy();
  return read(client.text);
}

function read(text: string): RawAnswerSeen {
  const end = text.indexOf("\r\n\r\n");
  const [line = "", ...lines] = text.slice(0, end).split("\r\n");
  const headers = Object.fromEntries(
    lines.map((header) => [
      header.slice(0, header.indexOf(":")).toLowerCase(),
      header.slice(header.indexOf(":") + 1).trim(),
    ]),
  );
  const raw = text.slice(end + 4);
  const body = headers["transfer-encoding"] === "chunked" ? withoutChunks(raw) : raw;
  return { text, status: Number(line.split(" ")[1]), headers, body, decoded: withoutEscapes(body) };
}

function withoutChunks(raw: string): string {
  let body = "";
  for (let at = 0; at < raw.length; ) {
    const lineEnd = raw.indexOf("\r\n", at);
    const size = Number.parseInt(raw.slice(at, lineEnd), 16);
    if (lineEnd < 0 || !(size > 0)) break;
    body += raw.slice(lineEnd + 2, lineEnd + 2 + size);
    at = lineEnd + 2 + size + 2;
  }
  return body;
}

/** Twice, for JSON in a string of JSON. */
function withoutEscapes(text: string): string {
  const once = (escaped: string): string =>
    escaped
      .replace(/\\u([0-9a-f]{4})/gi, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)))
      .replace(/\\(["\\/])/g, "$1");
  return `${once(text)}\n${once(once(text))}`;
}
