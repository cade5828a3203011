import { inspect } from "node:util";
import type { RawHeaders, Secret } from "../lib/index.ts";
import { CredentialError } from "./errors.ts";
import {
  type AnySource,
  type BasicOptions,
  describeSource,
  type HeadersOptions,
  type StaticOptions,
} from "./options.ts";
import type { TlsIdentity } from "./tls-identity.ts";

/** What one upstream call gets. The values are live secrets in plain text: write them to the request and nowhere else. */
export interface Injection {
  readonly headers: RawHeaders;
  /** What was read for it, so that no log line and no answer quotes any of it; first what is sent. */
  readonly secrets: readonly Secret[];
  /** Whom the server's TLS is shown; the same object until the certificate is another. */
  readonly tls?: TlsIdentity | undefined;
}

/** `injection` as it is given out: whoever prints it, or copies all that it holds, gets nothing. */
export function sealInjection(injection: Injection): Injection {
  return new SealedInjection(injection);
}

class SealedInjection implements Injection {
  readonly #headers: RawHeaders;
  readonly #secrets: readonly Secret[];
  readonly #tls: TlsIdentity | undefined;

  constructor({ headers, secrets, tls }: Injection) {
    this.#headers = headers;
    this.#secrets = secrets;
    this.#tls = tls;
  }

  get headers(): RawHeaders {
    return this.#headers;
  }

  get secrets(): readonly Secret[] {
    return this.#secrets;
  }

  get tls(): TlsIdentity | undefined {
    return this.#tls;
  }

  toString(): string {
    return "[injection]";
  }

  toJSON(): string {
    return "[injection]";
  }

  [inspect.custom](): string {
    return "[injection]";
  }
}

/** How secrets become headers; the names are fixed by the configuration, only values come from a store. */
export interface Shape {
  /** As they are sent. */
  readonly names: readonly string[];
  /** What is to be read, in the order in which `build` takes it. */
  readonly sources: readonly AnySource[];
  /** Throws `value-empty` or `value-invalid` for what must not stand in a header. */
  build(secrets: readonly Secret[]): Injection;
}

const maxValueBytes = 8 * 1024;
const tokenPattern = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const prefixPattern = /^[\x20-\x7e]*$/;
const valuePattern = /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/;
/** Controls, and halves of surrogate pairs, which UTF-8 cannot carry. */
const unsendable = /[\p{Cc}\p{Cs}]/u;
/** What a template or a script writes when it had no value. */
const nonValues: ReadonlySet<string> = new Set(["undefined", "null", "NaN", "[object Object]"]);
/** Includes whatever the gateway forwards from agents, so that no header can come from both. */
const deniedNames: ReadonlySet<string> = new Set([
  "host",
  "connection",
  "keep-alive",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "expect",
  "accept",
  "accept-encoding",
  "last-event-id",
  "forwarded",
  "traceparent",
  "tracestate",
]);
const deniedPrefixes = ["mcp-", "proxy-", "content-", "x-forwarded-"];

/** Why a credential may not use the header `name`, or undefined where it may. Field names: RFC 9110, 5.1. */
export function headerNameProblem(name: string): string | undefined {
  if (!tokenPattern.test(name)) return "is not a header name";
  const lower = name.toLowerCase();
  if (deniedNames.has(lower) || deniedPrefixes.some((start) => lower.startsWith(start))) {
    return "belongs to HTTP or MCP itself";
  }
  return undefined;
}

/** The shape of `options`; throws `not-configured` for a name, prefix or text that cannot be sent. */
export function shapeOf(options: StaticOptions): Shape {
  switch (options.type) {
    case "bearer":
      return singleShape("Authorization", options.token, bearerValue);
    case "header": {
      const { name, value, prefix = "" } = options;
      checkName(name);
      if (!prefixPattern.test(prefix)) throw misconfigured("the prefix of a credential header cannot be sent");
      return singleShape(name, value, (secret, place) => prefix + headerText(secret, place));
    }
    case "basic":
      return basicShape(options);
    case "headers":
      return headersShape(options);
  }
}

function checkName(name: string): void {
  const problem = headerNameProblem(name);
  if (problem !== undefined) throw misconfigured(`the credential header ${problem}`);
}

function misconfigured(what: string): CredentialError {
  return new CredentialError("not-configured", what, "choose another header name, prefix or text");
}

function singleShape(name: string, source: AnySource, toValue: (secret: Secret, place: string) => string): Shape {
  const place = describeSource(source);
  return {
    names: [name],
    sources: [source],
    build: (secrets) => ({ headers: [name, toValue(secretAt(secrets, 0), place)], secrets }),
  };
}

