import { concealSecrets } from "../lib/index.ts";

/**
 * A line for a terminal that another machine had a hand in: control characters, which could move the cursor or rewrite what stands
 * above, become `?`, and a secret of ours that came back is cut out.
 */
export function printable(line: string): string {
  return concealSecrets(line.replace(/\p{Cc}/gu, "?"));
}
