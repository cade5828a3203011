import { z } from "zod";
import type { Fault } from "./cures.ts";
import { section, textField } from "./fields.ts";

/** Headers that a credential sets: their names, and what may stand in this file of their values. */

/** Credentials that are sent as they are read from sources of type `S`. */
export type StaticSettings<S> =
  | { readonly type: "bearer"; readonly token: S }
  | { readonly type: "header"; readonly name: string; readonly value: S; readonly prefix: string }
  | { readonly type: "basic"; readonly username: string | S; readonly password: S }
  | { readonly type: "headers"; readonly headers: { readonly [name: string]: string | S } };

/** The sections of `StaticSettings`, by type; `secret` reads a source. */
export function staticCredentials<S>(secret: z.ZodType<S, unknown>) {
  return [
    section({ type: z.literal("bearer"), token: secret }),
    section({ type: z.literal("header"), name: headerName(), value: secret, prefix: headerPrefix().default("") }),
    section({ type: z.literal("basic"), username: userName(secret), password: secret }),
    section({ type: z.literal("headers"), headers: headerMap(secret) }),
  ] as const;
}

const namePattern = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/**
 * Headers whose value HTTP or MCP itself decides, or that agents send: a configured one would break or spoof the exchange.
 * The credentials room refuses the same ones.
 */
const ownHeaders =
  /^(?:host|connection|keep-alive|te|trailer|transfer-encoding|upgrade|expect|accept|accept-encoding|last-event-id|proxy-.*|mcp-.*|content-.*|x-forwarded-.*|forwarded|traceparent|tracestate)$/i;

/** What is wrong with `name`; the message has `{}` for where it stands. */
export function headerNameFault(name: string): Fault | undefined {
  // The one name that a map of JavaScript cannot hold.
  if (!namePattern.test(name) || name === "__proto__") return { message: "{} is no header name", cure: "X-Api-Key" };
  if (!ownHeaders.test(name)) return undefined;
  return { message: "{} belongs to HTTP or MCP itself", cure: "X-Api-Key, or Authorization" };
}

function headerName(): z.ZodType<string, unknown> {
  return textField({ pattern: namePattern.source }, (raw, fail) => {
    const fault = headerNameFault(raw);
    return fault === undefined ? raw : fail(fault.message, `name: ${fault.cure}`);
  });
}

function headerPrefix(): z.ZodType<string, unknown> {
  return textField({}, (raw, fail) => {
    if (/^[\x20-\x7e]{0,64}$/.test(raw)) return raw;
    return fail("{} holds what no header may carry, or more than 64 characters", 'prefix: "Token "');
  });
}

/**
 * Values by header name, of which a text is the value itself. Names are checked by `findHeaderFaults`, where the tree is at
 * hand. Without a prototype, as in `byName`.
 */
function headerMap<S>(secret: z.ZodType<S, unknown>) {
  const text = textField({ minLength: 1, maxLength: 8192 }, (raw, fail) => {
    if (/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(raw) && raw.length <= 8192) return raw;
    return fail("{} holds what no header may carry", "printable ASCII on one line, without a blank at either end");
  });
  const value = z.union([text, secret]) as z.ZodType<string | S, unknown>;
  return z
    .record(z.string().meta({ pattern: namePattern.source }), value)
    .refine((map) => Object.keys(map).length > 0, {
      message: "{} names no header",
      params: { cure: "headers: { X-Api-Key: { file: PATH }, X-Org: acme }" },
    })
    .transform((map): Readonly<Record<string, string | S>> => Object.assign(Object.create(null), map));
}

/** The name part of HTTP's basic credentials (RFC 7617, 2): the first colon ends it. */
function userName<S>(secret: z.ZodType<S, unknown>): z.ZodType<string | S, unknown> {
  const text = textField({ minLength: 1, pattern: "^[^:]+$" }, (raw, fail) => {
    if (raw.includes(":"))
      return fail("{} holds a colon, which would end it", "the name alone; the password has its own key");
    return /^[^\p{Cc}\p{Cs}]{1,1024}$/u.test(raw) ? raw : fail("{} is no user name", "username: svc-tickets");
  });
  return z.union([text, secret]) as z.ZodType<string | S, unknown>;
}
