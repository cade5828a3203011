import { Histogram } from "../telemetry/index.ts";
import type { Judged } from "./pipeline.ts";

/** How an exchange ended, in few enough words to count by. */
export const callOutcomes = [
  /** The server's own answer, below 400, whole. */
  "ok",
  /** By the policy. */
  "denied",
  /** Before any policy: its form, its session, its agent or its server. */
  "refused",
  /** No call was made for want of the server's credential. */
  "noCredential",
  /** No call was made for another reason of ours, such as an audit that cannot be written. */
  "unavailable",
  /** The server answered 400 or above. */
  "upstreamStatus",
  /** The server could not be reached, was silent, or gave no answer that may pass. */
  "upstreamFailed",
  /** The agent left, or the tunnel was lost. */
  "cancelled",
  /** The gateway stopped, or the agent's token expired, amid an answer. */
  "ended",
] as const;

export type CallOutcome = (typeof callOutcomes)[number];

export interface EndedCall {
  /** Undefined: it was not read to its end. */
  readonly decision: Judged["decision"] | undefined;
  /** `complete`, a reset code, or an upstream's error code, as in the audit record. */
  readonly end: string;
  readonly status: number | undefined;
  readonly by: "upstream" | "gateway" | undefined;
  readonly lacksCredential: boolean;
}

const leftEnds: ReadonlySet<string> = new Set(["CANCEL", "STALLED", "TUNNEL_LOST"]);
const ownEnds: ReadonlySet<string> = new Set(["DRAINING", "TOKEN_EXPIRED"]);

export function outcomeOf({ decision, end, status, by, lacksCredential }: EndedCall): CallOutcome {
  if (leftEnds.has(end)) return "cancelled";
  if (decision?.kind === "deny") return "denied";
  if (decision?.kind !== "allow") return "refused";
  if (lacksCredential) return "noCredential";
  if (ownEnds.has(end)) return "ended";
  if (end !== "complete") return end === "EXPIRED" ? "unavailable" : "upstreamFailed";
  if ((status ?? 0) < 400) return "ok";
  return by === "upstream" ? "upstreamStatus" : "unavailable";
}

/** What one server's calls came to, since the start. Counting is adding to a number: nothing is looked up or made. */
export class CallTally {
  readonly outcomes: Record<CallOutcome, number> = {
    ok: 0,
    denied: 0,
    refused: 0,
    noCredential: 0,
    unavailable: 0,
    upstreamStatus: 0,
    upstreamFailed: 0,
    cancelled: 0,
    ended: 0,
  };
  /** From OPEN to the last byte, of POSTs that were answered by the server. */
  readonly durations = new Histogram();
  /** Calls made a second time after the server refused the credential. */
  retries = 0;

  add(call: EndedCall, durationMs: number, isPost: boolean): void {
    this.outcomes[outcomeOf(call)] += 1;
    // An event stream that stays open, and what never reached the server, say nothing about how fast it is.
    if (isPost && call.by === "upstream") this.durations.observe(durationMs);
  }
}
