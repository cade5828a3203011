import { isAmbiguousUri } from "../lib/index.ts";
import { areDisjoint, covers } from "./pattern-cover.ts";
import { type PatternKind, patternKinds } from "./policy-schema.ts";
import type { PatternSource, PolicySource, RuleSource, ServerPolicySource } from "./policy-source.ts";
import type { Problem } from "./problem.ts";
import { keyPositionOf, type Tree } from "./tree.ts";

/** Entries that are taken as they stand and yet hardly meant so. */
export function findPolicyWarnings(source: PolicySource, tree: Tree): Problem[] {
  return Object.entries(source.servers).flatMap(([name, server]) => {
    const patterns = patternsOf(server).flatMap((pattern) => findPatternWarning(pattern) ?? []);
    const vain = patternKinds.flatMap((kind) => findVain(server, kind));
    if (server.grants.length > 0) return [...patterns, ...vain];
    const message = `nothing is granted on \`${name}\`: every call is denied`;
    return [{ at: keyPositionOf(tree, ["servers", name]), message, cure: "tools: [ … ]" }, ...patterns, ...vain];
  });
}

function patternsOf(server: ServerPolicySource): PatternSource[] {
  return patternKinds.flatMap((kind) => [
    ...server.grants.flatMap((grant) => grant[kind].flatMap((rule) => [rule, ...rule.except])),
    ...server.deny[kind],
  ]);
}

function findPatternWarning({ pattern, at, path }: PatternSource): Problem | undefined {
  if (pattern !== pattern.trim()) {
    const message = `\`${path}\` has a space at its end or beginning, which is compared as written`;
    return { at, message, cure: JSON.stringify(pattern.trim()) };
  }
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
  if (/[\u0000-\u001f\u007f-\u009f]/.test(pattern)) {
    return {
      at,
      message: `\`${path}\` holds a control character; such names are always denied`,
      cure: "the name without it",
    };
  }
  if (foreignSigns.test(pattern) && !pattern.includes("://")) {
    return {
      at,
      message: `\`${path}\`: only * is special, other signs stand for themselves`,
      cure: "one entry for each name, or *",
    };
  }
  return undefined;
}

/** What shells and regular expressions read: `?`, `[ab]`, `{a,b}`, `^…`, `…$`, `/…/`, `.*` in front. */
const foreignSigns = /[?[\]]|\{[^{}]*,[^{}]*\}|^\^|\$$|^\/.*\/$|^\.\*/;

/** Entries of one kind that change nothing, whatever a server may offer. */
function findVain(server: ServerPolicySource, kind: PatternKind): Problem[] {
  return server.grants.flatMap((grant) =>
    grant[kind].flatMap((rule) => [
      ...(findVainRule(rule, server.deny[kind], kind) ?? []),
      ...rule.except
        .filter(({ pattern }) => areDisjoint(pattern, rule.pattern))
        .map(({ at, path }) => ({
          at,
          message: `\`${path}\` takes nothing out of \`${rule.pattern}\``,
          cure: `a name that ${rule.pattern} admits, or no exception`,
        })),
    ]),
  );
}

function findVainRule({ pattern, at, path, except }: RuleSource, deny: readonly PatternSource[], kind: PatternKind) {
  const vain = (reason: string, cure: string): Problem[] => [
    { at, message: `\`${path}\` admits nothing: ${reason}`, cure },
  ];
  if (except.some((exception) => covers(exception.pattern, pattern))) {
    return vain("its own `except` takes all of it out", "the rule without that exception, or no rule");
  }
  const denied = deny.find((denial) => covers(denial.pattern, pattern));
  if (denied !== undefined) {
    return vain(`\`deny\` on line ${denied.at.line} takes all of it`, "one of the two; `deny` always wins");
  }
  // No text that `*` stands for makes up for what is written beside it; one with a slash, for `**`, ends a host.
  if (kind === "resources" && isAmbiguousUri(pattern.replace(/\*\*+/g, "x/x").replace(/\*/g, "x"))) {
    return vain(
      "such a URI may be read in two ways, and is always denied",
      "scheme and host in lower case, no user info, no \\, no . or .. between slashes, no needless %",
    );
  }
  return undefined;
}
