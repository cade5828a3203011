import type { Injected } from "./context.ts";

/**
 * A redirect's target for the log: a careless server puts what it was sent into it. Only short plain segments show; of one
 * that holds, plainly or encoded, anything that was injected into this very call, the origin alone.
 */
export function shownLocation(location: string, injected: Injected): string {
  const [address = ""] = location.split(/[?#]/);
  const scheme = /^https?:\/\//i.exec(address)?.[0] ?? "";
  const segments = address.slice(scheme.length).split("/");
  const needles = needlesOf(injected);
  if (!holds(location, needles)) {
    return scheme + segments.map((segment, i) => (isPlain(segment, i) ? segment : "…")).join("/");
  }
  const host = segments[0] ?? "";
  return scheme !== "" && isPlain(host, 0) && !holds(host, needles) ? scheme + host : "…";
}

/** The first segment is a host, perhaps with a port, where there is a scheme. */
function isPlain(segment: string, index: number): boolean {
  return (index === 0 ? /^[\w.:[\]-]{0,255}$/ : /^[\w.-]{0,24}$/).test(segment);
}

/** Secrets as they are stored, and values as they are sent, with and without the scheme before them. In lower case, as hosts are. */
function needlesOf({ headers, secrets }: Injected): string[] {
  const texts = secrets.map((secret) => secret.reveal().trim());
  for (let i = 1; i < headers.length; i += 2) {
    const value = headers[i] ?? "";
    texts.push(value, value.slice(value.indexOf(" ") + 1));
  }
  return texts.filter((text) => text !== "").map((text) => text.toLowerCase());
}

function holds(text: string, needles: readonly string[]): boolean {
  return readings(text).some((reading) => {
    const lower = reading.toLowerCase();
    return needles.some((needle) => lower.includes(needle));
  });
}

/** As it stands, with its percent signs resolved once and twice, and each part of those as base64. */
function readings(text: string): string[] {
  const once = decodePercent(text);
  const plain = [text, once, decodePercent(once)];
  const parts = plain.flatMap((one) => [...one.split(/[/?#&;,:@.]/), ...one.split(/[?#&=;,:@.]/)]);
  return [...plain, ...parts.map((part) => Buffer.from(part, "base64").toString("utf8"))];
}

/** Leaves alone what is no encoding, rather than giving the whole text up as `decodeURIComponent` does. */
function decodePercent(text: string): string {
  return text.replace(/(?:%[0-9a-f]{2})+/gi, (run) => Buffer.from(run.replaceAll("%", ""), "hex").toString("utf8"));
}
