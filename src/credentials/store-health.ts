/**
 * Whether the store is asked at all. While it is down, N paths would find that out N times, each by its own timeouts; so what one
 * request has learned counts for the others. One of these for each address and namespace.
 *
 * 1. The whole and its parts. A part may fail alone: a lease, whose engine has a backend of its own, and a mount in a folder, which
 *    may be another namespace, sealed by itself. An address that cannot be reached, and a namespace that is down, is the whole.
 * 2. Only what says something of the store counts: a connection that fails, a time that runs out, 5xx, 472 and 474. Any other
 *    answer, a refusal too, is a sign of life. A 500 may be of one path alone, so each path counts once in a row of failures.
 * 3. Nobody asks for the sake of asking: sys/health is not told inside a namespace, and says nothing of one that is sealed.
 */
import type { Clock } from "../lib/index.ts";
import type { LogFields, Logger } from "../telemetry/index.ts";
import { Circuit, type Outcome } from "./circuit.ts";
import { type CircuitState, Failures } from "./states.ts";
import { explainFailure, VaultFailure } from "./vault-failure.ts";
import type { VaultTransport } from "./vault-transport.ts";

export interface StoreHealthOptions {
  readonly address: string;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
}

/** A transport that asks only while there is hope. */
export interface WatchedTransport extends VaultTransport {
  /** The same connections, for a part that may fail alone; "" is the whole. */
  part(name: string): WatchedTransport;
  /** The same, for what fails alone where reads do not, such as a write to a full disk, and has a pause of its own. */
  aside(): WatchedTransport;
  /** The same, for what is not to wait either: it is asked in any case. */
  insistent(): WatchedTransport;
}

interface Way {
  readonly part: string;
  readonly isAside: boolean;
  readonly insists: boolean;
}

const whole: Way = { part: "", isAside: false, insists: false };

export class StoreHealth {
  readonly #options: StoreHealthOptions;
  readonly #whole: Circuit;
  readonly #parts = new Map<string, Circuit>();
  #refused = 0;
  readonly #downs = new Failures();

  constructor(options: StoreHealthOptions) {
    this.#options = options;
    this.#whole = this.#circuit({ store: options.address });
  }

  /** Where `transport` is not to be asked, the last failure stands for its answer, marked as unsent. */
  watch(transport: VaultTransport, way: Way = whole): WatchedTransport {
    return {
      address: transport.address,
      read: (path, token) => this.#run(way, path, () => transport.read(path, token)),
      write: (path, body, token) => this.#run(way, path, () => transport.write(path, body, token)),
      close: () => transport.close(),
      part: (part) => this.watch(transport, { ...way, part }),
      aside: () => this.watch(transport, { ...way, isAside: true }),
      insistent: () => this.watch(transport, { ...way, isAside: true, insists: true }),
    };
  }

  state(): CircuitState {
    const openParts = [...this.#parts].flatMap(([name, { openForMs }]) => (openForMs === undefined ? [] : [name]));
    const { openForMs } = this.#whole;
    const lastDown = this.#downs.last(this.#options.clock.now());
    return { openForMs, openParts, opened: this.#downs.count, refused: this.#refused, lastDown };
  }

  #blocked({ part, insists }: Way): VaultFailure | undefined {
    if (insists) return undefined;
    return (this.#whole.blocked ?? this.#partOf(part)?.blocked)?.asUnsent();
  }

  async #run<T>(way: Way, path: string, ask: () => Promise<T>): Promise<T> {
    const blocked = this.#blocked(way);
    if (blocked !== undefined) {
      this.#refused += 1;
      throw blocked;
    }
    const part = this.#partOf(way.part);
    const [ofWhole, ofPart] = [this.#whole.begin(), part?.begin()];
    const end = (outcome: Outcome, failure?: VaultFailure): void => {
      const [forWhole, forPart] = share(way, outcome, failure);
      // One entry that cannot be read is no store that is down, however often it is asked for.
      this.#whole.end(ofWhole, forWhole, failure, failure?.status === 500 ? path : undefined);
      if (ofPart !== undefined) part?.end(ofPart, forPart, failure);
    };
    try {
      const answer = await ask();
      end("alive");
      return answer;
    } catch (error) {
      const failure = error instanceof VaultFailure ? error : undefined;
      end(outcomeOf(failure), failure);
      throw error;
    }
  }

  #partOf(name: string): Circuit | undefined {
    if (name === "") return undefined;
    const part = this.#parts.get(name) ?? this.#circuit({ store: this.#options.address, path: name });
    this.#parts.set(name, part);
    return part;
  }

  #circuit(where: LogFields): Circuit {
    const { address, clock, random, logger } = this.#options;
    return new Circuit({
      clock,
      random,
      onOpen: (failure, waitMs) => {
        const error = explainFailure(failure, address);
        this.#downs.note(error, clock.now());
        const { code, message: reason, cure } = error;
        logger.warn("store down, not asked for now", { ...where, code, reason, cure, waitMs });
      },
      onClose: (durationMs) => logger.info("store asked again", { ...where, durationMs }),
    });
  }
}

/** What that says of the whole, and what of the part: one that does not answer may be alone in it, an address not reached is the whole. */
function share({ part, isAside }: Way, outcome: Outcome, failure: VaultFailure | undefined): [Outcome, Outcome] {
  if (outcome !== "down") return [outcome, outcome];
  if (failure?.kind === "unreachable") return ["down", "unknown"];
  if (isAside) return ["unknown", "unknown"];
  return part === "" ? ["down", "unknown"] : ["unknown", "down"];
}

/** 472: no primary. 474: cut off from it. 429 and 473 are nodes that work. */
const downStatuses: ReadonlySet<number> = new Set([472, 474]);

function outcomeOf(failure: VaultFailure | undefined): Outcome {
  switch (failure?.kind) {
    case "unreachable":
    case "timeout":
      return "down";
    case "status": {
      const { status = 0 } = failure;
      return status >= 500 || downStatuses.has(status) ? "down" : "alive";
    }
    case "bad-answer":
      return "alive";
    case "aborted":
    case undefined:
      return "unknown";
  }
}
