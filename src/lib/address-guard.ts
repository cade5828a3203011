/**
 * Keeps connections away from where they must not go (server-side request forgery). What is checked is what is dialled: the
 * look-up that finds the addresses of a name is ours, it happens once for each connection, and gives out only what it has
 * checked, so that a name whose meaning changes in between gains nothing (DNS rebinding).
 */
import { type LookupAddress, type LookupOptions, lookup as systemLookup } from "node:dns";
import type { LookupFunction } from "node:net";
import { type AddressRange, rangeOf } from "./addresses.ts";

/**
 * - `pinned`: the operator wrote the URL, so it may lead into a private network; never to a metadata service.
 * - `local`: named by somebody whom the operator runs on this machine.
 * - `public`: named by somebody else.
 */
export type Reach = "pinned" | "local" | "public";

/** All addresses of a name, as `dns.lookup` with `all`. */
export type ResolveAll = (
  hostname: string,
  options: LookupOptions & { all: true },
  done: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

const admitted: Readonly<Record<Reach, ReadonlySet<AddressRange>>> = {
  pinned: new Set(["loopback", "private", "public"]),
  local: new Set(["loopback", "public"]),
  public: new Set(["public"]),
};

/** The error's code, which is all that is told of it. */
export const addressRefused = "ADDRESS_REFUSED";

function refusal(): NodeJS.ErrnoException {
  return Object.assign(new Error("an address that must not be dialled"), { code: addressRefused });
}

/**
 * How far `url` may reach when `namedBy`, a URL that the operator wrote, led to it; undefined: the operator wrote `url` itself.
 * The same host is as good as what was written.
 */
export function reachOf(url: string, namedBy: string | undefined): Reach {
  if (namedBy === undefined) return "pinned";
  const by = new URL(namedBy).hostname;
  if (new URL(url).hostname === by) return "pinned";
  return rangeOf(by) === "loopback" ? "local" : "public";
}

/** For `net.connect`, which does not call it for a host that is an address. All addresses of a name must be admitted. */
export function guardedLookup(reach: Reach, resolve: ResolveAll = systemLookup): LookupFunction {
  return (hostname, options, callback) => {
    if (rangeOf(hostname) === "metadata") {
      callback(refusal(), []);
      return;
    }
    resolve(hostname, { ...options, all: true }, (error, addresses) => {
      const [first] = addresses ?? [];
      if (error !== null || first === undefined) callback(error ?? refusal(), []);
      else if (!addresses.every(({ address }) => admits(reach, address))) callback(refusal(), []);
      else if (options.all === true) callback(null, addresses);
      else callback(null, first.address, first.family);
    });
  };
}

/** Why a host that is an address must not be dialled; undefined for a name, which is for the look-up to judge. */
export function hostRefusal(reach: Reach, hostname: string): NodeJS.ErrnoException | undefined {
  const range = rangeOf(hostname);
  return range === undefined || admitted[reach].has(range) ? undefined : refusal();
}

/** `connect`, which was built with `guardedLookup`, with a check of hosts that are addresses before it. */
export function guardConnect<T extends { hostname: string }, R>(
  reach: Reach,
  connect: (target: T, callback: R & ((error: Error, socket: null) => void)) => void,
): typeof connect {
  return (target, callback) => {
    const refused = hostRefusal(reach, target.hostname);
    if (refused === undefined) connect(target, callback);
    else callback(refused, null);
  };
}

function admits(reach: Reach, address: string): boolean {
  const range = rangeOf(address);
  return range !== undefined && admitted[reach].has(range);
}
