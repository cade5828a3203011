import type { UpstreamError } from "../upstream/index.ts";

/** What a person can do about a failure of a server, for the log. */
export const upstreamCures: Readonly<Record<UpstreamError["code"], string | undefined>> = {
  refused: "check that the server listens at the configured URL",
  dns: "check the host name of the configured URL",
  address: "a cloud's metadata service is never dialled: correct the configured URL, or what its name resolves to",
  tls: "check the server's certificate; a CA of your own goes into the file of NODE_EXTRA_CA_CERTS",
  "client-certificate": "give this server a credential of type mtls whose certificate it trusts",
  reset: undefined,
  "first-byte": "raise timeouts.firstByte if the server may take this long",
  idle: "raise timeouts.idle if the server may fall silent for this long",
  stalled: undefined,
  "bad-answer": "check that the URL is that of an MCP server over HTTP/1.1",
  "bad-request": undefined,
  closed: undefined,
};
