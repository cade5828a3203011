/** What cli hands this room: DESIGN 4.2 after config has checked it, with durations in milliseconds. */

export interface FileSource {
  /** An absolute path. */
  readonly file: string;
}

export interface EnvSource {
  readonly env: string;
}

export interface VaultSource {
  /** In a server's credential `path` may hold `{principal.id}`: each caller then has an entry of its own. */
  readonly vault: { readonly mount: string; readonly path: string; readonly field: string };
}

/** A source that needs no store, as the store's own login must. */
export type LocalSource = FileSource | EnvSource;

export type Source = LocalSource | VaultSource;

/** A field of what the store issued for the credential that it stands in. */
export interface LeaseSource {
  readonly lease: string;
}

export type AnySource = Source | LeaseSource;

export interface BearerOptions {
  readonly type: "bearer";
  readonly token: AnySource;
}

export interface HeaderOptions {
  readonly type: "header";
  readonly name: string;
  readonly value: AnySource;
  /** Put before the value as it stands, so a separating space belongs to it. */
  readonly prefix?: string | undefined;
}

/** `Authorization: Basic` (RFC 7617), in UTF-8. A text is the user name itself; the password is always read. */
export interface BasicOptions {
  readonly type: "basic";
  readonly username: string | AnySource;
  readonly password: AnySource;
}

/** Several headers by name. A text is the value itself. */
export interface HeadersOptions {
  readonly type: "headers";
  readonly headers: Readonly<Record<string, string | AnySource>>;
}

/** Secrets that are sent as they were read. */
export type StaticOptions = BearerOptions | HeaderOptions | BasicOptions | HeadersOptions;

/** The client credentials grant (RFC 6749, 4.4) with a secret, or with a signed assertion (RFC 7523, 2.2). */
export interface ClientCredentialsOptions {
  readonly type: "oauthClientCredentials";
  /** The endpoint itself, or the issuer whose metadata name it (RFC 8414). `https`, or `http` on loopback. */
  readonly at: { readonly tokenEndpoint: string } | { readonly issuer: string };
  /** A PEM file whose certificates are trusted there beside the system's roots; read for each new connection. */
  readonly ca?: string | undefined;
  readonly clientId: string | Source;
  readonly client:
    | { readonly auth: "basic" | "post"; readonly secret: Source }
    | { readonly auth: "privateKeyJwt"; readonly privateKey: Source; readonly keyId: string }
    /** A JWT that somebody else signs for us. */
    | { readonly auth: "assertion"; readonly assertion: LeaseSource };
  readonly scope?: string | undefined;
  /** RFC 8707. */
  readonly resource?: string | undefined;
  readonly audience?: string | undefined;
}

/** A signed assertion as the grant itself (RFC 7523, 2.1), as Google's service accounts use it. */
export interface JwtBearerOptions {
  readonly type: "jwtBearer";
  readonly tokenEndpoint: string;
  /** A PEM file whose certificates are trusted there beside the system's roots; read for each new connection. */
  readonly ca?: string | undefined;
  readonly privateKey: Source;
  readonly keyId?: string | undefined;
  /** `aud` is the token endpoint unless it is given. */
  readonly claims: {
    readonly iss: string;
    readonly sub?: string | undefined;
    readonly aud?: string | undefined;
  };
  readonly scope?: string | undefined;
}

/** Installation tokens of a GitHub App. */
export interface GithubAppOptions {
  readonly type: "githubApp";
  /** The app's id or client id. */
  readonly appId: string;
  readonly installationId: string;
  readonly privateKey: Source;
  /** Default `https://api.github.com`. */
  readonly apiUrl?: string | undefined;
  /** A PEM file whose certificates are trusted there beside the system's roots; read for each new connection. */
  readonly ca?: string | undefined;
  /** Fewer rights than the installation has, by name. */
  readonly permissions?: Readonly<Record<string, string>> | undefined;
  readonly repositories?: readonly string[] | undefined;
}

/**
 * The refresh token grant (RFC 6749, 6). What the endpoint rotates is written back into the record, an entry of a KV
 * version 2 mount with the fields `refresh_token`, `access_token` and `expires_at`.
 */
export interface RefreshTokenOptions {
  readonly type: "oauthRefreshToken";
  readonly at: { readonly tokenEndpoint: string } | { readonly issuer: string };
  /** A PEM file whose certificates are trusted there beside the system's roots; read for each new connection. */
  readonly ca?: string | undefined;
  readonly clientId: string | Source;
  /** Undefined for a public client. */
  readonly client?: { readonly auth: "basic" | "post"; readonly secret: Source } | undefined;
  readonly record: { readonly vault: { readonly mount: string; readonly path: string } };
  readonly scope?: string | undefined;
  /** RFC 8707. */
  readonly resource?: string | undefined;
  /** How long one gateway may keep the others from refreshing; default 30 s. */
  readonly claimMs?: number | undefined;
}

/**
 * The agent's own access token for one that the server takes (RFC 8693). An agent that comes with a key has none.
 */
