/**
 * Token exchange (RFC 8693): the agent's own access token, which this gateway has verified, buys one for the server.
 *
 * 1. The agent's token goes to the configured endpoint and nowhere else; an endpoint that hands it back has given nothing.
 * 2. What is bought lives no longer than what it was bought with.
 * 3. The agent's token is not kept: each call brings it anew.
 */
import { hash } from "node:crypto";
import { decodeJwt } from "jose";
import {
  type Client,
  ClientSecretBasic,
  ClientSecretPost,
  genericTokenEndpointRequest,
  processGenericTokenEndpointResponse,
} from "oauth4webapi";
import type { Clock, Secret } from "../lib/index.ts";
import { CredentialError } from "./errors.ts";
import { badAnswer, type SendRequest } from "./grant-http.ts";
import { requestOptions, ServerFinder, textOf, toToken } from "./grants.ts";
import type { Source, TokenExchangeOptions } from "./options.ts";
import type { Caller, ServerCredential } from "./server-credential.ts";
import { type Injection, secretAt } from "./shapes.ts";
import { joinStates, type ReaderState } from "./states.ts";
import type { Grant, IssuedToken } from "./token-reader.ts";

const grantType = "urn:ietf:params:oauth:grant-type:token-exchange";
const accessToken = "urn:ietf:params:oauth:token-type:access_token";

/** What one caller's access token is bought with. */
interface Subject {
  readonly token: Secret;
  /** Milliseconds since the Unix epoch. */
  readonly expiresAt: number;
}

export class TokenExchange {
  readonly place: string;
  readonly ca: string | undefined;
  readonly sources: readonly Source[];
  readonly #options: TokenExchangeOptions;
  readonly #clock: Clock;
  readonly #server: ServerFinder;
  readonly #parameters: Readonly<Record<string, string>>;

  /** Throws `not-configured` for an address that is neither `https` nor on loopback. */
  constructor(options: TokenExchangeOptions, clock: Clock) {
    const { clientId, client, audience, resource, scope } = options;
    this.sources = typeof clientId === "string" ? [client.secret] : [client.secret, clientId];
    this.ca = options.ca;
    this.#options = options;
    this.#clock = clock;
    this.#server = new ServerFinder(options.at, clock);
    this.place = this.#server.place;
    this.#parameters = {
      requested_token_type: accessToken,
      subject_token_type: accessToken,
      ...(audience === undefined ? {} : { audience }),
      ...(resource === undefined ? {} : { resource }),
      ...(scope === undefined ? {} : { scope }),
    };
  }

  /** Tells what was bought with one token from what was bought with another; audience, resource and scope are ours. */
  keyOf({ id, token }: Caller): string {
    return token === undefined ? id : hash("sha256", `${id}\n${token.reveal()}`, "base64");
  }

  /** Throws `caller-unfit` for a caller who did not come with an access token. */
  grantFor(caller: Caller | undefined): Grant {
    const subject = subjectOf(caller);
    const { place, ca, sources } = this;
    return { place, ca, sources, sendsSecret: true, obtain: (secrets, send) => this.#obtain(subject, secrets, send) };
  }

  async #obtain(subject: Subject, secrets: readonly Secret[], send: SendRequest): Promise<IssuedToken> {
    const leftMs = subject.expiresAt - this.#clock.wall();
    if (leftMs <= 0) {
      throw new CredentialError("caller-unfit", "the agent's token has expired", "none: the agent gets a new one");
    }
    const { clientId, client } = this.#options;
    const secret = textOf(secretAt(secrets, 0));
    const whoAsks: Client = { client_id: typeof clientId === "string" ? clientId : textOf(secretAt(secrets, 1)) };
    const auth = client.auth === "post" ? ClientSecretPost(secret) : ClientSecretBasic(secret);
    const as = await this.#server.find(send);
    const parameters = { ...this.#parameters, subject_token: subject.token.reveal() };
    const request = requestOptions(send, this.#server);
    const response = await genericTokenEndpointRequest(as, whoAsks, auth, grantType, parameters, request);
    const answer = await processGenericTokenEndpointResponse(as, whoAsks, response);
    if (answer["issued_token_type"] !== accessToken || answer.access_token === subject.token.reveal()) {
      throw badAnswer(this.place, "it is not another access token", { status: 200 });
    }
    const issued = toToken(answer, this.place);
    const lifeMs = Math.min(issued.lifeMs, expiryOf(issued.text) - this.#clock.wall());
    return lifeMs < leftMs ? { text: issued.text, lifeMs } : { text: issued.text, lifeMs: leftMs, isLast: true };
  }
}

/** The credential of one agent's token, which is at hand only while a call goes through. */
export class CallerExchange implements ServerCredential {
  readonly isPerCaller = true;
  readonly #inner: ServerCredential;
  #caller: Caller | undefined;

  /** `open` makes the credential out of a grant. Throws `caller-unfit` as `TokenExchange.grantFor`. */
  constructor(exchange: TokenExchange, caller: Caller, open: (grant: Grant) => ServerCredential) {
    subjectOf(caller);
    const { place, ca, sources } = exchange;
    const begin = (): Grant => exchange.grantFor(this.#caller);
    this.#inner = open({
      place,
      ca,
      sources,
      sendsSecret: true,
      begin,
      obtain: (secrets, send) => begin().obtain(secrets, send),
    });
  }

  headerNames(): readonly string[] {
    return this.#inner.headerNames();
  }

  state(): ReaderState {
    return this.#inner.state?.() ?? joinStates([]);
  }

  inject(caller: Caller): Injection | Promise<Injection> {
    this.#caller = caller;
    try {
      return this.#inner.inject(caller);
    } finally {
      this.#caller = undefined;
    }
  }

  refresh(failed: Injection, caller: Caller): Injection | Promise<Injection> {
    this.#caller = caller;
    try {
      return this.#inner.refresh(failed, caller);
    } finally {
      this.#caller = undefined;
    }
  }
}

function subjectOf(caller: Caller | undefined): Subject {
  const { token, expiresAt } = caller ?? {};
  if (token !== undefined && expiresAt !== undefined) return { token, expiresAt };
  throw new CredentialError(
    "caller-unfit",
    "the agent came with a key, which no token can be exchanged for",
    "let this agent sign in with OAuth, or keep it from this server by the policy",
  );
}

/** What the token says of itself, if anybody can read it; milliseconds since the Unix epoch. */
function expiryOf(token: string): number {
  try {
    const { exp }: { readonly exp?: unknown } = decodeJwt(token);
    return typeof exp === "number" ? exp * 1_000 : Number.POSITIVE_INFINITY;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
