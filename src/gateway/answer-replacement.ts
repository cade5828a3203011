import type { RawHeaders } from "../lib/index.ts";
import { type Answer, type AnswerTo, agentErrors, errorAnswer, rpcCodes } from "../mcp/index.ts";
import type { ResetCode } from "../tunnel/index.ts";
import type { AnswerFailure } from "./answer-types.ts";

/** What the agent gets in place of an upstream's answer; pure. */

export function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

/** For a body that must not pass, or none where an error needs one: the status stays, a success becomes 502. */
export function replacedAnswer(status: number, forward: RawHeaders | undefined, to: AnswerTo): Answer {
  const { code, message } = agentErrors.upstreamFailed;
  const isUseless = isSuccess(status);
  const extraHeaders = pick(isUseless ? undefined : forward, "allow", "retry-after");
  return errorAnswer({ status: isUseless ? 502 : status, code, message, ...to, extraHeaders });
}

/** For an answer that failed before its head went out; `status` is 0 where the upstream sent none. */
export function failedAnswer(status: number, { code, message }: AnswerFailure, to: AnswerTo): Answer {
  const isError = status !== 0 && !isSuccess(status);
  const own = code === rpcCodes.upstreamTimeout ? 504 : 502;
  return errorAnswer({ status: isError ? status : own, code, message, ...to });
}

/** For an answer that failed halfway, by the error contract's code. */
export function resetCodeOf(code: number): ResetCode {
  if (code === rpcCodes.upstreamTimeout) return "UPSTREAM_TIMEOUT";
  return code === rpcCodes.resultTooLarge ? "BODY_LIMIT" : "UPSTREAM_FAILED";
}

function pick(headers: RawHeaders | undefined, ...names: readonly string[]): RawHeaders {
  const picked: string[] = [];
  for (let i = 0; i + 1 < (headers?.length ?? 0); i += 2) {
    const name = headers?.[i] ?? "";
    if (names.includes(name)) picked.push(name, headers?.[i + 1] ?? "");
  }
  return picked;
}
