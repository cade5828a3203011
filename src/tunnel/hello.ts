import type { Carrier, CarrierListener } from "./carrier.ts";
import { decodeFrame } from "./decode.ts";
import { encodeGoAway } from "./encode.ts";
import { ProtocolFault } from "./errors.ts";
import type { FrameHandler, GoAway, HelloFrame, Welcome } from "./frame.ts";
import type { TunnelContext, TunnelLimits } from "./options.ts";
import type { GoAwayReason } from "./types.ts";

/** The first exchange of a session (docs/protocol.md section 3): one frame each way, with a deadline. */

/** The versions of this protocol that this code speaks. */
export const versions: readonly number[] = [1];

/** What a gateway says of itself. Nothing in it is proof of anything: the credential of the upgrade is. */
export interface Hello {
  readonly versions: readonly number[];
  readonly features: readonly string[];
  readonly gateway: GatewayIdentity;
  readonly limits: TunnelLimits;
  readonly servers: readonly string[];
}

export interface GatewayIdentity {
  /** Distinguishes replicas that share a credential. 1 to 128 printable ASCII characters, as `instance`. */
  readonly id: string;
  /** New at every start of the process. */
  readonly instance: string;
  /** Which of its connections this is, from 0. */
  readonly slot: number;
  readonly software: string;
}

/** What came first on a carrier. `next`: where the rest of its message starts. */
export type Greeting =
  | { readonly kind: "hello"; readonly hello: HelloFrame; readonly message: Buffer; readonly next: number }
  | { readonly kind: "welcome"; readonly welcome: Welcome; readonly message: Buffer; readonly next: number }
  | { readonly kind: "goAway"; readonly goAway: GoAway }
  | { readonly kind: "fault"; readonly fault: ProtocolFault }
  | { readonly kind: "closed"; readonly detail: string }
  | { readonly kind: "timeout" };

const refuse = (): never => {
  throw new ProtocolFault("hello-expected");
};

const nothing: FrameHandler = {
  onHello: refuse,
  onWelcome: refuse,
  onPing: refuse,
  onPong: refuse,
  onGoAway: refuse,
  onAdvert: refuse,
  onOpen: refuse,
  onHead: refuse,
  onBadHead: refuse,
  onData: refuse,
  onEnd: refuse,
  onReset: refuse,
  onWindow: refuse,
};

function readHello(message: Buffer): Greeting {
  const found: { hello?: HelloFrame } = {};
  const next = decodeFrame(message, 0, {
    ...nothing,
    onHello: (hello) => {
      found.hello = hello;
    },
  });
  if (found.hello === undefined || next < message.length) return refuse();
  return { kind: "hello", hello: found.hello, message, next };
}

function readWelcome(message: Buffer): Greeting {
  const found: { welcome?: Welcome; goAway?: GoAway } = {};
  const next = decodeFrame(message, 0, {
    ...nothing,
    onWelcome: (welcome) => {
      found.welcome = welcome;
    },
    onGoAway: (goAway) => {
      found.goAway = goAway;
    },
  });
  if (found.goAway !== undefined) return { kind: "goAway", goAway: found.goAway };
  if (found.welcome === undefined) return refuse();
  return { kind: "welcome", welcome: found.welcome, message, next };
}

function tryRead(read: (message: Buffer) => Greeting, message: Buffer): Greeting {
  try {
    if (message.length === 0) throw new ProtocolFault("empty-message");
    return read(message);
  } catch (error) {
    return { kind: "fault", fault: error instanceof ProtocolFault ? error : new ProtocolFault("bad-payload") };
  }
}

/**
 * Listens on `carrier` for the first frame of the peer and calls `done` once, in the tick in which it came: whoever takes
 * over must listen in that tick.
 */
function awaitGreeting(
  carrier: Carrier,
  wait: Pick<TunnelContext, "clock"> & { readonly timeoutMs: number; readonly read: (message: Buffer) => Greeting },
  done: (greeting: Greeting) => void,
): void {
  let isDone = false;
  const settle = (greeting: Greeting): void => {
    if (isDone) return;
    isDone = true;
    timer.cancel();
    done(greeting);
  };
  const timer = wait.clock.after(wait.timeoutMs, () => settle({ kind: "timeout" }));
  const listener: CarrierListener = {
    onMessage: (message) => settle(tryRead(wait.read, message)),
    onText: () => settle({ kind: "fault", fault: new ProtocolFault("text-message") }),
    onBytes: () => undefined,
    onSent: () => undefined,
    onClose: (detail) => settle({ kind: "closed", detail }),
  };
  carrier.listen(listener);
}

export function awaitHello(
  carrier: Carrier,
  wait: Pick<TunnelContext, "clock"> & { readonly timeoutMs: number },
  done: (greeting: Greeting) => void,
): void {
  awaitGreeting(carrier, { ...wait, read: readHello }, done);
}

export function awaitWelcome(
  carrier: Carrier,
  wait: Pick<TunnelContext, "clock"> & { readonly timeoutMs: number },
  done: (greeting: Greeting) => void,
): void {
  awaitGreeting(carrier, { ...wait, read: readWelcome }, done);
}

/** GOAWAY and close, before there is a session. */
export function turnAway(carrier: Carrier, reason: GoAwayReason, fault?: string): void {
  carrier.send(encodeGoAway({ reason, lastStream: 0, drainMs: 0, reconnectInMs: 0, fault }));
  carrier.close(reason.endsWith("_ERROR") ? 1002 : 1001);
}

/** The highest version that both speak. */
export function chooseVersion(offered: readonly number[]): number | undefined {
  const common = offered.filter((version) => versions.includes(version));
  return common.length === 0 ? undefined : Math.max(...common);
}
