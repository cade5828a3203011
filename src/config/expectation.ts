/** What stands at a place of a document: `expects` completes "must be", `example` is what to write. */
export interface Expectation {
  readonly expects: string;
  readonly example: string;
}

export function text(expects: string, example: string): Expectation {
  return { expects, example };
}

const sourceParts: { readonly [pattern: string]: Expectation } = {
  vault: text(
    "mount, path and field of a Vault secret",
    "{ vault: { mount: secret, path: mcp/tickets, field: token } }",
  ),
  "vault.mount": text("the mount of a KV engine", "mount: secret"),
  "vault.path": text("the path of a secret below its mount", "path: mcp/tickets"),
  "vault.field": text("the name of a field of that secret", "field: token"),
  file: text("the path of a file", "file: /run/secrets/postern/NAME"),
  env: text("the name of an environment variable", "env: TICKETS_TOKEN"),
};

/** A source and what stands in it. */
export function sourceAt(pattern: string, expects = "a source of a secret"): { [pattern: string]: Expectation } {
  const parts = Object.entries(sourceParts).map(([part, expectation]) => [`${pattern}.${part}`, expectation]);
  const key = pattern.slice(pattern.lastIndexOf(".") + 1);
  const whole = text(expects, `${key}: { file: /run/secrets/postern/NAME }`);
  return { [pattern]: whole, ...Object.fromEntries(parts) };
}
