/**
 * Headers as Node's `rawHeaders` and undici's raw headers have them: name, value, name, value, … Order and repeats are
 * kept; every string holds latin1 code points only.
 */
export type RawHeaders = readonly string[];

/** The values of every header called `name` (lower case), in order. */
export function headerValues(headers: RawHeaders, name: string): string[] {
  const values: string[] = [];
  for (let i = 0; i + 1 < headers.length; i += 2) {
    if (headers[i]?.toLowerCase() === name) values.push(headers[i + 1] ?? "");
  }
  return values;
}

/** The value of the first header called `name` (lower case). */
export function headerValue(headers: RawHeaders, name: string): string | undefined {
  for (let i = 0; i + 1 < headers.length; i += 2) {
    if (headers[i]?.toLowerCase() === name) return headers[i + 1];
  }
  return undefined;
}
