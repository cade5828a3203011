#!/usr/bin/env node
import { check } from "./check.ts";
import { demo } from "./demo/demo.ts";
import { doctor } from "./doctor/doctor.ts";
import { type Command, type CommandIo, type ExitCode, exitCodes } from "./io.ts";
import { gateway, relay } from "./long-running.ts";
import { policyTest } from "./policy-test.ts";
import { status } from "./status.ts";
import { token } from "./token.ts";
import { version } from "./version.ts";

const usage = `usage: postern COMMAND

  demo [--once]                    the whole path in one process on loopback
  relay -c relay.yaml              run the platform side
  gateway -c gateway.yaml          run the private network's side
  check -c FILE                    every mistake in one of the three files, with a cure
  policy test -c gateway.yaml …    allow or deny, and the rule that says so
  doctor -c FILE                   tries the relay, the vault and each server, with a cure for what fails
  status -c FILE                   how the running part is, from its admin port
  token new [--kind tunnel|agent]  a new secret and its hash
  --version

exit codes: 0 done, 1 failed, 2 bad usage or configuration, 3 denied`;

const policy: Command = (args, io) => {
  if (args[0] === "test") return policyTest(args.slice(1), io);
  const isLater = args[0] === "explain";
  io.err(isLater ? laterText("policy explain") : "usage: postern policy test -c gateway.yaml --server NAME …");
  return Promise.resolve(exitCodes.usage);
};

const commands = new Map<string, Command>([
  ["demo", demo],
  ["relay", relay],
  ["gateway", gateway],
  ["check", check],
  ["doctor", doctor],
  ["status", status],
  ["policy", policy],
  ["token", token],
]);

/** Commands of the contract that this version does not have; named so that nobody searches for a typing error. */
const laterCommands = new Set(["lock"]);

function laterText(command: string): string {
  return `\`postern ${command}\` is not in this version yet`;
}

const io: CommandIo = {
  out: (text) => process.stdout.write(`${text}\n`),
  err: (text) => process.stderr.write(`${text}\n`),
  env: process.env,
};

async function main(args: readonly string[]): Promise<number> {
  const [name = "", ...rest] = args;
  const command = commands.get(name);
  if (command !== undefined) return rest.some(isHelp) ? help(command, rest) : command(rest, io);
  if (name === "--version") {
    io.out(version);
    return exitCodes.done;
  }
  if (isHelp(name) || name === "help") {
    const about = commands.get(rest[0] ?? "");
    if (about !== undefined) return help(about, ["--help"]);
    io.out(usage);
    return exitCodes.done;
  }
  if (laterCommands.has(name)) io.err(laterText(name));
  else io.err(name === "" ? usage : `there is no command \`${name}\`\n${usage}`);
  return exitCodes.usage;
}

function isHelp(arg: string): boolean {
  return arg === "--help" || arg === "-h";
}

/** No command knows the option, so each says how it is used, or that it is not there yet; here the former is no complaint. */
async function help(command: Command, args: readonly string[]): Promise<ExitCode> {
  const said: string[] = [];
  const code = await command(args, { ...io, err: (text) => void said.push(text) });
  const usages = said.filter((text) => text.includes("usage:")).map((text) => text.slice(text.indexOf("usage:")));
  for (const text of usages) io.out(text);
  if (usages.length > 0) return exitCodes.done;
  for (const text of said) io.err(text);
  return code;
}

// A reader that left (`postern check … | head`, a log shipper that died) must not end the process by an uncaught error.
let isOutputLost = false;
process.stderr.on("error", () => undefined);
process.stdout.on("error", () => {
  isOutputLost = true;
});
process.on("exit", (code) => {
  if (isOutputLost && code === exitCodes.done) process.exitCode = exitCodes.failed;
});

process.exitCode = await main(process.argv.slice(2));
// Looking a name up cannot be broken off: name servers that are silent would hold the process long after its verdict.
if (process.argv[2] === "doctor") process.stdout.write("", () => process.exit());
