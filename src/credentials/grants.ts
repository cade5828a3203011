import { randomUUID } from "node:crypto";
import {
  type AuthorizationServer,
  allowInsecureRequests,
  type Client,
  type ClientAuth,
  ClientSecretBasic,
  ClientSecretPost,
  clientCredentialsGrantRequest,
  customFetch,
  discoveryRequest,
  genericTokenEndpointRequest,
  PrivateKeyJwt,
  processClientCredentialsResponse,
  processDiscoveryResponse,
  processGenericTokenEndpointResponse,
  type TokenEndpointResponse,
} from "oauth4webapi";
import type { Clock, Secret } from "../lib/index.ts";
import { githubAppGrant } from "./github-app.ts";
import { badAnswer, checkAddress, type SendRequest } from "./grant-http.ts";
import {
  type AnySource,
  type ClientCredentialsOptions,
  type CredentialOptions,
  describeSource,
  type GrantOptions,
  type JwtBearerOptions,
} from "./options.ts";
import { KeyReader, signAssertion } from "./private-key.ts";
import { cutNewline, secretAt } from "./shapes.ts";
import type { Grant, IssuedToken } from "./token-reader.ts";

const grantType = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const assertionLifeS = 300;
/** Of a token whose endpoint does not say how long it lives. */
const unsaidLifeMs = 5 * 60_000;
/** Some say "for ever" as the largest number that they know, which is past the end of every calendar. */
const maxLifeMs = 365 * 86_400_000;
const metadataFreshMs = 3_600_000;

export function isGrant(options: CredentialOptions): options is GrantOptions {
  return options.type === "oauthClientCredentials" || options.type === "jwtBearer" || options.type === "githubApp";
}

/** Throws `not-configured` for an address that is neither `https` nor on loopback. */
export function grantOf(options: GrantOptions, clock: Clock): Grant {
  switch (options.type) {
    case "oauthClientCredentials":
      return clientCredentialsGrant(options, clock);
    case "jwtBearer":
      return jwtBearerGrant(options, clock);
    case "githubApp":
      return githubAppGrant(options, clock);
  }
}

function clientCredentialsGrant(options: ClientCredentialsOptions, clock: Clock): Grant {
  const { at, clientId, client } = options;
  const server = new ServerFinder(at, clock);
  const parameters = Object.entries({
    scope: options.scope,
    resource: options.resource,
    audience: options.audience,
  }).filter((entry): entry is [string, string] => entry[1] !== undefined);
  const keySource = proofOf(client);
  const keys = new KeyReader(describeSource(keySource));
  return {
    place: server.place,
    ca: options.ca,
    sources: typeof clientId === "string" ? [keySource] : [keySource, clientId],
    sendsSecret: client.auth !== "privateKeyJwt",
    async obtain(secrets, send) {
      const id = typeof clientId === "string" ? clientId : textOf(secretAt(secrets, 1));
      const auth = await clientAuthOf(client, secretAt(secrets, 0), keys);
      const as = await server.find(send);
      const request = requestOptions(send, server);
      const whoAsks: Client = { client_id: id };
      const response = await clientCredentialsGrantRequest(as, whoAsks, auth, parameters, request);
      return toToken(await processClientCredentialsResponse(as, whoAsks, response), server.place);
    },
  };
}

/**
 * Nobody but the assertion says who asks. Google reads the scope within the assertion, others beside it (RFC 7521, 4.1).
 */
function jwtBearerGrant(options: JwtBearerOptions, clock: Clock): Grant {
  const { tokenEndpoint, claims, scope, keyId, privateKey } = options;
  const server = new ServerFinder({ tokenEndpoint }, clock);
  const keys = new KeyReader(describeSource(privateKey));
  const nobody: Client = { client_id: claims.iss };
  return {
    place: server.place,
    ca: options.ca,
    sources: [privateKey],
    async obtain(secrets, send) {
      const key = await keys.read(secretAt(secrets, 0));
      const assertion = await signAssertion(key, clock, {
        keyId,
        agoS: 0,
        lifeS: assertionLifeS,
        claims: {
          iss: claims.iss,
          aud: claims.aud ?? tokenEndpoint,
          ...(claims.sub === undefined ? {} : { sub: claims.sub }),
          jti: randomUUID(),
          ...(scope === undefined ? {} : { scope }),
        },
      });
      const as = await server.find(send);
      const parameters = { assertion, ...(scope === undefined ? {} : { scope }) };
      const request = requestOptions(send, server);
      const response = await genericTokenEndpointRequest(as, nobody, () => undefined, grantType, parameters, request);
      return toToken(await processGenericTokenEndpointResponse(as, nobody, response), server.place);
    },
  };
}

