/** Where a secret showed up, and in which clothes. */
export interface Leak {
  readonly where: string;
  readonly secret: string;
  readonly encoding: string;
}

/** Shorter texts would be found by chance. */
const minSecretLength = 12;

/**
 * The part of the base64 text that is the same whatever stands before and after the secret, for each of the three
 * ways in which it can fall on the 3-byte grid.
 */
function base64Cores(secret: string): string[] {
  const bytes = Buffer.from(secret, "utf8");
  return [0, 1, 2].map((shift) => {
    const whole = bytes.subarray((3 - shift) % 3);
    return whole.subarray(0, whole.length - (whole.length % 3)).toString("base64");
  });
}

const toBase64Url = (text: string): string => text.replaceAll("+", "-").replaceAll("/", "_");

function percentEncodeAll(secret: string): string {
  return [...Buffer.from(secret, "utf8")].map((byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");
}

/** Every form in which `secret` could be written; forms are compared without regard to case where hex is involved. */
function forms(secret: string): { readonly encoding: string; readonly text: string; readonly foldCase: boolean }[] {
  const hex = Buffer.from(secret, "utf8").toString("hex");
  const cores = base64Cores(secret);
  return [
    { encoding: "raw", text: secret, foldCase: false },
    ...cores.map((text) => ({ encoding: "base64", text, foldCase: false })),
    ...cores.map((text) => ({ encoding: "base64url", text: toBase64Url(text), foldCase: false })),
    { encoding: "hex", text: hex, foldCase: true },
    { encoding: "percent", text: encodeURIComponent(secret), foldCase: true },
    { encoding: "percent", text: percentEncodeAll(secret), foldCase: true },
  ];
}

/**
 * Searches every output for every secret, raw and encoded. Throws when there is nothing to search in or for: an empty
 * search proves nothing.
 */
export function findLeaks(
  outputs: readonly { readonly name: string; readonly text: string }[],
  secrets: Readonly<Record<string, string>>,
): Leak[] {
  const entries = Object.entries(secrets);
  if (entries.length === 0) throw new Error("no secret to search for");
  if (outputs.every(({ text }) => text === "")) throw new Error("no output to search in");
  for (const [name, secret] of entries) {
    if (secret.length < minSecretLength) throw new Error(`the secret ${name} is too short to be searched for`);
  }
  const leaks = new Map<string, Leak>();
  for (const { name: where, text } of outputs) {
    const folded = text.toLowerCase();
    for (const [secret, value] of entries) {
      for (const { encoding, text: form, foldCase } of forms(value)) {
        const isFound = foldCase ? folded.includes(form.toLowerCase()) : text.includes(form);
        if (isFound) leaks.set(`${where} ${secret} ${encoding}`, { where, secret, encoding });
      }
    }
  }
  return [...leaks.values()];
}
