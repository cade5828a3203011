import { parseArgs } from "node:util";
import { formatProblem, loadCases, loadGatewayConfig, type PolicyCase, type Problem } from "../config/index.ts";
import { formatPosition } from "../lib/index.ts";
import { type AgentMessage, type Subject, subjectOf } from "../mcp/index.ts";
import { compilePolicy, type Decision, type DenyReason, type Policy } from "../policy/index.ts";
import { type Command, type CommandIo, type ExitCode, exitCodes } from "./io.ts";

const usage = [
  "usage: postern policy test -c gateway.yaml --server S (--tool T [--args JSON] | --resource URI | --prompt P | --method M)",
  "                           [--principal JSON] [--json]",
  "       postern policy test -c gateway.yaml --cases FILE [--json]",
].join("\n");

type Asks = PolicyCase["asks"];

interface Options {
  readonly file: string;
  readonly isJson: boolean;
  readonly run:
    | { readonly kind: "one"; readonly server: string; readonly asks: Asks }
    | { readonly kind: "cases"; readonly file: string };
}

/** `postern policy test`: asks the policy what a call would meet, in the words of the code that judges calls. */
export const policyTest: Command = async (args, io) => {
  const options = readOptions(args);
  if (typeof options === "string") {
    io.err(`${options}\n${usage}`);
    return exitCodes.usage;
  }
  const loaded = loadGatewayConfig(options.file, { isElsewhere: true });
  if (loaded.kind === "bad") return refuse(loaded.problems, io);
  const { config } = loaded;
  const policy = compilePolicy(config.policy);
  const servers = Object.keys(config.servers);
  const { run, isJson } = options;
  if (run.kind === "cases") return testCases(run.file, policy, servers, isJson, io);
  if (!servers.includes(run.server)) {
    io.err(`there is no server ${JSON.stringify(run.server)} in ${options.file}; there is: ${servers.join(", ")}`);
    return exitCodes.usage;
  }
  return testOne(policy, run.server, run.asks, isJson, io);
};

const askKinds = ["tool", "resource", "prompt", "method"] as const;

const flagOfMethod: { readonly [method: string]: string | undefined } = {
  "tools/call": "--tool",
  "prompts/get": "--prompt",
  "resources/read": "--resource",
  "resources/subscribe": "--resource",
  "resources/unsubscribe": "--resource",
  "completion/complete": "--prompt, or --resource for a template",
};

/** The options, or what is wrong with them. */
function readOptions(args: readonly string[]): Options | string {
  const values = parseFlags(args);
  if (typeof values === "string") return values;
  const { config: file, server, cases, json: isJson } = values;
  if (file === undefined) return "-c FILE is missing";
  const asked = askKinds.flatMap((kind): Asks[] => {
    const name = values[kind];
    return name === undefined ? [] : [{ kind, name }];
  });
  if (cases !== undefined) {
    const isAlone = server === undefined && asked.length === 0;
    return isAlone ? { file, isJson, run: { kind: "cases", file: cases } } : "--cases stands for all of the question";
  }
  const [asks, second] = asked;
  if (server === undefined) return "--server is missing";
  if (asks === undefined || second !== undefined) return "exactly one of --tool, --resource, --prompt and --method";
  const flag = asks.kind === "method" ? flagOfMethod[asks.name] : undefined;
  if (flag !== undefined) return `${asks.name} is judged by what it names: ask with ${flag}`;
  // Nothing of this version's policy reads them; a question that later versions take must not fail on this one.
  if (values.args !== undefined && asks.kind !== "tool") return "--args belongs to --tool";
  if (!isJsonObject(values.args)) return "--args must be a JSON object";
  if (!isJsonObject(values.principal)) return "--principal must be a JSON object";
  return { file, isJson, run: { kind: "one", server, asks } };
}

function parseFlags(args: readonly string[]) {
  const text = { type: "string" } as const;
  const asks = { tool: text, resource: text, prompt: text, method: text };
  try {
    return parseArgs({
      args: [...args],
      options: {
        config: { type: "string", short: "c" },
        json: { type: "boolean", default: false },
        server: text,
        ...asks,
        args: text,
        principal: text,
        cases: text,
      },
    }).values;
  } catch (error) {
    return error instanceof Error ? error.message : "these options are not understood";
  }
}

function isJsonObject(text: string | undefined): boolean {
  if (text === undefined) return true;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}

function refuse(problems: readonly Problem[], io: CommandIo): ExitCode {
  for (const problem of problems) io.err(formatProblem(problem));
  return exitCodes.usage;
}

