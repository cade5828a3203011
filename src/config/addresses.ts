import type { z } from "zod";
import { rangeOf } from "../lib/index.ts";
import { textField } from "./fields.ts";

interface AddressRules {
  /** Encrypted scheme first, then the plain one. */
  readonly schemes: readonly [secure: string, plain: string];
  /** Plain text is for loopback only. */
  readonly isPlainLocal: boolean;
  readonly hasPath: boolean;
  /** Schemes of features that this version does not have. */
  readonly later?: readonly string[];
}

/**
 * A URL of the configuration. Messages never show it: people write passwords and tokens into URLs. What comes out is
 * what the URL parser made of it; without a path, the bare origin.
 */
export function address(rules: AddressRules): z.ZodType<string, unknown> {
  const [secure, plain] = rules.schemes;
  const example = `${secure}://host.example.com${rules.hasPath ? "/mcp" : ""}`;
  return textField({ pattern: `^(${secure}|${plain})://` }, (raw, fail) => {
    if (/\$\{|:\/\/\$/.test(raw)) return fail("{}: variables are not expanded here", "the address itself");
    const scheme = /^([A-Za-z][A-Za-z0-9+.-]*):/.exec(raw)?.[1]?.toLowerCase() ?? "";
    if (rules.later?.includes(scheme)) return fail(`{}: \`${scheme}:\` is not in this version yet`, `url: ${example}`);
    // The parser drops line breaks and tabs and turns \ into /: what it would send is then not what stands here.
    const url = /[\s\\]/.test(raw) || !/^[A-Za-z+.-]+:\/\/[^/?#]/.test(raw) ? undefined : parseUrl(raw);
    if (url === undefined) return fail("{} is no address with scheme and host", example);
    if (url.username !== "" || url.password !== "") {
      return fail(
        "{} holds user info: a secret is never written into this file",
        `${scheme}://${url.host}, and a source`,
      );
    }
    if (rangeOf(url.hostname) === "metadata") {
      return fail("{} is a cloud's metadata service, which hands out credentials and is never dialled", example);
    }
    if (scheme !== secure && scheme !== plain) {
      const wanted = rules.isPlainLocal ? `${secure}://` : `${secure}:// or ${plain}://`;
      return fail(`{} must begin with ${wanted}`, `${secure}://${url.host}${rules.hasPath ? url.pathname : ""}`);
    }
    if (scheme === plain && rules.isPlainLocal && !isLoopback(url.hostname)) {
      const path = rules.hasPath && url.pathname !== "/" ? url.pathname : "";
      return fail(`{}: ${plain}:// is for loopback addresses only`, `${secure}://${url.host}${path}`);
    }
    if (raw.includes("#")) return fail("{} has a fragment, which is never sent", "the address up to the #");
    const queryFault = findQueryFault(url, rules.hasPath);
    if (queryFault !== undefined)
      return fail(queryFault, `${scheme}://${url.host}${rules.hasPath ? url.pathname : ""}`);
    if (rules.hasPath) return url.href;
    if (url.pathname !== "/") return fail("{} must have no path", `${scheme}://${url.host}`);
    return `${scheme}://${url.host}`;
  });
}

/** A query may belong to an upstream's URL; a key in it would be a secret in this file. */
function findQueryFault(url: URL, mayHaveQuery: boolean): string | undefined {
  if (url.search === "" && !url.href.endsWith("?")) return undefined;
  if (!mayHaveQuery) return "{} must have no query";
  const isSecret = [...url.searchParams.keys()].some((name) =>
    /key|token|secret|passw|auth|sig|credential/i.test(name),
  );
  return isSecret ? "{}: the query seems to hold a secret, which is never written into this file" : undefined;
}

function parseUrl(raw: string): URL | undefined {
  return URL.canParse(raw) ? new URL(raw) : undefined;
}

export function isLoopback(hostname: string): boolean {
  return hostname === "localhost" || hostname === "[::1]" || /^127(?:\.\d{1,3}){3}$/.test(hostname);
}