export interface TokenExchangeOptions {
  readonly type: "tokenExchange";
  readonly at: ClientCredentialsOptions["at"];
  /** A PEM file whose certificates are trusted there beside the system's roots; read for each new connection. */
  readonly ca?: string | undefined;
  readonly clientId: string | Source;
  readonly client: { readonly auth: "basic" | "post"; readonly secret: Source };
  readonly scope?: string | undefined;
  /** RFC 8707. */
  readonly resource?: string | undefined;
  readonly audience?: string | undefined;
}

/** Secrets that buy short-lived access tokens, of which only the token is sent to the server. */
export type GrantOptions = ClientCredentialsOptions | JwtBearerOptions | GithubAppOptions;

/** Credentials that the store itself makes: only it knows how long they live. */
export type IssuedOptions = MtlsOptions | VaultDynamicOptions | VaultIdentityOptions;

/** A TLS client certificate, stored or issued by a PKI engine, instead of any header. The server is reached by https. */
export type MtlsOptions = {
  readonly type: "mtls";
  /** PEM; who may have signed the server's certificate, instead of the system's roots. */
  readonly ca?: Source | undefined;
} & (
  | {
      /** PEM; may hold the chain. */
      readonly certificate: Source;
      readonly privateKey: Source;
    }
  | {
      readonly pki: {
        readonly mount: string;
        readonly role: string;
        readonly commonName: string;
        /** Asked of the role; default is the role's own. */
        readonly ttlMs?: number | undefined;
      };
    }
);

/** What a secrets engine makes on demand, at any path. */
export interface VaultDynamicOptions {
  readonly type: "vaultDynamic";
  readonly vault: {
    /** With its mount, as the API has it after `/v1/`. */
    readonly path: string;
    /** `read` (default) is a GET with the parameters as its query, `write` a POST with them as its body. */
    readonly method?: "read" | "write" | undefined;
    readonly parameters?: Readonly<Record<string, string | number | boolean>> | undefined;
  };
  /** How its fields are sent. */
  readonly as: StaticOptions;
}

/** A JWT that says who the gateway is, signed by the store (OpenID Connect identity tokens). */
export interface VaultIdentityOptions {
  readonly type: "vaultIdentity";
  readonly role: string;
  readonly as: "bearer" | AssertionOptions;
}

/** The JWT proves who asks for an access token (RFC 7523, 2.2). */
export type AssertionOptions = Omit<ClientCredentialsOptions, "client">;

export type CredentialOptions =
  | StaticOptions
  | GrantOptions
  | RefreshTokenOptions
  | TokenExchangeOptions
  | IssuedOptions;

export interface TokenAuthOptions {
  readonly method: "token";
  readonly token: LocalSource;
}

export type AppRoleAuthOptions = {
  readonly method: "approle";
  readonly roleId: string | LocalSource;
  /** Default `approle`. */
  readonly mount?: string | undefined;
} & (
  | { readonly secretId: LocalSource }
  /** A response-wrapping token in the place of the secret id itself. */
  | { readonly wrappedSecretId: LocalSource }
);

/** A signed token that says who we are: the pod's, or one of any issuer that the store trusts. Read anew at every login. */
export interface JwtAuthOptions {
  readonly method: "kubernetes" | "jwt";
  readonly role: string;
  readonly jwt: LocalSource;
  /** Default: the name of the method. */
  readonly mount?: string | undefined;
}

/** A TLS client certificate, read again for each new connection. The store is reached by https only. */
export interface CertAuthOptions {
  readonly method: "cert";
  /** PEM; may hold the chain. */
  readonly certificate: LocalSource;
  readonly privateKey: LocalSource;
  /** Default `cert`. */
  readonly mount?: string | undefined;
}

/** A Vault Agent or Proxy beside us, which adds a token of its own to what we ask. */
export interface AgentAuthOptions {
  readonly method: "agent";
  /** `unix:/path`, or `http://…` on loopback; the store is asked there, not at its own address. */
  readonly agent: { readonly address: string };
}

export type VaultAuthOptions =
  | TokenAuthOptions
  | AppRoleAuthOptions
  | JwtAuthOptions
  | CertAuthOptions
  | AgentAuthOptions;

export interface VaultOptions {
  /** `https://…`, or `http://…` on loopback. */
  readonly address: string;
  readonly namespace?: string | undefined;
  /** A PEM file; read again for each new connection. */
  readonly ca?: string | undefined;
  readonly auth: VaultAuthOptions;
  /** How long a value is fresh; default 60 s. */
  readonly ttlMs?: number | undefined;
  /** How long past that it still serves while the store is away; default 2 h, 0 is strict. */
  readonly staleForMs?: number | undefined;
}

/** How a source is named in messages and logs. */
export function describeSource(source: AnySource): string {
  if ("lease" in source) return `field ${source.lease} of the lease`;
  if ("file" in source) return `file ${source.file}`;
  if ("env" in source) return `environment variable ${source.env}`;
  const { mount, path, field } = source.vault;
  return `field ${field} of ${mount}/${path}`;
}