function proofOf(client: ClientCredentialsOptions["client"]): AnySource {
  if (client.auth === "assertion") return client.assertion;
  return client.auth === "privateKeyJwt" ? client.privateKey : client.secret;
}

/** RFC 7523, 2.2. */
function assertedBy(jwt: Secret): ClientAuth {
  return (_server, { client_id: id }, body) => {
    body.set("client_id", id);
    body.set("client_assertion", textOf(jwt));
    body.set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
  };
}

async function clientAuthOf(
  client: ClientCredentialsOptions["client"],
  secret: Secret,
  keys: KeyReader,
): Promise<ClientAuth> {
  if (client.auth === "assertion") return assertedBy(secret);
  if (client.auth === "privateKeyJwt") {
    const { key } = await keys.read(secret);
    return PrivateKeyJwt({ key, kid: client.keyId });
  }
  return client.auth === "post" ? ClientSecretPost(textOf(secret)) : ClientSecretBasic(textOf(secret));
}

export function textOf(secret: Secret): string {
  return cutNewline(secret.reveal());
}

/** The OAuth library's requests through ours; plain text only for a configured address on loopback. */
export function requestOptions(send: SendRequest, { isPlain, issuer }: Pick<ServerFinder, "isPlain" | "issuer">) {
  return {
    [customFetch]: (
      url: string,
      { method, headers, body }: { method: "GET" | "POST"; headers: Record<string, string>; body?: unknown },
    ): Promise<Response> =>
      send(url, {
        method,
        headers,
        body: body instanceof URLSearchParams ? body.toString() : undefined,
        namedBy: issuer?.href,
      }),
    [allowInsecureRequests]: isPlain,
  };
}

/** Checks what the endpoint gave; a token that is bound to a key (DPoP) is of no use as a bearer. */
export function toToken(answer: TokenEndpointResponse, place: string): IssuedToken {
  const { access_token: text, expires_in: seconds, token_type: type } = answer;
  if (type !== "bearer" || !/^[\x21-\x7e]+$/.test(text)) {
    throw badAnswer(place, "it holds no token that can be used", { status: 200 });
  }
  return { text, lifeMs: seconds === undefined ? unsaidLifeMs : Math.min(seconds * 1_000, maxLifeMs) };
}

/** Where the token endpoint is: as configured, or as the configured issuer's metadata say. Nobody else is asked. */
export class ServerFinder {
  readonly place: string;
  readonly isPlain: boolean;
  /** Whose metadata name the endpoint; undefined: the endpoint is configured. */
  readonly issuer: URL | undefined;
  readonly #clock: Clock;
  #known: AuthorizationServer | undefined;
  #knownUntil = Number.POSITIVE_INFINITY;

  constructor(at: ClientCredentialsOptions["at"], clock: Clock) {
    const isIssuer = "issuer" in at;
    const address = isIssuer ? at.issuer : at.tokenEndpoint;
    const url = checkAddress(address);
    this.#clock = clock;
    this.place = `${isIssuer ? "issuer" : "token endpoint"} ${url.origin}${url.pathname}`;
    this.isPlain = url.protocol === "http:";
    this.issuer = isIssuer ? url : undefined;
    // Assertions are meant for the issuer, or where none is named for the endpoint (RFC 7523, 3).
    this.#known = isIssuer ? undefined : { issuer: address, token_endpoint: address };
  }

  async find(send: SendRequest): Promise<AuthorizationServer> {
    const { issuer } = this;
    if (this.#known !== undefined && (issuer === undefined || this.#clock.now() < this.#knownUntil)) return this.#known;
    if (issuer === undefined) throw new TypeError("neither an endpoint nor an issuer");
    const found = await this.#discover(issuer, send);
    this.#known = found;
    this.#knownUntil = this.#clock.now() + metadataFreshMs;
    return found;
  }

  /** RFC 8414 first; issuers that only speak OpenID Connect have a document of their own. */
  async #discover(issuer: URL, send: SendRequest): Promise<AuthorizationServer> {
    const request = requestOptions(send, this);
    const first = await discoveryRequest(issuer, { algorithm: "oauth2", ...request });
    const isUnknown = first.status >= 400 && first.status < 500;
    const response = isUnknown ? await discoveryRequest(issuer, { algorithm: "oidc", ...request }) : first;
    return await processDiscoveryResponse(issuer, response);
  }
}
