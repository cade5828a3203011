import { rangeOf } from "../lib/index.ts";

/**
 * Whether keys may be fetched from `url` on the word of `issuer`: over https, or in plain text from loopback when the issuer
 * itself is there. An issuer elsewhere must not make us dial what listens on this machine.
 */
export function isSafeAddress(url: string, issuer: string): boolean {
  if (!URL.canParse(url) || !URL.canParse(issuer)) return false;
  const { protocol, hostname, username, password } = new URL(url);
  if (username !== "" || password !== "") return false;
  const isLocalIssuer = isLoopback(new URL(issuer).hostname);
  if (protocol === "https:") return isLocalIssuer || rangeOf(hostname) !== "loopback";
  return protocol === "http:" && isLoopback(hostname) && isLocalIssuer;
}

export function isLoopback(hostname: string): boolean {
  return hostname === "localhost" || hostname === "[::1]" || /^127(?:\.\d{1,3}){3}$/.test(hostname);
}
