/**
 * Installation tokens of a GitHub App: an assertion of the app (docs.github.com, "Generating a JSON Web Token (JWT) for a
 * GitHub App") buys a token that lives for an hour, of any length and form.
 */
import type { Clock } from "../lib/index.ts";
import { CredentialError } from "./errors.ts";
import { badAnswer, checkAddress } from "./grant-http.ts";
import { describeSource, type GithubAppOptions } from "./options.ts";
import { KeyReader, type SigningKey, signAssertion } from "./private-key.ts";
import { secretAt } from "./shapes.ts";
import type { Grant, IssuedToken } from "./token-reader.ts";

const defaultApiUrl = "https://api.github.com";
/** GitHub allows ten minutes from `iat` to `exp`, and its clock may be behind ours. */
const clockSlackS = 60;
const assertionLifeS = 480;
const maxLifeMs = 3_600_000;

/** Throws `not-configured` for an API address that is neither `https` nor on loopback. */
export function githubAppGrant(options: GithubAppOptions, clock: Clock): Grant {
  const { appId, installationId, privateKey, permissions, repositories } = options;
  const api = checkAddress(options.apiUrl ?? defaultApiUrl);
  const root = `${api.origin}${api.pathname.replace(/\/$/, "")}`;
  const url = `${root}/app/installations/${encodeURIComponent(installationId)}/access_tokens`;
  const place = `GitHub API ${root}`;
  const keys = new KeyReader(describeSource(privateKey));
  const body = JSON.stringify({ permissions, repositories });
  return {
    place,
    ca: options.ca,
    sources: [privateKey],
    async obtain(secrets, send) {
      const headers = requestHeaders(await signForApp(await keys.read(secretAt(secrets, 0)), appId, place, clock));
      const response = await send(url, { method: "POST", headers, body });
      checkStatus(response.status, place, installationId);
      return toToken(await response.json(), response.headers.get("date"), place, clock);
    },
  };
}

async function signForApp(key: SigningKey, appId: string, place: string, clock: Clock): Promise<string> {
  if (key.alg !== "RS256") {
    throw new CredentialError("value-invalid", `${place} takes RSA keys only`, "store the app's key as GitHub made it");
  }
  return await signAssertion(key, clock, { claims: { iss: appId }, agoS: clockSlackS, lifeS: assertionLifeS });
}

function requestHeaders(assertion: string): Readonly<Record<string, string>> {
  return {
    accept: "application/vnd.github+json",
    authorization: `Bearer ${assertion}`,
    "content-type": "application/json",
    "user-agent": "postern",
    "x-github-api-version": "2022-11-28",
  };
}

/** Statuses with a meaning of their own here; the others mean what they mean of any endpoint. */
function checkStatus(status: number, place: string, installationId: string): void {
  if (status === 201) return;
  const deny = (what: string, cure: string): CredentialError =>
    new CredentialError("grant-denied", `${place} ${what}`, cure, { status });
  if (status === 404)
    throw deny(`knows no installation ${installationId}`, "install the app, or correct installationId");
  if (status === 422) throw deny("refused the grant: 422", "ask for permissions and repositories the installation has");
  throw new Error(`status ${status}`);
}

/** The end is told in the server's time, so its own clock is what it is measured by. */
function toToken(answer: unknown, date: string | null, place: string, clock: Clock): IssuedToken {
  const { token, expires_at: end } = (answer ?? {}) as { readonly token?: unknown; readonly expires_at?: unknown };
  const endsAt = typeof end === "string" ? Date.parse(end) : Number.NaN;
  if (typeof token !== "string" || !/^[\x21-\x7e]+$/.test(token) || Number.isNaN(endsAt)) {
    throw badAnswer(place, "it holds no token that can be used", { status: 201 });
  }
  const sentAt = Date.parse(date ?? "");
  const lifeMs = endsAt - (Number.isNaN(sentAt) ? clock.wall() : sentAt);
  return { text: token, lifeMs: Math.min(Math.max(lifeMs, 0), maxLifeMs) };
}
