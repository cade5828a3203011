/** The gateways' door: who may open a tunnel session, and which one it becomes. */
import type { Duplex } from "node:stream";
import { looksLikeJwt, readBearer, type VerifiedToken } from "../identity/index.ts";
import { headerValues } from "../lib/index.ts";
import { acceptTunnel, refuseUpgrade, tunnelNameHeader } from "../tunnel/index.ts";
import type { AgentRequest } from "./answer.ts";
import type { GatewayCredential } from "./gateways.ts";
import type { HostRules } from "./hosts.ts";
import type { RelayDeps, RelayLimits } from "./options.ts";
import type { RelayTally, UpgradeRefusal } from "./tally.ts";
import type { Tunnel } from "./tunnels.ts";

export interface UpgradeOptions extends RelayDeps {
  readonly hosts: HostRules;
  readonly tunnels: ReadonlyMap<string, Tunnel>;
  readonly limits: RelayLimits;
  readonly tally: RelayTally;
  readonly node: { readonly id: string; readonly instance: string; readonly software: string };
}

/** A gateway whose credential holds for the tunnel that it names. */
interface Admitted {
  readonly tunnel: Tunnel;
  readonly gateway: GatewayCredential;
  /** Undefined: it came with a tunnel token. */
  readonly token?: VerifiedToken;
}

const drainRetryMs = 1_000;
const keysRetryMs = 5_000;

export class UpgradeDoor {
  isDraining = false;
  readonly #options: UpgradeOptions;
  /** A reload may change both. */
  hosts: HostRules;
  limits: RelayLimits;

  constructor(options: UpgradeOptions) {
    this.#options = options;
    this.hosts = options.hosts;
    this.limits = options.limits;
  }

  /** Call in the tick of the 'upgrade' event: until then an error of the socket would have no listener. */
  onUpgrade(req: AgentRequest, socket: Duplex, head: Buffer): void {
    socket.on("error", () => socket.destroy());
    if (!this.#isOurHost(req)) {
      this.#count("host");
      this.#refuse(socket, 403, "Host or Origin not allowed");
      return;
    }
    const admitted = this.#admit(req);
    if (admitted instanceof Promise) void admitted.then((late) => this.#onAdmitted(req, socket, head, late));
    else this.#onAdmitted(req, socket, head, admitted);
  }

  #onAdmitted(req: AgentRequest, socket: Duplex, head: Buffer, admitted: Admitted | "unavailable" | undefined): void {
    if (socket.destroyed) return;
    if (admitted === undefined || (admitted !== "unavailable" && admitted.gateway.isRevoked)) {
      this.#count("auth");
      this.#refuse(socket, 401, "Unauthorized");
      return;
    }
    if (admitted === "unavailable") {
      this.#count("unavailable");
      refuseUpgrade(socket, 503, { title: "Cannot verify the token at the moment" }, keysRetryMs / 1000);
      return;
    }
    if (this.isDraining) {
      this.#count("unavailable");
      this.#refuse(socket, 503, "Relay is shutting down", { ...admitted, retryMs: drainRetryMs });
      return;
    }
    const retryMs = admitted.gateway.upgrades.take();
    if (retryMs > 0) {
      this.#count("rate");
      this.#refuse(socket, 429, "Too many upgrades", { ...admitted, retryMs });
    } else {
      this.#accept(req, socket, head, admitted);
    }
  }

  #count(reason: UpgradeRefusal): void {
    this.#options.tally.refusedUpgrades[reason] += 1;
  }

  /** Strangers are logged at debug only: they must not be able to fill the log. */
  #refuse(socket: Duplex, status: number, title: string, admitted?: Admitted & { readonly retryMs: number }): void {
    const { logger } = this.#options;
    if (admitted === undefined) {
      logger.debug("upgrade refused", { status, reason: title });
      refuseUpgrade(socket, status, { title });
      return;
    }
    const { tunnel, gateway, retryMs } = admitted;
    logger.warn("upgrade refused", { tunnel: tunnel.name, gateway: gateway.name, status, reason: title });
    refuseUpgrade(socket, status, { title }, retryMs / 1000);
  }

  #isOurHost(req: AgentRequest): boolean {
    const hosts = headerValues(req.rawHeaders, "host");
    const origins = headerValues(req.rawHeaders, "origin");
    const [host] = hosts;
    if (hosts.length !== 1 || host === undefined || !this.hosts.allowsHost(host)) return false;
    return origins.every((origin) => this.hosts.allowsOrigin(origin));
  }

  #admit(req: AgentRequest): Admitted | undefined | Promise<Admitted | "unavailable" | undefined> {
    const names = headerValues(req.rawHeaders, tunnelNameHeader);
    const tokens = headerValues(req.rawHeaders, "authorization");
    if (names.length !== 1 || tokens.length !== 1) return undefined;
    const tunnel = this.#options.tunnels.get(names[0] ?? "");
    const bearer = readBearer(tokens[0]);
    const gateway = tunnel?.gateways.find(bearer);
    if (tunnel === undefined || bearer === undefined) return undefined;
    if (gateway !== undefined) return { tunnel, gateway };
    return tunnel.gateways.takesJwts && looksLikeJwt(bearer) ? this.#admitByJwt(tunnel, bearer) : undefined;
  }

  async #admitByJwt(tunnel: Tunnel, bearer: string): Promise<Admitted | "unavailable" | undefined> {
    const answer = await tunnel.gateways.findByJwt(bearer);
    if (answer.kind === "gateway") return { tunnel, gateway: answer.gateway, token: answer.token };
    return answer.kind === "unavailable" ? "unavailable" : undefined;
  }

  #accept(req: AgentRequest, socket: Duplex, head: Buffer, { tunnel, gateway, token }: Admitted): void {
    const { clock, random, logger, node } = this.#options;
    const { limits } = this;
    void acceptTunnel({
      req,
      socket,
      head,
      clock,
      random,
      logger: logger.with({ tunnel: tunnel.name, gateway: gateway.name }),
      node,
      limits: { maxStreams: limits.streamsPerConnection },
      onHello: ({ gateway: { id, slot } }) => {
        if (this.isDraining) return { kind: "refuse", reason: "SHUTDOWN", detail: "the relay is shutting down" };
        if (tunnel.countBeside(gateway.name, id, slot) < limits.sessionsPerGateway) return { kind: "accept" };
        return { kind: "refuse", reason: "REBALANCE", detail: "this credential has too many connections" };
      },
    }).then((outcome) => {
      if (outcome.kind === "session") {
        this.#options.tally.tunnelsConnected += 1;
        tunnel.add(gateway.name, outcome.session, { credential: gateway, token });
      } else {
        this.#count("hello");
        logger.warn("tunnel refused", {
          tunnel: tunnel.name,
          gateway: gateway.name,
          code: outcome.reason,
          reason: outcome.detail,
        });
      }
    });
  }
}
