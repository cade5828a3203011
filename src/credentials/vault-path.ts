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
