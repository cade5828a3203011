import type { Position } from "../lib/index.ts";
import { compileSegmented, compileSpanning, isExact, type Pattern } from "./pattern.ts";
import type { PatternSource, RuleSource } from "./types.ts";

/** Where a rule stands, for decisions. */
export interface RulePlace {
  readonly rule: string;
  readonly at: Position;
}

/** How the patterns of a list of rules read `*`; deny and `except` always span. */
export type Reading = "spanning" | "segmented";

interface Rule extends RulePlace {
  /** Its place among all rules of the set, in file order. */
  readonly order: number;
  readonly pattern: Pattern;
  readonly except: RuleSet | undefined;
}

type RulesByText = Map<string, Rule[]>;

/** Rules of one kind, found by their whole text or by what stands before the first `*`: many cost little more than one. */
export class RuleSet {
  readonly #exact: RulesByText = new Map();
  /** By the length of the prefix, then by the prefix. */
  readonly #prefixed = new Map<number, RulesByText>();
  #count = 0;

  /** `path` is that of the list, for rules that do not say where they stand. */
  add(rules: readonly (PatternSource | RuleSource)[], path: string, reading: Reading): this {
    rules.forEach((source, index) => {
      this.#addRule(source, source.path ?? `${path}[${index}]`, reading);
    });
    return this;
  }

  #addRule(source: PatternSource | RuleSource, path: string, reading: Reading): void {
    const pattern = reading === "spanning" ? compileSpanning(source.pattern) : compileSegmented(source.pattern);
    const except = "except" in source ? exceptOf(source, path) : undefined;
    const rule: Rule = { rule: path, at: source.at, order: this.#count, pattern, except };
    this.#count += 1;
    const rules = isExact(source.pattern) ? this.#exact : this.#rulesOfLength(pattern.prefix.length);
    const alike = rules.get(pattern.prefix);
    if (alike === undefined) rules.set(pattern.prefix, [rule]);
    else alike.push(rule);
  }

  #rulesOfLength(length: number): RulesByText {
    const known = this.#prefixed.get(length);
    if (known !== undefined) return known;
    const rules: RulesByText = new Map();
    this.#prefixed.set(length, rules);
    return rules;
  }

  /** The first rule in file order that matches `name` and does not take it out by `except`. */
  find(name: string): RulePlace | undefined {
    let first = findAmong(this.#exact.get(name), name, undefined);
    for (const [length, rules] of this.#prefixed) {
      if (length <= name.length) first = findAmong(rules.get(name.slice(0, length)), name, first);
    }
    return first;
  }
}

/** The first of `rules` that matches, or `known` if that stands before it. */
function findAmong(rules: readonly Rule[] | undefined, name: string, known: Rule | undefined): Rule | undefined {
  if (rules === undefined) return known;
  for (const rule of rules) {
    if (known !== undefined && known.order < rule.order) return known;
    if (rule.pattern.matches(name) && rule.except?.find(name) === undefined) return rule;
  }
  return known;
}

function exceptOf(source: RuleSource, path: string): RuleSet | undefined {
  if (source.except.length === 0) return undefined;
  return new RuleSet().add(source.except, `${path}.except`, "spanning");
}
