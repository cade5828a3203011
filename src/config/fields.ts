import { resolve } from "node:path";
import { z } from "zod";
import { badNameFault, urlNamePattern } from "./names.ts";

/**
 * The kinds of value that the three documents share. Each says in its own words what is wrong, with `{}` for the path;
 * a value of another type is left to the table in cures.ts. None shows a value in which a secret may stand.
 */

type Fail = (message: string, cure: string) => typeof z.NEVER;

/** A scalar read by `read`; `json` is what JSON Schema says of it. */
export function scalar<T>(json: Record<string, unknown>, read: (raw: unknown, fail: Fail) => T): z.ZodType<T, unknown> {
  return z
    .unknown()
    .transform((raw, ctx): T => {
      return read(raw, (message, cure) => {
        ctx.addIssue({ code: "custom", message, params: { cure } });
        return z.NEVER;
      });
    })
    .meta(json);
}

/** As `scalar`, for text only: another type gets the words of the table. */
export function textField<T>(
  json: Record<string, unknown>,
  read: (raw: string, fail: Fail) => T,
): z.ZodType<T, unknown> {
  return z
    .string()
    .transform((raw, ctx): T => {
      return read(raw, (message, cure) => {
        ctx.addIssue({ code: "custom", message, params: { cure } });
        return z.NEVER;
      });
    })
    .meta({ type: "string", ...json }) as z.ZodType<T, unknown>;
}

/**
 * A map with exactly these keys. Unknown ones are reported one by one, each with its place, and even when values are
 * wrong: a first fault must not hide the next.
 */
export function section<S extends z.ZodRawShape>(shape: S): z.ZodObject<S, z.core.$strip> {
  const known = Object.keys(shape);
  const checked = z.looseObject(shape).superRefine(
    (value, ctx) => {
      for (const key of Object.keys(value)) {
        if (!known.includes(key))
          ctx.addIssue({ code: "custom", message: "", path: [key], params: { unknown: key, known } });
      }
    },
    { when: ({ value }) => typeof value === "object" && value !== null && !Array.isArray(value) },
  );
  return checked as unknown as z.ZodObject<S, z.core.$strip>;
}

export function urlName(): z.ZodType<string, unknown> {
  return textField({ pattern: urlNamePattern.source }, (raw, fail) => {
    if (urlNamePattern.test(raw)) return raw;
    const { message, cure } = badNameFault("{}", raw);
    return fail(message, cure);
  });
}

/**
 * Keys that are such names; whether they are is checked where the tree is at hand. The map has no prototype: a server
 * may be called `constructor`, and looking up a name that is not there must find nothing.
 */
export function byName<T extends z.ZodType>(value: T) {
  const names = z.string().meta({ pattern: urlNamePattern.source });
  return z
    .record(names, value)
    .transform((map): Readonly<Record<string, z.output<T>>> => Object.assign(Object.create(null), map));
}

