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

const maxSpellings = 512;
/** No name that anybody reads is longer; 512 of as much as a head may hold would be tens of MiB. */
const maxKeptLength = 64;

/**
 * What is known of a header by its name, worked out once for each spelling: nearly all headers are spelt in one of a few
 * ways, so that the usual one costs a look-up and no lower-casing. Bounded, because peers choose how they spell.
 */
export class ByName<T extends string | number | boolean> {
  readonly #workOut: (lower: string, name: string) => T;
  readonly #bySpelling = new Map<string, T>();

  constructor(workOut: (lower: string, name: string) => T) {
    this.#workOut = workOut;
  }

  get(name: string): T {
    const known = this.#bySpelling.get(name);
    if (known !== undefined) return known;
    const found = this.#workOut(name.toLowerCase(), name);
    if (name.length > maxKeptLength) return found;
    // Begun anew, so that names which somebody made up once do not keep out the usual ones for good.
    if (this.#bySpelling.size >= maxSpellings) this.#bySpelling.clear();
    this.#bySpelling.set(name, found);
    return found;
  }
}
