import { CredentialError } from "../credentials/index.ts";
import { parseToken } from "../identity/index.ts";
import type { Secret } from "../lib/index.ts";

const jwt = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/;
const cure = "the text that `postern token new --kind tunnel` printed, alone in its place, or the gateway's JWT";

/**
 * What `relay.token` leads to, if a relay could take it: a tunnel token (DESIGN 4.1) or a JWT. Anything else, often another
 * secret whose place was mistaken, is never sent to the relay. Throws a `CredentialError` that says what it looks like.
 */
export function checkTunnelToken(token: Secret): Secret {
  const text = token.reveal();
  if (parseToken(text, "tunnel") !== undefined || jwt.test(text)) return token;
  throw new CredentialError("value-invalid", `relay.token leads to ${describe(text)}`, cure);
}

/** Names a kind, and never quotes. */
function describe(text: string): string {
  if (parseToken(text, "agent") !== undefined) return "an agent's key (pak_…), not to a tunnel token (ptk_…)";
  if (/^[0-9a-f]{64}$/.test(text)) return "the hash of a token, not to the token";
  if (/\s/.test(text)) return "a text with blanks or several lines";
  return "something that is neither a tunnel token (ptk_ and 43 characters) nor a JWT";
}
