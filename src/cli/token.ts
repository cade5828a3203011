import { parseArgs } from "node:util";
import { createToken, type TokenKind } from "../identity/index.ts";
import { type Command, exitCodes } from "./io.ts";

const usage = "usage: postern token new [--kind tunnel|agent] [--json]";

const destinations: { readonly [kind in TokenKind]: { readonly place: string; readonly file: string } } = {
  tunnel: {
    place: "tokenSha256 of the gateway",
    file: "the file that relay.token of gateway.yaml names",
  },
  agent: { place: "keySha256 of the agent", file: "the agent, as its bearer token" },
};

/** `postern token new`: a secret on standard output, its hash on standard error, so that a pipe takes only the secret. */
export const token: Command = async (args, io) => {
  const options = readOptions(args);
  if (options === undefined) {
    io.err(usage);
    return exitCodes.usage;
  }
  const { token: made, sha256 } = createToken(options.kind);
  const secret = made.reveal();
  if (options.isJson) {
    io.out(JSON.stringify({ kind: options.kind, token: secret, sha256 }));
    return exitCodes.done;
  }
  io.out(secret);
  io.err(sha256);
  const { place, file } = destinations[options.kind];
  io.err(`This hash goes into ${place} in relay.yaml; the secret above into ${file}. It is shown only once.`);
  return exitCodes.done;
};

function readOptions(args: readonly string[]): { readonly kind: TokenKind; readonly isJson: boolean } | undefined {
  try {
    const { values, positionals } = parseArgs({
      args: [...args],
      options: { kind: { type: "string", default: "tunnel" }, json: { type: "boolean", default: false } },
      allowPositionals: true,
    });
    const { kind } = values;
    const isNew = positionals.length === 1 && positionals[0] === "new";
    return isNew && (kind === "tunnel" || kind === "agent") ? { kind, isJson: values.json } : undefined;
  } catch {
    return undefined;
  }
}
