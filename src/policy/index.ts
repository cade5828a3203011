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
  ServerPolicySource,
} from "./types.ts";