/** An access token that was granted at a place, and the secrets behind it, which no answer must hold either. */
export function tokenShape(issued: { readonly place: string; readonly guarded: readonly Secret[] }): Shape {
  return {
    names: ["Authorization"],
    sources: [],
    build: (secrets) => ({
      headers: ["Authorization", bearerValue(secretAt(secrets, 0), issued.place)],
      secrets: [...secrets, ...issued.guarded],
    }),
  };
}

function bearerValue(secret: Secret, place: string): string {
  const text = headerText(secret, place);
  if (text.includes(" ")) {
    throw invalid(place, "holds a space", "store the token alone, without the word Bearer before it");
  }
  return `Bearer ${text}`;
}

function basicShape({ username, password }: BasicOptions): Shape {
  const passwordPlace = describeSource(password);
  if (typeof username === "string") {
    if (userNameProblem(username) !== undefined) throw misconfigured("the user name cannot be sent");
    return {
      names: ["Authorization"],
      sources: [password],
      build: (secrets) => ({
        headers: ["Authorization", basicValue(username, plainText(secretAt(secrets, 0), passwordPlace))],
        secrets,
      }),
    };
  }
  const namePlace = describeSource(username);
  return {
    names: ["Authorization"],
    sources: [username, password],
    build(secrets) {
      const name = plainText(secretAt(secrets, 0), namePlace);
      const problem = userNameProblem(name);
      if (problem !== undefined) throw invalid(namePlace, problem, "store the user name alone");
      return {
        headers: ["Authorization", basicValue(name, plainText(secretAt(secrets, 1), passwordPlace))],
        secrets,
      };
    },
  };
}

/** The first colon ends the name (RFC 7617, 2): one within it would make a part of the name a part of the password. */
function userNameProblem(name: string): string | undefined {
  if (name.includes(":")) return "holds a colon";
  return name === "" || unsendable.test(name) ? "holds characters that cannot be sent" : undefined;
}

function basicValue(username: string, password: string): string {
  return `Basic ${Buffer.from(`${username}:${password}`, "utf8").toString("base64")}`;
}

function headersShape({ headers }: HeadersOptions): Shape {
  const names = Object.keys(headers);
  if (names.length === 0) throw misconfigured("the credential names no header");
  for (const name of names) checkName(name);
  if (new Set(names.map((name) => name.toLowerCase())).size < names.length) {
    throw misconfigured("a credential header stands twice");
  }
  const sources: AnySource[] = [];
  const values = names.map((name): ((secrets: readonly Secret[]) => string) => {
    const value = headers[name] ?? "";
    if (typeof value === "string") {
      if (value.length > maxValueBytes || !valuePattern.test(value))
        throw misconfigured("a header's text cannot be sent");
      return () => value;
    }
    const index = sources.push(value) - 1;
    const place = describeSource(value);
    return (secrets) => headerText(secretAt(secrets, index), place);
  });
  return {
    names,
    sources,
    build: (secrets) => ({ headers: names.flatMap((name, i) => [name, values[i]?.(secrets) ?? ""]), secrets }),
  };
}

export function secretAt(secrets: readonly Secret[], index: number): Secret {
  const secret = secrets[index];
  if (secret === undefined) throw new TypeError("fewer secrets than sources");
  return secret;
}

/** One trailing newline is cut, since `vault kv put k=@file` stores it; anything else unprintable is refused. */
function headerText(secret: Secret, place: string): string {
  const text = storedText(secret, place);
  if (!valuePattern.test(text)) {
    throw invalid(place, "holds characters that no header may carry", "store it as printable ASCII on one line");
  }
  return text;
}

/** What is encoded before it is sent may hold any character but controls (RFC 7617, 2). */
function plainText(secret: Secret, place: string): string {
  const text = storedText(secret, place);
  if (unsendable.test(text)) {
    throw invalid(place, "holds a control character or half a character", "store it as text on one line");
  }
  return text;
}

function storedText(secret: Secret, place: string): string {
  const text = cutNewline(secret.reveal());
  if (text === "") throw new CredentialError("value-empty", `${place} is empty`, `store a value in ${place}`);
  if (text.length > maxValueBytes) throw invalid(place, "is longer than 8 KiB", "store the token alone");
  if (nonValues.has(text)) throw invalid(place, "is the word of a missing value", "store the real token");
  return text;
}

/** Cuts one trailing `\n` or `\r\n`. */
export function cutNewline(text: string): string {
  if (text.endsWith("\r\n")) return text.slice(0, -2);
  return text.endsWith("\n") ? text.slice(0, -1) : text;
}

function invalid(place: string, what: string, cure: string): CredentialError {
  return new CredentialError("value-invalid", `${place} ${what}`, cure);
}
