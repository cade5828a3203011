export { compilePolicy } from "./compile.ts";
export type {
  Decision,
  DenyReason,
  DenySource,
  GrantSource,
  PatternSource,
  Policy,
  PolicySource,
  RuleSource,
} from "./types.ts";
