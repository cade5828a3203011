import { readFileSync } from "node:fs";

interface Manifest {
  readonly version: string;
}

/** Of package.json, which lies two folders above both `src/cli` and `dist/cli`. */
export const version: string = (
  JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as Manifest
).version;

export const software = `postern/${version}`;