function testOne(policy: Policy, server: string, asks: Asks, isJson: boolean, io: CommandIo): ExitCode {
  const decision = policy.decide(server, subjectFor(asks));
  const { kind, rule, at } = decision;
  if (isJson) {
    const place = at === undefined ? null : { file: at.file, line: at.line, column: at.column };
    io.out(
      JSON.stringify({ decision: kind, server, ...asksJson(asks), rule: rule ?? null, at: place, why: why(decision) }),
    );
  } else {
    io.out(`${kind}: ${asks.kind} ${JSON.stringify(asks.name)} on ${server}`);
    if (rule !== undefined) io.out(`  rule: ${rule}${at === undefined ? "" : ` at ${formatPosition(at)}`}`);
    io.out(`  why: ${why(decision)}`);
  }
  return kind === "allow" ? exitCodes.done : exitCodes.denied;
}

function testCases(file: string, policy: Policy, servers: readonly string[], isJson: boolean, io: CommandIo): ExitCode {
  const loaded = loadCases(file);
  if (loaded.kind === "bad") return refuse(loaded.problems, io);
  const cases = loaded.config;
  // A misspelt server is denied whatever is asked, so it would let every expected denial pass.
  const strangers = cases.filter(({ server }) => !servers.includes(server));
  if (strangers.length > 0)
    return refuse(
      strangers.map((one) => strangerProblem(one, servers)),
      io,
    );
  const mismatches = cases.flatMap((one) => {
    const decision = policy.decide(one.server, subjectFor(one.asks));
    return decision.kind === one.expect ? [] : [{ one, decision }];
  });
  if (isJson) io.out(JSON.stringify({ cases: cases.length, mismatches: mismatches.map(mismatchJson) }));
  else {
    for (const { one, decision } of mismatches) io.out(describeMismatch(one, decision));
    io.out(`${cases.length} cases, ${mismatches.length} not as expected`);
  }
  return mismatches.length === 0 ? exitCodes.done : exitCodes.failed;
}

interface Mismatch {
  readonly one: PolicyCase;
  readonly decision: Decision;
}

function strangerProblem({ at, server }: PolicyCase, servers: readonly string[]): Problem {
  return { at, message: `there is no server ${JSON.stringify(server)}`, cure: `one of: ${servers.join(", ")}` };
}

function describeMismatch({ at, server, asks, expect }: PolicyCase, decision: Decision): string {
  const asked = `${asks.kind} ${JSON.stringify(asks.name)} on ${server}`;
  const place = decision.rule === undefined ? "" : ` (${decision.rule})`;
  return `${formatPosition(at)}: expected ${expect}, got ${decision.kind}: ${asked}: ${why(decision)}${place}`;
}

function mismatchJson({ one, decision }: Mismatch) {
  const { at, server, asks, expect } = one;
  const rule = decision.rule ?? null;
  return { line: at.line, server, ...asksJson(asks), expect, got: decision.kind, rule, why: why(decision) };
}

function asksJson(asks: Asks): Record<string, string> {
  return { [asks.kind]: asks.name };
}

/** The subject that the gateway would make of such a call. */
function subjectFor({ kind, name }: Asks): Subject {
  switch (kind) {
    case "tool":
      return subjectOf(request("tools/call", { name, arguments: {} }), "legacy");
    case "prompt":
      return subjectOf(request("prompts/get", { name }), "legacy");
    case "resource":
      return subjectOf(request("resources/read", { uri: name }), "legacy");
    case "method":
      return methodSubject(name);
  }
}

/** A method of either era; GET and DELETE are the two that are no JSON-RPC. */
function methodSubject(method: string): Subject {
  if (method === "GET" || method === "DELETE") return { kind: "open" };
  const legacy = subjectOf(request(method, {}), "legacy");
  return legacy.kind === "unknown" ? subjectOf(request(method, {}), "modern") : legacy;
}

function request(method: string, params: Record<string, unknown>): AgentMessage {
  const isNotification = method.startsWith("notifications/");
  const kind = isNotification ? "notification" : "request";
  return { kind, idText: isNotification ? undefined : "1", method, params };
}

const reasons: { readonly [reason in DenyReason]: string } = {
  "no-grant": "the policy grants nothing on this server, so it answers 403 to everything",
  "not-allowed": "no rule allows it",
  denied: "a deny pattern matches, and deny wins over every grant",
  malformed: "the name is missing, or is of a form that is denied whatever the rules say",
  method: "no rule can allow this method",
  error: "an error while deciding, which denies",
};

function why(decision: Decision): string {
  if (decision.kind === "deny") return reasons[decision.reason];
  return "this rule allows it, and no deny pattern matches";
}
