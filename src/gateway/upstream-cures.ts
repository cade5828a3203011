import { isDistrust } from "../lib/index.ts";
import type { UpstreamError } from "../upstream/index.ts";

const cures: Readonly<Record<Exclude<UpstreamError["code"], "tls">, string | undefined>> = {
  refused: "check that the server listens at the configured URL",
  dns: "check the host name of the configured URL",
  address: "a cloud's metadata service is never dialled: correct the configured URL, or what its name resolves to",
  "client-certificate": "give this server a credential of type mtls whose certificate it trusts",
  reset: undefined,
  "first-byte": "raise timeouts.firstByte if the server may take this long",
  idle: "raise timeouts.idle if the server may fall silent for this long",
  stalled: undefined,
  "bad-answer": "check that the URL is that of an MCP server over HTTP/1.1",
  "bad-request": undefined,
  closed: undefined,
};

/** What a person can do about a failure of a server, for the log. `hasCertificate`: it was shown one of ours. */
export function upstreamCure(
  { code, detail }: Pick<UpstreamError, "code" | "detail">,
  server: string,
  hasCertificate: boolean,
): string | undefined {
  if (code !== "tls") return cures[code];
  const key = `servers.${server}.ca`;
  if (detail.startsWith("CA_FILE_")) return `the file that ${key} names must be there and hold PEM certificates`;
  if (!isDistrust(detail)) return "check the server's certificate: its names, its dates, and the port of the URL";
  const place = hasCertificate ? `${key}, or servers.${server}.credential.ca where that is written` : key;
  return `name a PEM file with the CA that signed the server's certificate as ${place}`;
}