/** The path of a file, resolved against `base`, the directory of the file that names it. */
export function filePath(base: string): z.ZodType<string, unknown> {
  return textField({ minLength: 1 }, (raw, fail) => {
    if (raw.trim() === "") return fail("{} is empty", "the path of a file");
    if (raw.startsWith("~")) return fail("{}: ~ is not expanded here", "the whole path, or one relative to this file");
    if (/\$[{A-Za-z_]/.test(raw)) return fail("{}: variables are not expanded here", "the path itself");
    return resolve(base, raw);
  });
}

export function wholeNumber(max: number, min = 1): z.ZodType<number, unknown> {
  return z.int().min(min).max(max) as z.ZodType<number, unknown>;
}

const unitMs: { readonly [unit: string]: number } = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
const durationSlips: { readonly [unit: string]: string } = {
  msec: "ms",
  millis: "ms",
  sec: "s",
  secs: "s",
  second: "s",
  seconds: "s",
  min: "m",
  mins: "m",
  minute: "m",
  minutes: "m",
  hr: "h",
  hrs: "h",
  hour: "h",
  hours: "h",
};

/** Milliseconds, at most what a timer can hold. `zero` also admits 0, with or without a unit. */
export function duration(options: { readonly zero?: boolean } = {}): z.ZodType<number, unknown> {
  const json = { type: "string", pattern: "^[0-9]+(ms|s|m|h)$" };
  return scalar(options.zero ? { anyOf: [json, { const: 0 }] } : json, (raw, fail) => {
    if (raw === 0 && options.zero) return 0;
    const [digits, unit] = splitUnit(raw);
    if (digits === undefined) return fail("{} must be a duration", "a whole number with ms, s, m or h, such as 90s");
    const factor = unitMs[unit];
    if (factor === undefined)
      return fail("{} has no unit that is known here (ms, s, m, h)", respellDuration(digits, unit));
    const ms = Number(digits) * factor;
    if (ms === 0 && !options.zero) return fail("{} must be longer than nothing", `1${unit}`);
    return ms > 2 ** 31 - 1 ? fail("{} is longer than a timer can wait", "596h, or less") : ms;
  });
}

function respellDuration(digits: string, unit: string): string {
  if (unit === "") return `${digits}s`;
  if (/^ *d(?:ays?)?$/i.test(unit)) return `${Number(digits) * 24}h`;
  const lower = unit.trim().toLowerCase();
  const meant = durationSlips[lower] ?? lower;
  return unitMs[meant] === undefined ? "a whole number with ms, s, m or h, such as 90s" : `${digits}${meant}`;
}

const unitBytes: { readonly [unit: string]: number } = { B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3 };

/** Bytes, from `min` to `max`. */
export function size(min: number, max: number): z.ZodType<number, unknown> {
  return scalar({ type: "string", pattern: "^[0-9]+(B|KiB|MiB|GiB)$" }, (raw, fail) => {
    const [digits, unit] = splitUnit(raw);
    if (digits === undefined) return fail("{} must be a size", "a whole number with B, KiB, MiB or GiB, such as 4MiB");
    const factor = unitBytes[unit];
    if (factor === undefined)
      return fail("{} has no unit that is known here (B, KiB, MiB, GiB)", respellSize(digits, unit));
    const bytes = Number(digits) * factor;
    if (bytes < min) return fail("{} is too small to work with", `${showSize(min)}, or more`);
    return bytes > max ? fail("{} is more than one process should hold", `${showSize(max)}, or less`) : bytes;
  });
}

function respellSize(digits: string, unit: string): string {
  if (unit === "") return `${digits}B`;
  const letter = /^([kmg]?)i?b?$/i.exec(unit.trim())?.[1]?.toUpperCase();
  if (letter === undefined) return "a whole number with B, KiB, MiB or GiB, such as 4MiB";
  return letter === "" ? `${digits}B` : `${digits}${letter}iB`;
}

function showSize(bytes: number): string {
  const unit = bytes % 1024 ** 2 === 0 ? "MiB" : bytes % 1024 === 0 ? "KiB" : "B";
  return `${bytes / (unitBytes[unit] ?? 1)}${unit}`;
}

/** A whole number and what follows it; a bare number counts as one without a unit. */
function splitUnit(raw: unknown): readonly [string | undefined, string] {
  if (typeof raw === "number") return Number.isSafeInteger(raw) && raw >= 0 ? [String(raw), ""] : [undefined, ""];
  if (typeof raw !== "string") return [undefined, ""];
  const match = /^([0-9]{1,12})( *[A-Za-z]*)$/.exec(raw.trim());
  // A space before the unit makes it an unknown one, so that the cure shows it without.
  return [match?.[1], raw === raw.trim() ? (match?.[2] ?? "") : ` ${match?.[2] ?? ""}`];
}

export interface Listen {
  readonly host: string;
  readonly port: number;
}

/** `host:port`; port 0 lets the system choose. */
export function listenAddress(): z.ZodType<Listen, unknown> {
  return scalar({ type: "string", pattern: ":[0-9]+$" }, (raw, fail) => {
    if (typeof raw === "number") return fail("{} needs a host beside the port", `"127.0.0.1:${raw}"`);
    if (typeof raw !== "string") return fail("{} must be an address to listen on", '"127.0.0.1:9464"');
    if (/^:\d+$/.test(raw)) return fail("{} needs a host beside the port", `"0.0.0.0${raw}" for every interface`);
    const match = /^(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):(\d{1,5})$/.exec(raw);
    const host = match?.[1] ?? match?.[2];
    const port = Number(match?.[3]);
    if (host === undefined) return fail("{} is no address to listen on", '"127.0.0.1:9464", or "[::1]:9464" for IPv6');
    return port > 65_535 ? fail("{}: there is no such port", "a port from 1 to 65535") : { host, port };
  });
}

/** Lower-case hex SHA-256. Does not show what stands here: it may be the secret itself. */
export function sha256(command: string): z.ZodType<string, unknown> {
  return textField({ pattern: "^[0-9a-f]{64}$" }, (raw, fail) => {
    if (/^[0-9a-f]{64}$/.test(raw)) return raw;
    if (/^(?:ptk|pak)_/.test(raw)) {
      const message = "{}: here stands a secret itself, not its hash; it is known to whoever read this file";
      return fail(message, `the hash of a new one, as \`${command}\` prints it`);
    }
    if (/^[0-9A-Fa-f]{64}$/.test(raw)) return fail("{} must be in lower case", `"${raw.toLowerCase()}"`);
    return fail("{} is no SHA-256 in hex (64 characters of 0-9 and a-f)", `the hash that \`${command}\` prints`);
  });
}
