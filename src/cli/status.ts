import { CredentialError, readSecret } from "../credentials/index.ts";
import { silentLogger } from "../telemetry/index.ts";
import { type AdminAnswer, adminOrigin, askAdmin } from "./ask-admin.ts";
import { type Command, type CommandIo, type ExitCode, exitCodes } from "./io.ts";
import { openPart, type Part } from "./load-part.ts";
import type { GatewayReport, RelayReport } from "./status-documents.ts";
import { renderGateway, renderRelay } from "./status-text.ts";

const usage = "usage: postern status -c FILE [--json]";

/** `postern status -c FILE`: how the part that runs from this file is, asked at its admin port. */
export const status: Command = async (args, io) => {
  const opened = openPart(args, usage, io);
  if (opened === undefined) return exitCodes.usage;
  const { part, options } = opened;
  const { listen, token: source } = part.config.admin;
  if (source === undefined) {
    io.err(`${options.file} has no \`admin.token\`, and without one nothing opens /status`);
    io.err("cure: admin: { token: { file: PATH } }, at least 16 characters there, and a restart");
    return exitCodes.usage;
  }
  try {
    const token = await readSecret(source, { env: { ...io.env }, logger: silentLogger });
    return report(part, await askAdmin(listen, "/status", token.reveal()), options.isJson, io);
  } catch (error) {
    if (!(error instanceof CredentialError)) throw error;
    return fail(io, `admin.token could not be read: ${error.message}`, error.cure);
  }
};

function report(part: Part, answer: AdminAnswer, isJson: boolean, io: CommandIo): ExitCode {
  const problem = problemOf(part, answer);
  if (problem !== undefined) return fail(io, problem.message, problem.cure);
  const { body } = answer as Extract<AdminAnswer, { kind: "answer" }>;
  if (isJson) {
    io.out(JSON.stringify(body));
    return exitCodes.done;
  }
  const lines =
    part.kind === "gateway"
      ? renderGateway(body as unknown as GatewayReport)
      : renderRelay(body as unknown as RelayReport);
  for (const line of lines) io.out(line);
  return exitCodes.done;
}

interface Trouble {
  readonly message: string;
  readonly cure: string;
}

function problemOf({ kind, config }: Part, answer: AdminAnswer): Trouble | undefined {
  const at = adminOrigin(config.admin.listen);
  if (answer.kind === "away") {
    const cure = `start it: postern ${kind} -c FILE; or correct admin.listen, if it runs with another`;
    return { message: `no ${kind} answers at ${at}: ${answer.reason}`, cure };
  }
  if (answer.kind === "stranger") return another(at, answer.reason, kind);
  switch (answer.status) {
    case 200:
      return isReportOf(kind, config, answer.body)
        ? undefined
        : another(at, "its status is that of another part", kind);
    case 401:
      return {
        message: `the ${kind} at ${at} does not take this token`,
        cure: "the file or variable that the running one reads `admin.token` from; a variable is read at its start only",
      };
    case 403:
      return {
        message: `the ${kind} at ${at} runs without \`admin.token\``,
        cure: "restart it, so that it reads the file as it is now",
      };
    case 503:
      return {
        message: `the ${kind} at ${at} cannot use its \`admin.token\``,
        cure: "its log says why; a token has at least 16 characters",
      };
    default:
      return another(at, `status ${answer.status}`, kind);
  }
}

function another(at: string, reason: string, kind: string): Trouble {
  return {
    message: `what answers at ${at} is not this ${kind}: ${reason}`,
    cure: "an admin.listen of its own for each process, and the file that the running one was started with",
  };
}

/** Two parts on one machine may have each other's ports. */
function isReportOf(kind: Part["kind"], config: Part["config"], body: Readonly<Record<string, unknown>>): boolean {
  if (body["part"] !== kind) return false;
  if ("publicUrl" in config) return body["publicUrl"] === config.publicUrl;
  const tunnel = body["tunnel"] as { readonly name?: unknown } | undefined;
  return body["id"] === config.gateway.id && tunnel?.name === config.relay.tunnel;
}

function fail(io: CommandIo, message: string, cure: string): ExitCode {
  io.err(message);
  io.err(`cure: ${cure}`);
  return exitCodes.failed;
}
