import {
  type Client,
  type ClientAuth,
  ClientSecretBasic,
  ClientSecretPost,
  None,
  processRefreshTokenResponse,
  refreshTokenGrantRequest,
  type TokenEndpointResponse,
} from "oauth4webapi";
import type { Clock, Secret } from "../lib/index.ts";
import { CredentialError } from "./errors.ts";
import type { GrantHttp, SendRequest } from "./grant-http.ts";
import { requestOptions, ServerFinder, textOf, toToken } from "./grants.ts";
import type { RefreshTokenOptions, Source } from "./options.ts";
import { secretAt } from "./shapes.ts";

/** What became of a refresh token that was sent. */
export type SpendOutcome =
  | {
      readonly kind: "granted";
      /** Undefined: what was granted cannot be sent, for the reason in `error`. */
      readonly accessToken: string | undefined;
      /** Undefined: the one that was sent stays good. */
      readonly refreshToken: string | undefined;
      readonly lifeMs: number;
      readonly error?: CredentialError | undefined;
    }
  /** The refresh token is not good, or not any more. */
  | { readonly kind: "refused" }
  /** It was not sent, or turned down for another reason: it is as good as before. */
  | { readonly kind: "unspent"; readonly error: CredentialError }
  /** It may be spent. */
  | { readonly kind: "unknown"; readonly error: CredentialError };

export interface RefreshGrant {
  /** Names the endpoint in messages. */
  readonly place: string;
  /** What is to be read besides the record, in the order in which `spend` takes it. */
  readonly sources: readonly Source[];
  /** The first of them is the client's secret. */
  readonly hasSecret: boolean;
  /** Sends the refresh token once, however that ends. */
  spend(secrets: readonly Secret[], refreshToken: string, deadlineMs: number): Promise<SpendOutcome>;
}

/** RFC 6749, 5.2; GitHub says it in its own word, with status 200. */
const refusals: ReadonlySet<unknown> = new Set(["invalid_grant", "bad_refresh_token"]);

type Answered = Exclude<SpendOutcome, { kind: "unspent" | "unknown" }>;

/** Throws `not-configured` for an address that is neither `https` nor on loopback. */
export function refreshGrant(options: RefreshTokenOptions, http: GrantHttp, clock: Clock): RefreshGrant {
  const { at, clientId, client, scope, resource } = options;
  const server = new ServerFinder(at, clock);
  const parameters = Object.fromEntries(
    Object.entries({ scope, resource }).filter((entry): entry is [string, string] => entry[1] !== undefined),
  );
  const idSource = typeof clientId === "string" ? [] : [clientId];

  async function ask(secrets: readonly Secret[], refreshToken: string, send: SendRequest): Promise<Answered> {
    const id = typeof clientId === "string" ? clientId : textOf(secretAt(secrets, secrets.length - 1));
    const who: Client = { client_id: id };
    const as = await server.find(send);
    const request = { ...requestOptions(send, server), additionalParameters: parameters };
    const response = await refreshTokenGrantRequest(as, who, authOf(client, secrets), refreshToken, request);
    const { body, rest } = await splitAnswer(response);
    if (refusals.has(body?.["error"])) return { kind: "refused" };
    const said = body?.["refresh_token"];
    const rotated = typeof said === "string" && said !== "" ? said : undefined;
    try {
      const answer: TokenEndpointResponse = await processRefreshTokenResponse(as, who, rest);
      const { text, lifeMs } = toToken(answer, server.place);
      return { kind: "granted", accessToken: text, refreshToken: rotated, lifeMs };
    } catch (error) {
      // A token of no use came with the only good refresh token that there is now.
      if (response.status !== 200 || rotated === undefined) throw error;
      const badToken = toError(error, server.place);
      return { kind: "granted", accessToken: undefined, refreshToken: rotated, lifeMs: 0, error: badToken };
    }
  }

  return {
    place: server.place,
    sources: client === undefined ? idSource : [client.secret, ...idSource],
    hasSecret: client !== undefined,
    async spend(secrets, refreshToken, deadlineMs) {
      let isPosted = false;
      const talk = (send: SendRequest): Promise<Answered> =>
        ask(secrets, refreshToken, (url, message) => {
          isPosted ||= message.method === "POST";
          return send(url, message);
        });
      try {
        return await http.exchange(server.place, talk, { deadlineMs, ca: options.ca });
      } catch (thrown) {
        const error = toError(thrown, server.place);
        return { kind: isPosted && maySpend(error) ? "unknown" : "unspent", error };
      }
    },
  };
}

/** A refusal that the endpoint took the trouble to say came before it spent anything; whatever else may be too late. */
function maySpend({ isUnsent, status = 0 }: CredentialError): boolean {
  return !isUnsent && (status < 300 || status >= 500);
}

function authOf(client: RefreshTokenOptions["client"], secrets: readonly Secret[]): ClientAuth {
  if (client === undefined) return None();
  const secret = textOf(secretAt(secrets, 0));
  return client.auth === "post" ? ClientSecretPost(secret) : ClientSecretBasic(secret);
}

/**
 * The answer without the ID token, which nobody reads here and whose claims a configured endpoint need not match, and
 * its body besides.
 */
async function splitAnswer(response: Response) {
  const text = await response.text();
  const body = parseObject(text);
  const { status, headers } = response;
  if (body === undefined || status !== 200) return { body, rest: new Response(text, { status, headers }) };
  const { id_token: _, ...rest } = body;
  return { body, rest: new Response(JSON.stringify(rest), { status, headers }) };
}

/** The parser's own errors quote the text, so they end here. */
function parseObject(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

function toError(error: unknown, place: string): CredentialError {
  if (error instanceof CredentialError) return error;
  return new CredentialError(
    "endpoint-bad-answer",
    `${place} gave no usable answer: it holds no token that can be used`,
    "check that the configured address is the one of a token endpoint or issuer",
    { status: 200 },
  );
}
