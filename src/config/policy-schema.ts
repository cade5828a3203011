import { z } from "zod";
import { byName, section, textField } from "./fields.ts";

const clientKinds = ["sampling", "elicitation", "roots"] as const;
export type ClientKind = (typeof clientKinds)[number];

/** The lists of patterns that a grant or a `deny` may hold. */
export const patternKinds = ["tools", "prompts", "resources", "resourceTemplates"] as const;
export type PatternKind = (typeof patternKinds)[number];

export type RuleKeys = string | { readonly name: string; readonly except?: readonly string[] | undefined };

type Lists<T> = { readonly [kind in PatternKind]?: readonly T[] | undefined } & {
  readonly client?: readonly ClientKind[] | undefined;
};
export type GrantKeys = Lists<RuleKeys>;
export type DenyKeys = Lists<string>;

/** policy.yaml as written (DESIGN 4.3), of this version. */
export interface PolicyKeys {
  readonly version: 1;
  readonly servers: {
    readonly [name: string]: GrantKeys & {
      readonly grants?: readonly GrantKeys[] | undefined;
      readonly deny?: DenyKeys | undefined;
    };
  };
}

function pattern() {
  return textField({ minLength: 1 }, (raw, fail) => {
    return raw === "" ? fail("{} is empty and matches nothing", 'a name, or "*" for every name') : raw;
  });
}

function lists<T extends z.ZodType>(entry: T) {
  const list = z.array(entry).optional();
  return {
    tools: list,
    prompts: list,
    resources: list,
    resourceTemplates: list,
    client: z.array(z.enum(clientKinds)).optional(),
  };
}

const rule = z.union([pattern(), section({ name: pattern(), except: z.array(pattern()).optional() })]);
const grant = lists(rule);

export const policySchema: z.ZodType<PolicyKeys, unknown> = section({
  version: z.literal(1),
  servers: byName(
    section({ ...grant, grants: z.array(section(grant)).optional(), deny: section(lists(pattern())).optional() }),
  ),
});
