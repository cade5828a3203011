import { z } from "zod";
import type { Position } from "../lib/index.ts";
import { section, textField } from "./fields.ts";
import { positionOf, type Tree } from "./tree.ts";

/** One expectation of a policy, as `postern policy test --cases` reads it. */
export interface PolicyCase {
  readonly at: Position;
  readonly server: string;
  readonly asks: { readonly kind: "tool" | "resource" | "prompt" | "method"; readonly name: string };
  readonly expect: "allow" | "deny";
}

const askKinds = ["tool", "resource", "prompt", "method"] as const;

/** Any text, an empty name included: what must be denied is worth a case too. */
function anyText() {
  return textField({}, (raw) => raw);
}

type CaseKeys = Omit<PolicyCase, "at">;

export const casesSchema: z.ZodType<readonly CaseKeys[], unknown> = z
  .array(
    section({
      server: anyText(),
      tool: anyText().optional(),
      resource: anyText().optional(),
      prompt: anyText().optional(),
      method: anyText().optional(),
      expect: z.enum(["allow", "deny"]),
    }).transform((keys, ctx): CaseKeys => {
      const given = askKinds.flatMap((kind) => {
        const name = keys[kind];
        return name === undefined ? [] : [{ kind, name }];
      });
      const [asks, second] = given;
      if (asks !== undefined && second === undefined) return { server: keys.server, asks, expect: keys.expect };
      const message = `{} must have exactly one of ${askKinds.join(", ")}`;
      ctx.addIssue({
        code: "custom",
        message,
        params: { cure: "{ server: tickets, tool: get_issue, expect: allow }" },
      });
      return z.NEVER;
    }),
  )
  .min(1);

export function placeCases(tree: Tree, cases: readonly CaseKeys[]): PolicyCase[] {
  return cases.map((one, i) => ({ at: positionOf(tree, [i]), ...one }));
}
