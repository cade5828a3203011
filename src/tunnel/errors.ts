/** Every way a peer can break docs/protocol.md; the names are those of its table of faults and travel in GOAWAY. */
export const faultNames = [
  "text-message",
  "empty-message",
  "short-header",
  "frame-overruns-message",
  "unknown-type",
  "bad-length",
  "wrong-stream",
  "bad-stream-id",
  "bad-payload",
  "bad-utf8",
  "bad-increment",
  "wrong-direction",
  "hello-expected",
  "unexpected-hello",
  "no-common-version",
  "stream-id-not-rising",
  "stream-never-opened",
  "second-head",
  "data-before-head",
  "data-after-end",
  "stream-credit-exceeded",
  "tunnel-credit-exceeded",
  "credit-overflow",
  "too-many-replies",
] as const;
export type FaultName = (typeof faultNames)[number];

const known: ReadonlySet<string> = new Set(faultNames);

export function isFaultName(text: string): text is FaultName {
  return known.has(text);
}

const flowFaults: ReadonlySet<FaultName> = new Set<FaultName>([
  "stream-credit-exceeded",
  "tunnel-credit-exceeded",
  "credit-overflow",
]);

/** The peer broke the protocol: the session must end. Carries what goes on the wire, and nothing of the peer's input. */
export class ProtocolFault extends Error {
  readonly fault: FaultName;
  readonly reason: "PROTOCOL_ERROR" | "FLOW_CONTROL_ERROR";

  constructor(fault: FaultName) {
    super(fault);
    this.name = "ProtocolFault";
    this.fault = fault;
    this.reason = flowFaults.has(fault) ? "FLOW_CONTROL_ERROR" : "PROTOCOL_ERROR";
  }
}
