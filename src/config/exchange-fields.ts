import { z } from "zod";
import { filePath, section } from "./fields.ts";
import { endpoint, placeOf, report, resourceUri, scopes } from "./grant-fields.ts";
import { type Source, source } from "./source.ts";
import { issuer, plainText } from "./token-fields.ts";

/** The agent's own token for one that the server takes (DESIGN 4.2, `tokenExchange`). */
export interface TokenExchangeSettings {
  readonly type: "tokenExchange";
  readonly at: { readonly tokenEndpoint: string } | { readonly issuer: string };
  readonly ca: string | undefined;
  readonly clientId: string | Source;
  readonly client: { readonly auth: "basic" | "post"; readonly secret: Source };
  readonly scope: string | undefined;
  readonly resource: string | undefined;
  readonly audience: string | undefined;
}

const noKeys = {
  key: "clientAuth",
  message: "{} must be basic or post for `tokenExchange`",
  cure: "clientAuth: basic",
};

export function tokenExchange(base: string) {
  return section({
    type: z.literal("tokenExchange"),
    tokenEndpoint: endpoint().optional(),
    issuer: issuer().optional(),
    ca: filePath(base).optional(),
    clientId: z.union([plainText("clientId: postern"), source(base)]) as z.ZodType<string | Source, unknown>,
    clientSecret: source(base),
    clientAuth: z.enum(["basic", "post", "privateKeyJwt"]).default("basic"),
    scope: scopes().optional(),
    resource: resourceUri().optional(),
    audience: plainText("audience: https://tickets.internal").optional(),
  }).transform((file, ctx): TokenExchangeSettings => {
    const { type, tokenEndpoint, issuer, ca, clientId, clientSecret, clientAuth, scope, resource, audience } = file;
    const at = placeOf(tokenEndpoint, issuer);
    if ("message" in at) report(at, ctx);
    if (clientAuth === "privateKeyJwt") report(noKeys, ctx);
    if ("message" in at || clientAuth === "privateKeyJwt") return z.NEVER;
    return { type, at, ca, clientId, client: { auth: clientAuth, secret: clientSecret }, scope, resource, audience };
  });
}
