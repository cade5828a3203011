/**
 * Whether keys may be fetched from `url` on the word of `issuer`: over https, or in plain text from loopback when the issuer
 * itself is there. An issuer elsewhere must not make us dial what listens on this machine.
 */
export function isSafeAddress(url: string, issuer: string): boolean {
  if (!URL.canParse(url) || !URL.canParse(issuer)) return false;
  const { protocol, hostname, username, password } = new URL(url);
  if (username !== "" || password !== "") return false;
  const isLocalIssuer = isLoopback(new URL(issuer).hostname);
  if (protocol === "https:") return isLocalIssuer || !endsHere(hostname);
  return protocol === "http:" && isLoopback(hostname) && isLocalIssuer;
}

export function isLoopback(hostname: string): boolean {
  return hostname === "localhost" || hostname === "[::1]" || /^127(?:\.\d{1,3}){3}$/.test(hostname);
}

/** The spellings of this machine that are not taken for loopback where a configuration means it, yet connect to it. */
function endsHere(hostname: string): boolean {
  // URL has brought addresses to one spelling: `[::ffff:7f00:1]` is a mapped 127.0.0.1, `[::7f00:1]` its older form.
  return (
    isLoopback(hostname) ||
    /^(?:0\.0\.0\.0|\[::\]|\[::(?:ffff:)?(?:7f[0-9a-f]{2}|0):[0-9a-f]+\]|(?:.*\.)?localhost\.?)$/.test(hostname)
  );
}
