import type { Secret } from "../lib/index.ts";
import { CredentialError } from "./errors.ts";

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
const unfit = /[\u0000-\u001f\u007f\p{Surrogate}]/u;

/**
 * `path` percent-encoded segment by segment. Throws `not-configured` for what a URL parser or the store would read as
 * another path: empty and dot segments, control characters, lone surrogates.
 */
export function encodePath(path: string, name: string): string {
  return path
    .split("/")
    .map((segment) => {
      if (segment === "" || segment === "." || segment === ".." || unfit.test(segment)) {
        throw new CredentialError(
          "not-configured",
          `${name} is not a path in a store`,
          "write segments joined by single slashes",
        );
      }
      return encodeURIComponent(segment);
    })
    .join("/");
}

/** What is no header value would be quoted by whoever fails to send it. */
export function requirePlain(token: Secret, place: string): void {
  if (/^[\x21-\x7e]{1,8192}$/.test(token.reveal())) return;
  throw new CredentialError("value-invalid", `${place} is no token`, "put the token alone there, on one line");
}
